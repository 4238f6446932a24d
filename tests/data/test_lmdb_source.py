"""The LMDB cursor: order, wrapping, sharing, and wrong or damaged databases."""

import gc
import gzip
import os
import threading

import lmdb
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import pycaffe_lms.data.database.lmdb_source as lmdb_source
from pycaffe_lms.data.database.datum import decode_datum
from pycaffe_lms.data.database.lmdb_source import LMDBSource
from pycaffe_lms.data.database.lmdb_writer import write_lmdb
from pycaffe_lms.data.database.open import open_database
from pycaffe_lms.errors import DataError, LayerParamError
from tests.data.helpers import numbered_lmdb, shared_db
from tests.shared_data import SHARED, needs_shared

KEYS = [b"%04d" % k for k in range(10)]
RESTARTING = "Restarting data prefetching from start, as after every 10 records from now on (logged once)."


@pytest.fixture
def ten(tmp_path):
    path = tmp_path / "ten_lmdb"
    write_lmdb(path, ((key, b"value " + key) for key in reversed(KEYS)))
    yield path
    gc.collect()
    assert not LMDBSource.handles._open, "an environment was left open"


def keys(source, count):
    return [source.next()[0] for _ in range(count)]


def test_key_order_and_wrap(ten, caplog):
    with LMDBSource(ten) as source:
        assert len(source) == 10
        assert source.next() == (b"0000", b"value 0000")
        with caplog.at_level("INFO"):
            assert keys(source, 32) == KEYS[1:] + KEYS * 2 + KEYS[:3]
        assert caplog.messages == [RESTARTING]
        assert source.position == 3


@given(moves=st.lists(st.tuples(st.integers(0, 25), st.integers(0, 12)), max_size=6))
@settings(max_examples=50)
def test_seek(tmp_path_factory, moves):
    path = tmp_path_factory.getbasetemp() / "seek_lmdb"
    if not path.exists():
        write_lmdb(path, ((key, b"") for key in KEYS))
    with LMDBSource(path) as source:
        for index, count in moves:
            source.seek(index)
            assert keys(source, count) == [KEYS[(index + k) % 10] for k in range(count)]


def test_every_record_once(ten, caplog):
    """Wherever the cursor is, without moving it; nothing "restarts"."""
    with caplog.at_level("INFO"), LMDBSource(ten) as source:
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
    first, second = LMDBSource(ten), LMDBSource(link)
    assert keys(first, 3) == KEYS[:3]
    first.close()
    first.close()
    assert keys(second, 2) == KEYS[:2]
    with pytest.raises(DataError, match="closed"):
        first.next()
    second.close()
    LMDBSource(ten).close()


def test_many_threads_share(ten):
    errors = []

    def work():
        try:
            for _ in range(30):
                with LMDBSource(ten) as source:
                    assert keys(source, 10) == KEYS
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors


def test_dropping_a_source_closes_it(ten):
    source = LMDBSource(ten)
    del source
    gc.collect()
    assert not LMDBSource.handles._open


def test_read_only_folder_needs_no_lock_file(ten, monkeypatch):
    (ten / "lock.mdb").unlink()
    os.chmod(ten, 0o555)
    # root may write anywhere, so the refusal itself is played
    plain = lmdb_source._open_lmdb

    def refuse_lock(real, lock):
        if lock:
            raise lmdb.ReadonlyError("Permission denied")
        return plain(real, lock)

    monkeypatch.setattr(lmdb_source, "_open_lmdb", refuse_lock)
    monkeypatch.setattr(lmdb_source, "_may_write_lock", lambda real: False)
    with LMDBSource(ten) as source:
        assert keys(source, 10) == KEYS
    assert not (ten / "lock.mdb").exists()
    os.chmod(ten, 0o755)


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may write anywhere")
def test_really_read_only_folder(ten):
    (ten / "lock.mdb").unlink()
    os.chmod(ten, 0o555)
    with LMDBSource(ten) as source:
        assert keys(source, 10) == KEYS
    os.chmod(ten, 0o755)


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
def test_a_forked_child_gets_an_error_and_harms_nobody(ten):
    with LMDBSource(ten) as source:
        child = os.fork()
        if child == 0:
            try:
                LMDBSource(ten)
            except DataError as error:
                source.close()
                os._exit(0 if "forked" in str(error) else 1)
            os._exit(2)
        assert os.waitpid(child, 0)[1] == 0
        assert keys(source, 10) == KEYS


