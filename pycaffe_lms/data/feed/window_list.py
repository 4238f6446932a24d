"""Window files: which rectangles of which pictures are objects or background, as R-CNN trains on them.

Covers: reading the file, the split by overlap, naming the line that is at fault.
Does not cover: pictures (window_batches.py).
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from itertools import islice
from typing import TextIO

import numpy as np

from ...errors import DataError, Where

LABEL, X1, Y1, X2, Y2, PICTURE = range(6)


class WindowList:
    """The blocks of a window file, which are, with white space between all values:

        # number   path   channels height width   number of windows   and for each: class overlap x1 y1 x2 y2

    foreground: windows with overlap >= fg_threshold, background: those with overlap < bg_threshold (label 0), int64
    (n, 6): label, x1, y1, x2, y2 (inclusive pixels), index of the picture; the others are dropped. A window belongs to
    the picture of its own block, whatever the block's number.
    root_folder: put before every path as it stands (it has to end in a slash to be a folder).
    Raises: DataError, naming file and line, where it cannot be read, lists nothing or breaks this format.
    """

    def __init__(self, source: str | os.PathLike[str], fg_threshold: float, bg_threshold: float, root_folder: str = ""):
        self.source = os.fspath(source)
        self.paths: list[str] = []
        self.sizes: list[tuple[int, int, int]] = []
        self._line = 0
        foreground, background = [], []
        try:
            with open(self.source, encoding="utf-8", errors="surrogateescape") as file:
                tokens = self._tokens(file)
                for mark in tokens:
                    windows = self._block(mark, tokens, root_folder)
                    overlap, windows = windows[:, 1], windows[:, (0, 2, 3, 4, 5, 1)].astype(np.int64)
                    windows[:, PICTURE] = len(self.paths) - 1
                    chosen = overlap >= np.float32(fg_threshold)
                    if (windows[chosen, LABEL] <= 0).any():
                        raise self._broken("a window of the foreground has a class below 1")
                    foreground.append(windows[chosen])
                    chosen = ~chosen & (overlap < np.float32(bg_threshold))
                    windows[chosen, LABEL] = 0
                    background.append(windows[chosen])
        except OSError as error:
            raise DataError(
                f"cannot read the window file: {error.strerror}",
                where=Where(file=self.source),
                fix="check window_data_param.source; a relative path starts at the working directory",
            ) from error
        if not self.paths:
            raise DataError("the window file is empty", where=Where(file=self.source), fix="list pictures and windows")
        self.foreground, self.background = np.concatenate(foreground), np.concatenate(background)

    def place(self, window: np.ndarray) -> Where:
        """File, picture and rectangle, for errors."""
        x1, y1, x2, y2 = window[X1 : Y2 + 1].tolist()
        return Where(file=f"{self.source}: {self.paths[window[PICTURE]]}, window {x1} {y1} {x2} {y2}")

    def _tokens(self, file: TextIO) -> Iterator[str]:
        for self._line, text in enumerate(file, 1):
            yield from text.split()

    def _block(self, mark: str, tokens: Iterator[str], root_folder: str) -> np.ndarray:
        """Read what follows a `#` into `paths` and `sizes`; float32 (windows, 6) in the file's order of values."""
        if mark != "#":
            raise self._broken(f"{mark!r} where a block must begin with #")
        head = list(islice(tokens, 6))
        if len(head) < 6:
            raise self._broken("the file ends inside a block")
        number, path, *sizes = head
        try:
            int(number)
            channels, height, width, count = map(int, sizes)
        except ValueError:
            raise self._broken(f"{' '.join(head)!r} are not a number, a path and four numbers") from None
        if channels != 3:
            raise self._broken(f"a picture of {channels} channels; pictures are read in colour, with 3")
        if not 0 <= count < 1 << 31:
            raise self._broken(f"{count} windows")
        values = list(islice(tokens, 6 * count))
        try:
            with np.errstate(over="ignore"):  # refused below
                windows = np.array(values, np.float32).reshape(-1, 6)
        except ValueError:
            windows = np.empty((0, 6), np.float32)
        whole = windows[:, (0, 2, 3, 4, 5)]
        if len(windows) != count or not (np.abs(windows) < 1 << 24).all() or (whole != np.trunc(whole)).any():
            raise self._broken(f"not {count} windows of six numbers each: class overlap x1 y1 x2 y2")
        self.paths.append(root_folder + path)
        self.sizes.append((channels, height, width))
        return windows

    def _broken(self, found: str) -> DataError:
        return DataError(
            found,
            where=Where(file=self.source, line=self._line),
            fix="write blocks `# number`, path, channels, height, width, number of windows, and a line per window",
        )
