"""Multiply matrices in our own threads: each thread's BLAS calls run on one thread.

BLAS's own threads spin while they wait for work, on the cores that the kernels between two products need, and a product
waits for all of them even where another program has taken a core. So products are cut into pieces by sizes alone (bits
do not depend on the number of threads), and `parallel` spreads the pieces.

The OpenBLAS of NumPy's wheels is told through its own functions to use one thread meanwhile. Other BLAS libraries are
left as they are, and get the pieces one after another.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from ..threads import parallel


def spread(function: Callable[..., None], pieces: int, *args: Any) -> None:
    """Run function(first piece, last piece, *args), which multiplies matrices, in threads."""
    if pieces == 1 or _openblas() is None:
        function(0, pieces, *args)
        return
    with _one_thread:
        parallel(function, pieces, *args)


def pieces_of(size: int, least: int) -> int:
    """Return how many pieces a size is cut into: 1, or 2, 4 or 8 of at least `least` rows or columns each."""
    if size < 2 * least:
        return 1
    return 2 if size < 16 * least else 4 if size < 64 * least else 8


def piece(size: int, pieces: int, i: int) -> slice:
    """Return the i-th of `pieces` pieces of range(size)."""
    return slice(size * i // pieces, size * (i + 1) // pieces)


@cache
def _openblas() -> tuple[Any, Any] | None:
    """Return (get, set) of the number of threads of NumPy's own OpenBLAS; None where NumPy has another BLAS."""
    root = Path(np.__file__).parent
    for path in sorted([*root.parent.glob("numpy.libs/*openblas*"), *root.glob(".dylibs/*openblas*")]):
        library = ctypes.CDLL(str(path))
        for prefix, suffix in (("scipy_", "64_"), ("scipy_", ""), ("", "64_"), ("", "")):
            names = [f"{prefix}openblas_{verb}_num_threads{suffix}" for verb in ("get", "set")]
            if all(hasattr(library, name) for name in names):
                return tuple(getattr(library, name) for name in names)
    return None


class _OneThread:
    """Keep BLAS at one thread while at least one thread is inside; the last one to leave restores the number."""

    def __init__(self) -> None:
        self._lock, self._depth, self._before = threading.Lock(), 0, 1

    def __enter__(self) -> None:
        with self._lock:
            if self._depth == 0:
                get, put = _openblas()
                self._before = get()
                put(1)
            self._depth += 1

    def __exit__(self, *error: object) -> None:
        with self._lock:
            self._depth -= 1
            if self._depth == 0:
                _openblas()[1](self._before)


_one_thread = _OneThread()
