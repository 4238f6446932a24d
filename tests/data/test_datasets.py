"""The built-in digits, and MNIST and CIFAR-10 as databases."""

import gzip
import shutil

import numpy as np
import pytest

import pycaffe_lms.data.sets.datasets as datasets
from pycaffe_lms.data.database.datum import decode_datum
from pycaffe_lms.data.database.lmdb_source import LMDBSource
from pycaffe_lms.data.database.lmdb_writer import write_lmdb
from pycaffe_lms.data.database.open import open_database
from pycaffe_lms.data.sets.datasets import (
    DATASETS,
    digits_test_rows,
    load_digits,
    make_cifar10,
    make_digits,
    make_mnist,
)
from pycaffe_lms.data.transform.mean import load_mean
from pycaffe_lms.errors import DataError
from tests.data.test_raw_files import idx_bytes
from tests.shared_data import SHARED, needs_shared

COUNTS = [178, 182, 177, 183, 181, 182, 181, 179, 174, 180]
SHA256 = "a19cb3d96bba7deace8ee5a513a6eb7bad0403d528f00bf4d351b6a7a55baa91"


def contents(path):
    """(keys, images, labels) of a database."""
    with LMDBSource(path) as source:
        records = [source.next() for _ in range(len(source))]
    arrays, labels = zip(*(decode_datum(value, source=str(path), key=key) for key, value in records), strict=True)
    return [key for key, _ in records], np.stack(arrays), np.array(labels)


def test_digits():
    images, labels = load_digits()
    assert images.shape == (1797, 1, 8, 8) and images.dtype == labels.dtype == np.uint8
    assert np.bincount(labels).tolist() == COUNTS
    assert datasets.DIGITS_SHA256 == SHA256
    assert len(np.unique(images)) == 17 and images.min() == 0 and images.max() == 255
    assert datasets.DIGITS_FILE.stat().st_size < 100_000


def test_damaged_digits(tmp_path, monkeypatch):
    whole = datasets.DIGITS_FILE.read_bytes()
    monkeypatch.setattr(datasets, "DIGITS_FILE", tmp_path / "digits.npz")
    with pytest.raises(DataError, match="digits.npz"):
        load_digits()
    for content in (b"", b"x" * 99, whole[:-999], whole[:20000] + b"xxxx" + whole[20004:]):
        datasets.DIGITS_FILE.write_bytes(content)
        with pytest.raises(DataError, match="digits.npz"):
            load_digits()
    np.savez(datasets.DIGITS_FILE, images=np.zeros((1797, 8, 8), np.uint8), labels=np.zeros(1797, np.uint8))
    with pytest.raises(DataError, match="not the digits"):
        load_digits()


def test_make_digits(tmp_path):
    steps = []
    paths = make_digits(tmp_path / "out", progress=lambda done, total: steps.append((done, total)))
    assert steps == [(k, n) for n in (1500, 297) for k in range(1, n + 1)]
    assert [paths[part].name for part in ("train", "test")] == ["digits_train_lmdb", "digits_test_lmdb"]
    images, labels = load_digits()
    rows = digits_test_rows(labels)
    for part, want in (("train", ~rows), ("test", rows)):
        keys, found, found_labels = contents(paths[part])
        assert keys == [b"%08d" % k for k in range(want.sum())]
        np.testing.assert_array_equal(found, images[want])
        np.testing.assert_array_equal(found_labels, labels[want])
    assert rows.sum() == 297
    per_class = np.bincount(labels[rows])
    assert abs(per_class / np.array(COUNTS) - 297 / 1797).max() < 0.005


