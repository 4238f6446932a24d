"""Check, before hours of work, that files which commands write at their end can be made."""

from __future__ import annotations

from pathlib import Path

from ..errors import UsageError


def check_place(path: str, flag: str) -> None:
    """Raise UsageError if no file of that name can be made; "" is no file."""
    if path and (not Path(path).absolute().parent.is_dir() or Path(path).is_dir()):
        raise UsageError(f"{flag} {path}: no file can be written there", fix="give a file in a folder that exists")
