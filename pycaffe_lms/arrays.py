"""The types of arrays, for annotations."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np

HostArray: TypeAlias = "np.ndarray[tuple[int, ...], np.dtype[Any]]"
"""A NumPy array of any shape and type; the text next to it says which."""

DType: TypeAlias = "np.dtype[Any]"
"""The type of the elements of an array."""

AnyArray: TypeAlias = Any
"""An array where the layer runs: NumPy's on the CPU, CuPy's (which has no types) on a GPU, a simulated one."""
