"""LevelDB: the cursor's order and wrapping, writing whole or not at all, and wrong or damaged folders."""

from __future__ import annotations

import gc
import gzip
import os
import subprocess
import sys
import threading
from contextlib import closing

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import pycaffe_lms.data.database.leveldb_source as leveldb_source
from pycaffe_lms.data.database.datum import decode_datum, encode_datum
from pycaffe_lms.data.database.leveldb_source import LevelDBSource
from pycaffe_lms.data.database.leveldb_writer import write_leveldb
from pycaffe_lms.data.database.lmdb_writer import write_lmdb
from pycaffe_lms.data.database.open import open_database
from pycaffe_lms.data.feed.batches import DatumBatches
from pycaffe_lms.errors import DataError, MissingDependency
from tests.data.helpers import numbered_lmdb, shared_db, transformer
from tests.shared_data import SHARED, needs_shared

plyvel = pytest.importorskip("plyvel")

KEYS = [b"%04d" % k for k in range(10)]
RESTARTING = "Restarting data prefetching from start, as after every 10 records from now on (logged once)."


@pytest.fixture
def ten(tmp_path):
    path = tmp_path / "ten_leveldb"
    assert write_leveldb(path, ((key, b"value " + key) for key in reversed(KEYS))) == 10
    yield path
    gc.collect()
    assert not LevelDBSource.handles._open, "a database was left open"


def keys(source, count):
    return [source.next()[0] for _ in range(count)]


def read(path):
    with plyvel.DB(str(path)) as database:
        return list(database)


def records(count, size=10):
    return [(b"%06d" % k, bytes([k % 256]) * size) for k in range(count)]


def test_key_order_and_wrap(ten, caplog):
    with LevelDBSource(ten) as source:
        assert source.next() == (b"0000", b"value 0000")
        with caplog.at_level("INFO"):
            assert keys(source, 32) == KEYS[1:] + KEYS * 2 + KEYS[:3]
        assert caplog.messages == [RESTARTING]
        assert source.position == 3 and len(source) == 10


@given(counted=st.booleans(), moves=st.lists(st.tuples(st.integers(0, 45), st.integers(0, 12)), max_size=6))
@settings(max_examples=50, deadline=None)
def test_seek(tmp_path_factory, counted, moves):
    """Whether the number of records is known already or not."""
    path = tmp_path_factory.getbasetemp() / "seek_leveldb"
    if not path.exists():
        write_leveldb(path, ((key, b"") for key in KEYS))
    with LevelDBSource(path) as source:
        assert not counted or len(source) == 10
        for index, count in moves:
            source.seek(index)
            assert source.position == index % 10
            assert keys(source, count) == [KEYS[(index + k) % 10] for k in range(count)]


def test_every_record_once(ten, caplog):
    """Wherever the cursor is, without moving it; nothing "restarts"."""
    with caplog.at_level("INFO"), LevelDBSource(ten) as source:
        source.seek(4)
        for _ in range(2):
            assert list(source.records()) == [(key, b"value " + key) for key in KEYS]
        assert source.next()[0] == KEYS[4] and not caplog.messages
        unfinished = source.records()
        next(unfinished)
    with pytest.raises(DataError, match="closed"):
        next(source.records())


def test_the_same_database_twice(ten):
    link = ten.parent / "link"
    link.symlink_to(ten)
    first, second = LevelDBSource(ten), LevelDBSource(link)
    assert keys(first, 3) == KEYS[:3]
    first.close()
    first.close()
    assert keys(second, 2) == KEYS[:2] and len(second) == 10
    for use in (first.next, lambda: len(first), lambda: first.seek(0)):
        with pytest.raises(DataError, match="closed"):
            use()
    second.close()
    LevelDBSource(ten).close()


def test_many_threads_share(ten):
    errors = []

    def work():
        try:
            for _ in range(20):
                with LevelDBSource(ten) as source:
                    assert keys(source, 10) == KEYS
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors


def test_dropping_a_source_closes_it(ten):
    source = LevelDBSource(ten)
    assert keys(source, 1) == KEYS[:1]
    del source
    gc.collect()
    assert not LevelDBSource.handles._open
    assert len(read(ten)) == 10


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
def test_a_forked_child_gets_an_error_and_harms_nobody(ten):
    with LevelDBSource(ten) as source:
        child = os.fork()
        if child == 0:
            try:
                LevelDBSource(ten)
            except DataError as error:
                source.close()
                os._exit(0 if "forked" in str(error) else 1)
            os._exit(2)
        assert os.waitpid(child, 0)[1] == 0
        assert keys(source, 10) == KEYS


