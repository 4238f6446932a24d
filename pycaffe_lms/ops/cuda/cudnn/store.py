"""Keep from run to run which engine measured fastest: a small JSON file per GPU model and cuDNN version.

The file lies in $XDG_CACHE_HOME/pycaffe_lms, else in ~/.cache/pycaffe_lms. Without it engines are measured again; so a
file that is absent, damaged or not writable costs time and nothing else.
"""

from __future__ import annotations

import json
import os
import re
import tempfile
from pathlib import Path

from ....formats.cache_folder import cache_folder

_FORMAT = 1


class Store:
    """Keep chosen engines by a text that describes the convolution. Other processes may write the same file."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._known = _read(path)

    def get(self, key: str) -> str | None:
        """Return what was chosen, None where nothing is known."""
        return self._known.get(key)

    def put(self, key: str, choice: str) -> None:
        """Keep a choice, beside those that other processes have written since."""
        self._known = {**_read(self.path), **self._known, key: choice}
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            _replace(self.path, json.dumps({"format": _FORMAT, "engines": self._known}, indent=0, sort_keys=True))
        except OSError:
            pass  # the folder cannot be written to


def store_path(gpu: str, cudnn_version: int) -> Path:
    """Return the file of a GPU model and a cuDNN version."""
    gpu = re.sub(r"[^A-Za-z0-9]+", "-", gpu).strip("-").lower()
    return cache_folder() / f"cudnn-{gpu}-{cudnn_version}.json"


def _read(path: Path) -> dict[str, str]:
    try:
        content = json.loads(path.read_text("utf-8"))
        if content["format"] == _FORMAT:
            return {str(key): str(choice) for key, choice in content["engines"].items()}
    except (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError):
        pass  # the file is absent, or not written by us
    return {}


def _replace(path: Path, text: str) -> None:
    """Write a file so that a reader finds the old text or the new one, never a part."""
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=path.name)
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
        os.replace(temporary, path)
    except OSError:
        os.unlink(temporary)
        raise
