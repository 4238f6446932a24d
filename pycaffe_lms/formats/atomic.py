"""Files that are there whole or not at all."""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from pycaffe_lms.errors import CaffeError, Where


def atomic_write(
    path: str | os.PathLike, content: bytes | Callable[[Path], None], *, error: type[CaffeError] = CaffeError
) -> None:
    """Write `path` through a temporary file in the same folder: flush, fsync, rename.

    content: the bytes, or a function that writes to the (new) temporary path it is given.
    Whatever goes wrong, an old file at `path` stays as it was and the temporary file is removed.
    Raises: `error` with the system's reason; what a function raises goes through unchanged, except OSError.
    """
    target = Path(os.path.realpath(path))
    part = target.with_name(f".{target.name[:100]}.{secrets.token_hex(6)}.part")
    try:
        try:
            with open(part, "xb") as file:
                if not callable(content):
                    file.write(content)
            if callable(content):
                content(part)
            with open(part, "rb+") as file:
                os.fsync(file.fileno())
            os.replace(part, target)
        except BaseException:
            with suppress(FileNotFoundError):
                os.unlink(part)
            raise
        _sync_folder(target.parent)
    except OSError as failure:
        raise error(
            f"cannot be written: {failure.strerror or failure}",
            where=Where(file=str(path)),
            fix="check that the folder exists, is writable and has room",
        ) from failure


def _sync_folder(folder: Path) -> None:
    """Make the rename itself durable, where the system lets a folder be opened."""
    if os.name != "posix":
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