def test_empty_database(tmp_path):
    write_lmdb(tmp_path / "empty", [])
    with LMDBSource(tmp_path / "empty") as source:
        assert len(source) == 0
        with pytest.raises(DataError, match="no records"):
            source.next()
        with pytest.raises(DataError, match="no records"):
            source.seek(3)


def test_absent(tmp_path):
    with pytest.raises(DataError) as caught:
        LMDBSource(tmp_path / "nothing")
    assert "no database" in str(caught.value) and "pycaffe-lms dataset" in caught.value.fix
    assert not (tmp_path / "nothing").exists()


def test_things_that_are_no_lmdb(tmp_path):
    (tmp_path / "file").write_bytes(b"x")
    (tmp_path / "empty").mkdir()
    (tmp_path / "level").mkdir()
    (tmp_path / "level" / "CURRENT").write_text("MANIFEST-000002\n")
    (tmp_path / "text").mkdir()
    (tmp_path / "text" / "data.mdb").write_text("hello " * 5000)
    (tmp_path / "none").mkdir()
    (tmp_path / "none" / "data.mdb").write_bytes(b"")
    for name, words in [
        ("file", "a file"),
        ("empty", "no data.mdb"),
        ("level", "LevelDB"),
        ("text", "not an LMDB"),
        ("none", "not an LMDB"),
    ]:
        with pytest.raises(DataError, match=words) as caught:
            LMDBSource(tmp_path / name)
        assert name in str(caught.value) and caught.value.fix


def test_named_databases_are_refused(tmp_path):
    with lmdb.open(str(tmp_path / "named"), max_dbs=2) as environment:
        environment.open_db(b"inner")
    with pytest.raises(DataError, match="named databases"):
        LMDBSource(tmp_path / "named")


@pytest.mark.parametrize("cut", [0.3, 0.9, 0.999])
def test_cut_short(tmp_path, cut):
    path = numbered_lmdb(tmp_path / "db", 500, (1, 20, 20)) / "data.mdb"
    os.truncate(path, int(path.stat().st_size * cut))
    with pytest.raises(DataError, match="pages are expected"):
        LMDBSource(path.parent)
    gc.collect()
    assert not LMDBSource.handles._open


@given(st.data())
@settings(max_examples=150, deadline=None)
def test_damaged_pages_never_crash(tmp_path_factory, data):
    """Without the check before LMDB reads them, some of these end the process with a bus error."""
    folder = tmp_path_factory.mktemp("damaged")
    whole = tmp_path_factory.getbasetemp() / "whole"
    if not whole.exists():  # small and large values, two levels of pages
        write_lmdb(whole, ((b"%05d" % k, bytes(400 if k % 9 else 5000)) for k in range(200)))
    content = bytearray((whole / "data.mdb").read_bytes())
    page = data.draw(st.integers(0, len(content) // 4096 - 1))
    for offset in data.draw(st.lists(st.integers(0, 80) | st.integers(0, 4095), min_size=1, max_size=8)):
        content[page * 4096 + offset] = data.draw(st.integers(0, 255))
    (folder / "data.mdb").write_bytes(content)
    try:
        with LMDBSource(folder) as source:
            keys(source, len(source) + 1)
    except DataError as error:
        assert str(folder) in str(error)


def test_backends(ten):
    for backend in ("LMDB", "lmdb", 1):
        with open_database(ten, backend) as source:
            assert len(source) == 10
    with pytest.raises(DataError, match="backend: LMDB"):
        open_database(ten, 0)
    for wrong in ("hdf5", 7):
        with pytest.raises(LayerParamError, match=str(wrong)):
            open_database(ten, wrong)


@needs_shared
def test_database_written_by_caffe(tmp_path):
    folder = SHARED / "data" / "mnist"
    with gzip.open(folder / "t10k-images-idx3-ubyte.gz") as file:
        images = np.frombuffer(file.read(), np.uint8, offset=16).reshape(-1, 1, 28, 28)
    with gzip.open(folder / "t10k-labels-idx1-ubyte.gz") as file:
        labels = np.frombuffer(file.read(), np.uint8, offset=8)
    with LMDBSource(shared_db("mnist300_lmdb", tmp_path)) as source:
        assert len(source) == 300
        for k in range(300):
            key, record = source.next()
            array, label = decode_datum(record, source="real", key=key)
            assert key == b"%08d" % k and label == labels[k]
            np.testing.assert_array_equal(array, images[k])
