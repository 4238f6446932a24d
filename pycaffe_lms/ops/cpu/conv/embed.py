"""Look up rows of a table (k, n) by m indices that are stored as real numbers."""

from __future__ import annotations

import numpy as np

from ....arrays import HostArray

__all__ = ["embed_forward", "embed_backward", "find_outside", "outside_plan"]


def _known(index: HostArray, m: int, k: int) -> tuple[HostArray, HostArray]:
    """Return (positions whose index is in 0..k-1, these indices); indices are truncated, and NaN is out of range."""
    index = np.trunc(index.reshape(m).astype(np.float64))  # float32 does not hold every k
    at = np.flatnonzero((index >= 0) & (index < k))
    return at, index[at].astype(np.int64)


def outside_plan() -> HostArray:
    """Return the array that `find_outside` writes to: three zeros, float64, of the host."""
    return np.zeros(3)


def find_outside(index: HostArray, found: HostArray, m: int, k: int) -> None:
    """Write (1, i, index[i]) to `found` for one i whose index is out of range; write nothing where all are in range."""
    at, _ = _known(index, m, k)
    if at.size < m:
        first = int(np.setdiff1d(np.arange(m), at, assume_unique=True)[0])
        found[:] = 1, first, index.reshape(m)[first]


def embed_forward(index: HostArray, w: HostArray, b: HostArray | None, y: HostArray, m: int, n: int, k: int) -> None:
    """Compute y[i] = w[int(index[i])] + b (no bias where b is None); NaN where the index is out of range."""
    w, y = w.reshape(k, n), y.reshape(m, n)
    at, rows = _known(index, m, k)
    if at.size == m:
        np.take(w, rows, axis=0, out=y)
    else:
        y.fill(np.nan)
        y[at] = w[rows]
    if b is not None:
        y += b.reshape(n)


def embed_backward(index: HostArray, dy: HostArray, dw: HostArray, accumulate: bool, m: int, n: int, k: int) -> None:
    """Write to dw[row], or add if `accumulate`, the sum of dy[i] over the i whose index is that row, in their order."""
    dy, dw = dy.reshape(m, n), dw.reshape(k, n)
    if not accumulate:
        dw.fill(0)
    at, rows = _known(index, m, k)
    if at.size == 0 or n == 0:
        return
    order = np.argsort(rows, kind="stable")
    used, starts = np.unique(rows[order], return_index=True)
    dw[used] += np.add.reduceat(dy[at[order]], starts, axis=0, dtype=np.float64).astype(dw.dtype)