def test_locked_by_another_process(ten):
    program = "import plyvel, sys; db = plyvel.DB(sys.argv[1]); print('open', flush=True); sys.stdin.read()"
    command = [sys.executable, "-c", program, str(ten)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        assert other.stdout.readline() == b"open\n"
        with pytest.raises(DataError, match="another program has this database open") as caught:
            LevelDBSource(ten)
        assert str(ten) in str(caught.value) and caught.value.fix
        other.stdin.close()
        other.wait()
    LevelDBSource(ten).close()


def test_a_folder_that_may_not_be_written(ten, monkeypatch):
    class Refusing:
        def __getattr__(self, name):
            return getattr(plyvel, name)

        def DB(self, *args, **kwargs):
            raise plyvel.IOError(b"IO error: /db/LOCK: Permission denied")

    monkeypatch.setattr(leveldb_source, "load_plyvel", lambda doing="": Refusing())
    with pytest.raises(DataError, match="has to write to its folder and may not"):
        LevelDBSource(ten)


def test_empty_database(tmp_path):
    assert write_leveldb(tmp_path / "empty", []) == 0
    with LevelDBSource(tmp_path / "empty") as source:
        assert len(source) == 0
        for use in (source.next, lambda: source.seek(3)):
            with pytest.raises(DataError, match="no records"):
                use()


def test_things_that_are_no_leveldb(tmp_path):
    (tmp_path / "file").write_bytes(b"x")
    (tmp_path / "folder").mkdir()
    (tmp_path / "text").mkdir()
    (tmp_path / "text" / "CURRENT").write_text("hello")
    numbered_lmdb(tmp_path / "lmdb", 1)
    for name, words in [
        ("none", "no database here"),
        ("file", "a file"),
        ("folder", "no file CURRENT"),
        ("text", "cannot read"),
        ("lmdb", "is an LMDB, but the backend is LEVELDB"),
    ]:
        with pytest.raises(DataError, match=words) as caught:
            LevelDBSource(tmp_path / name)
        assert f"{tmp_path}/{name}" in str(caught.value) and caught.value.fix
    assert not (tmp_path / "none").exists() and not LevelDBSource.handles._open


def test_the_wrong_backend_says_which_is_right(ten, tmp_path):
    for backend in (0, "leveldb", "LEVELDB"):
        with open_database(ten, backend) as source:
            assert keys(source, 2) == KEYS[:2]
    with pytest.raises(DataError, match="is a LevelDB, but the backend is LMDB") as caught:
        open_database(ten, "lmdb")
    assert "backend: LEVELDB" in caught.value.fix
    with pytest.raises(DataError) as caught:
        open_database(numbered_lmdb(tmp_path / "lmdb", 1), 0)
    assert "backend: LMDB" in caught.value.fix


def _tables(path):
    with plyvel.DB(str(path)) as database:  # sorted into table files, as large databases are
        database.compact_range()
    return sorted(path.glob("*.ldb"))


def test_damaged_and_missing_tables(tmp_path):
    path = tmp_path / "db"
    write_leveldb(path, ((b"%05d" % k, os.urandom(500)) for k in range(1000)))
    (table,) = _tables(path)
    content = bytearray(table.read_bytes())
    content[len(content) // 2] ^= 255
    table.write_bytes(content)
    with LevelDBSource(path) as source, pytest.raises(DataError, match="LevelDB cannot read.*checksum") as caught:
        keys(source, 1001)
    assert str(path) in str(caught.value) and caught.value.fix
    with LevelDBSource(path) as source, pytest.raises(DataError, match="checksum"):
        len(source)
    table.write_bytes(content[:1000])
    with pytest.raises(DataError, match="cannot read"), LevelDBSource(path) as source:
        keys(source, 1)
    table.unlink()
    with pytest.raises(DataError, match="missing files"):
        LevelDBSource(path)
    gc.collect()
    assert not LevelDBSource.handles._open


def test_without_plyvel(ten, monkeypatch):
    monkeypatch.setitem(sys.modules, "plyvel", None)
    for work, what in ((lambda: LevelDBSource(ten), "reading"), (lambda: write_leveldb(ten, []), "writing")):
        with pytest.raises(MissingDependency, match=f"{what} LevelDB databases needs the package plyvel") as caught:
            work()
        assert caught.value.fix == "pip install 'pycaffe-lms[leveldb]'"


# -- writing ------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("commit_every", [1, 7, 1000])
def test_what_is_written_is_read(tmp_path, commit_every):
    path = tmp_path / "new" / "folder" / "db"
    assert write_leveldb(str(path), iter(records(50)), commit_every=commit_every) == 50
    assert read(path) == records(50)
    assert os.listdir(path.parent) == ["db"]


def test_existing_is_kept_unless_overwritten(tmp_path):
    path = tmp_path / "db"
    write_leveldb(path, records(3))
    with pytest.raises(DataError, match="exists already"):
        write_leveldb(path, records(5))
    assert len(read(path)) == 3
    assert write_leveldb(path, records(5), overwrite=True) == 5
    assert len(read(path)) == 5 and os.listdir(tmp_path) == ["db"]
    write_lmdb(tmp_path / "lmdb", records(1))
    with pytest.raises(DataError, match="is not a LevelDB folder"):
        write_leveldb(tmp_path / "lmdb", records(1), overwrite=True)


@pytest.mark.parametrize("commit_every", [1, 2, 100])
@pytest.mark.parametrize("order", ["abb", "abca", "cab" + "c", "bab"])
def test_keys_that_come_twice(tmp_path, order, commit_every):
    pairs = [(letter.encode(), b"") for letter in order]
    with pytest.raises(DataError, match="comes twice"):
        write_leveldb(tmp_path / "db", pairs, commit_every=commit_every)
    assert os.listdir(tmp_path) == []
    assert write_leveldb(tmp_path / "db", pairs[:-1], commit_every=commit_every) == len(order) - 1


def test_an_error_in_the_records_leaves_nothing(tmp_path):
    def failing():
        yield from records(5)
        raise KeyError("no such picture")

    with pytest.raises(KeyError, match="no such picture"):
        write_leveldb(tmp_path / "db", failing(), commit_every=2)
    assert os.listdir(tmp_path) == []
    (tmp_path / "file").write_text("")
    with pytest.raises(DataError, match="cannot write"):
        write_leveldb(tmp_path / "file" / "db", records(1))


# -- as a source of batches -----------------------------------------------------------------------------------------
@pytest.mark.parametrize("ranks", [1, 3])
def test_batches_equal_those_of_an_lmdb(tmp_path, ranks):
    rng = np.random.default_rng(0)
    pairs = [(b"%04d" % k, encode_datum(rng.integers(0, 256, (3, 6, 6), np.uint8), k)) for k in range(7)]
    write_lmdb(tmp_path / "lmdb", pairs)
    write_leveldb(tmp_path / "leveldb", pairs)
    for rank in range(ranks):
        found = []
        for backend in ("lmdb", "leveldb"):
            subject = transformer("crop_size: 4 mirror: true")
            with closing(DatumBatches(tmp_path / backend, backend, 4, subject, rank=rank, ranks=ranks)) as batches:
                found.append([batches.produce(b) for b in (0, 1, 2, 9, 3)])
        for (data, labels), (expected, expected_labels) in zip(*found, strict=True):
            np.testing.assert_array_equal(data, expected)
            np.testing.assert_array_equal(labels, expected_labels)


@needs_shared
def test_databases_written_by_caffe(tmp_path):
    folder = SHARED / "data" / "mnist"
    with gzip.open(folder / "t10k-images-idx3-ubyte.gz") as file:
        images = np.frombuffer(file.read(), np.uint8, offset=16).reshape(-1, 1, 28, 28)
    with gzip.open(folder / "t10k-labels-idx1-ubyte.gz") as file:
        labels = np.frombuffer(file.read(), np.uint8, offset=8)
    with LevelDBSource(shared_db("mnist300_leveldb", tmp_path)) as source:
        assert len(source) == 300
        for k in range(300):
            key, record = source.next()
            array, label = decode_datum(record, source="real", key=key)
            assert key == b"%08d" % k and label == labels[k]
            np.testing.assert_array_equal(array, images[k])
    with LevelDBSource(shared_db("images_encoded_leveldb", tmp_path)) as source:
        assert [decode_datum(source.next()[1], source="real")[1] for _ in range(len(source))] == [281, 1, 281]
