"""Files are written whole or not at all."""

import os
import stat
from concurrent.futures import ThreadPoolExecutor

import pytest

from pycaffe_lms.errors import SnapshotError
from pycaffe_lms.formats import atomic
from pycaffe_lms.formats.atomic import atomic_write


def test_bytes_and_writers(tmp_path):
    path = tmp_path / "a"
    atomic_write(path, b"one")
    assert path.read_bytes() == b"one"
    atomic_write(str(path), lambda part: part.write_bytes(b"two"))
    assert path.read_bytes() == b"two" and os.listdir(tmp_path) == ["a"]


@pytest.mark.parametrize("failure", [ValueError, KeyboardInterrupt])
def test_a_writer_that_fails_leaves_the_old_file(tmp_path, failure):
    path = tmp_path / "a"
    path.write_bytes(b"old")

    def write(part):
        part.write_bytes(b"half")
        raise failure

    with pytest.raises(failure):
        atomic_write(path, write)
    assert path.read_bytes() == b"old" and os.listdir(tmp_path) == ["a"]


@pytest.mark.parametrize("step", ["fsync", "replace"])
def test_a_full_disk(tmp_path, monkeypatch, step):
    path = tmp_path / "a"
    path.write_bytes(b"old")

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(atomic.os, step, full)
    with pytest.raises(SnapshotError, match=r"a: cannot be written: No space left on device\n  fix: "):
        atomic_write(path, b"new", error=SnapshotError)
    assert path.read_bytes() == b"old" and os.listdir(tmp_path) == ["a"]


def test_a_folder_that_is_not_there(tmp_path):
    with pytest.raises(SnapshotError, match="cannot be written: No such file or directory"):
        atomic_write(tmp_path / "absent" / "a", b"", error=SnapshotError)


def test_a_link_stays_a_link_and_permissions_are_the_usual(tmp_path):
    (tmp_path / "link").symlink_to("real")
    atomic_write(tmp_path / "link", b"x")
    (tmp_path / "plain").touch()
    assert (tmp_path / "link").is_symlink() and (tmp_path / "real").read_bytes() == b"x"
    assert (tmp_path / "real").stat().st_mode == (tmp_path / "plain").stat().st_mode


def test_a_long_name(tmp_path):
    atomic_write(tmp_path / ("n" * 250), b"x")
    assert os.listdir(tmp_path) == ["n" * 250]


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="there are no pipes with names here")
@pytest.mark.parametrize("content", [b"all", lambda part: part.write_bytes(b"all")], ids=["bytes", "writer"])
def test_what_is_no_file_is_written_to_and_stays(tmp_path, content):
    path = tmp_path / "pipe"
    os.mkfifo(path)
    with ThreadPoolExecutor(1) as pool:
        read = pool.submit(path.read_bytes)
        atomic_write(path, content)
        assert read.result(60) == b"all"
    assert stat.S_ISFIFO(os.stat(path).st_mode) and os.listdir(tmp_path) == ["pipe"]
