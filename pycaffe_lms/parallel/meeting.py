"""Makes the folder where the ranks of one training on this machine find each other, and removes it.

A lock on a file in the folder shows that the process that made it lives: the system drops the lock with the process.
Rank 0 removes the folder as soon as all ranks are connected; the next meeting removes what a killed run left.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from contextlib import suppress
from pathlib import Path

from ..errors import UsageError

try:
    import fcntl
except ImportError:  # without file locks there are no local sockets either
    fcntl = None  # type: ignore[assignment]

_PREFIX = "caffe-ranks-"
_LOCK = "alive"
_UNLOCKED_S = 3600.0  # a folder without the file is being made, or was left by a process that ended before it made it
_LONGEST_PATH = 100  # bytes; the system's limit for the address of a local socket is 104 to 108


class Meeting:
    """Hold a meeting place for the ranks of one training on this machine. Every rank is given `path`.

    Raises UsageError where the temporary directory cannot be used."""

    def __init__(self) -> None:
        parent = Path(tempfile.gettempdir())
        _remove_stale(parent)
        try:
            self._folder, self._lock = _make(parent)
        except OSError as error:
            raise UsageError(
                f"{parent}: a folder where ranks meet cannot be made: {error.strerror}",
                fix="set TMPDIR to a folder that is writable and has room",
            ) from error
        self.path = str(self._folder / "meeting")
        if len(os.fsencode(self.path)) > _LONGEST_PATH:
            self.__exit__()
            raise UsageError(f"{self.path} is too long for a local socket", fix="set TMPDIR to a shorter path")

    def __enter__(self) -> Meeting:
        return self

    def __exit__(self, *exc: object) -> None:
        shutil.rmtree(self._folder, ignore_errors=True)
        os.close(self._lock)


def leave(path: str) -> None:
    """Remove the folder of a meeting, given its `path`, once all ranks are connected."""
    place = Path(path)
    with suppress(OSError):  # the parent process removes it too when it ends
        place.unlink()
        (place.parent / _LOCK).unlink()
        place.parent.rmdir()


def _make(parent: Path) -> tuple[Path, int]:
    """Make a folder, again where another process just removed it; return it and the file whose lock shows its use."""
    while True:
        folder = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=parent))
        try:
            lock = os.open(folder / _LOCK, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
        except BaseException:
            folder.rmdir()
            raise
        if _locked(lock) and os.fstat(lock).st_nlink:
            return folder, lock
        os.close(lock)


def _remove_stale(parent: Path) -> None:
    """Remove folders of this user whose processes have ended. Another process may remove them at the same time."""
    for folder in parent.glob(_PREFIX + "*"):
        with suppress(OSError):
            status = folder.lstat()
            if folder.is_symlink() or not folder.is_dir() or status.st_uid != os.getuid():
                continue
            try:
                lock = os.open(folder / _LOCK, os.O_RDWR)
            except FileNotFoundError:
                if time.time() - status.st_mtime > _UNLOCKED_S:
                    shutil.rmtree(folder, ignore_errors=True)
                continue
            try:
                if _locked(lock):
                    shutil.rmtree(folder, ignore_errors=True)
            finally:
                os.close(lock)


def _locked(handle: int) -> bool:
    """Lock a file; return whether that succeeded."""
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True
