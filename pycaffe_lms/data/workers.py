"""The items of a batch, decoded and transformed by several threads (OpenCV and NumPy release the GIL)."""

from __future__ import annotations

from collections.abc import Callable

from pycaffe_lms.ops.cpu.threads import parallel

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
