"""Write files that appear whole or not at all.

`Part` is the temporary file and holds every system call; `atomic_file` and `atomic_write` are what others use.
See also: `leftovers.py`, which names temporary files and removes those of killed runs.
"""

from __future__ import annotations

import hashlib
import io
import os
import secrets
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from ..errors import CaffeError, Where
from ..faults import of_files
from .leftovers import temporary


class Part:
    """Open a temporary file in the folder of `path`, for writing and reading; `finish` renames it to `path`.

    Until then an old file stays as it was. A device or a pipe, such as /dev/stdout, is never replaced: `finish` copies
    the content into it.

    Attributes:
        path: of the temporary file.
        target: the final path, links followed.
        file: unbuffered, binary.
    Raises: OSError.
    """

    def __init__(self, path: str | os.PathLike[str]):
        self.target = Path(os.path.realpath(path))
        self._through = self.target.exists() and not self.target.is_file() and not self.target.is_dir()
        beside = Path(tempfile.gettempdir(), self.target.name) if self._through else self.target
        self.path = temporary(beside, "part")
        self.file = io.FileIO(self.path, "x+")

    def write(self, content: bytes | memoryview) -> None:
        """Write all of `content` at the file's position."""
        of_files("write")
        left = memoryview(content).cast("B")
        while left:
            left = left[self.file.write(left) :]

    def sha256(self) -> bytes:
        """Return the SHA-256 of what was written; the file's position is its end afterwards."""
        self.file.seek(0)
        return _sha256(self.file)

    def finish(self) -> None:
        """Flush to the disk, close, rename, and flush the folder. On an error before the rename the file is removed."""
        if self._through:
            self._write_through()
            return
        try:
            of_files("fsync")
            os.fsync(self.file.fileno())
            self.file.close()
            of_files("rename")
            os.replace(self.path, self.target)
        except BaseException:
            self.discard()
            raise
        sync_folder(self.target.parent)

    def _write_through(self) -> None:
        try:
            self.file.seek(0)
            with open(self.target, "wb") as device:
                shutil.copyfileobj(self.file, device)
        finally:
            self.discard()

    def discard(self) -> None:
        """Close and remove the temporary file."""
        with suppress(OSError):
            self.file.close()
        self.path.unlink(missing_ok=True)


@contextmanager
def atomic_file(path: str | os.PathLike[str], *, error: type[CaffeError] = CaffeError) -> Iterator[Part]:
    """Give the block a temporary file beside `path`, and rename it to `path` at the end of the block.

    If the block raises, an old file at `path` stays as it was and the temporary file is removed. If the process is
    killed, the next process that writes to the folder removes it.
    Raises: `error` with the system's reason in place of OSError; other exceptions unchanged.
    """
    try:
        part = Part(path)
        try:
            yield part
        except BaseException:
            part.discard()
            raise
        part.finish()
    except OSError as failure:
        raise unwritable(path, failure, error) from failure


def atomic_write(
    path: str | os.PathLike[str], content: bytes | Callable[[Path], None], *, error: type[CaffeError] = CaffeError
) -> None:
    """Write `path` as `atomic_file` does.

    content: the bytes, or a function that writes them to the temporary path that it gets.
    """
    with atomic_file(path, error=error) as part:
        if callable(content):
            of_files("write")
            content(part.path)
        else:
            part.write(content)


def try_write(path: str | os.PathLike[str]) -> None:
    """Raise OSError unless `path` could be written.

    Makes missing folders, and beside `path` writes, flushes, renames and removes a file with a name of the same length.
    """
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    end = secrets.token_hex(6)
    part = Part(path.with_name(path.name[: -len(end)] + end))
    try:
        part.write(bytes(4096))
        part.finish()
    finally:
        part.discard()
        part.target.unlink(missing_ok=True)


def file_sha256(path: str | os.PathLike[str], nbytes: int | None = None) -> bytes:
    """Return the SHA-256 of a file, or of its first `nbytes`. Raises: OSError."""
    with open(path, "rb", buffering=0) as file:
        return _sha256(file, nbytes)


def unwritable(path: str | os.PathLike[str], failure: OSError, error: type[CaffeError]) -> CaffeError:
    """Return the error for a file that the system refuses to write."""
    return error(
        f"cannot be written: {failure.strerror or failure}",
        where=Where(file=os.fspath(path)),
        fix="check that the folder exists, is writable and has room",
    )


def _sha256(file: io.FileIO, nbytes: int | None = None) -> bytes:
    """Return the SHA-256 of the rest of a file, or of its next `nbytes`. Other threads run meanwhile."""
    digest, buffer = hashlib.sha256(), memoryview(bytearray(1 << 20))
    left = sys.maxsize if nbytes is None else max(nbytes, 0)
    while left and (count := file.readinto(buffer[: min(left, len(buffer))])):
        digest.update(buffer[:count])
        left -= count
    return digest.digest()


def sync_folder(folder: Path) -> None:
    """Flush a folder to the disk, so that a rename in it lasts; nothing where the system cannot open folders."""
    if os.name != "posix":
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        of_files("fsync")
        os.fsync(handle)
    finally:
        os.close(handle)
