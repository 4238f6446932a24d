"""bfloat16: the upper half of a float32, 8 significant bits and its range. Neither NumPy nor CuPy has the type, so
arrays of it are of uint16; what else is of that type (places of maxima in large windows) operations call `mask`."""

from __future__ import annotations

import numpy as np

BFLOAT16 = np.dtype(np.uint16)
