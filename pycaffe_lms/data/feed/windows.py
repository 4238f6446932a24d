"""Read window files, and make batches of warped windows of pictures, on which R-CNN trains.

`WindowList` reads the file: which rectangles of which pictures are objects (foreground) or background. `WindowBatches`
draws from it for the WindowData layer: background first, then foreground.
See also: `prefetch.py`, the thread that asks for batches.
Source: BVLC/caffe, src/caffe/layers/window_data_layer.cpp (behaviour).
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any, TextIO

import numpy as np

from ...errors import DataError, Where
from ...formats.rawfile import open_text
from ..transform.picture import decode_picture, read_picture
from ..transform.transformer import batch_rng
from ..transform.workers import each

LABEL, X1, Y1, X2, Y2, PICTURE = range(6)


class WindowList:
    """Read a window file, which consists of blocks with white space between all values:

        # number   path   channels height width   number of windows   and for each: class overlap x1 y1 x2 y2

    A window belongs to the picture of its block, whatever the block's number.

    Args:
        fg_threshold: windows with at least this overlap are `foreground`.
        bg_threshold: windows with less overlap are `background`, with label 0; the rest are dropped.
        root_folder: put before every path unchanged (it has to end in a slash to be a folder).
    Attributes:
        foreground, background: int64 (n, 6): label, x1, y1, x2, y2 (inclusive pixels), index of the picture.
        paths, sizes: of the pictures; (channels, height, width).
    Raises: DataError, naming file and line, where it cannot be read, lists nothing or breaks this format.
    """

    def __init__(self, source: str | os.PathLike[str], fg_threshold: float, bg_threshold: float, root_folder: str = ""):
        self.source = os.fspath(source)
        self.paths: list[str] = []
        self.sizes: list[tuple[int, int, int]] = []
        self._line = 0
        foreground, background = [], []
        fix = "check window_data_param.source; a relative path starts at the working directory"
        with open_text(self.source, "the window file", fix) as file:
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
        if not self.paths:
            raise DataError("the window file is empty", where=Where(file=self.source), fix="list pictures and windows")
        self.foreground, self.background = np.concatenate(foreground), np.concatenate(background)

    def place(self, window: np.ndarray) -> Where:
        """Return file, picture and rectangle of a window, for errors."""
        x1, y1, x2, y2 = window[X1 : Y2 + 1].tolist()
        return Where(file=f"{self.source}: {self.paths[window[PICTURE]]}, window {x1} {y1} {x2} {y2}")

    def _tokens(self, file: TextIO) -> Iterator[str]:
        for self._line, text in enumerate(file, 1):
            yield from text.split()

    def _block(self, mark: str, tokens: Iterator[str], root_folder: str) -> np.ndarray:
        """Read what follows a `#`: add to `paths` and `sizes`, return float32 (windows, 6) in the file's order."""
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


@dataclass(frozen=True)
class Crop:
    """Set how a window becomes (3, size, size).

    Attributes:
        context: pixels on each side of the result that show the surroundings of the window.
        square: take the square around the window instead of stretching it.
        mean: (3, 1, 1), or (3, size, size) for the places of the result, or 0.
    """

    size: int
    context: int = 0
    square: bool = False
    mirror: bool = False
    mean: np.ndarray | float = 0.0
    scale: float = 1.0


@dataclass(frozen=True)
class WindowPlacement:
    """Hold that pixels [y1, y2] x [x1, x2] of a picture are warped to height x width and put at (top, left)."""

    x1: int
    y1: int
    x2: int
    y2: int
    height: int
    width: int
    top: int = 0
    left: int = 0


