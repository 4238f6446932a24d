"""Read lists of pictures with their objects and regions of no interest: MS-CNN's and Cascade R-CNN's."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import TextIO

import numpy as np

from ....errors import DataError, Where
from ....formats.rawfile import open_text

LABEL, IGNORE = 0, 1
"""Columns of a picture's objects."""


class GtList:
    """Read a list of pictures, blocks with white space between all values:

        # number  path  channels height width  objects, and for each: class ignored [difficult] x1 y1 x2 y2
        regions of no interest, and for each: x1 y1 x2 y2

    Args:
        marks: numbers of an object before its box, 2 or 3.
        multiple: how often a picture with an object that is not ignored is there.
    Attributes:
        paths, objects (n, marks + 4), regions (n, 4), sizes (height, width): of each picture.
    Raises: DataError, naming file and line, where it cannot be read, lists nothing or breaks this format.
    """

    def __init__(self, source: str | os.PathLike[str], root_folder: str, *, marks: int = 2, multiple: int = 1):
        self.source, self.marks = os.fspath(source), marks
        self.paths: list[str] = []
        self.objects: list[np.ndarray] = []
        self.regions: list[np.ndarray] = []
        self.sizes: list[tuple[int, int]] = []
        self._line = 0
        fix = "check the layer's source; a relative path starts at the working directory"
        with open_text(self.source, "the list of pictures", fix) as file:
            words = self._words(file)
            for mark in words:
                if mark != "#":
                    raise self._wrong(f"{mark!r} where a block begins with #")
                self._numbers(words, 1)
                path = root_folder + next(words, "")
                channels, height, width = self._numbers(words, 3)
                objects = self._rows(words, marks + 4)
                if channels != 3 or (objects[:, LABEL] <= 0).any():
                    raise self._wrong("a picture of other than 3 channels, or an object of class 0")
                regions = self._rows(words, 4)
                for _ in range(max(1, multiple) if (objects[:, IGNORE] == 0).any() else 1):
                    self.paths.append(path)
                    self.objects.append(objects)
                    self.regions.append(regions)
                    self.sizes.append((height, width))
        if not self.paths:
            raise DataError(
                "the list of pictures is empty", where=Where(file=self.source), fix="list blocks that begin with #"
            )

    def __len__(self) -> int:
        return len(self.paths)

    def place(self, index: int) -> Where:
        """Return list and path of picture number `index`, for errors."""
        return Where(file=f"{self.source}: {self.paths[index]}")

    def _words(self, file: TextIO) -> Iterator[str]:
        for self._line, line in enumerate(file, 1):
            yield from line.split()

    def _numbers(self, words: Iterator[str], n: int) -> list[int]:
        try:
            return [int(next(words)) for _ in range(n)]
        except (StopIteration, ValueError):
            raise self._wrong("a whole number is missing") from None

    def _rows(self, words: Iterator[str], columns: int) -> np.ndarray:
        (n,) = self._numbers(words, 1)
        return np.array(self._numbers(words, n * columns), np.float64).reshape(n, columns)

    def _wrong(self, what: str) -> DataError:
        return DataError(
            what,
            where=Where(file=self.source, line=self._line),
            fix="write # number path channels height width, the objects and the regions of no interest",
        )
