"""Read files, and parse and serialize protobuf messages, with errors a user can act on."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TextIO, TypeVar

from google.protobuf.message import DecodeError, EncodeError, Message

from ..errors import CaffeError, DataError, Where, human_bytes

_M = TypeVar("_M", bound=Message)
MAX_BYTES = 2**31 - 1
DAMAGED = "the file is damaged, or not what it is taken for: get it, or write it, again"
"""The `fix` of errors about content that makes no sense."""
_HDF5 = b"\x89HDF\r\n\x1a\n"


def could_not_open(path: str | os.PathLike[str], failure: OSError, error: type[CaffeError]) -> CaffeError:
    """Return the error for a file that cannot be opened; for a missing one with pycaffe's words."""
    message = f"Could not open file {os.fspath(path)}"
    if not isinstance(failure, FileNotFoundError):
        message += f": {failure.strerror or failure}"
    return error(message, fix=f"check the path; a relative one begins at {os.getcwd()}")


def check_readable(path: str | os.PathLike[str], error: type[CaffeError]) -> None:
    """Raise `could_not_open` of a file that cannot be opened, so that it is said before work begins."""
    try:
        with open(path, "rb"):
            pass
    except OSError as failure:
        raise could_not_open(path, failure, error) from None


@contextmanager
def open_text(path: str | os.PathLike[str], what: str, fix: str = "check the path") -> Iterator[TextIO]:
    """Open a text file for the block; bytes that are not UTF-8 are kept. Raises: DataError, "cannot read WHAT"."""
    try:
        with open(path, encoding="utf-8", errors="surrogateescape") as file:
            yield file
    except OSError as error:
        raise DataError(f"cannot read {what}: {error.strerror}", where=Where(file=os.fspath(path)), fix=fix) from error


def read_bytes(path: str | os.PathLike[str], error: type[CaffeError], head: int = 0) -> bytes:
    """Return a file's content. Raises: `error` for one that is missing, unreadable, empty or over 2 GiB - 1.

    Of a device or pipe whose first `head` bytes have a 0 among them, only these are returned: /dev/zero has no end."""
    try:
        found = os.stat(path)
        size = found.st_size
        if size > MAX_BYTES:
            raise error(
                f"{human_bytes(size)}; protobuf files hold at most 2 GiB - 1",
                where=Where(file=os.fspath(path)),
                fix="keep nets of this size as HDF5 (snapshot_format: HDF5)",
            )
        with open(path, "rb") as file:
            # read(n) takes n bytes of memory first, so only devices and pipes are read with a limit
            if stat.S_ISREG(found.st_mode):
                content = file.read()
            else:
                content = file.read(head)
                if len(content) == head and b"\0" not in content:
                    content += file.read(MAX_BYTES + 1)
    except OSError as failure:
        raise could_not_open(path, failure, error) from None
    if not content:
        fix = "it may have been cut off when it was written or copied: get it again"
        raise error("the file is empty", where=Where(file=os.fspath(path)), fix=fix)
    return content


def parse_message(message: _M, path: str | os.PathLike[str], what: str, error: type[CaffeError]) -> _M:
    """Fill `message` from a binary file and return it. Raises: `error`, quoting the file's first bytes."""
    content = read_bytes(path, error)
    try:
        message.ParseFromString(content)
    except (DecodeError, UnicodeDecodeError):
        raise not_a(what, path, content, error) from None
    return message


def not_a(what: str, path: str | os.PathLike[str], content: bytes, error: type[CaffeError]) -> CaffeError:
    """Return the error for a file that is not `what`: of another kind, or damaged."""
    head = content[:24]
    printable = all(32 <= byte < 127 or byte in b"\t\r\n" for byte in content[:200])
    if content.startswith(b"version https://git-lfs"):
        fix = "this is a Git LFS pointer: fetch the file itself with `git lfs pull`"
    elif printable:
        fix = "this is a text file: check that the right file was given, or download it again"
    else:
        fix = "the file is damaged or cut short, or of another kind: copy or download it again"
    return error(
        f"not {what}: {len(content)} bytes that begin with {head!r} cannot be read as one",
        where=Where(file=os.fspath(path)),
        fix=fix,
    )


def serialize(message: Message, path: str | os.PathLike[str], error: type[CaffeError]) -> bytes:
    """Serialize a message. Raises: `error` for one over protobuf's 2 GiB - 1, or with a required field missing."""
    try:
        content = message.SerializeToString()
    except (EncodeError, ValueError) as failure:
        raise error(f"cannot be written: {failure}", where=Where(file=os.fspath(path))) from None
    check_size(len(content), path, error)
    return content


def check_size(nbytes: int, path: str | os.PathLike[str], error: type[CaffeError]) -> None:
    """Raise `error` where `nbytes` is more than protobuf's 2 GiB - 1."""
    if nbytes > MAX_BYTES:
        raise error(
            f"{human_bytes(nbytes)} cannot be written: protobuf files hold at most 2 GiB - 1",
            where=Where(file=os.fspath(path)),
            fix="write HDF5 (snapshot_format: HDF5, or a path that ends in .h5)",
        )


def is_hdf5(path: str | os.PathLike[str]) -> bool:
    """Return whether a file has HDF5's signature: at byte 0, 512, 1024, 2048, ..."""
    try:
        with open(path, "rb") as file:
            end, offset = file.seek(0, os.SEEK_END), 0
            while offset < end:
                file.seek(offset)
                if file.read(len(_HDF5)) == _HDF5:
                    return True
                offset = 2 * offset or 512
    except OSError:
        return False  # `read_bytes` raises for it
    return False