def damage_a_value(path):
    """Change one pixel inside a record."""
    file = path / "data.mdb"
    content = bytearray(file.read_bytes())
    with LMDBSource(path) as source:
        value = next(v for k, v in source.records() if k == b"00000200")
    content[content.index(value) + len(value) // 2] ^= 1
    file.write_bytes(content)


def cut(path):
    file = path / "data.mdb"
    file.write_bytes(file.read_bytes()[:40_000])


def one_record_less(path):
    with LMDBSource(path) as source:
        records = list(source.records())[:-1]
    write_lmdb(path, records, overwrite=True)


def test_digits_that_are_there_stay_as_they_are(tmp_path, caplog):
    caplog.set_level("INFO")
    paths = make_digits(tmp_path)
    before = [(path / "data.mdb").stat() for path in paths.values()]
    assert make_digits(tmp_path) == paths
    now = [(path / "data.mdb").stat() for path in paths.values()]
    assert [(s.st_ino, s.st_size, s.st_mtime_ns) for s in now] == [(s.st_ino, s.st_size, s.st_mtime_ns) for s in before]
    said = [r.getMessage() for r in caplog.records if "is there already" in r.getMessage()]
    assert said == [
        f"{paths[p]} is there already: {n} records, all as they should be." for p, n in (("train", 1500), ("test", 297))
    ]
    shutil.rmtree(paths["test"])  # what is missing is made
    assert len(contents(make_digits(tmp_path)["test"])[0]) == 297


@pytest.mark.parametrize("spoil", [damage_a_value, cut, one_record_less])
def test_digits_that_are_damaged_or_others_are_an_error(tmp_path, spoil):
    path = make_digits(tmp_path)["test"]
    spoil(path)
    damaged = (path / "data.mdb").read_bytes()
    with pytest.raises(DataError, match="digits_test_lmdb") as error:
        make_digits(tmp_path)
    assert "-overwrite" in error.value.fix and (path / "data.mdb").read_bytes() == damaged
    make_digits(tmp_path, overwrite=True)
    assert make_digits(tmp_path)["test"] == path and len(contents(path)[0]) == 297


def test_a_leveldb_that_is_there_is_compared_too(tmp_path):
    pytest.importorskip("plyvel")
    path = make_digits(tmp_path, backend="leveldb")["train"]
    assert make_digits(tmp_path, backend="leveldb")["train"] == path
    (file,) = [p for p in path.iterdir() if p.stat().st_size > 20_000]  # the log or the table that holds the records
    content = bytearray(file.read_bytes())
    content[20_000:20_100] = bytes(100)
    file.write_bytes(content)
    with pytest.raises(DataError, match="digits_train_leveldb") as error:
        make_digits(tmp_path, backend="leveldb")
    assert "-overwrite" in error.value.fix


def test_mnist_and_cifar_that_are_there_stay_unless_their_files_are_others(tmp_path):
    small_mnist(tmp_path / "in")
    first = make_mnist(tmp_path / "in", tmp_path)
    assert make_mnist(tmp_path / "in", tmp_path) == first
    images = tmp_path / "in" / "t10k-images-idx3-ubyte"
    images.write_bytes(images.read_bytes()[:-1] + b"\7")
    with pytest.raises(DataError, match="mnist_test_lmdb: is there already, .*: record"):
        make_mnist(tmp_path / "in", tmp_path)


def test_digits_as_leveldb_hold_the_same(tmp_path):
    pytest.importorskip("plyvel")
    paths = {backend: make_digits(tmp_path, backend=backend)["test"] for backend in ("lmdb", "leveldb")}
    assert paths["leveldb"].name == "digits_test_leveldb"
    sources = [open_database(path, backend) for backend, path in paths.items()]
    lmdb, leveldb = (list(source.records()) for source in sources)
    assert lmdb == leveldb and len(lmdb) == 297
    for source in sources:
        source.close()
    with pytest.raises(DataError, match='no database backend "rocks"'):
        make_digits(tmp_path, backend="rocks")


def test_fashion_mnist_is_mnist_by_another_name(tmp_path):
    sets = small_mnist(tmp_path / "in")
    paths = DATASETS["fashion-mnist"].make(tmp_path / "in", tmp_path)
    assert [path.name for path in paths.values()] == ["fashion_mnist_train_lmdb", "fashion_mnist_test_lmdb"]
    np.testing.assert_array_equal(contents(paths["test"])[1], sets["test"][:, None])


def test_two_runs_write_the_same_bytes(tmp_path):
    first, second = make_digits(tmp_path / "a"), make_digits(tmp_path / "b")
    for part in first:
        assert (first[part] / "data.mdb").read_bytes() == (second[part] / "data.mdb").read_bytes()


def small_mnist(folder, count=5, labels=5):
    rng = np.random.default_rng(0)
    folder.mkdir()
    sets = {}
    for part, prefix in (("train", "train"), ("test", "t10k")):
        images = rng.integers(0, 256, (count, 28, 28), np.uint8)
        (folder / f"{prefix}-images-idx3-ubyte").write_bytes(idx_bytes(images))
        numbers = np.arange(labels, dtype=np.uint8)
        (folder / f"{prefix}-labels.idx1-ubyte.gz").write_bytes(gzip.compress(idx_bytes(numbers)))
        sets[part] = images
    return sets


def test_make_mnist(tmp_path):
    sets = small_mnist(tmp_path / "in")
    paths = make_mnist(tmp_path / "in", tmp_path)
    for part, images in sets.items():
        keys, found, labels = contents(paths[part])
        assert paths[part].name == f"mnist_{part}_lmdb" and keys[-1] == b"00000004"
        np.testing.assert_array_equal(found, images[:, None])
        assert labels.tolist() == [0, 1, 2, 3, 4]


def test_mnist_faults_leave_no_database(tmp_path):
    small_mnist(tmp_path / "in", labels=4)
    with pytest.raises(DataError, match="4 labels for the 5 pictures"):
        make_mnist(tmp_path / "in", tmp_path / "out")
    with pytest.raises(DataError, match="neither train-images-idx3-ubyte"):
        make_mnist(tmp_path, tmp_path / "out")
    small_mnist(tmp_path / "cut")
    file = tmp_path / "cut" / "train-images-idx3-ubyte"
    file.write_bytes(file.read_bytes()[:-1])
    with pytest.raises(DataError, match="record 4 of 5"):
        make_mnist(tmp_path / "cut", tmp_path / "out")
    assert not (tmp_path / "out").exists() or not list((tmp_path / "out").iterdir())


@pytest.mark.parametrize("train, test", [(["data_batch_1", "data_batch_2"], "test_batch"), (["train_x"], "test_y")])
@pytest.mark.parametrize("suffix", [".bin", ".bin.gz"])
def test_make_cifar10(tmp_path, train, test, suffix):
    rng = np.random.default_rng(0)
    pictures = {name: rng.integers(0, 256, (4, 3, 32, 32), np.uint8) for name in [*train, test]}
    for name, images in pictures.items():
        content = b"".join(bytes([k]) + image.tobytes() for k, image in enumerate(images))
        (tmp_path / (name + suffix)).write_bytes(gzip.compress(content) if suffix == ".bin.gz" else content)
    paths = make_cifar10(tmp_path, tmp_path / "out")
    want = np.concatenate([pictures[name] for name in train])
    keys, images, labels = contents(paths["train"])
    assert keys == [b"%05d" % k for k in range(len(want))]
    np.testing.assert_array_equal(images, want)
    assert labels.tolist() == [0, 1, 2, 3] * len(train)
    np.testing.assert_array_equal(contents(paths["test"])[1], pictures[test])
    assert paths["mean"].name == "mean.binaryproto"
    np.testing.assert_allclose(load_mean(paths["mean"]), want.mean(0), rtol=1e-6)


def test_cifar10_absent(tmp_path):
    with pytest.raises(DataError, match="no data_batch_"):
        make_cifar10(tmp_path, tmp_path / "out")


def test_table():
    assert list(DATASETS) == ["digits", "shapes", "mnist", "fashion-mnist", "cifar10"]
    assert [d.needs_source for d in DATASETS.values()] == [False, False, True, True, True]


@needs_shared
def test_real_cifar10(tmp_path):
    paths = make_cifar10(SHARED / "data" / "cifar10", tmp_path)
    keys, images, labels = contents(paths["train"])
    assert len(keys) == 8000 and keys[-1] == b"07999" and set(labels) == set(range(10))
    assert len(contents(paths["test"])[0]) == 1000
    np.testing.assert_allclose(load_mean(paths["mean"]), images.mean(0, dtype=np.float64), rtol=1e-6)
    of_all = load_mean(SHARED / "data" / "cifar10" / "mean_of_50000_train.binaryproto")
    assert abs(load_mean(paths["mean"]) - of_all).max() < 5


@needs_shared
def test_real_mnist_test_part(tmp_path):
    paths = make_mnist(SHARED / "data" / "mnist", tmp_path)
    with LMDBSource(paths["train"]) as train, LMDBSource(paths["test"]) as test:
        assert (len(train), len(test)) == (60000, 10000)
        ours = [test.next() for _ in range(300)]
        for k, (key, value) in enumerate(ours):
            assert key == b"%08d" % k and decode_datum(value, source="ours")[0].shape == (1, 28, 28)


@needs_shared
def test_records_are_byte_for_byte_what_caffe_writes(tmp_path):
    import shutil

    paths = make_mnist(SHARED / "data" / "mnist", tmp_path)
    (tmp_path / "theirs").mkdir()
    shutil.copyfile(SHARED / "data" / "db" / "mnist300_lmdb" / "data.mdb", tmp_path / "theirs" / "data.mdb")
    with LMDBSource(paths["test"]) as ours, LMDBSource(tmp_path / "theirs") as theirs:
        for _ in range(300):
            assert ours.next() == theirs.next()
