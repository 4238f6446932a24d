"""Several neighbouring elements in one load or store: 16 bytes where the sizes allow it."""

from __future__ import annotations

import numpy as np
from numpy.typing import DTypeLike

from ...arrays import AnyArray

PACK = """
template <typename E, int COUNT> struct alignas(COUNT * sizeof(E)) Pack { E v[COUNT]; };
typedef Pack<T, N> Values;
"""


def aligned(*arrays: AnyArray) -> int:
    """1 where every array starts at a multiple of 16 bytes (those of a net do, a view into one may not), else 0."""
    return int(all(a.data.ptr % 16 == 0 for a in arrays))


def pack_size(dtype: DTypeLike, *counts: int) -> int:
    """N: elements of `dtype` in 16 bytes if every count is a multiple of them, else 1."""
    n = 16 // np.dtype(dtype).itemsize
    return n if all(count % n == 0 for count in counts) else 1


def packs_of(count: int, *arrays: AnyArray) -> int:
    """N for work on arrays in rows of `count` elements, where N changes no result. The first is of the data type."""
    return pack_size(arrays[0].dtype, count) if aligned(*arrays) else 1
