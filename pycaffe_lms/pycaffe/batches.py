"""Cuts arrays of any length into batches and joins results again, for `net.forward_all`. Knows arrays, no nets.

Source of the behaviour: BVLC/caffe, python/caffe/pycaffe.py, _Net_batch and _Net_forward_all.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
from numpy.typing import ArrayLike

from ..arrays import HostArray
from ..errors import UsageError


def batches(given: Mapping[str, ArrayLike], batch_size: int) -> Iterator[dict[str, HostArray]]:
    """Yield the arrays in pieces of `batch_size` items, the last one padded with zeros.

    given: name -> (n, ...), with one n for all. Raises UsageError where they differ, or where a batch has no items.
    """
    arrays = {name: np.asarray(values) for name, values in given.items()}
    lengths = {name: values.shape[:1] for name, values in arrays.items()}
    if not arrays:
        return
    if len(set(lengths.values())) != 1 or () in lengths.values():
        raise UsageError(
            f"the arrays have different numbers of items: {_describe(lengths)}", fix="give the same number of each"
        )
    if batch_size < 1:
        raise UsageError("the net takes batches of 0 items", fix="reshape its inputs to 1 item or more")
    (n,) = next(iter(lengths.values()))
    for start in range(0, n, batch_size):
        piece = {name: values[start : start + batch_size] for name, values in arrays.items()}
        missing = batch_size - min(batch_size, n - start)
        if missing:
            piece = {
                name: np.concatenate([values, np.zeros((missing, *values.shape[1:]), values.dtype)])
                for name, values in piece.items()
            }
        yield piece


def _describe(lengths: Mapping[str, tuple[int, ...]]) -> str:
    """Return the lengths as words of an error message."""
    return ", ".join(f"{name} {shape[0] if shape else 'none (a scalar)'}" for name, shape in lengths.items())


class Collected:
    """Collect copies of each batch's values and join them along the first axis, without those of padded items.

    Values that are not one per item (such as a loss) are kept one per batch: scalars become an array of that length.
    """

    def __init__(self, batch_size: int, items: int | None):
        self._batch_size, self._items = batch_size, items
        self._pieces: dict[str, list[HostArray]] = {}

    def add(self, found: Mapping[str, HostArray]) -> None:
        """Copy the values of one batch."""
        for name, values in found.items():
            self._pieces.setdefault(name, []).append(np.array(values, order="C"))

    def joined(self) -> dict[str, HostArray]:
        """Return name -> array of all batches."""
        return {name: self._joined(pieces) for name, pieces in self._pieces.items()}

    def _joined(self, pieces: list[HostArray]) -> HostArray:
        if pieces[0].ndim == 0:
            return np.array(pieces)
        whole = np.concatenate(pieces)
        per_item = all(len(piece) == self._batch_size for piece in pieces)
        return whole[: self._items] if per_item and self._items is not None else whole
