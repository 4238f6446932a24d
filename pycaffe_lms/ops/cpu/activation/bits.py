"""Compute activations whose backward reads bits in place of values. See `ops/bit_masks.py`.

`bits` is an array of uint32. Its first plane of `bit_words(x.size)` words says where the slope is 1; for a
negative_slope other than 0 a second plane says where the slope is negative_slope; elsewhere it is 0. Gradients are
those of the operations that read values, to the bit.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ....arrays import HostArray
from ...bit_masks import bit_words
from ..threads import ELEMENTS, parallel
from .pointwise import clip_forward
from .relu import relu6_forward, relu_forward

__all__ = ["bits_backward", "clip_bits_forward", "positive_bits", "relu6_bits_forward", "relu_bits_forward"]

_WORDS = 1 << 10  # words worked on at a time: their 32768 elements stay in the cache


def positive_bits(v: HostArray, bits: HostArray) -> None:
    """Write where v > 0 to `bits`."""
    _keep(bits, v, lambda part: part > 0)


def relu_bits_forward(x: HostArray, y: HostArray, bits: HostArray, slope: float) -> None:
    """Compute y = relu_forward(x), and write to `bits` where y is x (and where it is slope * x). y may be x."""
    _planes(bits, x, slope, lambda part: part > 0)
    relu_forward(x, y, slope)


def relu6_bits_forward(x: HostArray, y: HostArray, bits: HostArray, slope: float) -> None:
    """Compute y = relu6_forward(x), and write to `bits` where y is x (and where it is slope * x). y may be x."""
    _planes(bits, x, slope, lambda part: (part > 0) & (part < 6))
    relu6_forward(x, y, slope)


def clip_bits_forward(x: HostArray, y: HostArray, bits: HostArray, low: float, high: float) -> None:
    """Compute y = clip_forward(x), and write to `bits` where low <= x <= high. y may be x."""
    low_, high_ = x.dtype.type(low), x.dtype.type(high)
    _keep(bits, x, lambda part: (part >= low_) & (part <= high_))
    clip_forward(x, y, low, high)


def bits_backward(bits: HostArray, dy: HostArray, dx: HostArray, slope: float) -> None:
    """Compute dx = dy * (1, slope or 0, as `bits` say); dx may be dy."""
    words = bit_words(dy.size)
    first, second = bits[:words], bits[words:] if slope else None
    parallel(_scale, words, first, second, dy.reshape(-1), dx.reshape(-1), slope, grain=ELEMENTS // 32)


def values_of(bits: HostArray, like: HostArray) -> HostArray:
    """Return an array like `like` that is 1 where a bit is set, else 0."""
    bits = bits.view(np.uint8)
    return np.unpackbits(bits, count=like.size, bitorder="little").astype(like.dtype).reshape(like.shape)


def _planes(bits: HostArray, x: HostArray, slope: float, test: Callable[[HostArray], HostArray]) -> None:
    words = bit_words(x.size)
    _keep(bits[:words], x, test)
    if slope:
        _keep(bits[words:], x, lambda part: part <= 0)


def _keep(bits: HostArray, v: HostArray, test: Callable[[HostArray], HostArray]) -> None:
    parallel(_pack, bit_words(v.size), v.reshape(-1), bits, test, grain=ELEMENTS // 32)


def _pack(first: int, last: int, v: HostArray, bits: HostArray, test: Callable[[HostArray], HostArray]) -> None:
    for start in range(first, last, _WORDS):
        end = min(start + _WORDS, last)
        packed = np.packbits(test(v[32 * start : 32 * end]), bitorder="little")
        to = bits[start:end].view(np.uint8)
        to[: packed.size] = packed
        to[packed.size :] = 0


def _unpack(bits: HostArray, start: int, end: int, count: int) -> HostArray:
    return np.unpackbits(bits[start:end].view(np.uint8), count=count, bitorder="little").view(bool)


def _scale(
    first: int, last: int, ones: HostArray, slopes: HostArray | None, dy: HostArray, dx: HostArray, slope: float
) -> None:
    kind = dy.dtype.type
    for start in range(first, last, _WORDS):
        end = min(start + _WORDS, last)
        part = dy[32 * start : 32 * end]
        factor = _unpack(ones, start, end, part.size).astype(dy.dtype)
        if slopes is not None:
            factor[_unpack(slopes, start, end, part.size)] = kind(slope)
        with np.errstate(all="ignore"):  # 0 * inf is NaN, as in the operations that read values
            np.multiply(part, factor, out=dx[32 * start : 32 * end])
