"""Fill arrays with random numbers that are a function of a key and of the element's place, the same on every device.

The words are Philox's, as in `activation/dropout.py` with its `key`: element i takes lane i % 4 of block key[2] + i //
4. Values are computed in float32, whatever the type of the array.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from ...arrays import HostArray
from ..normal_numbers import ANGLE, COS, LN2, LOG, SIN, SQRT_HALF_BITS
from .activation.dropout import draw_words, round_keys
from .compiled import kernel
from .threads import ELEMENTS, parallel

__all__ = ["random_gaussian", "random_uniform", "random_unit_rows"]

_CHUNK = 1 << 12  # blocks of four words that are drawn, then turned into values
_GRAIN = 1 << 11  # blocks from which a second thread pays


def random_uniform(y: HostArray, key: HostArray, low: float, high: float) -> None:
    """Draw every element of y from the uniform distribution between low and high, both included.

    With w the upper 24 bits of the element's word, y = min(w / 2^24 * (high - low) + low, high).
    """
    ends = np.float32(low), np.float32(high)
    _fill(y, key, partial(_uniform, *ends, ends[1] - ends[0]))


def random_gaussian(y: HostArray, key: HostArray, mean: float, std: float) -> None:
    """Draw every element of y from the normal distribution; see `ops/normal_numbers.py`.

    Elements 2 i and 2 i + 1 are made of the words of both.
    """
    _fill(y, key, partial(_gaussian, np.float32(mean), np.float32(std), LOG, LN2, SIN, COS, ANGLE))


def random_unit_rows(y: HostArray, key: HostArray, rows: int) -> None:
    """Draw numbers in (0, 1] and divide each of the `rows` equal parts of y by its sum, which is exact.

    Elements are 1 - those of random_uniform from 0 to 1. y: of float32 or float64.
    """
    random_uniform(y, key, 0.0, 1.0)
    parallel(_divide, rows, y.reshape(rows, -1), grain=max(1, ELEMENTS * rows // max(1, y.size)))


def _fill(y: HostArray, key: HostArray, values: Callable[[HostArray, HostArray], None]) -> None:
    """Give `values` the words of each part of y and the part."""
    seed, offset, start = (int(word) for word in key)
    counter = start, np.uint64(offset & 0xFFFFFFFF), np.uint64(offset >> 32 & 0xFFFFFFFF), tuple(round_keys(seed))
    parallel(_fill_blocks, -(-y.size // 4), y.reshape(-1), values, *counter, grain=_GRAIN)


def _fill_blocks(
    first: int, last: int, y: HostArray, values: Callable[[HostArray, HostArray], None], start: int, *counter: Any
) -> None:
    bits = np.empty(4 * _CHUNK, np.uint32)
    for block in range(first, last, _CHUNK):
        count = min(_CHUNK, last - block)
        draw_words(bits, count, np.uint64(start + block), *counter)
        values(bits, y[4 * block : 4 * (block + count)])


def _divide(first: int, last: int, y: HostArray) -> None:
    for i in range(first, last):
        values = np.float32(1) - y[i].astype(np.float32)
        y[i] = values / np.float32(values.sum(dtype=np.float64))  # multiples of 2^-24: no partial sum is rounded


@kernel
def _uniform(low: np.float32, high: np.float32, span: np.float32, bits: HostArray, y: HostArray) -> None:
    for i in range(y.size):
        value = np.float32(bits[i] >> np.uint32(8)) * np.float32(2.0**-24) * span + low
        y[i] = value if value < high else high


@kernel
def _gaussian(
    mean: np.float32,
    std: np.float32,
    log: tuple[np.float32, ...],
    ln2: tuple[np.float32, ...],
    sin: tuple[np.float32, ...],
    cos: tuple[np.float32, ...],
    angle: np.float32,
    bits: HostArray,
    y: HostArray,
) -> None:
    pairs = (y.size + 1) // 2
    share, radius, values = np.empty(pairs, np.float32), np.empty(pairs, np.float32), np.empty(2 * pairs, np.float32)
    for i in range(pairs):
        share[i] = np.float32(bits[2 * i]) * np.float32(2.0**-32) + np.float32(2.0**-33)
    share_bits = share.view(np.int32)
    exponent = np.empty(pairs, np.int32)
    for i in range(pairs):
        exponent[i] = (share_bits[i] - np.int32(SQRT_HALF_BITS)) >> np.int32(23)
        share_bits[i] -= exponent[i] << np.int32(23)
    for i in range(pairs):
        x, e = share[i] - np.float32(1), np.float32(exponent[i])
        p = (
            ((((((log[0] * x + log[1]) * x + log[2]) * x + log[3]) * x + log[4]) * x + log[5]) * x + log[6]) * x
            + log[7]
        ) * x + log[8]
        z = x * x
        p = p * x * z + ln2[1] * e - np.float32(0.5) * z
        radius[i] = np.sqrt(np.float32(-2) * (x + p + ln2[0] * e))
    for i in range(pairs):
        b = bits[2 * i + 1]
        t = np.float32(np.int32(b << np.uint32(2))) * angle
        z = t * t
        s = ((sin[0] * z + sin[1]) * z + sin[2]) * z * t + t
        c = ((cos[0] * z + cos[1]) * z + cos[2]) * z * z - np.float32(0.5) * z + np.float32(1)
        r = -radius[i] if b & np.uint32(1 << 30) else radius[i]
        swap = b >> np.uint32(31)
        values[2 * i] = r * (s if swap else c) * std + mean
        values[2 * i + 1] = r * (c if swap else s) * std + mean
    y[:] = values[: y.size]
