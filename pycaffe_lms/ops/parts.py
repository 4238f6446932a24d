"""How a reduction over (outer, inner) for each of `dim` channels is cut into parts: by sizes alone, so that the order
of additions, hence every bit of the result, is the same on every run."""

from __future__ import annotations

from .norm_parts import norm_parts

LOSS_BLOCKS = 1024  # most parts of a loss; its `work` scratch holds a sum and a count (float64) for each
_ITEMS = 4096  # a part of one channel is worth a block of threads from about this many elements
_BLOCKS = 4096  # blocks that fill any GPU


def reduction_parts(outer: int, dim: int, inner: int) -> int:
    """Parts per channel; a layer's `work` scratch holds dim * parts elements for each sum."""
    if inner == 1 and dim > 1:  # a block adds up neighbouring channels side by side
        return norm_parts(outer, dim, inner)
    wanted = (outer * inner + _ITEMS - 1) // _ITEMS
    return max(1, min(wanted, _BLOCKS // max(1, dim)))
