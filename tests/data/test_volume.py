"""Volumes from npy and NIfTI files: axes, scaling, orientation, damage."""

from __future__ import annotations

import gc
import gzip
import pickle
import sys
import time
import tracemalloc
import warnings
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from pycaffe_lms.data.sets.volumes import read_volume
from pycaffe_lms.errors import DataError, MissingDependency
from tests.data.nifti import nifti_bytes

from ..seeds import seeded

x, y, z = np.meshgrid(np.arange(4), np.arange(3), np.arange(2), indexing="ij")
VOXELS = (x + 10 * y + 100 * z).astype(np.int16)  # value at (x, y, z)


@pytest.mark.parametrize("dtype", ["uint8", ">i2", "<f8", "bool", "float32"])
@pytest.mark.parametrize("order", ["C", "F"])
def test_npy(tmp_path, dtype, order):
    values = np.asarray(np.arange(24).reshape(2, 3, 4) % 2, dtype, order=order)
    np.save(tmp_path / "a.npy", values)
    np.save(tmp_path / "b.npy", np.stack([values, values[::-1]]))
    found, orientation = read_volume(tmp_path / "a.npy")
    assert found.shape == (1, 2, 3, 4) and found.dtype == np.float32 and found.flags.c_contiguous
    assert orientation is None
    np.testing.assert_array_equal(found[0], values)
    np.testing.assert_array_equal(read_volume(tmp_path / "b.npy")[0], [values, values[::-1]])


def test_an_npy_header_longer_than_the_file(tmp_path):
    """In version 2 the length has four bytes; no memory is taken for bytes that the file does not have."""
    path = tmp_path / "x.npy"
    path.write_bytes(b"\x93NUMPY\2\0" + (2**32 - 1).to_bytes(4, "little") + b"{'descr': '<f4'}")
    tracemalloc.start()
    try:
        with pytest.raises(DataError, match="its header goes on after its end"):
            read_volume(path)
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()


def test_several_threads_read_npy_while_garbage_is_collected(tmp_path):
    """Python's reader of literals, which reads the headers, must not be entered twice: see `_HEADER`."""
    for k in range(4):
        np.save(tmp_path / f"{k}.npy", np.full((2, 3, 4), k))

    def read(k):
        return [read_volume(tmp_path / f"{k}.npy")[0] for _ in range(200)]

    def let_others_run(phase, info):
        time.sleep(1e-5)

    threshold = gc.get_threshold()
    gc.callbacks.append(let_others_run)
    try:
        gc.set_threshold(1)
        with ThreadPoolExecutor(4) as pool:
            found = list(pool.map(read, range(4)))
    finally:
        gc.set_threshold(*threshold)
        gc.callbacks.remove(let_others_run)
    for k, volumes in enumerate(found):
        np.testing.assert_array_equal(volumes, np.full((200, 1, 2, 3, 4), k))


@pytest.mark.parametrize("name", ["v.nii", "v.nii.gz", "v.NII"])
def test_nifti(tmp_path, name):
    pytest.importorskip("nibabel")
    content = nifti_bytes(VOXELS, slope=2, inter=-1)
    (tmp_path / name).write_bytes(gzip.compress(content) if name.endswith("gz") else content)
    found, orientation = read_volume(tmp_path / name)
    assert found.shape == (1, 2, 3, 4) and found.dtype == np.float32 and orientation == "RAS"
    for k in np.ndindex(4, 3, 2):
        assert found[0, k[2], k[1], k[0]] == 2 * (k[0] + 10 * k[1] + 100 * k[2]) - 1


@pytest.mark.parametrize("shape", [(4, 3, 2, 2), (4, 3, 2, 1, 2)])
def test_a_fourth_axis_and_a_vector_are_channels(tmp_path, shape):
    pytest.importorskip("nibabel")
    both = np.stack([VOXELS, VOXELS + 1000], axis=-1).reshape(shape)
    (tmp_path / "v.nii").write_bytes(nifti_bytes(both))
    found, _ = read_volume(tmp_path / "v.nii")
    assert found.shape == (2, 2, 3, 4) and found[1, 1, 2, 3] == 1123 and found[0, 1, 0, 2] == 102


def test_canonical_turns_axes(tmp_path):
    """Stored (y, -x, z): first axis to the front, second to the left. World x is 3 - second index."""
    pytest.importorskip("nibabel")
    stored = VOXELS[::-1].transpose(1, 0, 2)
    rows = ((0, -1, 0, 3), (1, 0, 0, 0), (0, 0, 1, 0))
    (tmp_path / "v.nii").write_bytes(nifti_bytes(stored, rows=rows))
    found, orientation = read_volume(tmp_path / "v.nii")
    assert orientation == "ALS" and found.shape == (1, 2, 4, 3)
    found, orientation = read_volume(tmp_path / "v.nii", canonical=True)
    assert orientation == "RAS"
    np.testing.assert_array_equal(found[0], VOXELS.T)


