"""Tests folders where ranks meet: removed when all are connected, and after a kill by the next meeting."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from pycaffe_lms.backend import get_device
from pycaffe_lms.errors import UsageError
from pycaffe_lms.parallel.host import HostCommunicator
from pycaffe_lms.parallel.meeting import Meeting


@pytest.fixture
def folder(tmp_path_factory, monkeypatch):
    """Return a temporary directory with a short path, as the address of a socket must have."""
    with tempfile.TemporaryDirectory(prefix="m-") as folder:
        monkeypatch.setattr(tempfile, "tempdir", folder)
        yield Path(folder)


def test_it_is_removed_at_its_end(folder):
    with Meeting() as meeting:
        assert Path(meeting.path).parent.parent == folder and Path(meeting.path).parent.stat().st_mode & 0o777 == 0o700
    assert not list(folder.iterdir())


def test_it_is_removed_when_all_have_met(folder):
    with Meeting() as meeting:
        HostCommunicator(get_device("cpu"), meeting.path, 1, 0).close()
        assert not list(folder.iterdir())


def test_what_a_killed_process_left_is_removed_by_the_next_and_what_is_used_stays(folder):
    code = f"""
import tempfile, time
tempfile.tempdir = {str(folder)!r}
from pycaffe_lms.parallel.meeting import Meeting
meeting = Meeting()
open(meeting.path, "w").close()
print(meeting.path, flush=True)
time.sleep(600)
"""
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, env=environment)
    try:
        left = Path(process.stdout.readline().strip()).parent
        with Meeting() as first, Meeting():
            assert left.is_dir() and Path(first.path).parent.is_dir() and len(list(folder.iterdir())) == 3
            process.send_signal(signal.SIGKILL)
            process.wait()
            assert left.is_dir()
            with Meeting():
                assert not left.exists() and len(list(folder.iterdir())) == 3
    finally:
        process.kill()
        process.stdout.close()
        process.wait()
    assert not list(folder.iterdir())


def test_others_are_left_alone(folder):
    """A folder that is being made has no lock yet; links and files are no meetings."""
    new, old = folder / "caffe-ranks-new", folder / "caffe-ranks-old"
    new.mkdir(), old.mkdir()
    os.utime(old, (time.time() - 7200,) * 2)
    (folder / "elsewhere").mkdir()
    (folder / "elsewhere" / "alive").touch()
    (folder / "caffe-ranks-link").symlink_to(folder / "elsewhere")
    (folder / "caffe-ranks-file").touch()
    with Meeting():
        pass
    assert sorted(p.name for p in folder.iterdir()) == [
        "caffe-ranks-file",
        "caffe-ranks-link",
        "caffe-ranks-new",
        "elsewhere",
    ]


def test_a_temporary_directory_that_cannot_be_used(folder, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(folder / "absent"))
    with pytest.raises(UsageError, match=r"absent: a folder where ranks meet cannot be made: No such (.|\n)*TMPDIR"):
        Meeting()
    deep = folder / ("n" * 100)
    deep.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(deep))
    with pytest.raises(UsageError, match=r"too long for a local socket(.|\n)*TMPDIR"):
        Meeting()
    assert not list(deep.iterdir())
