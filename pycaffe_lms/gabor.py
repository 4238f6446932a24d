"""Gabor filters: waves under a bell, as a net's first convolution learns them. The filler "gabor" has four sets.

Source: intel/caffe, include/caffe/gabor.hpp (the numbers of the sets).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import pi

import numpy as np

SETS = {(32, 5): "of nets for CIFAR", (64, 7): "of GoogLeNet", (64, 3): "of VGG", (96, 11): "of AlexNet"}


@dataclass
class _Wave:
    """Describe a filter: height of the wave, width of the bell, frequency, shift, turn; factors of the colours.

    Coordinates run from -1 to 1 over a filter."""

    height: float = 1.0
    width: float = 0.6
    frequency: float = pi
    shift: float = 0.0
    turn: float = 0.0
    colours: tuple[float, float, float] = (1.0, 1.0, 1.0)

    def values(self, size: int) -> np.ndarray:
        """Return the filter, (3, size, size)."""
        at = 2.0 * np.arange(size) / (size - 1) - 1
        x, y = at[None, :], at[:, None]
        bell = np.exp(-(x * x + y * y) / (2 * self.width * self.width))
        wave = np.cos((x * np.cos(self.turn) - y * np.sin(self.turn)) * self.frequency + self.shift)
        return np.asarray(np.array(self.colours)[:, None, None] * (self.height * bell * wave))


def gabor_filters(number: int, size: int) -> np.ndarray:
    """Return the set of `number` filters of size x size, (number, 3, size, size). (number, size) is one of SETS."""
    make = {(32, 5): _cifar, (64, 7): _googlenet, (64, 3): _vgg, (96, 11): _alexnet}[number, size]
    return np.stack([make(k, _rate(size)).values(size) for k in range(number)])


def _rate(size: int) -> Callable[[float], float]:
    """Return the frequency of a wave that is so many times as long as the shortest one that a filter can show."""
    return lambda times: pi * (size - 1) / 2 / times


def _cifar(k: int, rate: Callable[[float], float]) -> _Wave:
    if k < 8:
        return _Wave(0.5, 0.6, rate(1), 0, k * pi / 8)
    if k < 14:
        return _Wave(0.5, 0.6, rate(2), 0, (k - 2) % 6 * pi / 6 + pi / 12)
    if k < 16:
        return _Wave(0.5, 0.75, rate(8), k % 2 * pi, 0, (1, -1, 1))
    wave = _Wave(0.5, 0.6, rate(4), pi / 2, k % 4 * pi / 2 + 3 * pi / 8)
    if k >= 30:
        wave.turn, wave.colours = k % 2 * pi / 2 + 3 * pi / 8, (1, 1, 0)
    elif k >= 28:
        wave.turn, wave.colours = k % 2 * pi / 2 + pi / 8, (-1, 1, -1)
    elif k >= 24:
        wave.colours = (-1, 1, 1)
    elif k >= 20:
        wave.colours = (1, 0, -1)
    return wave


def _googlenet(k: int, rate: Callable[[float], float]) -> _Wave:
    eighth, step = k % 8, (k - 1) % 3
    if k < 32:
        shift = k % 2 * pi + 3 * pi / 8
        return _Wave(1 / (1 + eighth / 8), 0.4 + eighth / 40, rate(1 + eighth / 2), shift, k // 8 * pi / 4)
    if k < 40:
        return _Wave(0.5, 0.45, rate(1), pi, eighth * pi / 8)
    if k < 46:
        return _Wave(1 / (1 + step / 2), 1 / (2.5 - step / 2), pi / 4, (k - 1) // 3 * pi, 0, (0.25, -1, 1))
    if k < 48:
        return _Wave(2 / 3, 1, rate(12), pi / 2, eighth * pi + pi / 8, (1, 0.1, -0.5))
    if k < 56:
        return _Wave(2 / 3, 1, rate(12), pi / 2, eighth * pi / 4 + pi / 32, (-0.5, 0.1, 1))
    colours, height = ((0.25, -1, 1), 1.0) if k < 60 else ((-1, -1, 1), 2 / 3)
    return _Wave(height, 1, rate(12), pi / 2, eighth * pi / 2 + pi / 8, colours)


def _vgg(k: int, rate: Callable[[float], float]) -> _Wave:
    wave = _googlenet(k, rate)
    wave.width = 1.0
    return wave


def _alexnet(k: int, rate: Callable[[float], float]) -> _Wave:
    eighth, step = k % 8, k % 4
    slow = eighth * pi / 4 + pi / 32
    if k < 48:
        shift = k % 2 * pi + 3 * pi / 8
        return _Wave(1 / (3 + 3 * eighth / 8), 0.5 + eighth / 40, rate(1 + eighth / 2), shift, k // 8 * pi / 6)
    if k < 56:
        return _Wave(1 / (3 + 3 * step / 2), 1 / (2.5 - step / 2), pi / 4, k // 4 * pi, 0, (0.25, -1, 1))
    if k < 60:
        return _Wave(1 / 4.5, 0.75, rate(8), pi / 2, step * pi / 2 + pi / 8, (-1, 1, -0.5))
    if k < 64:
        return _Wave(1 / 9, 2, rate(8), pi / 2, step * pi / 2 + pi / 8, (1, -0.5, -0.75))
    if k < 72:
        return _Wave(1 / 4.5, 0.75, rate(4), pi / 2, slow, (1, 0.1, -0.75))
    if k < 80:
        return _Wave(1 / 4.5, 1, rate(12), pi / 2, slow, (-0.5, 0.1, 1))
    if k < 88:
        return _Wave(1 / 7.5, 1, rate(8), pi / 2, slow, (-1, -1, 1))
    if k < 92:
        return _Wave(1 / 3, 0.6, rate(16), pi / 2, step * pi / 2 + pi / 16)
    return _Wave(1 / 12, 0.75, rate(4), pi / 2, slow, (-1, -1, 1))
