"""Tests HDF5 files of nets whose layers share some parameters: only the owner's entry has values, as Caffe's
Net::ToHDF5 writes them."""

from __future__ import annotations

import numpy as np
import pytest

from pycaffe_lms.errors import WeightsError

from .helpers import GAUSSIAN, PLACES, bits, inner, loss, make

h5py = pytest.importorskip("h5py")

# "second" shares its weights and "third" its biases, the last blob of a layer, with "first".
NET = (
    GAUSSIAN
    + inner("first", "x", outputs=3, params='param { name: "w" } param { name: "b" }')
    + inner("second", "first", outputs=3, params='param { name: "w" } param { }')
    + inner("third", "second", outputs=3, params='param { } param { name: "b" }')
    + inner("ip", "third")
    + loss()
)
UNSHARED = NET.replace('name: "w" }', "}").replace('name: "b" }', "}")
STORED = {"first": (0, 1), "second": (1,), "third": (0,), "ip": (0, 1)}


def _everything(solver) -> list[bytes]:
    return bits(solver) + [b.read_data().tobytes() for b in solver.history_blobs()]


def _written_as_caffe_does(folder) -> dict[tuple[str, int], np.ndarray]:
    """Return weights and a state after 4 iterations, arranged as Caffe's ToHDF5 and SnapshotSolverStateToHDF5 do."""
    shapes = {("ip", 0): (5, 3), ("ip", 1): (5,)} | {
        (n, i): (3, 3)[i:] for n in ("first", "second", "third") for i in STORED[n]
    }
    random = np.random.default_rng(5)
    values = {key: random.normal(size=shape).astype(np.float32) for key, shape in sorted(shapes.items())}
    with h5py.File(folder / "c.caffemodel.h5", "w") as file:
        for name in ("data", "loss", *STORED):
            file.create_group(f"data/{name}")
        for (name, i), stored in values.items():
            file[f"data/{name}/{i}"] = stored
    learned = [(name, i) for name in STORED for i in STORED[name]]  # in the order of the net
    with h5py.File(folder / "c.solverstate.h5", "w") as file:
        file["iter"], file["current_step"] = np.array([4], np.int32), np.array([0], np.int32)
        file["learned_net"] = np.bytes_("c.caffemodel.h5")
        for k, key in enumerate(learned):
            file[f"history/{k}"] = values[key] / 2
    return values


@pytest.mark.parametrize("place", PLACES)
def test_caffes_files_are_read(place, tmp_path):
    values = _written_as_caffe_does(tmp_path)
    solver = make(NET, place, momentum=0.9)
    solver.restore(tmp_path / "c.solverstate.h5")
    assert solver.iter == 4
    owner = {("second", 0): ("first", 0), ("third", 1): ("first", 1)}
    for name in STORED:
        for i, blob in enumerate(solver.net.params[name]):
            expected = values[owner.get((name, i), (name, i))]
            np.testing.assert_array_equal(blob.read_data(), expected, err_msg=f"{name} {i}")
    learned = [values[name, i] for name in STORED for i in STORED[name]]
    for history, expected in zip(solver.history_blobs(), learned, strict=True):
        np.testing.assert_array_equal(history.read_data(), expected / 2)


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("form", ["BINARYPROTO", "HDF5"])
def test_training_goes_on_as_if_it_had_not_stopped(form, place, tmp_path):
    options = {"snapshot_prefix": f'"{tmp_path}/s"', "snapshot_format": form, "momentum": 0.9, "type": '"Adam"'}
    options |= {"base_lr": 0.01, "snapshot_diff": "true"}
    whole = make(NET, place, **options)
    whole.step(3)
    whole.snapshot()
    whole.step(3)
    ending = ".h5" if form == "HDF5" else ""
    if ending:
        with h5py.File(tmp_path / "s_iter_3.caffemodel.h5") as file:
            found = {name: tuple(sorted(int(k) for k in file["data"][name])) for name in STORED}
        assert found == STORED, "as Caffe writes it"
    resumed = make(NET, place, **options | {"random_seed": 9})
    resumed.restore(tmp_path / f"s_iter_3.solverstate{ending}")
    resumed.step(3)
    assert _everything(resumed) == _everything(whole)


def test_what_is_not_shared_here_must_be_there(tmp_path):
    _written_as_caffe_does(tmp_path)
    path = tmp_path / "c.caffemodel.h5"
    with pytest.raises(WeightsError, match=r"second.*\n?.*holds 1 parameter blobs .* has 2; blob 0 is missing"):
        make(UNSHARED).load_weights(path)
    with h5py.File(path, "a") as file:
        del file["data/third/0"]
        file["data/third/1"] = np.zeros(3)
        file["data/second/2"] = np.zeros(3)
    with pytest.raises(WeightsError, match="second.*holds 3 parameter blobs .* has 2"):
        make(NET).load_weights(path)
    with h5py.File(path, "a") as file:
        del file["data/second/2"]
    with pytest.raises(WeightsError, match="third.*holds 1 parameter blobs for this layer, the net has 2; blob 0"):
        make(NET).load_weights(path)