class WindowBatches:
    """Make batch b, for any b: (data (batch_size, 3, size, size), labels (batch_size,)).

    Args:
        fg_count: number of items, the last ones, that are windows of the foreground.
        cache: keep the files of pictures in memory, as they are on disk.
        seed: determines, with rank, batch and item, which windows are drawn and which are mirrored.
    Raises: DataError where there is no window to draw from.
    """

    def __init__(
        self,
        windows: WindowList,
        batch_size: int,
        fg_count: int,
        crop: Crop,
        *,
        cache: bool = False,
        dtype: np.dtype | type = np.float32,
        rank: int = 0,
        seed: int = 0,
    ):
        self._windows, self._crop = windows, crop
        self._batch_size = batch_size
        self._parts = ((windows.background, batch_size - fg_count), (windows.foreground, fg_count))
        for (found, wanted), name in zip(self._parts, ("background", "foreground"), strict=True):
            if wanted and not len(found):
                raise DataError(
                    f"{wanted} of the {batch_size} windows in a batch are {name}, but the file has none",
                    where=Where(file=windows.source),
                    fix="change fg_threshold, bg_threshold or fg_fraction, or add windows",
                )
        self._dtype = np.dtype(dtype)
        self._rank, self._seed = rank, seed
        self._files: dict[int, bytes] = {}
        if cache:
            self._files = {k: self._read(k) for k in range(len(windows.paths))}
        self._picture(next(found[0] for found, wanted in self._parts if wanted))  # a wrong folder shows at once

    @property
    def records(self) -> int:
        """Return how many pictures there are."""
        return len(self._windows.paths)

    @property
    def shape(self) -> tuple[int, int, int, int]:
        return (self._batch_size, 3, self._crop.size, self._crop.size)

    def produce(self, batch: int) -> tuple[np.ndarray, np.ndarray]:
        """Return (data, labels) of batch number `batch`, in any order. Raises: DataError, naming picture and window."""
        data, labels = np.zeros(self.shape, self._dtype), np.empty(self._batch_size, self._dtype)
        draws = batch_rng(self._seed, batch, self._rank).integers(0, 2**32, size=(self._batch_size, 2), dtype=np.uint32)
        parts = [windows for windows, count in self._parts for _ in range(count)]

        def fill(item: int) -> None:
            choice, flip = draws[item].tolist()
            window = parts[item][choice % len(parts[item])]
            self._fill(data[item], window, self._crop.mirror and bool(flip % 2))
            labels[item] = window[LABEL]

        each(fill, len(parts))
        return data, labels

    def close(self) -> None:
        """Do nothing: no file is open between pictures."""

    def _fill(self, out: np.ndarray, window: np.ndarray, flip: bool) -> None:
        """Write a window into `out`, which is zero; what lies outside the picture stays zero."""
        picture = self._picture(window)
        at = placement(window, picture.shape[1:], self._crop, flip, self._dtype.type)
        if at is None:
            raise DataError(
                f"the window leaves the picture, which has {picture.shape[1]} x {picture.shape[2]} pixels (height x "
                "width)",
                where=self._windows.place(window),
                fix="correct the window: x1 y1 x2 y2 are pixels from 0, all included",
            )
        if not at.height or not at.width:
            return
        warped = _warp(picture[:, at.y1 : at.y2 + 1, at.x1 : at.x2 + 1], (at.height, at.width))
        inside = np.s_[:, at.top : at.top + at.height, at.left : at.left + at.width]
        mean = np.asarray(self._crop.mean)
        if mean.ndim and mean.shape[1] > 1:
            mean = mean[inside]
        target = out[inside]
        np.subtract(warped[:, :, ::-1] if flip else warped, mean, out=target, dtype=self._dtype, casting="same_kind")
        target *= self._dtype.type(self._crop.scale)

    def _picture(self, window: np.ndarray) -> np.ndarray:
        index = int(window[PICTURE])
        data = self._files.get(index) or self._read(index)
        return decode_picture(data, where=self._windows.place(window), force_color=True)

    def _read(self, picture: int) -> bytes:
        path = self._windows.paths[picture]
        fix = "correct the path, or window_data_param.root_folder, which is put before it unchanged"
        return read_picture(path, where=Where(file=f"{self._windows.source}: {path}"), fix=fix)


def placement(
    window: np.ndarray, size: tuple[int, int], crop: Crop, flip: bool, real: type[np.floating[Any]] = np.float32
) -> WindowPlacement | None:
    """Return the placement of a window of a picture of `size` (height, width); None where it lies outside.

    real: the type in which Caffe computes, that of the data.
    """
    x1, y1, x2, y2 = window[X1 : Y2 + 1].tolist()
    if not crop.context and not crop.square:
        inside = 0 <= x1 <= x2 < size[1] and 0 <= y1 <= y2 < size[0]
        return WindowPlacement(x1, y1, x2, y2, crop.size, crop.size) if inside else None
    stretch = real(crop.size) / real(crop.size - 2 * crop.context)
    half_h, half_w = real(y2 - y1 + 1) / real(2), real(x2 - x1 + 1) / real(2)
    middle_x, middle_y = real(x1) + half_w, real(y1) + half_h
    if crop.square:
        half_h = half_w = max(half_h, half_w)
    x1, x2 = _round(middle_x - half_w * stretch), _round(middle_x + half_w * stretch)
    y1, y2 = _round(middle_y - half_h * stretch), _round(middle_y + half_h * stretch)
    if x2 < x1 or y2 < y1:
        return None
    scale_x, scale_y = real(crop.size) / real(x2 - x1 + 1), real(crop.size) / real(y2 - y1 + 1)
    before_x, before_y = max(0, -x1), max(0, -y1)
    beyond_x, beyond_y = max(0, x2 - size[1] + 1), max(0, y2 - size[0] + 1)
    x1, x2, y1, y2 = x1 + before_x, x2 - beyond_x, y1 + before_y, y2 - beyond_y
    if x2 < x1 or y2 < y1:
        return None
    top, left = _round(real(before_y) * scale_y), _round(real(beyond_x if flip else before_x) * scale_x)
    # Rounding may make the two together larger than the result.
    height = min(_round(real(y2 - y1 + 1) * scale_y), crop.size - top)
    width = min(_round(real(x2 - x1 + 1) * scale_x), crop.size - left)
    return WindowPlacement(x1, y1, x2, y2, height, width, top, left)


def _round(value: np.floating[Any]) -> int:
    """Round to the nearest integer, halves away from zero, as C's round."""
    exact = float(value)
    return int(math.copysign(math.floor(abs(exact) + 0.5), exact))


def _warp(pixels: np.ndarray, size: tuple[int, int]) -> np.ndarray:
    import cv2  # decode_picture raised where it is missing

    planes = np.ascontiguousarray(pixels.transpose(1, 2, 0))
    return cv2.resize(planes, size[::-1], interpolation=cv2.INTER_LINEAR).transpose(2, 0, 1)
