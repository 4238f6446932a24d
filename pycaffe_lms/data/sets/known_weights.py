"""List public weights by name: file, checksum, and address where its publisher gives one, from `known_weights.tsv`.

Addresses and SHA-1 digits are from the publishers' model pages, or else from download lists of other projects (OpenCV,
MXNet, Open Model Zoo). SHA-256 digits are of the published files.
"""

from __future__ import annotations

import csv
import os
from dataclasses import dataclass
from pathlib import Path

from .download import Checksum


@dataclass(frozen=True)
class Weights:
    """Describe a file of weights. file: its published name. url: its publisher's address, "" where none is known."""

    what: str
    file: str
    checksum: Checksum
    url: str = ""


def _table() -> dict[str, Weights]:
    with open(Path(__file__).with_suffix(".tsv"), encoding="utf-8", newline="") as file:
        return {
            row["name"]: Weights(
                row["what"], row["file"], Checksum(row["checksum"]), row["folder"] and row["folder"] + row["file"]
            )
            for row in csv.DictReader(file, dialect="excel-tab")
        }


WEIGHTS = _table()


def cache_folder() -> Path:
    """Return the folder for downloads: PYCAFFE_LMS_CACHE, else ~/.cache/pycaffe_lms."""
    return Path(os.environ.get("PYCAFFE_LMS_CACHE") or Path.home() / ".cache" / "pycaffe_lms").expanduser()
