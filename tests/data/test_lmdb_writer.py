"""Writing LMDBs: whole or not at all."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import lmdb
import pytest

import pycaffe_lms.data.database.lmdb_writer as lmdb_writer
from pycaffe_lms.data.database.lmdb_source import LMDBSource
from pycaffe_lms.data.database.lmdb_writer import write_lmdb
from pycaffe_lms.errors import DataError

ROOT = Path(__file__).resolve().parents[2]


def read(path):
    with lmdb.open(str(path), readonly=True) as environment, environment.begin() as transaction:
        return list(transaction.cursor())


def records(count, size=10):
    return [(b"%06d" % k, bytes([k % 256]) * size) for k in range(count)]


@pytest.mark.parametrize("commit_every", [1, 7, 1000])
def test_what_is_written_is_read(tmp_path, commit_every):
    path = tmp_path / "new" / "folder" / "db"
    assert write_lmdb(str(path), iter(records(50)), commit_every=commit_every) == 50
    assert read(path) == records(50)
    assert os.listdir(path.parent) == ["db"]


def test_the_map_grows(tmp_path, monkeypatch):
    monkeypatch.setattr(lmdb_writer, "_FIRST_MAP_BYTES", 1 << 16)
    monkeypatch.setattr(lmdb_writer, "_COMMIT_BYTES", 1 << 17)
    assert write_lmdb(tmp_path / "db", records(300, 3000)) == 300
    assert read(tmp_path / "db") == records(300, 3000)


def test_the_disk_is_asked_to_write_on_the_way(tmp_path, monkeypatch):
    """After every so many bytes, beside commits for which the map grows; its error is one of the database."""
    monkeypatch.setattr(lmdb_writer, "_FIRST_MAP_BYTES", 1 << 16)
    monkeypatch.setattr(lmdb_writer, "_SYNC_BYTES", 5000)
    asked, sync = [], lmdb_writer._sync
    monkeypatch.setattr(lmdb_writer, "_sync", lambda folder: asked.append(folder) or sync(folder))
    wanted = records(300, 1000)
    write_lmdb(tmp_path / "db", wanted, commit_every=5)
    assert read(tmp_path / "db") == wanted and 1 <= len(asked) <= 59

    def fails(folder):
        raise OSError("the disk is full")

    monkeypatch.setattr(lmdb_writer, "_sync", fails)
    with pytest.raises(DataError, match="the disk is full"):
        write_lmdb(tmp_path / "other", wanted, commit_every=5)
    assert os.listdir(tmp_path) == ["db"]


def test_existing_is_kept_unless_overwritten(tmp_path):
    path = tmp_path / "db"
    write_lmdb(path, records(3))
    with pytest.raises(DataError, match="exists already"):
        write_lmdb(path, records(5))
    assert len(read(path)) == 3
    assert write_lmdb(path, records(5), overwrite=True) == 5
    assert len(read(path)) == 5 and os.listdir(tmp_path) == ["db"]


def test_overwrite_removes_nothing_but_an_lmdb(tmp_path):
    (tmp_path / "precious").mkdir()
    (tmp_path / "precious" / "thesis").write_text("years")
    with pytest.raises(DataError, match="not an LMDB"):
        write_lmdb(tmp_path / "precious", records(1), overwrite=True)
    assert (tmp_path / "precious" / "thesis").exists() and os.listdir(tmp_path) == ["precious"]


def test_an_error_in_the_records_leaves_nothing(tmp_path):
    write_lmdb(tmp_path / "old", records(2))

    def failing():
        yield from records(5)
        raise KeyError("no such picture")

    for name in ("new", "old"):
        with pytest.raises(KeyError, match="no such picture"):
            write_lmdb(tmp_path / name, failing(), commit_every=2, overwrite=True)
    assert os.listdir(tmp_path) == ["old"] and len(read(tmp_path / "old")) == 2


@pytest.mark.parametrize(
    "bad, words", [([(b"a", b""), (b"a", b"")], "twice"), ([(b"", b"")], "0 bytes"), ([(b"k" * 512, b"")], "512 bytes")]
)
def test_bad_keys(tmp_path, bad, words):
    with pytest.raises(DataError, match=words):
        write_lmdb(tmp_path / "db", bad)
    assert os.listdir(tmp_path) == []


def test_a_place_that_cannot_be_written(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(DataError, match="cannot write"):
        write_lmdb(tmp_path / "file" / "db", records(1))


@pytest.mark.skipif(os.name != "posix", reason="needs SIGKILL")
def test_a_killed_run_leaves_no_database(tmp_path):
    program = (
        "import itertools, sys\n"
        "from pycaffe_lms.data.database.lmdb_writer import write_lmdb\n"
        "write_lmdb(sys.argv[1], ((b'%08d' % k, bytes(100)) for k in itertools.count()), commit_every=10)\n"
    )
    process = subprocess.Popen([sys.executable, "-c", program, str(tmp_path / "db")], cwd=ROOT)
    deadline = time.monotonic() + 60
    while not list(tmp_path.glob(".db.*.partial/data.mdb")) and time.monotonic() < deadline:
        time.sleep(0.02)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert not (tmp_path / "db").exists() and len(os.listdir(tmp_path)) == 1
    with pytest.raises(DataError, match="no database"):
        LMDBSource(tmp_path / "db")
    write_lmdb(tmp_path / "db", records(3))
    assert len(read(tmp_path / "db")) == 3
