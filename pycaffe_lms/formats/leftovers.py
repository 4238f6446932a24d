"""Name temporary files and folders after their writer, and remove those whose writer has ended.

    .NAME.MACHINE-PID-BEGUN.XXXXXXXX.part        a file, or with .partial a folder, that is being written
    .NAME.MACHINE-PID-BEGUN.XXXXXXXX.old         what was at NAME, until its replacement is there

MACHINE identifies this boot of this machine and its table of processes. BEGUN is the start time of the process, so that
another process with the same number is not taken for the writer. Writers on other machines cannot be looked up: what
they left is removed when it has not been written to for a week.
"""

from __future__ import annotations

import hashlib
import logging
import os
import re
import secrets
import shutil
import time
from functools import cache
from pathlib import Path

_log = logging.getLogger(__name__)
_NAME = re.compile(
    r"\.(?P<name>.+)\.(?P<machine>[0-9a-f]{8})-(?P<pid>\d+)-(?P<begun>\d+)\.[0-9a-f]{8}\.(part|partial|old)", re.DOTALL
)
_MOST_NAME = 100  # characters of NAME
_MOST_BYTES = 150  # of NAME; file systems take 255 bytes in all
_WEEK_S = 7 * 86400.0
_seen: set[str] = set()  # folders in which this process has removed leftovers


def temporary(target: Path, kind: str) -> Path:
    """Return a name for a temporary file ("part") or folder ("partial") beside `target`.

    The first call for a folder removes leftovers of ended writers there.
    """
    folder = os.path.realpath(target.parent)
    if folder not in _seen:
        _seen.add(folder)
        remove_leftovers(target.parent)
    pid = os.getpid()
    owner = f"{_machine()}-{pid}-{_begun(pid) or 0}"
    return target.with_name(f".{_short(target.name)}.{owner}.{secrets.token_hex(4)}.{kind}")


def remove_leftovers(folder: Path) -> None:
    """Remove what ended writers left in a folder; an `.old` that was not replaced gets its name back."""
    try:
        names = os.listdir(folder)
    except OSError:  # absent or unreadable: writing to it will raise
        return
    for name in sorted(names):
        found = _NAME.fullmatch(name)
        path = folder / name
        try:
            if found is not None and _is_left(path, found):
                _put_away(path, found["name"])
        except FileNotFoundError:  # another run removed it
            continue
        except OSError as error:
            _log.warning("%s, left by an ended run, cannot be removed: %s", path, error.strerror)


def _put_away(path: Path, name: str) -> None:
    target = path.with_name(name)
    if path.suffix == ".old" and not os.path.lexists(target):
        if len(name) == _MOST_NAME or len(os.fsencode(name)) > _MOST_BYTES - 4:  # it may go on
            _log.warning("%s is what an ended run was about to replace; rename or remove it", path)
            return
        os.rename(path, target)
        _log.warning("%s has its name again: an ended run was about to replace it", target)
        return
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        os.unlink(path)
    _log.info("Removed %s, which an ended run left.", path)


def _short(name: str) -> str:
    name = name[:_MOST_NAME]
    while len(os.fsencode(name)) > _MOST_BYTES:
        name = name[:-1]
    return name


def _is_left(path: Path, found: re.Match[str]) -> bool:
    """Return whether the writer of a temporary path has ended. Raises: OSError."""
    if found["machine"] != _machine() or found["begun"] == "0":
        newest: float = max(p.lstat().st_mtime for p in (path, *(path.iterdir() if path.is_dir() else ())))
        return time.time() - newest > _WEEK_S
    pid = int(found["pid"])
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return True
    except PermissionError:  # a process of another user, which the system may hide
        return False
    return _begun(pid) != int(found["begun"])


@cache
def _machine() -> str:
    """Return eight hexadecimal digits for this boot and this table of processes; zeros where they are unknown."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text()
        return hashlib.sha256((boot + os.readlink("/proc/self/ns/pid")).encode()).hexdigest()[:8]
    except OSError:
        return "0" * 8


def _begun(pid: int) -> int | None:
    """Return when a process began, in ticks since boot; None where it has ended or that is unknown."""
    try:
        state, *fields = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
    except OSError:
        return None
    return None if state in b"ZX" else int(fields[18])
