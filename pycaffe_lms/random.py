"""Draw random numbers as Caffe does: one MT19937 stream per net, seeded in the same way.

Many normal values at once come from a counter-based generator, with a key from the stream, because several threads draw
from it: twenty times as many in a second. Layers that draw in every forward use it on the device: `ops/*/random.py`
(DummyData), `ops/*/activation/dropout.py`.
"""

from __future__ import annotations

import os
from collections.abc import Callable

import numpy as np

from .arrays import HostArray
from .ops.cpu.random import random_gaussian

_CHUNK = 1 << 16  # draws that are worked on at a time: arrays that fit a core's cache
Draw = Callable[[HostArray, HostArray, float, float], None]
"""Called as draw(values, key, mean, std); fills `values` as `random_gaussian` of `ops/cpu/random.py` does."""
MANY = 1 << 17
"""Normal values from which the counter-based generator draws them; fewer take 5 ms of the stream at most."""


class CaffeRandom:
    """Draw from the stream of a `random_seed`; None or negative: a seed from the operating system.

    The raw stream and the uniform values are exactly Caffe's. Gaussian values come from the same stream, but are not
    Caffe's, which differ between versions of boost.

    Attributes:
        seed: the low 32 bits of the seed.
        draw_many: draws `MANY` or more normal values; another function draws the same ones in another way.
    """

    def __init__(self, seed: int | None = None):
        if seed is None or seed < 0:
            seed = int.from_bytes(os.urandom(4), "little")
        self.seed = seed & 0xFFFFFFFF
        self.draw_many: Draw = random_gaussian
        self._state = np.random.RandomState(self.seed)

    def raw(self, n: int) -> np.ndarray:
        """Return the next n raw draws, uint32."""
        return self._state.randint(0, 1 << 32, size=n, dtype=np.uint32)

    def uniform(self, n: int, a: float, b: float) -> np.ndarray:
        """Return n float32 values in [a, b]: raw / 2^32 * (next float after b - a) + a, in float32 as in boost."""
        low, high = np.float32(a), np.nextafter(np.float32(b), np.float32(np.inf))
        if not (low < high and float(high) - float(low) < float(np.finfo(np.float32).max)):
            raise ValueError(f"no uniform values between {a} and {b}")
        out, done = np.empty(n, np.float32), 0
        while done < n:
            unit = self.raw(min(n - done, _CHUNK)).astype(np.float32) / np.float32(2**32)
            values = unit * (high - low) + low
            values = values[values < high]  # rounding can reach the open end: boost draws again
            out[done : done + values.size] = values
            done += values.size
        return out

    def gaussian(self, n: int, mean: float, std: float) -> np.ndarray:
        """Return n float32 values of a normal distribution with this mean and standard deviation.

        Of `MANY` or more, see `ops/normal_numbers.py`; their key are the next two raw draws.
        """
        if n < MANY:
            return self._state.normal(mean, std, n).astype(np.float32)
        out = np.empty(n, np.float32)
        low, high = (int(word) for word in self.raw(2))
        self.draw_many(out, np.array([low | high << 32, 0, 0], np.uint64), mean, std)
        return out

    def bernoulli(self, n: int, p: float) -> np.ndarray:
        """Return n booleans, each true with probability p: raw <= p * (2^32 - 1), in float32."""
        if not 0 <= p <= 1:
            raise ValueError(f"{p} is no probability")
        if p == 0:
            return np.zeros(n, bool)
        return self.raw(n).astype(np.float32) <= np.float32(p) * np.float32(2**32 - 1)
