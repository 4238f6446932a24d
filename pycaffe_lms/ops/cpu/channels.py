"""Sums per channel of arrays seen as (outer, dim, inner), accurate and without large temporaries."""

from __future__ import annotations

import numpy as np

_CHUNK = 1 << 18


def row_slices(outer, width):
    """Slices of the outer axis, each of some 2^18 elements (at least one row)."""
    rows = max(1, _CHUNK // max(1, width))
    return [slice(start, min(start + rows, outer)) for start in range(0, outer, rows)]


def channel_sum(outer, dim, inner, term):
    """float64 sums, one per channel, of `term(rows)`: an array (rows, dim, inner) for a slice of the outer axis.

    Pairwise in the array's type along `inner`, then in float64 over `outer`.
    """
    total = np.zeros(dim, np.float64)
    for rows in row_slices(outer, dim * inner):
        part = term(rows)
        total += (part[:, :, 0] if inner == 1 else part.sum(axis=2)).sum(axis=0, dtype=np.float64)
    return total
