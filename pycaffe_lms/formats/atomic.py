"""Files that are there whole or not at all. Every system call that such a file takes is in `Part`."""

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
    """A temporary file in the folder of `path`, open for writing and reading; `finish` gives it that name.

    path: of the temporary file. target: what `path` is in the end, links followed. file: unbuffered, binary.
    Until `finish` has renamed it, an old file at `target` stays as it was. What is no file, such as /dev/stdout or a
    pipe, is written to at `finish` and never replaced. Raises: OSError.
    """

    def __init__(self, path: str | os.PathLike[str]):
        self.target = Path(os.path.realpath(path))
        self._through = self.target.exists() and not self.target.is_file() and not self.target.is_dir()
        beside = Path(tempfile.gettempdir(), self.target.name) if self._through else self.target
        self.path = temporary(beside, "part")
        self.file = io.FileIO(self.path, "x+")

    def write(self, content: bytes | memoryview) -> None:
        """Write all of `content` where the file stands."""
        of_files("write")
        left = memoryview(content).cast("B")
        while left:
            left = left[self.file.write(left) :]

    def sha256(self) -> bytes:
        """The digest of what was written; the file stands at its end afterwards."""
        self.file.seek(0)
        return _sha256(self.file)

    def finish(self) -> None:
        """Flush to the disk, close, rename, flush the folder. What fails before the rename discards the file."""
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
        with suppress(FileNotFoundError):
            os.unlink(self.path)


@contextmanager
def atomic_file(path: str | os.PathLike[str], *, error: type[CaffeError] = CaffeError) -> Iterator[Part]:
    """Within: a temporary file beside `path`, which becomes it at the end. Whatever is raised inside, an old file at
    `path` stays as it was and the temporary file is removed; where the process is killed, by the next that writes to
    the folder.

    Raises: `error` with the system's reason in place of OSError; everything else goes through unchanged.
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
    """Write `path` as `atomic_file` does. content: the bytes, or a function that writes to the (new) temporary path it
    is given."""
    with atomic_file(path, error=error) as part:
        if callable(content):
            of_files("write")
            content(part.path)
        else:
            part.write(content)


def try_write(path: str | os.PathLike[str]) -> None:
    """Find out whether `path` could be written: make the folders that are missing, and beside `path` write, flush,
    rename and remove a file whose name begins as its does and is as long. Raises: OSError."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    end = secrets.token_hex(6)
    part = Part(path.with_name(path.name[: -len(end)] + end))
    try:
        part.write(bytes(4096))
        part.finish()
    finally:
        part.discard()
        remove(part.target)


def file_sha256(path: str | os.PathLike[str], nbytes: int | None = None) -> bytes:
    """The digest of a file, or of its first `nbytes`. Raises: OSError."""
    with open(path, "rb", buffering=0) as file:
        return _sha256(file, nbytes)


def remove(path: str | os.PathLike[str]) -> None:
    """Remove a file, if it is there. Raises: OSError."""
    with suppress(FileNotFoundError):
        os.unlink(path)


def unwritable(path: str | os.PathLike[str], failure: OSError, error: type[CaffeError]) -> CaffeError:
    """The error for a file that the system does not let be written."""
    return error(
        f"cannot be written: {failure.strerror or failure}",
        where=Where(file=os.fspath(path)),
        fix="check that the folder exists, is writable and has room",
    )


def _sha256(file: io.FileIO, nbytes: int | None = None) -> bytes:
    """The digest of the rest of a file, or of so many bytes of it. Other threads run meanwhile."""
    digest, buffer = hashlib.sha256(), memoryview(bytearray(1 << 20))
    left = sys.maxsize if nbytes is None else max(nbytes, 0)
    while left and (count := file.readinto(buffer[: min(left, len(buffer))])):
        digest.update(buffer[:count])
        left -= count
    return digest.digest()


def sync_folder(folder: Path) -> None:
    """Make the rename itself durable, where the system lets a folder be opened."""
    if os.name != "posix":
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        of_files("fsync")
        os.fsync(handle)
    finally:
        os.close(handle)
