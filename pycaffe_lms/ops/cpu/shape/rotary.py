"""Turn pairs of values by angles that grow with the position."""

from __future__ import annotations

import numpy as np

from ....arrays import HostArray
from ...records import Rotation

__all__ = ["rotary_forward"]


def rotary_forward(x: HostArray, y: HostArray, at: HostArray | None, rotation: Rotation, back: bool) -> None:
    """Compute y: pair i at position p is turned by p / base ^ (2 i / turned), by minus that if `back`. y may be x.

    at: the position of each row, cut to whole numbers; None: row r is at r % positions.
    """
    rows, positions, heads, dim, turned, base, interleaved = rotation
    half = turned // 2
    steps = base ** (-2.0 * np.arange(half) / max(1, turned))
    shape = rows // positions if positions else 0, positions, heads, dim
    x, y = x.reshape(shape), y.reshape(shape)
    places = np.arange(positions)[None] if at is None else np.trunc(at.reshape(shape[:2]).astype(np.float64))
    angles = places[..., None] * steps
    cosines, sines = (f(angles).astype(y.dtype)[:, :, None] for f in (np.cos, np.sin))
    if back:
        sines = -sines
    pairs = (slice(0, turned, 2), slice(1, turned, 2)) if interleaved else (slice(0, half), slice(half, turned))
    for n in range(shape[0]):
        cos, sin = (f[n % len(f)] for f in (cosines, sines))
        a, b = x[n, ..., pairs[0]], x[n, ..., pairs[1]]
        first, second = a * cos - b * sin, b * cos + a * sin
        y[n, ..., turned:] = x[n, ..., turned:]
        y[n, ..., pairs[0]], y[n, ..., pairs[1]] = first, second
