"""Cut the sums of normalisations, reductions and losses into parts, by sizes alone.

So the order of additions, hence every bit of the result, is the same on every run. Arrays are seen as (n, c, s).
"""

from __future__ import annotations

_ITEMS = 4096  # values per block of threads
_NORM_BLOCKS = 1056  # eight blocks of 256 threads for each of 132 multiprocessors
LOSS_BLOCKS = 1024  # most parts of a loss; its `work` holds a sum and a count (float64) for each
_BLOCKS = 4096  # blocks that fill any GPU
_TILE_SHARE = 64  # tiles that one thread of a GPU adds up where there are fewer than `_TILE_THREADS` sums
_TILE_THREADS = 1 << 16
_COLUMNS = 128  # channels that one block reads side by side where they are neighbours in memory (s = 1)


def norm_parts(n: int, c: int, s: int) -> int:
    """Return the parts per channel."""
    if s == 1 and c > 1:
        blocks, items = (c + _COLUMNS - 1) // _COLUMNS, _ITEMS // min(c, _COLUMNS)
    else:
        blocks, items = max(1, c), _ITEMS
    return max(1, min((n * s + items - 1) // items, (_NORM_BLOCKS + blocks - 1) // blocks))


def fused_norm_work(n: int, c: int, s: int) -> int:
    """Return the elements of `work` of `fused_norm`: per channel two sums for each part, and two means."""
    return 2 * c * (norm_parts(n, c, s) + 1)


def bits_come_free(c: int, s: int) -> bool:
    """Return whether a GPU's forward writes bits of its result in the same kernel.

    That is where channels are neighbours in memory and fill whole words.
    """
    return s == 1 and c > 1 and c % 32 == 0


def reduction_parts(outer: int, dim: int, inner: int) -> int:
    """Return the parts per channel; a layer's `work` holds dim * parts elements for each sum."""
    if inner == 1 and dim > 1:  # a block adds up neighbouring channels side by side
        return norm_parts(outer, dim, inner)
    wanted = (outer * inner + _ITEMS - 1) // _ITEMS
    return max(1, min(wanted, _BLOCKS // max(1, dim)))


def tile_parts(outer: int, tiles: int, inner: int) -> int:
    """Return the parts of the sum over tiles; `work` of `tile_backward` holds outer * parts * inner elements."""
    return 1 if outer * inner >= _TILE_THREADS else (tiles + _TILE_SHARE - 1) // _TILE_SHARE
