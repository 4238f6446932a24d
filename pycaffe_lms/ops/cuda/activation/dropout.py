"""Drop elements by a counter-based generator: no mask is stored, backward draws the same bits again.

The generator is Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC11). `key` is an array
of three uint64: a seed, the number of draws made with it before, and the block of the first element. With b = key[2] +
i // 4, element i takes lane i % 4 of the block whose counter is the low and high word of b, then of key[1], under the
key key[0].
"""

from __future__ import annotations

import math

from ....arrays import AnyArray
from ..elementwise import elementwise, run

__all__ = ["dropout_forward", "dropout_backward"]

PHILOX = """
__device__ void philox(unsigned* c, unsigned k0, unsigned k1) {
  #pragma unroll
  for (int round = 0; round < 10; ++round) {
    unsigned long long p0 = (unsigned long long)c[0] * 0xD2511F53u, p1 = (unsigned long long)c[2] * 0xCD9E8D57u;
    c[0] = (unsigned)(p1 >> 32) ^ c[1] ^ k0;
    c[2] = (unsigned)(p0 >> 32) ^ c[3] ^ k1;
    c[1] = (unsigned)p1;
    c[3] = (unsigned)p0;
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
}
"""

_SOURCE = elementwise(
    "dropout",
    "y = x * ((long long)c[lane] >= drop ? (T)scale : (T)0);",
    reads="x",
    writes="y",
    params="const unsigned long long* key, long long drop, double scale",
    setup="const unsigned long long seed = key[0], offset = key[1], first_block = key[2];",
    each="""
    const long long block = (long long)first_block + first / 4;
    unsigned c[4] = {(unsigned)block, (unsigned)(block >> 32), (unsigned)offset, (unsigned)(offset >> 32)};
    philox(c, (unsigned)seed, (unsigned)(seed >> 32));
    """,
    helpers=PHILOX,
)


def threshold(ratio: float) -> int:
    """Return the smallest 32-bit draw that keeps its element, so that a share `ratio` (to 2^-32) is dropped."""
    return math.ceil(ratio * 2**32)


def _apply(x: AnyArray, y: AnyArray, ratio: float, key: AnyArray, scale: float) -> None:
    run(_SOURCE, "dropout", (x, y), key, threshold(ratio), scale)


def dropout_forward(x: AnyArray, y: AnyArray, ratio: float, key: AnyArray, scale: float) -> None:
    """Compute y = x * scale where an element is kept, x * 0 where it is dropped, a share `ratio`; y may be x."""
    _apply(x, y, ratio, key, scale)


def dropout_backward(dy: AnyArray, dx: AnyArray, ratio: float, key: AnyArray, scale: float) -> None:
    """Compute dx = dy * scale where forward kept an element, dy * 0 where it dropped it; dx may be dy."""
    _apply(dy, dx, ratio, key, scale)
