"""Tell where files lie that can be made again: the user's cache folder, or the one that `-cache` names."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from ..errors import UsageError

OFF = "off"
_chosen: Path | None = None
_temporary: tempfile.TemporaryDirectory[str] | None = None  # removed when the process ends


def cache_folder() -> Path:
    """Return the folder in use: what `use_cache_folder` says, else $XDG_CACHE_HOME/pycaffe_lms or ~/.cache/pycaffe_lms.

    It may not exist yet.
    """
    if _chosen is not None:
        return _chosen
    # the XDG specification: a path that is not absolute does not count
    root = os.environ.get("XDG_CACHE_HOME", "")
    folder = Path(root) if os.path.isabs(root) else Path(os.path.expanduser("~")) / ".cache"
    return folder / "pycaffe_lms"


def use_cache_folder(folder: str) -> None:
    """Keep files in this folder from now on. "": the user's own; "off": one that is removed when this process ends.

    Raises:
        UsageError: it is a file.
    """
    global _chosen, _temporary
    if folder == OFF:
        _temporary = _temporary or tempfile.TemporaryDirectory(prefix="pycaffe_lms-")
        _chosen = Path(_temporary.name)
        return
    if folder and Path(folder).exists() and not Path(folder).is_dir():
        raise UsageError(f"-cache {folder}: it is not a folder", fix="name a folder, or -cache off")
    _chosen = Path(folder).absolute() if folder else None


def lasts() -> bool:
    """Tell whether later processes find what is kept in the folder: not with "off"."""
    return _temporary is None or _chosen != Path(_temporary.name)
