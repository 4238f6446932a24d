"""Choose rows by a selector, forward and backward. Plan and layer: `layers/shape/filter.py`."""

from __future__ import annotations

import numpy as np

from ....arrays import HostArray

__all__ = ["filter_backward", "filter_forward", "filter_positions"]


def filter_positions(selector: HostArray, positions: HostArray) -> None:
    """Write to positions[i] how many rows before row i are selected, or -1 where selector[i] is 0."""
    chosen = selector.reshape(-1) != 0
    np.copyto(positions, np.where(chosen, np.cumsum(chosen) - 1, -1))


def filter_forward(x: HostArray, positions: HostArray, y: HostArray) -> None:
    """Copy every selected row i: y[positions[i]] = x[i]."""
    np.copyto(y, x[positions >= 0])


def filter_backward(dy: HostArray, positions: HostArray, dx: HostArray) -> None:
    """Set dx[i] = dy[positions[i]] for every selected row i, and to 0 for the others."""
    chosen = positions >= 0
    dx[chosen] = dy
    dx[~chosen] = 0
