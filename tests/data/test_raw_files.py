"""idx files and CIFAR-10 records, whole and damaged, plain and gzipped."""

import gzip
import struct

import numpy as np
import pytest

from pycaffe_lms.data.sets.raw_files import IdxFile, find_raw_file, read_cifar
from pycaffe_lms.errors import DataError


def idx_bytes(array, code=8):
    return bytes([0, 0, code, array.ndim]) + struct.pack(f">{array.ndim}I", *array.shape) + array.tobytes()


def store(path, content):
    path.write_bytes(gzip.compress(content) if path.suffix == ".gz" else content)
    return path


IMAGES = np.arange(24, dtype=np.uint8).reshape(4, 2, 3)


@pytest.mark.parametrize("name", ["images", "images.gz"])
def test_idx(tmp_path, name):
    file = IdxFile(store(tmp_path / name, idx_bytes(IMAGES)), 3)
    assert file.shape == (4, 2, 3) and len(file) == 4
    for _ in range(2):
        np.testing.assert_array_equal(np.stack(list(file)), IMAGES)
    labels = IdxFile(store(tmp_path / name, idx_bytes(IMAGES[:, 0, 0].copy())), 1)
    assert [int(label) for label in labels] == [0, 6, 12, 18]


@pytest.mark.parametrize("name", ["images", "images.gz"])
def test_idx_cut_anywhere(tmp_path, name):
    content = idx_bytes(IMAGES)
    for size in range(len(content)):
        with pytest.raises(DataError, match="ends inside|more than it can hold") as caught:
            list(IdxFile(store(tmp_path / name, content[:size]), 3))
        assert name in str(caught.value) and "download" in caught.value.fix


@pytest.mark.parametrize(
    "content, words",
    [
        (idx_bytes(IMAGES) + b"x", "goes on"),
        (idx_bytes(IMAGES, code=13), "begins with 00 00 0d 03"),
        (idx_bytes(IMAGES[0]) + bytes(99), "begins with 00 00 08 02"),
        (bytes([0, 0, 8, 3]) + struct.pack(">3I", 1, 2**32 - 1, 2**32 - 1), "records of shape"),
        (bytes([0, 0, 8, 3]) + struct.pack(">3I", 1, 0, 5), "records of shape"),
        (bytes([0, 0, 8, 3]) + struct.pack(">3I", 2**32 - 1, 1, 1), "4294967295 records of 1 bytes"),
    ],
)
def test_damaged_idx(tmp_path, content, words):
    with pytest.raises(DataError, match=words):
        list(IdxFile(store(tmp_path / "images", content), 3))


def test_damaged_gzip(tmp_path):
    whole = gzip.compress(idx_bytes(IMAGES))
    for size in range(len(whole)):
        (tmp_path / "images.gz").write_bytes(whole[:size])
        with pytest.raises(DataError):
            list(IdxFile(tmp_path / "images.gz", 3))
    for place in range(10, len(whole)):
        (tmp_path / "images.gz").write_bytes(whole[:place] + bytes([whole[place] ^ 0x55]) + whole[place + 1 :])
        with pytest.raises(DataError):
            list(IdxFile(tmp_path / "images.gz", 3))


@pytest.mark.parametrize("name", ["a.bin", "a.bin.gz"])
def test_cifar(tmp_path, name):
    rng = np.random.default_rng(0)
    pictures = rng.integers(0, 256, (3, 3, 32, 32), np.uint8)
    content = b"".join(bytes([label]) + p.tobytes() for label, p in zip((3, 0, 9), pictures, strict=True))
    found = list(read_cifar(store(tmp_path / name, content)))
    assert [label for _, label in found] == [3, 0, 9]
    np.testing.assert_array_equal(np.stack([p for p, _ in found]), pictures)
    for bad, words in [
        (content[:-1], "3072 of the 3073 bytes of record 2"),
        (b"\x0a" + content[1:], "label 10"),
        (b"", "empty"),
    ]:
        with pytest.raises(DataError, match=words):
            list(read_cifar(store(tmp_path / name, bad)))


def test_find(tmp_path):
    store(tmp_path / "b.gz", b"")
    assert find_raw_file(tmp_path, "a", "b").name == "b.gz"
    store(tmp_path / "b", b"")
    assert find_raw_file(tmp_path, "a", "b").name == "b"
    with pytest.raises(DataError, match="neither c nor c.gz"):
        find_raw_file(tmp_path, "c")
    with pytest.raises(DataError, match="cannot be read"):
        list(read_cifar(tmp_path / "absent.bin"))
