"""Read and crop pictures in processes of their own, for nets that finish them on a GPU.

Covers: what a process does with a picture, and the batches that are put together of what comes back.
See also: batches.py and image_list.py, which say what to read; ../transform/processes.py, which starts, feeds and ends
the processes.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import count
from math import prod
from typing import Any, NamedTuple
from weakref import WeakMethod

import numpy as np

from ...ops.cpu.threads import thread_count
from ..transform.processes import in_order_by_processes
from ..transform.transformer import CroppedBatch, DataTransformer, Item, batch_rng

_LEAST_VALUES = (
    1 << 18
)  # of a batch: as floats, 1 MiB crosses the link in the time that it takes to begin a kernel or two
_LEAST_PIXELS = 128 * 128  # of a picture: a smaller one is decoded in the time that a process's answer takes
_LEAST_THREADS = 4
_MOST = 8  # processes: they make more pictures than one thread can take


def worth_finishing(shape: tuple[int, ...]) -> bool:
    """Return whether a GPU shall finish batches of this shape: whether they are large enough."""
    return prod(shape) >= _LEAST_VALUES


def processes_for(picture: np.ndarray, encoded: bool, threads: int) -> int:
    """Return how many processes shall decode pictures like this one, (C, H, W); 0: threads do it as well."""
    many = threads >= _LEAST_THREADS and encoded and picture.shape[1] * picture.shape[2] >= _LEAST_PIXELS
    return min(threads, _MOST) if many else 0


_Items = Callable[[int], Iterable[tuple[Any, ...]]]


class Given(NamedTuple):
    """Hold what `Cropper.read` gets, and its place in a batch."""

    batch: int
    item: int
    what: tuple[Any, ...]


class Cropped(NamedTuple):
    """Hold the pixels of a picture, uint8 (C, h, w), its label, and its row of a `CroppedBatch`'s crops."""

    pixels: bytes
    label: int
    crop: list[int]


@dataclass(frozen=True)
class Cropper:
    """Crop a picture as `cropped_batch` does in a batch of the same shape, (B, C, h, w); None: it is not of bytes.

    read: a function of a module that reads one, or a `functools.partial` of it. The rest is that of `cropped_batch`.
    """

    read: Callable[..., Item]
    transformer: DataTransformer
    shape: tuple[int, int, int, int]
    seed: int
    stream: int
    fix: str

    def __call__(self, given: Given) -> Cropped | None:
        array, label, where = self.read(*given.what)
        if array.dtype != np.uint8:
            return None
        self.transformer.check_fits(array.shape, self.shape[1:], where, self.fix)
        pixels = np.empty(self.shape[1:], np.uint8)
        transform, crops = _of_batch(self, given.batch)
        transform(given.item, array, pixels, where)
        return Cropped(pixels.tobytes(), label, crops[given.item].tolist())


@lru_cache(maxsize=2)
def _of_batch(cropper: Cropper, batch: int) -> tuple[Callable[..., object], np.ndarray]:
    """Return the function that transforms items of a batch, and where it writes their crops."""
    crops = np.empty((cropper.shape[0], 3), np.int32)
    rng = batch_rng(cropper.seed, batch, cropper.stream)
    return cropper.transformer.item_transform(cropper.shape[0], rng, crops), crops


class CroppingProcesses:
    """Make batches of cropped pictures with several processes, which work ahead on the batches that come next.

    Args:
        items: a method that gives what `Cropper.read` gets for the items of a batch, in order. Its object owns this
            one: when the last name of that object is gone, the processes end.
        n: processes. They start at the first batch, and anew where another batch is asked for than the next one.
    """

    def __init__(self, cropper: Cropper, items: _Items, n: int):
        self._cropper, self._items, self._n = cropper, WeakMethod(items), n
        self._coming: Generator[Cropped | None, None, None] | None = None
        self._batch, self._step = 0, 1  # of the batch before: its number, and from it to the next one

    def produce(self, batch: int, dtype: np.dtype) -> CroppedBatch | None:
        """Return a batch, None where an item is not of bytes. dtype: of the labels. Raises: as `cropped_batch`."""
        if self._coming is None or batch != self._batch + self._step:
            self._step = max(1, batch - self._batch) if self._coming is not None else 1
            self.close()
            self._coming = in_order_by_processes(self._cropper, _given(self._items, batch, self._step), self._n)
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
                labels[item], crops[item] = found.label, found.crop
        except BaseException:
            self.close()
            raise
        return CroppedBatch(data, labels, crops)

    def close(self) -> None:
        """End the processes."""
        if self._coming is not None:
            self._coming.close()
            self._coming = None


def _given(items: WeakMethod[_Items], batch: int, step: int) -> Iterator[Given]:
    """Yield what the processes get, from a batch on. It refers to nothing that refers to it."""
    for b in count(batch, step):
        for item, what in enumerate(_items_of(items, b)):
            yield Given(b, item, what)


def _items_of(items: WeakMethod[_Items], batch: int) -> list[tuple[Any, ...]]:
    of_batch = items()
    assert of_batch is not None, "its object asks for the batch"
    return list(of_batch(batch))


class CroppingBatches:
    """Be the base of what makes batches of pictures, a `CroppedBatch` of those that a GPU is to finish.

    Attributes:
        as_bytes: whether batches are a `CroppedBatch`, where they can be.
        first: the picture with which batch 0 would begin.
    """

    as_bytes = False
    _first = 0
    _cropping: CroppingProcesses | None = None  # None: threads make all batches

    @property
    def first(self) -> int:
        return self._first

    @first.setter
    def first(self, first: int) -> None:
        if first != self._first:
            self.close_processes()  # which read other pictures ahead
        self._first = first

    def choose(
        self,
        picture: np.ndarray,
        encoded: bool,
        cropper: Cropper,
        items: _Items,
        *,
        as_bytes: bool,
        by_processes: bool,
    ) -> None:
        """Choose what batches are, and who makes them.

        Args:
            picture: the first one, (C, H, W). encoded: whether it had to be decoded.
            cropper, items: as `CroppingProcesses` takes them.
            as_bytes: a `CroppedBatch` may be made. by_processes: processes may make it.
        """
        self.as_bytes = as_bytes and picture.dtype == np.uint8 and worth_finishing(cropper.shape)
        processes = processes_for(picture, encoded, thread_count()) if self.as_bytes and by_processes else 0
        if processes:
            self._cropping = CroppingProcesses(cropper, items, processes)

    def cropped_by_processes(self, batch: int, dtype: np.dtype) -> CroppedBatch | None:
        """Return a batch that processes made, None where they do not."""
        return self._cropping.produce(batch, dtype) if self.as_bytes and self._cropping is not None else None

    def close_processes(self) -> None:
        """End the processes."""
        if self._cropping is not None:
            self._cropping.close()
