"""Decode and crop the pictures of a database in processes of their own, for nets that finish them on a GPU.

Covers: what a process does with a record, and the batches that are put together of what comes back.
See also: batches.py, which reads the records; ../transform/processes.py, which starts, feeds and ends the processes.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import count
from typing import NamedTuple

import numpy as np

from ..database.datum import datum_array, parse_datum, record_place
from ..transform.processes import in_order_by_processes
from ..transform.transformer import CroppedBatch, DataTransformer, batch_rng

_LEAST_PIXELS = 128 * 128  # of a picture: a smaller one is decoded in the time that a process's answer takes
_LEAST_THREADS = 4
_MOST = 8  # processes: they make more pictures than one thread can take


def processes_for(picture: np.ndarray, encoded: bool, threads: int) -> int:
    """Return how many processes shall decode pictures like this one, (C, H, W); 0: threads do it as well."""
    many = threads >= _LEAST_THREADS and encoded and picture.shape[1] * picture.shape[2] >= _LEAST_PIXELS
    return min(threads, _MOST) if many else 0


class Given(NamedTuple):
    """Hold a record, and its place in a batch."""

    batch: int
    item: int
    key: bytes
    record: bytes


class Cropped(NamedTuple):
    """Hold the pixels of a picture, uint8 (C, h, w), its label, and its crop, three int32 as in a `CroppedBatch`."""

    pixels: bytes
    label: int
    crop: bytes


@dataclass(frozen=True)
class Cropper:
    """Crop a record as `cropped_batch` does in a batch of the same shape, (B, C, h, w); None: it is not of bytes."""

    source: str
    transformer: DataTransformer
    shape: tuple[int, int, int, int]
    seed: int
    stream: int
    fix: str

    def __call__(self, given: Given) -> Cropped | None:
        own, where = self.transformer, record_place(self.source, given.key)
        datum = parse_datum(given.record, source=self.source, key=given.key)
        colour, gray = own.force_color, own.force_gray
        array = datum_array(datum, source=self.source, key=given.key, force_color=colour, force_gray=gray)
        if array.dtype != np.uint8:
            return None
        own.check_fits(array.shape, self.shape[1:], where, self.fix)
        pixels = np.empty(self.shape[1:], np.uint8)
        transform, crops = _of_batch(self, given.batch)
        transform(given.item, array, pixels, where)
        return Cropped(pixels.tobytes(), datum.label, crops[given.item].tobytes())


@lru_cache(maxsize=2)
def _of_batch(cropper: Cropper, batch: int) -> tuple[Callable[..., object], np.ndarray]:
    """Return the function that transforms items of a batch, and where it writes their crops."""
    crops = np.empty((cropper.shape[0], 3), np.int32)
    rng = batch_rng(cropper.seed, batch, cropper.stream)
    return cropper.transformer.item_transform(cropper.shape[0], rng, crops), crops


class CroppingProcesses:
    """Make batches of cropped pictures with several processes, which work ahead on the batches that come next.

    Args:
        records: gives key and value of record 0 .. B - 1 of a batch.
        n: processes. They start at the first batch, and anew where another batch is asked for than the next one.
    """

    def __init__(self, cropper: Cropper, records: Callable[[int], Iterator[tuple[bytes, bytes]]], n: int):
        self._cropper, self._records, self._n = cropper, records, n
        self._coming: Generator[Cropped | None, None, None] | None = None
        self._batch, self._step = 0, 1  # of the batch before: its number, and from it to the next one

    def produce(self, batch: int, dtype: np.dtype) -> CroppedBatch | None:
        """Return a batch, None where an item is not of bytes. dtype: of the labels. Raises: as `cropped_batch`."""
        if self._coming is None or batch != self._batch + self._step:
            self._step = max(1, batch - self._batch) if self._coming is not None else 1
            self.close()
            self._coming = in_order_by_processes(self._cropper, self._given(batch, self._step), self._n)
        self._batch = batch
        size, spare = self._cropper.shape[0], self._cropper.transformer.spare
        data = spare.take(self._cropper.shape, np.dtype(np.uint8))
        labels, crops = np.empty(size, dtype), np.empty((size, 3), np.int32)
        try:
            for item in range(size):
                found = next(self._coming)
                if found is None:
                    self.close()
                    return None
                data[item] = np.frombuffer(found.pixels, np.uint8).reshape(data.shape[1:])
                labels[item], crops[item] = found.label, np.frombuffer(found.crop, np.int32)
        except BaseException:
            self.close()
            raise
        return CroppedBatch(data, labels, crops)

    def close(self) -> None:
        """End the processes."""
        if self._coming is not None:
            self._coming.close()
            self._coming = None

    def _given(self, batch: int, step: int) -> Iterator[Given]:
        for b in count(batch, step):
            for item, (key, record) in enumerate(self._records(b)):
                yield Given(b, item, key, record)
