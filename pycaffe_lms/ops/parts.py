"""How a reduction over (outer, inner) for each of `dim` channels is cut into parts: by sizes alone, so that the order
of additions, hence every bit of the result, is the same on every run."""

from __future__ import annotations

_ITEMS = 4096  # a part is worth a block of threads from about this many elements
_BLOCKS = 4096  # blocks that fill any GPU


def reduction_parts(outer: int, dim: int, inner: int) -> int:
    """Parts per channel; a layer's `work` scratch holds dim * parts elements for each sum."""
    columns = dim if inner > 1 else (dim + 31) // 32  # one block adds up 32 neighbouring channels where inner is 1
    wanted = (outer * inner + _ITEMS - 1) // _ITEMS
    return max(1, min(wanted, _BLOCKS // max(1, columns)))
