"""Solver states in both formats, ours and Caffe's own, whole and damaged."""

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pycaffe_lms.errors import CaffeError, SnapshotError
from pycaffe_lms.formats.weights.hdf5_weights import write_hdf5_weights
from pycaffe_lms.formats.weights.solverstate import SolverSnapshot, read_solverstate, write_solverstate
from pycaffe_lms.proto.caffe_pb2 import SolverState

h5py = pytest.importorskip("h5py")

SNAPSHOT = SolverSnapshot(
    iter=4000,
    learned_net="dir/ü_iter_4000.caffemodel",
    current_step=2,
    history=[np.arange(6, dtype="f4").reshape(2, 3), np.float32(3).reshape(()), np.array([0.1])],
    resume={("train", "inception/a:b", "batches"): 2**40, ("test0", "d%2F", "."): -1, ("", "", ""): 0},
    type="AdaGrad",
)
SUFFIXES = ["s.solverstate", "s.solverstate.h5"]


@pytest.mark.parametrize("name", SUFFIXES)
def test_round_trip(tmp_path, name):
    write_solverstate(tmp_path / name, SNAPSHOT)
    back = read_solverstate(tmp_path / name)
    assert (back.iter, back.learned_net, back.current_step) == (4000, SNAPSHOT.learned_net, 2)
    assert back.resume == SNAPSHOT.resume and back.type == "AdaGrad"
    for ours, theirs in zip(SNAPSHOT.history, back.history, strict=True):
        assert ours.shape == theirs.shape and ours.dtype == theirs.dtype and (ours == theirs).all()
    (tmp_path / name).rename(tmp_path / "renamed")
    assert read_solverstate(tmp_path / "renamed").iter == 4000


@pytest.mark.parametrize("name", SUFFIXES)
def test_twelve_histories_keep_their_order(tmp_path, name):
    history = [np.full(k + 1, k, "f4") for k in range(12)]
    write_solverstate(tmp_path / name, SolverSnapshot(0, history=history))
    back = read_solverstate(tmp_path / name)
    assert [h.tolist() for h in back.history] == [h.tolist() for h in history]
    assert (back.learned_net, back.current_step, back.resume, back.type) == ("", 0, {}, "")


def test_binary_is_caffes_message(tmp_path):
    write_solverstate(tmp_path / "s", SNAPSHOT)
    state = SolverState.FromString((tmp_path / "s").read_bytes())
    assert (state.iter, state.current_step, len(state.history)) == (4000, 2, 3)
    assert list(state.history[0].shape.dim) == [2, 3] and not state.history[0].HasField("num")
    assert {(s.net, s.layer, s.key): s.value for s in state.resume.source} == SNAPSHOT.resume


def test_hdf5_is_caffes_layout(tmp_path):
    write_solverstate(tmp_path / "s.h5", SNAPSHOT)
    with h5py.File(tmp_path / "s.h5") as file:
        assert set(file) == {"iter", "learned_net", "current_step", "history", "pycaffe_lms_resume", "pycaffe_lms_type"}
        assert file["iter"].dtype == np.int32 and file["iter"].shape == (1,)
        net = SNAPSHOT.learned_net.encode()
        # Caffe copies the stored bytes into a C string: fixed length, with the final NUL
        assert file["learned_net"].dtype == np.dtype(f"S{len(net) + 1}") and file["learned_net"].shape == ()
        assert file["learned_net"].id.get_type().is_variable_str() == 0
        assert set(file["history"]) == {"0", "1", "2"}
        assert not any(dict(item.attrs) for item in file["pycaffe_lms_resume"].values())


def test_hdf5_as_others_write_it(tmp_path):
    with h5py.File(tmp_path / "s.h5", "w") as file:
        file["iter"] = np.int32(7)
        file["learned_net"] = "a variable-length string"
        file["history/0"] = np.ones((1, 2))
    back = read_solverstate(tmp_path / "s.h5")
    assert (back.iter, back.learned_net, back.history[0].shape) == (7, "a variable-length string", (1, 2))


