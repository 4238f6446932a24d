"""Run CPU kernels in threads: a range is cut into equal parts, one per thread, and each part is one call of a kernel.

A kernel is a compiled function that releases the GIL (see `compiled.py`), or NumPy work that does. Results must not
depend on where the cuts are: a sum over the range is cut into fixed parts, and `parallel` runs over these.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import Any

from ...backend.child import cores

ELEMENTS = 1 << 15  # elements of simple element-wise work from which a second thread pays


def thread_count() -> int:
    """Return OMP_NUM_THREADS, else the number of CPUs that this process may use."""
    first = os.environ.get("OMP_NUM_THREADS", "").split(",")[0].strip()
    if first.isdecimal() and int(first) > 0:
        return int(first)
    return cores()


@cache
def _pool(pid: int) -> tuple[int, ThreadPoolExecutor | None]:
    """Return (number of threads, pool of those besides the caller's); by `pid` since threads do not survive a fork."""
    n = thread_count()
    return n, ThreadPoolExecutor(n - 1, thread_name_prefix="caffe-cpu") if n > 1 else None


def parallel(kernel: Callable[..., None], n: int, *args: Any, grain: int = 1) -> None:
    """Run kernel(first, last, *args) in threads on parts of [0, n), none shorter than `grain` but the last.

    Parts that no thread has begun when the caller is done with its own are run by the caller: calls from several
    threads, or from inside a kernel, never wait for each other.
    """
    if n <= 0:
        return
    threads, pool = _pool(os.getpid())
    parts = min(threads, max(1, n // max(1, grain)))
    if parts == 1:
        kernel(0, n, *args)
        return
    cuts = [n * i // parts for i in range(parts + 1)]
    others = [(pool.submit(kernel, a, b, *args), a, b) for a, b in zip(cuts[1:-1], cuts[2:], strict=True)]
    try:
        kernel(0, cuts[1], *args)
    finally:  # after an error, too, no thread may go on writing into the caller's arrays
        left = [(a, b) for future, a, b in others if future.cancel()]
        for future, _, _ in others:
            if not future.cancelled():
                future.exception()
    for a, b in left:
        kernel(a, b, *args)
    for future, _, _ in others:
        if not future.cancelled():
            future.result()
