"""Load or store several neighbouring elements at once: 16 bytes where the sizes allow it."""

from __future__ import annotations

import numpy as np
from numpy.typing import DTypeLike

from ...arrays import AnyArray

PACK = """
template <typename E, int COUNT> struct alignas(COUNT * sizeof(E)) Pack { E v[COUNT]; };
typedef Pack<T, N> Values;
"""


def aligned(*arrays: AnyArray) -> int:
    """Return 1 if every array starts at a multiple of 16 bytes (those of a net do, a view may not), else 0."""
    return int(all(a.data.ptr % 16 == 0 for a in arrays))


def pack_size(dtype: DTypeLike, *counts: int) -> int:
    """Return N: elements of `dtype` in 16 bytes if every count is a multiple of them, else 1."""
    n = 16 // np.dtype(dtype).itemsize
    return n if all(count % n == 0 for count in counts) else 1


def packs_of(count: int, *arrays: AnyArray) -> int:
    """Return N for arrays in rows of `count` elements, the first of which has the data type; N changes no result."""
    return pack_size(arrays[0].dtype, count) if aligned(*arrays) else 1
