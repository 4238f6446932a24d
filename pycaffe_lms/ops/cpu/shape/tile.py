"""Repeat blocks: (outer, inner) to (outer, tiles, inner)."""

from __future__ import annotations

import numpy as np

from ....arrays import HostArray

__all__ = ["tile_forward", "tile_backward"]


def tile_forward(x: HostArray, y: HostArray, outer: int, tiles: int, inner: int) -> None:
    """Compute y[o, t] = x[o] for every t."""
    y.reshape(outer, tiles, inner)[...] = x.reshape(outer, 1, inner)


def tile_backward(
    dy: HostArray, dx: HostArray, work: HostArray, parts: int, outer: int, tiles: int, inner: int
) -> None:
    """Compute dx[o] = sum of dy[o, t] over t. `work`: outer * parts * inner elements for the GPU's partial sums."""
    # in double, for NumPy adds one value after the other along a middle axis
    dx.reshape(outer, inner)[...] = dy.reshape(outer, tiles, inner).sum(axis=1, dtype=np.float64)
