"""How a maximum's place is kept where channels lie behind the other axes: its row-major place in the window.

-1 (255 in a byte) stands for no place. A byte is enough for all but large windows, and is what backward reads most.
"""

from __future__ import annotations

from math import prod

import numpy as np

from .geometry import PoolGeometry


def place_dtype(geometry: PoolGeometry) -> np.dtype:
    """The smallest type that holds every place of a window."""
    return np.dtype(np.uint8 if prod(geometry.kernel) < 256 else np.int32)
