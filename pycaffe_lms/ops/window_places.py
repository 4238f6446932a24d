"""How poolings keep which element of a window they chose: its row-major place in the window, in the smallest type.

The largest value of an unsigned type, -1 of a signed one, stands for no place. So a byte does for windows of up to 255
elements, which is nearly all of them; backward reads little else than these numbers.
"""

from __future__ import annotations

from math import prod

import numpy as np

from .geometry import PoolGeometry

C_TYPES = {np.dtype(np.uint8): "unsigned char", np.dtype(np.uint16): "unsigned short", np.dtype(np.int32): "int"}


def place_dtype(geometry: PoolGeometry) -> np.dtype:
    """The smallest type that holds every place of a window, and no place."""
    return integer_dtype(prod(geometry.kernel))


def integer_dtype(values: int) -> np.dtype:
    """The smallest of uint8, uint16 and int32 for the numbers 0 .. values - 1 and one more that stands for none."""
    return np.dtype(np.uint8 if values < 1 << 8 else np.uint16 if values < 1 << 16 else np.int32)


def nowhere(dtype) -> int:
    """What stands for no place in an array of this type: what -1 becomes when it is stored."""
    info = np.iinfo(dtype)
    return int(info.max) if info.min == 0 else -1
