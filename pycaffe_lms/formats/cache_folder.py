"""Tell where files lie that can be made again: the user's cache folder."""

from __future__ import annotations

import os
from pathlib import Path


def cache_folder() -> Path:
    """Return $XDG_CACHE_HOME/pycaffe_lms, else ~/.cache/pycaffe_lms; it may not exist yet."""
    # the XDG specification: a path that is not absolute does not count
    root = os.environ.get("XDG_CACHE_HOME", "")
    folder = Path(root) if os.path.isabs(root) else Path(os.path.expanduser("~")) / ".cache"
    return folder / "pycaffe_lms"
