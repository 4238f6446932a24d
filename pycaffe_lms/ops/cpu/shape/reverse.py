"""Turn the order along one axis round."""

from __future__ import annotations

import numpy as np

from ....arrays import HostArray
from ...records import Grid

__all__ = ["reverse"]


def reverse(x: HostArray, y: HostArray, grid: Grid) -> None:
    """Compute y[o, c - 1 - k, i] = x[o, k, i] for arrays seen as (outer, c, inner)."""
    shape = grid.outer, grid.channels, grid.inner
    np.copyto(y.reshape(shape), x.reshape(shape)[:, ::-1])
