"""Dropout with a counter-based generator: no mask is stored, backward draws the same bits again.

The generator is Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC11). Element i takes
lane i % 4 of the block with counter (low and high word of b = key[2] + i // 4, of key[1]) and key key[0]. `key` is an
array of three uint64: a seed, how many draws were made with it before, and the block of the first element.
"""

from __future__ import annotations

import math

import numpy as np

__all__ = ["dropout_forward", "dropout_backward"]

_MULTIPLY = (np.uint64(0xD2511F53), np.uint64(0xCD9E8D57))
_WEYL = (0x9E3779B9, 0xBB67AE85)
_LOW = np.uint64(0xFFFFFFFF)
_BLOCKS = 1 << 14  # four 128 KiB words at a time: stays in the cache


def philox(counter, seed):
    """Four uint32 arrays: Philox4x32-10 of four arrays of counter words (uint64 holding 32 bits) under a 64-bit key."""
    c0, c1, c2, c3 = counter
    k0, k1 = seed & 0xFFFFFFFF, seed >> 32 & 0xFFFFFFFF
    for _ in range(10):
        p0, p1 = c0 * _MULTIPLY[0], c2 * _MULTIPLY[1]
        c0, c2 = (p1 >> np.uint64(32)) ^ c1 ^ np.uint64(k0), (p0 >> np.uint64(32)) ^ c3 ^ np.uint64(k1)
        c1, c3 = p1 & _LOW, p0 & _LOW
        k0, k1 = k0 + _WEYL[0] & 0xFFFFFFFF, k1 + _WEYL[1] & 0xFFFFFFFF
    return [c.astype(np.uint32) for c in (c0, c1, c2, c3)]


def threshold(ratio):
    """The smallest 32-bit draw that keeps its element, so that a share `ratio` (to 2^-32) of them is dropped."""
    return math.ceil(ratio * 2**32)


def _apply(x, y, ratio, key):
    seed, offset, start = (int(word) for word in key)
    flat, out = x.reshape(-1), y.reshape(-1)
    drop, scale = threshold(ratio), 1.0 / (1.0 - ratio)
    for first in range(0, (flat.size + 3) // 4, _BLOCKS):
        part = slice(4 * first, min(4 * (first + _BLOCKS), flat.size))
        block = np.arange(start + first, start + (part.stop + 3) // 4, dtype=np.uint64)
        high = [np.full_like(block, word) for word in (offset & 0xFFFFFFFF, offset >> 32 & 0xFFFFFFFF)]
        bits = np.stack(philox([block & _LOW, block >> np.uint64(32), *high], seed), axis=1).reshape(-1)
        factor = np.where(bits[: part.stop - part.start] >= drop, flat.dtype.type(scale), flat.dtype.type(0))
        np.multiply(flat[part], factor, out=out[part])


def dropout_forward(x, y, ratio, key):
    """y = x / (1 - ratio) where kept, x * 0 where dropped; y may be x."""
    _apply(x, y, ratio, key)


def dropout_backward(dy, dx, ratio, key):
    """dx = dy / (1 - ratio) where forward kept, dy * 0 where it dropped; dx may be dy."""
    _apply(dy, dx, ratio, key)
