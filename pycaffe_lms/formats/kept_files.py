"""Keep contents that can be made again in the files of a folder, compressed: the next process reads them.

Files appear whole or not at all, and hold their own check sum: several processes may use one folder. A damaged file is
passed over with a warning, as is a folder that cannot be written to.
"""

from __future__ import annotations

import gzip
import logging
import os
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from ..errors import CaffeError
from .atomic import atomic_write

_log = logging.getLogger(__name__)
_T = TypeVar("_T")
_GZIP = 16 + zlib.MAX_WBITS  # how zlib calls the format
MOST_BYTES = 256 << 20  # of a content


class KeptFiles:
    """Keep contents by name in a folder, which need not exist yet.

    Args:
        suffix: of the files' names.
        most: files that are kept; beyond it the oldest are removed.
        what: what is kept, for the warning that it is not, such as "the plan is".
    """

    def __init__(self, folder: Path, suffix: str, most: int, what: str):
        self.folder, self._suffix, self._most, self._what = folder, suffix, most, what
        self._writes = True

    def path(self, name: str) -> Path:
        """Return the file of a name."""
        return self.folder / f"{name}{self._suffix}"

    def read(self, name: str, parse: Callable[[bytes], _T]) -> _T | None:
        """Return what `parse` makes of the content of a name; None: there is none, or it is damaged.

        parse: raises ValueError for a content that it cannot use.
        """
        path = self.path(name)
        try:
            return parse(_unpacked(path.read_bytes()))
        except (FileNotFoundError, NotADirectoryError):  # `write` says what is wrong with the folder
            return None
        except (OSError, ValueError, zlib.error, RecursionError) as error:
            _log.warning("%s is damaged and not used: %s", path, error)
            return None

    def write(self, name: str, content: bytes) -> None:
        """Keep a content. Where that fails a warning says so, and no more is written."""
        if not self._writes:
            return
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            atomic_write(self.path(name), gzip.compress(content, mtime=0))
            self._prune()
        except (OSError, CaffeError) as error:
            message = str(error) if isinstance(error, OSError) else f"{self.folder} {error.message}"
            text = "%s not kept for the next time: %s; -cache DIR names a folder, -cache off none"
            _log.warning(text, self._what, message)
            self._writes = False

    def _prune(self) -> None:
        """Remove the oldest files beyond the most; another process may remove them at the same time."""
        entries = [e for e in os.scandir(self.folder) if e.name.endswith(self._suffix)]
        if len(entries) > self._most:
            dated = sorted((_age(Path(e.path)), e.path) for e in entries)
            for _, name in dated[: len(entries) - self._most]:
                Path(name).unlink(missing_ok=True)


def _unpacked(packed: bytes) -> bytes:
    """Return what was compressed. Raises ValueError, zlib.error: it is damaged, or has more than `MOST_BYTES`."""
    stream = zlib.decompressobj(_GZIP)
    content = stream.decompress(packed, MOST_BYTES)
    if not stream.eof:
        raise ValueError("it is cut off, or too long")
    return content


def _age(path: Path) -> int:
    """Return when a file was written, in nanoseconds; 0 if it is gone."""
    try:
        return path.stat().st_mtime_ns
    except FileNotFoundError:
        return 0