@pytest.mark.parametrize(
    "values, words",
    [
        (np.zeros((2, 2), np.float32), "three axes"),
        (np.zeros((1, 1, 2, 2, 2), np.float32), "three axes"),
        (np.zeros((2, 2, 2), np.complex64), "complex64, not numbers"),
        (np.zeros((2, 2, 2), [("a", "u1")]), "not numbers"),
        (np.array([[[1.0, np.nan]]]), "not finite"),
        (np.array([[[1.0, 1e300]]]), "not finite"),
    ],
)
def test_npy_of_something_else(tmp_path, values, words):
    np.save(tmp_path / "a.npy", values)
    with pytest.raises(DataError, match=words) as caught:
        read_volume(tmp_path / "a.npy")
    assert "a.npy" in str(caught.value) and caught.value.fix


class Trap:
    """Record that code ran, when it is unpickled."""

    sprung = False

    def __reduce__(self):
        return setattr, (Trap, "sprung", True)


def test_no_pickle_is_ever_read(tmp_path):
    np.save(tmp_path / "object.npy", np.array([[[Trap()]]], dtype=object), allow_pickle=True)
    (tmp_path / "plain.npy").write_bytes(pickle.dumps(Trap()))
    np.savez(tmp_path / "z.npz", a=np.zeros((1, 1, 1)))
    (tmp_path / "z.npz").rename(tmp_path / "z.npy")
    for name in ("object", "plain", "z"):
        with pytest.raises(DataError, match="not an npy file"):
            read_volume(tmp_path / f"{name}.npy")
    assert not Trap.sprung


def test_a_header_that_claims_more_than_the_file_holds(tmp_path):
    np.save(tmp_path / "a.npy", np.zeros((2, 3, 4), np.uint8))
    whole = (tmp_path / "a.npy").read_bytes()
    (tmp_path / "a.npy").write_bytes(whole.replace(b"(2, 3, 4)", b"(9,99,99)"))
    with pytest.raises(DataError, match="not an npy file"):
        read_volume(tmp_path / "a.npy")
    pytest.importorskip("nibabel")
    for name in ("big.nii", "big.nii.gz"):
        content = nifti_bytes(VOXELS, shape=(1000, 1000, 1000))
        (tmp_path / name).write_bytes(gzip.compress(content) if name.endswith("gz") else content)
        with pytest.raises(DataError, match="1.9 GiB of values, more than the file can hold"):
            read_volume(tmp_path / name)
    (tmp_path / "huge.nii").write_bytes(nifti_bytes(VOXELS, shape=(30000, 30000, 30000)))
    with pytest.raises(DataError, match="more than the 2147483647 values of a blob"):
        read_volume(tmp_path / "huge.nii")


@pytest.mark.parametrize(
    "name, content, words",
    [
        ("v.nii", b"", "NIfTI"),
        ("v.nii", b"no volume" * 100, "NIfTI"),
        ("v.nii.gz", nifti_bytes(VOXELS), "NIfTI"),
        ("v.nii.gz", gzip.compress(nifti_bytes(VOXELS), mtime=0)[:-20], "NIfTI"),
        ("v.nii", nifti_bytes(VOXELS)[:-1], "NIfTI|more than the file"),
        ("v.nii", nifti_bytes(np.zeros((2, 2, 2), np.complex64)), "complex64"),
        ("v.nii", nifti_bytes(VOXELS[:, :, 0]), "three axes"),
        ("v.img", nifti_bytes(VOXELS), "not the name of a volume"),
    ],
)
def test_damaged_nifti(tmp_path, name, content, words):
    pytest.importorskip("nibabel")
    (tmp_path / name).write_bytes(content)
    with pytest.raises(DataError, match=words) as caught:
        read_volume(tmp_path / name)
    assert name in str(caught.value) and caught.value.fix


def test_any_damage_ends_in_an_error_or_in_a_volume(tmp_path):
    pytest.importorskip("nibabel")
    np.save(tmp_path / "a.npy", VOXELS)
    kinds = {"x.npy": (tmp_path / "a.npy").read_bytes(), "x.nii": nifti_bytes(VOXELS)}
    draw, refused = seeded(3), 0
    for name, whole in kinds.items():
        for _ in range(300):
            content = bytearray(whole)
            for _ in range(draw.randint(1, 4)):
                content[draw.randrange(len(content))] = draw.choice([0, 1, 127, 128, 255, draw.randrange(256)])
            (tmp_path / name).write_bytes(content)
            try:
                with warnings.catch_warnings():  # nibabel warns of odd extensions
                    warnings.simplefilter("ignore")
                    assert read_volume(tmp_path / name, canonical=draw.random() < 0.5)[0].ndim == 4
            except DataError:
                refused += 1
    assert 50 < refused < 550


def test_absent(tmp_path, monkeypatch):
    for name in ("v.npy", "v.nii"):
        if name == "v.nii":
            pytest.importorskip("nibabel")
        with pytest.raises(DataError, match="No such file"):
            read_volume(tmp_path / name)
    monkeypatch.setitem(sys.modules, "nibabel", None)
    with pytest.raises(MissingDependency, match=r"pip install 'pycaffe-lms\[nifti\]'; or convert them to npy"):
        read_volume(tmp_path / "v.nii")
