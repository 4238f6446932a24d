"""Keep answers of `plan` on disk, so that the same question is answered at once the next time.

A file per answer, named by the SHA-256 of everything that it depends on; the package's own source files are part of
that, so another version asks anew. Files appear whole or not at all, and hold their own check sum: several processes
may use one folder, and a damaged file is passed over with a warning, as is a folder that cannot be written to.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import logging
import os
import sys
import zlib
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy

from ...errors import CaffeError, UsageError
from ...formats.atomic import atomic_write
from ...formats.cache_folder import cache_folder

_log = logging.getLogger(__name__)
_FILES = 500  # answers kept; the oldest are removed
OFF = "off"


class AnswerCache:
    """Keep answers in a folder. folder: "" is the user's cache folder, "off" keeps none."""

    def __init__(self, folder: str):
        if folder and folder != OFF and Path(folder).exists() and not Path(folder).is_dir():
            raise UsageError(f"-cache {folder}: it is not a folder", fix="name a folder, or -cache off")
        self._folder = None if folder == OFF else Path(folder) if folder else cache_folder() / "plans"

    def answer(self, question: dict[str, Any], compute: Callable[[], Any]) -> Any:
        """Return the answer (of JSON's types) that was kept for a question, else compute and keep it."""
        if self._folder is None:
            return compute()
        text = json.dumps(question | {"code": _code()}, sort_keys=True)
        path = self._folder / f"{hashlib.sha256(text.encode()).hexdigest()[:40]}.json.gz"
        found = self._read(path)
        if found is None:
            found = {"answer": compute()}
            self._write(path, found)
        return found["answer"]

    def _read(self, path: Path) -> dict[str, Any] | None:
        try:
            found = json.loads(gzip.decompress(path.read_bytes()))
            if not isinstance(found, dict) or "answer" not in found:
                raise ValueError("it holds no answer")
            return found
        except FileNotFoundError:
            return None
        except (OSError, EOFError, ValueError, zlib.error, RecursionError) as error:
            _log.warning("%s is damaged and not used: %s", path, error)
            return None

    def _write(self, path: Path, found: dict[str, Any]) -> None:
        assert self._folder is not None
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            atomic_write(path, gzip.compress(json.dumps(found).encode(), mtime=0), error=CaffeError)
            self._prune()
        except (OSError, CaffeError) as error:
            message = error.message if isinstance(error, CaffeError) else error
            _log.warning(
                "the plan is not kept for the next time: %s; -cache DIR names a folder, -cache off none", message
            )
            self._folder = None

    def _prune(self) -> None:
        """Remove the oldest answers beyond `_FILES`; another process may remove them at the same time."""
        assert self._folder is not None
        entries = [e for e in os.scandir(self._folder) if e.name.endswith(".json.gz")]
        if len(entries) > _FILES:
            dated = sorted((_age(Path(e.path)), e.path) for e in entries)
            for _, name in dated[: len(entries) - _FILES]:
                Path(name).unlink(missing_ok=True)


def _age(path: Path) -> int:
    """Return when a file was written, in nanoseconds; 0 if it is gone."""
    try:
        return path.stat().st_mtime_ns
    except FileNotFoundError:
        return 0


@cache
def _code() -> str:
    """Return a digest of the package's source files (name, size, time of change) and of what runs them."""
    root = Path(__file__).parents[2]
    files = [[str(p.relative_to(root)), p.stat().st_size, p.stat().st_mtime_ns] for p in sorted(root.rglob("*.py"))]
    about = [files, sys.version, numpy.__version__]
    return hashlib.sha256(json.dumps(about).encode()).hexdigest()
