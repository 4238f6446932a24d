"""Remove temporary files and folders of killed writers with the next run, and keep those of running writers."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path

import pytest

import pycaffe_lms
from pycaffe_lms.data.database.lmdb_writer import write_lmdb
from pycaffe_lms.errors import DataError
from pycaffe_lms.formats import leftovers
from pycaffe_lms.formats.atomic import atomic_write
from pycaffe_lms.formats.leftovers import remove_leftovers, temporary

pytestmark = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="processes as Linux shows them")
ROOT = Path(pycaffe_lms.__file__).parents[1]
WRITER = """
import sys, time
from pathlib import Path
from pycaffe_lms.formats.atomic import atomic_write
def fill(part):
    part.write_bytes(b"half")
    print(flush=True)
    time.sleep(600)
atomic_write(Path(sys.argv[1]), fill)
"""
DATABASE = """
import sys, time
from pycaffe_lms.data.database.lmdb_writer import write_lmdb
def records():
    for k in range(1000):
        yield b"%08d" % k, bytes(10)
    print(flush=True)
    time.sleep(600)
    yield b"never", b""
write_lmdb(sys.argv[1], records(), commit_every=10)
"""

REPLACEMENT = """
import os, sys, time
from pycaffe_lms.data.database.lmdb_writer import write_lmdb
real = os.rename
def rename(old, new):
    real(old, new)
    print(flush=True)
    time.sleep(600)
os.rename = rename
write_lmdb(sys.argv[1], [(b"k", b"new")], overwrite=True)
"""


@contextmanager
def writing(program: str, path: Path):
    """Start a process that is in the middle of writing `path`; kill it at the end."""
    process = subprocess.Popen([sys.executable, "-c", program, str(path)], cwd=ROOT, stdout=subprocess.PIPE)
    try:
        process.stdout.readline()
        yield process
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


@pytest.fixture(autouse=True)
def _next_run(monkeypatch):
    monkeypatch.setattr(leftovers, "_seen", set())


def hidden(folder) -> list[str]:
    return sorted(name for name in os.listdir(folder) if name.startswith("."))


def test_a_living_writer_keeps_its_file_and_a_killed_one_does_not(tmp_path):
    """The next run may write any name there: a snapshot of another iteration has another one."""
    with writing(WRITER, tmp_path / "s_iter_5.caffemodel") as process:
        (part,) = hidden(tmp_path)
        assert part.startswith(".s_iter_5.caffemodel.") and part.endswith(".part")
        atomic_write(tmp_path / "s_iter_4.caffemodel", b"x")
        remove_leftovers(tmp_path)
        assert hidden(tmp_path) == [part] and (tmp_path / part).read_bytes() == b"half"
        process.send_signal(signal.SIGSTOP)
        remove_leftovers(tmp_path)
        assert hidden(tmp_path) == [part], "a stopped process may go on"
    leftovers._seen.clear()
    atomic_write(tmp_path / "s_iter_6.caffemodel", b"x")
    assert sorted(os.listdir(tmp_path)) == ["s_iter_4.caffemodel", "s_iter_6.caffemodel"]


def test_a_process_that_ended_but_was_not_waited_for_is_gone(tmp_path):
    with writing(WRITER, tmp_path / "a") as process:
        process.kill()
        while Path(f"/proc/{process.pid}/stat").read_text().split()[2] != "Z":
            time.sleep(0.01)
        remove_leftovers(tmp_path)
        assert not hidden(tmp_path)


def test_databases(tmp_path, caplog):
    with writing(DATABASE, tmp_path / "db"):
        (partial,) = hidden(tmp_path)
        write_lmdb(tmp_path / "db", [(b"k", b"v")])
        assert hidden(tmp_path) == [partial] and (tmp_path / partial / "data.mdb").exists()
        assert [r for r in caplog.records if r.levelno == logging.WARNING and partial in r.getMessage()]
    write_lmdb(tmp_path / "db", [(b"k", b"w")], overwrite=True)
    assert os.listdir(tmp_path) == ["db"]


def test_a_database_that_was_moved_away_gets_its_name_back(tmp_path):
    """A writer was killed between the two renames of a replacement, so only the old database exists."""
    write_lmdb(tmp_path / "db", [(b"k", b"old")])
    before = (tmp_path / "db" / "data.mdb").read_bytes()
    with writing(REPLACEMENT, tmp_path / "db"):
        assert not (tmp_path / "db").exists() and len(hidden(tmp_path)) == 2
    with pytest.raises(DataError, match="exists already"):
        write_lmdb(tmp_path / "db", [(b"k", b"new")])
    assert os.listdir(tmp_path) == ["db"] and (tmp_path / "db" / "data.mdb").read_bytes() == before


def _named(name: str, begun: str | None = None, machine: str | None = None, pid: int | None = None) -> str:
    """Return what `temporary` calls `name`, with another writer."""
    own, process, since = temporary(Path(name), "part").name.split(".")[2].split("-")
    return f".{name}.{machine or own}-{pid or process}-{begun or since}.01234567.part"


def test_whose_they_are(tmp_path):
    """A process number that is used again counts as ended; a writer on another machine after a week without a write."""
    mine, reused, gone = _named("mine"), _named("reused", begun="1"), _named("gone", pid=2**22 + 1)
    fresh, old = _named("fresh", machine="0123abcd"), _named("old", machine="0123abcd")
    others = [".a.part", ".a.0123456789ab.part", "a.0123abcd-1-1.01234567.part", ".a.0123abcd-1-1.01234567.parts"]
    for name in (mine, reused, gone, fresh, old, *others):
        (tmp_path / name).touch()
    os.utime(tmp_path / old, (0, time.time() - 8 * 86400))
    remove_leftovers(tmp_path)
    assert sorted(os.listdir(tmp_path)) == sorted([mine, fresh, *others])


@pytest.mark.parametrize("name", ["n" * 250, "\u6a21" * 80, "a.b c"])
def test_names_of_any_length(tmp_path, name):
    atomic_write(tmp_path / name, b"x")
    assert os.listdir(tmp_path) == [name]
    part = temporary(tmp_path / name, "part")
    part.write_bytes(b"half")
    remove_leftovers(tmp_path)
    assert part.exists()


def test_what_cannot_be_removed_is_said(tmp_path, caplog, monkeypatch):
    (tmp_path / _named("gone", pid=2**22 + 1)).touch()

    def refuse(path):
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(leftovers.os, "unlink", refuse)
    remove_leftovers(tmp_path)
    assert "cannot be removed: Operation not permitted" in caplog.text
