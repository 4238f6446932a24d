"""Items decoded and transformed by several threads (OpenCV and NumPy release the GIL): a batch or a stream."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

from ...ops.cpu.threads import parallel, thread_count

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")

_GRAIN = 2  # items: fewer are not worth another thread


def each(work: Callable[[int], None], n: int) -> None:
    """work(0), ..., work(n - 1), in any order, by as many threads as the CPU operations use.

    Raises: what the first item (in order, not in time) raised.
    """
    errors: dict[int, Exception] = {}

    def part(first: int, last: int) -> None:
        for i in range(first, last):
            try:
                work(i)
            except Exception as error:
                errors[i] = error
                return  # a part goes in order, so this is its first

    parallel(part, n, grain=_GRAIN)
    if errors:
        raise errors[min(errors)]


def in_order(work: Callable[[_Item], _Result], items: Iterable[_Item], *, ahead: int = 4) -> Iterator[_Result]:
    """work(item) for each item, in the order of the items, computed by several threads a few items ahead.

    `items` is walked in the caller's thread, no more than `ahead` items per thread beyond what has been asked for.
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
        finally:  # after an error, or where the caller wants no more
            for future in begun:
                future.cancel()
