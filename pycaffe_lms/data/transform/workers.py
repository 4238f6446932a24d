"""Decode and transform items, of a batch or a stream, with several threads (OpenCV and NumPy release the GIL)."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from typing import TypeVar

import numpy as np

from ...ops.cpu.threads import parallel, thread_count

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")

_GRAIN = 2  # items: fewer are not worth another thread
_KEPT_BYTES = 31 << 20
_SPARE = 2  # batches: one is given back for each that is taken


def keep_freed_memory() -> None:
    """Let the C library keep the memory of freed pictures for the next ones, where it is glibc.

    By itself it returns every freed block of more than 128 KiB to the system, which then clears the next one page by
    page. Freeing one large block raises that limit to its size: mallopt(3), M_MMAP_THRESHOLD. 32 MiB are the most.
    """
    np.empty(_KEPT_BYTES, np.uint8)


class SpareArrays:
    """Keep arrays that nobody needs any more for the next ones of their shape and type.

    Fresh memory of a batch's size comes from the system, which clears it page by page and takes it back afterwards.
    """

    def __init__(self) -> None:
        self._kept: deque[np.ndarray] = deque(maxlen=_SPARE)

    def __reduce__(self) -> tuple[type[SpareArrays], tuple[()]]:
        return SpareArrays, ()  # another process has its own

    def take(self, shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
        """Return an array of any values. Arrays of another shape or type are forgotten."""
        with suppress(IndexError):  # there are none: a thread gives, another one takes
            while True:
                array = self._kept.popleft()
                if array.shape == shape and array.dtype == dtype:
                    return array
        return np.empty(shape, dtype)

    def give(self, array: np.ndarray) -> None:
        """Let an array be used again. Nobody may read it any more."""
        self._kept.append(array)


def each(work: Callable[[int], None], n: int) -> None:
    """Call work(0), ..., work(n - 1) with as many threads as the CPU operations use, each of which takes the next item.

    Raises: what the item with the smallest number raised.
    """
    errors: dict[int, Exception] = {}
    items = iter(range(n))  # shared: one thread at a time advances it

    def part(first: int, last: int) -> None:
        for i in items:
            if errors:  # of an item with a smaller number: they are begun in order
                return
            try:
                work(i)
            except Exception as error:
                errors[i] = error

    parallel(part, n, grain=_GRAIN)
    if errors:
        raise errors[min(errors)]


def in_order(
    work: Callable[[_Item], _Result], items: Iterable[_Item], *, ahead: int = 4
) -> Generator[_Result, None, None]:
    """Yield work(item) for each item, in order, computed by several threads a few items ahead.

    `items` is iterated in the caller's thread, at most `ahead` items per thread beyond what was asked for.
    Raises: what `work` raised, in the place of that item's result.
    """
    threads = thread_count()
    if threads == 1:
        yield from map(work, items)
        return
    begun: deque[Future[_Result]] = deque()
    with ThreadPoolExecutor(threads, thread_name_prefix="caffe-data") as pool:
        try:
            for item in items:
                begun.append(pool.submit(work, item))
                if len(begun) >= ahead * threads:
                    yield begun.popleft().result()
            while begun:
                yield begun.popleft().result()
        finally:  # after an error, or when the caller stops early
            for future in begun:
                future.cancel()