@pytest.mark.parametrize("name", SUFFIXES)
@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"iter": 2**31}, "iter is 2147483648"),
        ({"current_step": -(2**31) - 1}, "current_step is"),
        ({"resume": {("a", "b", "c"): 2**63}}, "a/b/c is 9223372036854775808"),
    ],
)
def test_numbers_too_large(tmp_path, name, change, message):
    with pytest.raises(SnapshotError, match=message):
        write_solverstate(tmp_path / name, SolverSnapshot(**({"iter": 1} | change)))
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", SUFFIXES)
def test_a_folder_that_is_not_there(tmp_path, name):
    with pytest.raises(SnapshotError, match="cannot be written: No such file"):
        write_solverstate(tmp_path / "absent" / name, SNAPSHOT)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "the file is empty"),
        (b"iter: 4000", "not a solver state: .*text file"),
        (SolverState(learned_net="x").SerializeToString(), "not a solver state"),
        (SolverState(iter=-1).SerializeToString(), "iteration -1, step 0: neither can be negative"),
        (SolverState(iter=1, history=[{"data": [1, 2]}]).SerializeToString(), 'blob "history 0": .*needs 1 values'),
        (SolverState(iter=1, history=[{"shape": {"dim": [2]}, "data": [1, 2]}]).SerializeToString()[:-1], "cut short"),
    ],
)
def test_bad_binary_files(tmp_path, content, message):
    path = tmp_path / "s.solverstate"
    path.write_bytes(content)
    with pytest.raises(SnapshotError, match="(?s)" + message) as caught:
        read_solverstate(path)
    assert caught.value.where.file == str(path)


def test_missing(tmp_path):
    with pytest.raises(SnapshotError, match="Could not open file .*absent.h5"):
        read_solverstate(tmp_path / "absent.h5")


@pytest.mark.parametrize(
    ("entries", "message"),
    [
        ({"history/0": [1.0]}, "no `iter`"),
        ({"iter": 1}, "no `history`"),
        ({"iter": "x", "history/0": [1.0]}, "not one integer"),
        ({"iter": [1, 2], "history/0": [1.0]}, "not one integer"),
        ({"iter": 1, "history/1": [1.0]}, "not datasets numbered from 0"),
        ({"iter": 1, "history/0/x": [1.0]}, "not datasets numbered from 0"),
        ({"iter": 1, "history/0": [1.0], "learned_net": 3}, "not a string"),
        ({"iter": 1, "history/0": [1.0], "pycaffe_lms_type": 3}, "not a string"),
        ({"iter": 1, "history/0": [1.0], "pycaffe_lms_resume/a": 3}, "does not name a net"),
    ],
)
def test_bad_hdf5_files(tmp_path, entries, message):
    path = tmp_path / "s.h5"
    with h5py.File(path, "w") as file:
        for name, value in entries.items():
            file[name] = value
    with pytest.raises(SnapshotError, match=message) as caught:
        read_solverstate(path)
    assert caught.value.where.file == str(path)


def test_weights_in_place_of_a_state(tmp_path):
    write_hdf5_weights(tmp_path / "w.h5", [("a", [])])
    with pytest.raises(SnapshotError, match="not a solver state"):
        read_solverstate(tmp_path / "w.h5")


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=200)
@given(st.data())
def test_damaged_files_give_errors_of_ours(tmp_path, data):
    write_solverstate(tmp_path / "s", SNAPSHOT)
    content = bytearray((tmp_path / "s").read_bytes())
    for _ in range(data.draw(st.integers(1, 4))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    (tmp_path / "s").write_bytes(content)
    try:
        assert isinstance(read_solverstate(tmp_path / "s").learned_net, str)
    except CaffeError as error:
        assert str(tmp_path) in str(error) and error.fix
