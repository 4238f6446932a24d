"""Write and read HDF5 weights, and refuse hostile files."""

import sys

import numpy as np
import pytest

from pycaffe_lms.errors import MissingDependency, WeightsError
from pycaffe_lms.formats.weights.caffemodel import read_weights
from pycaffe_lms.formats.weights.hdf5_weights import read_hdf5_weights, write_hdf5_weights

h5py = pytest.importorskip("h5py")

W = np.arange(6, dtype="f4").reshape(2, 3)


def made(tmp_path, build):
    path = tmp_path / "w.h5"
    with h5py.File(path, "w") as file:
        build(file)
    return path


def test_round_trip_with_shared_blobs_and_slashes(tmp_path):
    path = tmp_path / "w.h5"
    write_hdf5_weights(
        path,
        [
            ("data", []),
            ("inception/1x1", [W, np.float64(2)]),
            ("inception/relu", []),
            ("sharer", [None, np.ones(2, int)]),
        ],
        diff=[("data", []), ("inception/1x1", [-W, np.float64(3)]), ("sharer", [W, np.zeros(2)])],
    )
    layers = {layer.name: layer for layer in read_hdf5_weights(path)}
    assert list(layers) == ["data", "inception/1x1", "inception/relu", "sharer"]
    first, second = layers["inception/1x1"].blobs
    assert first.data.dtype == np.float32 and (first.data == W).all() and (first.diff == -W).all()
    assert second.shape == () and second.data == 2 and second.diff == 3
    assert layers["sharer"].blobs[0] is None
    assert layers["sharer"].blobs[1].data.dtype == np.float32 and layers["sharer"].blobs[1].data.tolist() == [1, 1]
    assert not layers["data"].blobs and layers["data"].type == ""


def test_the_layout_is_caffes(tmp_path):
    path = tmp_path / "w.h5"
    write_hdf5_weights(path, [("c", [W, W[0]]), ("r", [])])
    with h5py.File(path) as file:
        assert set(file) == {"data"} and set(file["data"]) == {"c", "r"} and set(file["data/c"]) == {"0", "1"}
        assert file["data/c/0"].dtype == np.float32 and file["data/c/0"].shape == (2, 3)


def test_integers_and_doubles_are_read(tmp_path):
    def build(file):
        file["data/a/0"] = np.array([1, 2], "i8")
        file["data/a/1"] = np.array([0.1])

    (layer,) = read_weights(made(tmp_path, build))
    assert [blob.data.dtype for blob in layer.blobs] == [np.float32, np.float64]


@pytest.mark.parametrize(
    "names", [["a", "a"], ["a", "a/0"], ["a/0", "a"], [""], ["/a"], ["a/"], ["a//b"], ["."], ["a\0b"]]
)
def test_names_that_cannot_stand_in_a_file(tmp_path, names):
    path = tmp_path / "w.h5"
    with pytest.raises(WeightsError, match="(?s)w.h5: the layer name .* fix: rename the layer"):
        write_hdf5_weights(path, [(name, [W]) for name in names])
    assert not list(tmp_path.iterdir())


def external(file):
    file["data/a/0"] = h5py.ExternalLink("/etc/hostname", "/x")


def soft(file):
    file["x"] = W
    file["data/a/0"] = h5py.SoftLink("/x")


def outside(file):
    file.create_dataset("data/a/0", (2,), "f4", external=[("/etc/hostname", 0, 8)])


def virtual(file):
    layout = h5py.VirtualLayout((2,), "f4")
    layout[:] = h5py.VirtualSource("other.h5", "x", (2,))
    file.create_virtual_dataset("data/a/0", layout)


def huge(file):
    file.create_dataset("data/a/0", (2**40,), "f4", chunks=(1024,))


def cycle(file):
    inner = file.create_group("data/a/b")
    inner["again"] = file["data/a"]


def deep(file):
    file.create_group("data/" + "a/" * 80)


def text(file):
    file["data/a/0"] = "abc"


def named(file):
    file["data/a/kernel"] = W


def far(file):
    file["data/a/9999999"] = W


def loose(file):
    file["data/0"] = W


def other(file):
    file["data"] = W
    file["label"] = W


def mismatch(file):
    file["data/a/0"] = W
    file["diff/a/0"] = W.T


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (external, "a link to another place"),
        (soft, "a link to another place"),
        (outside, "lie in another file"),
        (virtual, "lie in another file"),
        (huge, "says it is 4096.0 GiB, but 0 B are stored"),
        (cycle, "contains itself"),
        (deep, "more than 64 groups deep"),
        (text, "holds object, not numbers"),
        (named, 'unexpected dataset "kernel" in /data/a'),
        (far, 'unexpected dataset "9999999"'),
        (loose, "outside any layer"),
        (other, "no group /data in it .found: data, label"),
        (mismatch, r'layer "a", blob "0": diff of shape \(3, 2\)'),
    ],
)
def test_files_built_to_do_harm_and_other_files(tmp_path, build, message):
    path = made(tmp_path, build)
    with pytest.raises(WeightsError, match=message) as caught:
        read_weights(path)
    assert caught.value.where.file == str(path)


def test_truncated(tmp_path):
    path = tmp_path / "w.h5"
    write_hdf5_weights(path, [("a", [np.ones(1000, "f4")])])
    content = path.read_bytes()
    for length in (8, 100, len(content) // 2, len(content) - 8):
        path.write_bytes(content[:length])
        with pytest.raises(WeightsError, match="not a readable HDF5 file"):
            read_weights(path)


def test_compressed_weights_are_fine(tmp_path):
    path = made(tmp_path, lambda file: file.create_dataset("data/a/0", data=np.zeros(10**6, "f4"), compression="gzip"))
    assert read_weights(path)[0].blobs[0].shape == (10**6,)


def test_without_h5py(tmp_path, monkeypatch):
    path = tmp_path / "w.h5"
    write_hdf5_weights(path, [("a", [W])])
    monkeypatch.setitem(sys.modules, "h5py", None)
    for action in (lambda: read_weights(path), lambda: write_hdf5_weights(path, [])):
        with pytest.raises(MissingDependency, match=r"pip install 'pycaffe-lms\[hdf5\]'"):
            action()
