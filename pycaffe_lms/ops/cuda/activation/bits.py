"""Compute activations whose backward reads bits in place of values, on a GPU.

See `ops/bit_masks.py`, and `ops/cpu/activation/bits.py` for what the planes of `bits` say. A thread finds the bits of
four neighbouring elements; eight threads join them to a word, in the kernel that writes the values.
"""

from __future__ import annotations

import functools

from ....arrays import AnyArray
from ...bit_masks import bit_words
from ..elementwise import elementwise, run
from .relu import RELU, RELU6

__all__ = ["bits_backward", "clip_bits_forward", "positive_bits", "relu6_bits_forward", "relu_bits_forward"]

# every thread of a warp calls put_bits; `first` is the index of the first of the thread's four elements
BITS = """
__device__ inline void put_bits(unsigned* bits, unsigned four, long long first, long long n) {
  const long long left = n - first;
  if (left < 4) four &= left <= 0 ? 0u : (1u << left) - 1u;  // past the end no bit is set
  unsigned word = four << threadIdx.x % 8 * 4;
  word |= __shfl_xor_sync(0xffffffffu, word, 1);
  word |= __shfl_xor_sync(0xffffffffu, word, 2);
  word |= __shfl_xor_sync(0xffffffffu, word, 4);
  if (threadIdx.x % 8 == 0 && left > 0) bits[first >> 5] = word;
}
// the bits of element `first`, a multiple of 4 (or of whatever is read at once), and of those behind it
__device__ inline unsigned get_bits(const unsigned* bits, long long first) {
  return bits[first >> 5] >> (first & 31);
}
"""
_CLIP = "const T under = (T)high < x ? (T)high : x; y = (T)low < under ? under : (T)low;"


@functools.cache
def _keeping(body: str, test: str, second: bool = False, params: str = "double slope") -> str:
    """Return kernel `keep`: `body` computes y; bits say where `test` holds, those of a `second` plane where x <= 0."""
    return elementwise(
        "keep",
        f"four |= (unsigned)({test}) << lane; {'more |= (unsigned)(x <= 0) << lane;' * second} {body}",
        reads="x",
        writes="y" if body else "",
        params=", ".join(["unsigned* bits, long long words", *([params] if params else [])]),
        each=f"unsigned four = 0; {'unsigned more = 0;' * second}",
        after=f"put_bits(bits, four, first, n); {'put_bits(bits + words, more, first, n);' * second}",
        helpers=BITS,
    )


@functools.cache
def _backward(second: bool) -> str:
    ahead = "const unsigned four = first < n ? get_bits(bits, first) : 0;"
    more = "const unsigned more = first < n ? get_bits(bits + words, first) : 0;" * second
    other = "more >> lane & 1 ? (T)slope : (T)0" if second else "(T)0"
    return elementwise(
        "bits_backward",
        f"dx = dy * (four >> lane & 1 ? (T)1 : {other});",
        reads="dy",
        writes="dx",
        params="const unsigned* bits, long long words, double slope",
        each=f"{ahead} {more}",
        helpers=BITS,
    )


def positive_bits(v: AnyArray, bits: AnyArray) -> None:
    """Write where v > 0 to `bits`."""
    run(_keeping("", "x > 0", params=""), "keep", (v,), bits, bit_words(v.size))


def relu_bits_forward(x: AnyArray, y: AnyArray, bits: AnyArray, slope: float) -> None:
    """Compute y = relu_forward(x), and write to `bits` where y is x (and where it is slope * x). y may be x."""
    source = _keeping(RELU, "x > 0", bool(slope))
    run(source, "keep", (x, y), bits, bit_words(x.size), float(slope))


def relu6_bits_forward(x: AnyArray, y: AnyArray, bits: AnyArray, slope: float) -> None:
    """Compute y = relu6_forward(x), and write to `bits` where y is x (and where it is slope * x). y may be x."""
    source = _keeping(RELU6, "x > 0 && x < 6", bool(slope))
    run(source, "keep", (x, y), bits, bit_words(x.size), float(slope))


def clip_bits_forward(x: AnyArray, y: AnyArray, bits: AnyArray, low: float, high: float) -> None:
    """Compute y = clip_forward(x), and write to `bits` where low <= x <= high. y may be x."""
    source = _keeping(_CLIP, "x >= (T)low && x <= (T)high", params="double low, double high")
    run(source, "keep", (x, y), bits, bit_words(x.size), float(low), float(high))


def bits_backward(bits: AnyArray, dy: AnyArray, dx: AnyArray, slope: float) -> None:
    """Compute dx = dy * (1, slope or 0, as `bits` say); dx may be dy."""
    run(_backward(bool(slope)), "bits_backward", (dy, dx), bits, bit_words(dy.size), float(slope))
