"""Read the pictures of a list with their objects: what the batches of all layers with such lists have in common."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ...transform.picture import decode_picture, read_picture, require_opencv, to_pixels
from .lists import IGNORE, GtList


class TruthReader:
    """Read pictures of a list, and make rows of their objects.

    Args:
        mean: values that are subtracted: none, one, or one for each colour; then values are multiplied by `scale`.
    Raises: DataError for a picture that cannot be read; MissingDependency without OpenCV.
    """

    first = 0

    def __init__(
        self,
        pictures: GtList,
        batch_size: int,
        mean: Sequence[float],
        scale: float,
        *,
        dtype: np.dtype[Any],
        rank: int,
        seed: int,
    ):
        require_opencv()
        self._pictures, self._batch_size, self._scale = pictures, batch_size, scale
        self._mean = np.array(list(mean) or [0], np.float64).reshape(-1, 1, 1)
        self._dtype, self._seed, self._stream, self.stride = dtype, seed, rank, batch_size

    @property
    def records(self) -> int:
        """Return how many pictures there are."""
        return len(self._pictures)

    def close(self) -> None:
        """Do nothing: no file is open between pictures."""

    def _read(self, index: int) -> np.ndarray:
        """Return a picture, (H, W, 3)."""
        where = self._pictures.place(index)
        data = read_picture(self._pictures.paths[index], where=where, fix="correct the path, or root_folder")
        return to_pixels(decode_picture(data, where=where, force_color=True))

    def _values(self, image: np.ndarray) -> np.ndarray:
        """Return what the net sees of a picture (3, H, W)."""
        return np.asarray((image - self._mean) * self._scale)

    def _rows(self, objects: Sequence[np.ndarray]) -> np.ndarray:
        """Return rows of (picture, x1, y1, x2, y2, marks), (G, 5 + marks), of objects (n, marks + 4) of each."""
        marks = self._pictures.marks
        rows = [np.column_stack([np.full(len(o), i), o[:, marks:], o[:, :marks]]) for i, o in enumerate(objects)]
        return np.concatenate(rows).astype(self._dtype)

    def _ignore(self, objects: np.ndarray, size: tuple[int, int], least: tuple[float, float]) -> None:
        """Mark objects whose centres lie outside of (height, width), or that are less wide or high than `least`."""
        boxes = objects[:, self._pictures.marks :]
        centres, sides = (boxes[:, :2] + boxes[:, 2:]) / 2, boxes[:, 2:] - boxes[:, :2] + 1
        outside = (centres < 0) | (centres >= size[::-1])
        objects[(outside | (sides < least)).any(axis=1), IGNORE] = 1
