"""Tests solver states of every type: what a file holds, files of other programs, and what is refused."""

from __future__ import annotations

import numpy as np
import pytest

from pycaffe_lms.errors import SnapshotError
from pycaffe_lms.formats.weights.solverstate import read_solverstate
from pycaffe_lms.net.weights import save
from pycaffe_lms.proto.caffe_pb2 import SolverState
from tests.shared_data import needs_shared

from ..ops import updates
from .fit import NET, TYPES, Reference, compare, feed
from .helpers import GAUSSIAN, PLACES, bits, inner, loss, make, values

FORMATS = {"BINARYPROTO": "", "HDF5": ".h5"}


@pytest.fixture
def fed(monkeypatch):
    feed(monkeypatch)


def fit(kind, place="cpu", **options):
    return make(NET, place, type=f'"{kind}"', **(TYPES[kind][0] | options))


def histories(path) -> list[np.ndarray]:
    """Return the histories as another program reads them."""
    if path.suffix == ".h5":
        import h5py

        with h5py.File(path) as file:
            return [file[f"history/{k}"][()] for k in range(len(file["history"]))]
    state = SolverState.FromString(path.read_bytes())
    return [np.array(h.data, np.float32).reshape(h.shape.dim) for h in state.history]


def everything(solver) -> list[bytes]:
    return bits(solver) + [b.read_data().tobytes() for b in solver.history_blobs()]


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("kind", TYPES)
def test_histories_in_caffes_order(kind, form, tmp_path, fed):
    """All first ones come in the order of parameters, then all second ones, with the values of the reference."""
    if form == "HDF5":
        pytest.importorskip("h5py")
    solver = fit(kind, snapshot_prefix=f'"{tmp_path}/s"', snapshot_format=form)
    reference = Reference(values(solver), kind, **TYPES[kind][1])
    compare(solver, reference, 1e-5, 3)
    solver.snapshot()
    found = histories(tmp_path / f"s_iter_3.solverstate{FORMATS[form]}")
    expected = [h[slot] for slot in range(updates.HISTORIES[kind.lower()]) for h in reference.h]
    assert [a.shape for a in found] == [(5, 3), (5,)] * (len(expected) // 2)
    for ours, theirs in zip(found, expected, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("kind", TYPES)
def test_of_a_parameter_that_does_not_learn_no_history_moves_it(kind, form, tmp_path):
    """Its histories in a file are zeros; what another program wrote there does not move it, as it would in Caffe."""
    if form == "HDF5":
        h5py = pytest.importorskip("h5py")
    net = GAUSSIAN + inner(params="param { lr_mult: 0 } param { }") + loss()
    options = TYPES[kind][0] | {"snapshot_prefix": f'"{tmp_path}/s"', "snapshot_format": form}
    solver = make(net, type=f'"{kind}"', **options)
    solver.step(2)
    solver.snapshot()
    path = tmp_path / f"s_iter_2.solverstate{FORMATS[form]}"
    slots = updates.HISTORIES[kind.lower()]
    found = histories(path)
    assert len(found) == 2 * slots
    assert [h.any() for h in found] == [False, True] * slots
    if form == "HDF5":
        with h5py.File(path, "r+") as file:
            for k in range(0, 2 * slots, 2):
                file[f"history/{k}"][...] = 1
    else:
        state = SolverState.FromString(path.read_bytes())
        for history in state.history[::2]:
            history.data[:] = [1] * len(history.data)
        plain_state = SolverState(iter=state.iter, learned_net=state.learned_net, history=state.history)
        path.write_bytes(plain_state.SerializeToString())  # without the digest that our files end with
    resumed = make(net, type=f'"{kind}"', **options)
    resumed.restore(path)
    weight = resumed.net.params["ip"][0].read_data().copy()
    for one in (solver, resumed):
        one.step(3)
        np.testing.assert_array_equal(one.net.params["ip"][0].read_data(), weight)


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("kind", TYPES)
def test_a_state_that_another_program_wrote(kind, form, tmp_path, fed):
    """Training continues as if uninterrupted, except for what only our files hold."""
    whole = fit(kind)
    reference = Reference(values(whole), kind, **TYPES[kind][1])
    for _ in range(3):
        reference.step()
    flat = [h[slot].astype(np.float32) for slot in range(updates.HISTORIES[kind.lower()]) for h in reference.h]
    path = tmp_path / f"c_iter_3.solverstate{FORMATS[form]}"
    if form == "HDF5":
        h5py = pytest.importorskip("h5py")
        with h5py.File(path, "w") as file:
            file["iter"], file["learned_net"], file["current_step"] = [np.int32(3)], np.bytes_("c.caffemodel"), [0]
            for k, values_k in enumerate(flat):
                file[f"history/{k}"] = values_k
    else:
        state = SolverState(iter=3, learned_net="c.caffemodel")
        for values_k in flat:
            state.history.add(data=values_k.reshape(-1)).shape.dim.extend(values_k.shape)
        path.write_bytes(state.SerializeToString())
    for blob, w in zip(whole.net.params["ip"], reference.w, strict=True):
        blob.data = w
    save(whole.net, tmp_path / "c.caffemodel")
    resumed = fit(kind, random_seed=77)
    resumed.restore(path)
    resumed.net.batches = 3
    assert resumed.iter == 3
    compare(resumed, reference, 2e-5, 3)


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("kind", TYPES)
def test_resumed_equals_uninterrupted(kind, place, form, tmp_path, fed):
    if form == "HDF5":
        pytest.importorskip("h5py")
    options = {"lr_policy": '"multistep"', "gamma": 0.5, "stepvalue": [1, 5], "weight_decay": 0.01, "iter_size": 2}
    options |= {"snapshot_prefix": f'"{tmp_path}/s"', "snapshot_format": form}
    whole, first, second = (fit(kind, place, random_seed=seed, **options) for seed in (3, 3, 99))
    whole.step(8)
    first.step(4)
    first.snapshot()
    second.step(2)
    second.restore(tmp_path / f"s_iter_4.solverstate{FORMATS[form]}")
    second.net.batches = 8
    second.step(4)
    assert everything(second) == everything(whole)
    assert (second.iter, second.current_step) == (8, 2)


# -- refused -----------------------------------------------------------------------------------------------------------
PLAIN = GAUSSIAN + inner() + loss()


def plain(kind, **options):
    return make(PLAIN, type=f'"{kind}"', **(TYPES[kind][0] | options))


def refused(solver, path) -> SnapshotError:
    before = solver.iter, everything(solver)
    with pytest.raises(SnapshotError) as caught:
        solver.restore(path)
    assert caught.value.where.file == str(path) and (solver.iter, everything(solver)) == before
    return caught.value


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("theirs", TYPES)
@pytest.mark.parametrize("ours", TYPES)
def test_of_another_type(ours, theirs, form, tmp_path):
    if form == "HDF5":
        pytest.importorskip("h5py")
    writer = plain(theirs, snapshot_prefix=f'"{tmp_path}/s"', snapshot_format=form)
    writer.step(2)
    writer.snapshot()
    path, reader = tmp_path / f"s_iter_2.solverstate{FORMATS[form]}", plain(ours)
    assert read_solverstate(path).type == theirs
    if ours == theirs:
        reader.restore(path)
        assert everything(reader)[-1] == everything(writer)[-1]
        return
    error = refused(reader, path)
    assert error.message == f'the snapshot is of a solver of type "{theirs}", this one is of type "{ours}"'
    assert f'type: "{theirs}"' in error.fix


def test_of_a_type_that_nobody_knows(tmp_path):
    state = SolverState(iter=2, resume={"type": "Madam" * 1000})
    (tmp_path / "s").write_bytes(state.SerializeToString())
    error = refused(plain("Adam"), tmp_path / "s")
    assert 'of type "' + "Madam" * 8 + '", this one' in error.message and error.fix.startswith("begin anew")


def caffes(path, *arrays) -> object:
    """Write a state as Caffe does, which does not say the solver's type."""
    state = SolverState(iter=2)
    for a in arrays:
        state.history.add(data=np.ravel(a)).shape.dim.extend(np.shape(a))
    path.write_bytes(state.SerializeToString())
    return path


W, B = np.full((5, 3), 0.5), np.full(5, 0.5)


@pytest.mark.parametrize("kind", TYPES)
def test_of_another_type_by_the_number_of_histories(kind, tmp_path):
    slots = updates.HISTORIES[kind.lower()]
    error = refused(plain(kind), caffes(tmp_path / "s", *[W, B] * (3 - slots)))
    others = "AdaDelta, Adam, AdamW" if slots == 1 else "SGD, Nesterov, AdaGrad, RMSProp, Lion"
    assert error.message == (
        f"the snapshot has {6 - 2 * slots} history blobs, this solver needs {2 * slots}: {slots} for each of 2 "
        f"parameters; as many are kept by {others}"
    )
    error = refused(plain(kind), caffes(tmp_path / "s", W, B, W, B, W))
    assert error.message.endswith("for each of 2 parameters")


@pytest.mark.parametrize(
    ("kind", "squares"),
    [
        ("AdaGrad", (0, 1)),
        ("RMSProp", (0, 1)),
        ("AdaDelta", (0, 1, 2, 3)),
        ("Adam", (2, 3)),
        ("SGD", ()),
        ("Nesterov", ()),
    ],
)
def test_of_another_type_by_signs(kind, squares, tmp_path):
    """A mean of squares is never negative; a momentum is, in some element."""
    for k in range(2 * updates.HISTORIES[kind.lower()]):
        arrays = [a.copy() for a in [W, B] * updates.HISTORIES[kind.lower()]]
        arrays[k].reshape(-1)[-1] = -0.1
        path, solver = caffes(tmp_path / "s", *arrays), plain(kind)
        if k in squares:
            assert f"history {k} has negative values, and {kind} keeps squares there" in refused(solver, path).message
        else:
            solver.restore(path)


@pytest.mark.parametrize("shape", [(3, 5), (15,), (5, 4), (5, 3, 1)])
def test_another_shape(shape, tmp_path):
    error = refused(plain("Adam"), caffes(tmp_path / "s", W, B, np.full(shape, 0.5), B))
    assert error.message == f"a history blob has shape {shape}, this solver's has (5, 3)"
    assert "ip" in error.where.blob


@needs_shared
@pytest.mark.shared
@pytest.mark.parametrize(
    ("kind", "said"),
    [
        ("Adam", "has 8 history blobs, this solver needs 16: 2 for each of 8 parameters; as many are kept by SGD,"),
        ("AdaGrad", "history 0 has negative values, and AdaGrad keeps squares there"),
    ],
)
def test_a_state_of_sgd_that_caffe_wrote(kind, said):
    from ..real.files import LENET

    layers = [
        'layer { name: "data" type: "DummyData" top: "x" top: "label" dummy_data_param {'
        "shape { dim: 1 dim: 1 dim: 28 dim: 28 } shape { dim: 1 } } }"
    ]
    bottom = "x"
    for name, outputs in (("conv1", 20), ("conv2", 50)):
        layers.append(
            f'layer {{ name: "{name}" type: "Convolution" bottom: "{bottom}" top: "{name}" '
            f"convolution_param {{ num_output: {outputs} kernel_size: 5 }} }}"
        )
        layers.append(
            f'layer {{ name: "{name}p" type: "Pooling" bottom: "{name}" top: "{name}p" '
            "pooling_param { kernel_size: 2 stride: 2 } }"
        )
        bottom = f"{name}p"
    net = "\n".join(layers) + inner("ip1", bottom, outputs=500) + inner("ip2", "ip1", outputs=10) + loss("ip2")
    solver = make(net, type=f'"{kind}"')
    assert said in refused(solver, LENET / "lenet_iter_10000.solverstate").message
