"""Drop elements by a counter-based generator: no mask is stored, backward draws the same bits again.

The generator is Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC11). `key` is an array
of three uint64: a seed, the number of draws made with it before, and the block of the first element. With b = key[2] +
i // 4, element i takes lane i % 4 of the block whose counter is the low and high word of b, then of key[1], under the
key key[0]. `drop_path` draws for each item instead: item n takes lane 0 of block key[2] + n. `guided_factors` draws for
each element of the guidance.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np

from ....arrays import HostArray
from ..compiled import BLOCK, kernel
from ..threads import parallel

__all__ = [
    "drop_path_backward",
    "drop_path_forward",
    "dropout_backward",
    "dropout_forward",
    "guided_factors",
    "threshold_factors",
]

_MULTIPLY = (np.uint64(0xD2511F53), np.uint64(0xCD9E8D57))
_WEYL = (0x9E3779B9, 0xBB67AE85)
_LOW = np.uint64(0xFFFFFFFF)
_GRAIN = 1 << 11  # blocks of four elements from which a second thread pays


def philox(counter: Sequence[HostArray], seed: int) -> list[HostArray]:
    """Return four uint32 arrays: Philox4x32-10 of a counter under a key.

    Args:
        counter: four uint64 arrays, each of one 32-bit word of the counters.
        seed: the 64-bit key.
    """
    c0, c1, c2, c3 = counter
    k0, k1 = seed & 0xFFFFFFFF, seed >> 32 & 0xFFFFFFFF
    for _ in range(10):
        p0, p1 = c0 * _MULTIPLY[0], c2 * _MULTIPLY[1]
        c0, c2 = (p1 >> np.uint64(32)) ^ c1 ^ np.uint64(k0), (p0 >> np.uint64(32)) ^ c3 ^ np.uint64(k1)
        c1, c3 = p1 & _LOW, p0 & _LOW
        k0, k1 = k0 + _WEYL[0] & 0xFFFFFFFF, k1 + _WEYL[1] & 0xFFFFFFFF
    return [c.astype(np.uint32) for c in (c0, c1, c2, c3)]


def words_of(blocks: HostArray, seed: int, offset: int) -> HostArray:
    """Return the words of some blocks (uint64), of a draw with the number `offset`: (blocks, 4), uint32."""
    low, high = (np.full_like(blocks, word) for word in (offset & 0xFFFFFFFF, offset >> 32 & 0xFFFFFFFF))
    return np.stack(philox([blocks & _LOW, blocks >> np.uint64(32), low, high], seed), axis=1)


def threshold(ratio: float) -> int:
    """Return the smallest 32-bit draw that keeps its element, so that a share `ratio` (to 2^-32) is dropped."""
    return math.ceil(ratio * 2**32)


def _apply(x: HostArray, y: HostArray, ratio: float, key: HostArray, scale: float) -> None:
    seed, offset, start = (int(word) for word in key)
    kind, keys = x.dtype.type, tuple(round_keys(seed))
    counter = map(np.uint64, (start, offset & 0xFFFFFFFF, offset >> 32 & 0xFFFFFFFF))
    numbers = *counter, keys, np.uint64(threshold(ratio)), kind(scale)
    parallel(_scale, -(-x.size // 4), x.reshape(-1), y.reshape(-1), *numbers, grain=_GRAIN)


def drop_rows(x: HostArray, places: HostArray, ratio: float, key: HostArray) -> None:
    """Multiply elements of x (rows, columns) by 0 or 1 / (1 - ratio): row r is elements places[r], .. of a larger array
    whose elements `dropout` would treat so."""
    seed, offset, start = (int(word) for word in key)
    counter = map(np.uint64, (start, offset & 0xFFFFFFFF, offset >> 32 & 0xFFFFFFFF))
    numbers = *counter, tuple(round_keys(seed)), np.uint64(threshold(ratio)), x.dtype.type(1 / (1 - ratio))
    parallel(_scale_rows, len(x), x, places.astype(np.uint64), *numbers, grain=max(1, 4 * _GRAIN // max(1, x.shape[1])))


@kernel
def _scale_rows(
    first: int,
    last: int,
    x: HostArray,
    places: HostArray,
    start: np.uint64,
    offset_low: np.uint64,
    offset_high: np.uint64,
    keys: tuple[np.uint64, ...],
    drop: np.uint64,
    scale: float,
) -> None:
    zero, bits = x.dtype.type(0), np.empty(BLOCK + 4, np.uint32)
    for r in range(first, last):
        row, lane = x[r], int(places[r] % np.uint64(4))
        block = start + places[r] // np.uint64(4)
        for begin in range(0, row.size, BLOCK):
            count = min(BLOCK, row.size - begin)
            draw_words(bits, (lane + count + 3) // 4, block + np.uint64(begin // 4), offset_low, offset_high, keys)
            for j in range(count):
                row[begin + j] *= scale if np.uint64(bits[lane + j]) >= drop else zero


def round_keys(seed: int) -> Iterator[np.uint64]:
    """Yield both words of the key of each of the ten rounds."""
    for i in range(10):
        yield np.uint64((seed & 0xFFFFFFFF) + i * _WEYL[0] & 0xFFFFFFFF)
        yield np.uint64((seed >> 32 & 0xFFFFFFFF) + i * _WEYL[1] & 0xFFFFFFFF)


@kernel
def _scale(
    first: int,
    last: int,
    x: HostArray,
    y: HostArray,
    start: np.uint64,
    offset_low: np.uint64,
    offset_high: np.uint64,
    keys: tuple[np.uint64, ...],
    drop: np.uint64,
    scale: float,
) -> None:
    """Compute y[4 * first : 4 * last], some blocks of four elements at a time."""
    zero, bits, result = x.dtype.type(0), np.empty(BLOCK, np.uint32), np.empty(BLOCK, x.dtype)
    for block in range(first, last, BLOCK // 4):
        count = min(BLOCK // 4, last - block)
        draw_words(bits, count, start + np.uint64(block), offset_low, offset_high, keys)
        values = x[4 * block : min(4 * (block + count), x.size)]
        for j in range(values.size):
            result[j] = values[j] * (scale if np.uint64(bits[j]) >= drop else zero)
        y[4 * block : 4 * block + values.size] = result[: values.size]


@kernel
def _round(
    c0: np.uint64, c1: np.uint64, c2: np.uint64, c3: np.uint64, k0: np.uint64, k1: np.uint64
) -> tuple[np.uint64, np.uint64, np.uint64, np.uint64]:
    low, half = np.uint64(0xFFFFFFFF), np.uint64(32)
    p0, p1 = c0 * _MULTIPLY[0], c2 * _MULTIPLY[1]
    return (p1 >> half) ^ c1 ^ k0, p1 & low, (p0 >> half) ^ c3 ^ k1, p0 & low


@kernel
def draw_words(
    bits: HostArray,
    count: int,
    start: np.uint64,
    offset_low: np.uint64,
    offset_high: np.uint64,
    keys: tuple[np.uint64, ...],
) -> None:
    """Write the words of blocks `start` to start + count to `bits`, as `philox` returns them.

    Args:
        keys: see `round_keys`.
    """
    low, half = np.uint64(0xFFFFFFFF), np.uint64(32)
    for j in range(count):
        b = start + np.uint64(j)
        c0, c1, c2, c3 = b & low, b >> half, offset_low, offset_high
        c0, c1, c2, c3 = _round(c0, c1, c2, c3, keys[0], keys[1])
        c0, c1, c2, c3 = _round(c0, c1, c2, c3, keys[2], keys[3])
        c0, c1, c2, c3 = _round(c0, c1, c2, c3, keys[4], keys[5])
        c0, c1, c2, c3 = _round(c0, c1, c2, c3, keys[6], keys[7])
        c0, c1, c2, c3 = _round(c0, c1, c2, c3, keys[8], keys[9])
        c0, c1, c2, c3 = _round(c0, c1, c2, c3, keys[10], keys[11])
        c0, c1, c2, c3 = _round(c0, c1, c2, c3, keys[12], keys[13])
        c0, c1, c2, c3 = _round(c0, c1, c2, c3, keys[14], keys[15])
        c0, c1, c2, c3 = _round(c0, c1, c2, c3, keys[16], keys[17])
        c0, c1, c2, c3 = _round(c0, c1, c2, c3, keys[18], keys[19])
        bits[4 * j], bits[4 * j + 1] = np.uint32(c0), np.uint32(c1)
        bits[4 * j + 2], bits[4 * j + 3] = np.uint32(c2), np.uint32(c3)


def dropout_forward(x: HostArray, y: HostArray, ratio: float, key: HostArray, scale: float) -> None:
    """Compute y = x * scale where an element is kept, x * 0 where it is dropped, a share `ratio`; y may be x."""
    _apply(x, y, ratio, key, scale)


def dropout_backward(dy: HostArray, dx: HostArray, ratio: float, key: HostArray, scale: float) -> None:
    """Compute dx = dy * scale where forward kept an element, dy * 0 where it dropped it; dx may be dy."""
    _apply(dy, dx, ratio, key, scale)


def drop_path_forward(x: HostArray, y: HostArray, ratio: float, key: HostArray, scale: float) -> None:
    """Compute y = x * scale for items (the first axis) that are kept, x * 0 for a share `ratio`; y may be x."""
    seed, offset, start = (int(word) for word in key)
    blocks = np.arange(len(x), dtype=np.uint64) + np.uint64(start)
    words = words_of(blocks, seed, offset)[:, 0]
    factors = np.where(words >= threshold(ratio), scale, 0).astype(x.dtype)
    np.multiply(x, factors.reshape(-1, *[1] * (x.ndim - 1)), out=y)


def drop_path_backward(dy: HostArray, dx: HostArray, ratio: float, key: HostArray, scale: float) -> None:
    """Compute dx = dy * scale for items that forward kept, dy * 0 for the others; dx may be dy."""
    drop_path_forward(dy, dx, ratio, key, scale)


def guided_factors(guidance: HostArray, factors: HostArray, key: HostArray, scaler: float) -> None:
    """Compute factors (N, C): C / the sum of an item's p where an element is kept, with probability p, else 0.

    p is the logistic function of scaler * guidance (N, C). An item whose p are all 0, or one of them NaN, has zeros.
    """
    seed, offset, start = (int(word) for word in key)
    blocks = np.arange(-(-guidance.size // 4), dtype=np.uint64) + np.uint64(start)
    words = words_of(blocks, seed, offset).ravel()[: guidance.size]
    with np.errstate(over="ignore", invalid="ignore"):  # exp of a large number: p is 0
        chance = 1 / (1 + np.exp(-scaler * guidance.astype(np.float64)))
        _write_factors(words.reshape(guidance.shape) < np.ceil(chance * 2.0**32), chance, factors)


def threshold_factors(guidance: HostArray, factors: HostArray, threshold: float) -> None:
    """Compute factors (N, C): C / the number of an item's elements that are kept, those with guidance above threshold;
    0 for the others."""
    kept = guidance > threshold
    _write_factors(kept, kept.astype(np.float64), factors)


def _write_factors(kept: HostArray, chance: HostArray, factors: HostArray) -> None:
    total = chance.sum(axis=1, keepdims=True)
    share = np.divide(kept.shape[1], total, out=np.zeros_like(total), where=total > 0)
    factors[...] = np.where(kept, share, 0)
