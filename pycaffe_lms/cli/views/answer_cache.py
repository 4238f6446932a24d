"""Keep answers of `plan` on disk, so that the same question is answered at once the next time.

A file per answer, named by the SHA-256 of everything that it depends on; the package's own source files are part of
that, so another version asks anew. See also: `formats/kept_files.py`.
"""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy

from ...formats.cache_folder import OFF, cache_folder
from ...formats.kept_files import KeptFiles

_FILES = 500  # answers kept; the oldest are removed


class AnswerCache:
    """Keep answers in a folder. folder: "" is the user's cache folder, "off" keeps none."""

    def __init__(self, folder: str):
        place = Path(folder) if folder else cache_folder() / "plans"
        self._files = None if folder == OFF else KeptFiles(place, ".json.gz", _FILES, "the plan is")

    def answer(self, question: dict[str, Any], compute: Callable[[], Any]) -> Any:
        """Return the answer (of JSON's types) that was kept for a question, else compute and keep it."""
        if self._files is None:
            return compute()
        text = json.dumps(question | {"code": _code()}, sort_keys=True)
        name = hashlib.sha256(text.encode()).hexdigest()[:40]
        found = self._files.read(name, _parse)
        if found is None:
            found = {"answer": compute()}
            self._files.write(name, json.dumps(found).encode())
        return found["answer"]


def _parse(content: bytes) -> dict[str, Any]:
    """Return what a file holds. Raises ValueError."""
    found = json.loads(content)
    if not isinstance(found, dict) or "answer" not in found:
        raise ValueError("it holds no answer")
    return found


@cache
def _code() -> str:
    """Return a digest of the package's source files (name, size, time of change) and of what runs them."""
    root = Path(__file__).parents[2]
    files = [[str(p.relative_to(root)), p.stat().st_size, p.stat().st_mtime_ns] for p in sorted(root.rglob("*.py"))]
    about = [files, sys.version, numpy.__version__]
    return hashlib.sha256(json.dumps(about).encode()).hexdigest()
