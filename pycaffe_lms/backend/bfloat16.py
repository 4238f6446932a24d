"""Define bfloat16: the upper half of a float32, with 8 significant bits and the same range.

Neither NumPy nor CuPy has the type, so arrays of it are uint16. Operations have other uint16 arrays too (places of
maxima in large windows): these are called `mask`.
"""

from __future__ import annotations

import numpy as np

BFLOAT16 = np.dtype(np.uint16)
