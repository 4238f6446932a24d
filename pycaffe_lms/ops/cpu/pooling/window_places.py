"""Turn places in windows (see `ops/geometry.py`) into indices in planes, over any number of axes, on the CPU."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence

import numpy as np

from ....arrays import HostArray
from ...geometry import PoolGeometry, nowhere
from ..compiled import kernel
from ..threads import parallel

LEAST = -float(np.finfo(np.float32).max)  # Caffe's initial maximum, in every float type
_GRAIN = 1 << 14  # input elements from which a second thread pays


def plane_indices(places: HostArray, geometry: PoolGeometry) -> HostArray:
    """Return the row-major index in its plane of the element at each of `places` (planes, outputs); -1 for none."""
    g = geometry
    places = places.reshape(g.planes, math.prod(g.out_spatial))
    none = places == nowhere(places.dtype)
    return np.where(none, -1, _starts(g) + _offsets(g)[np.where(none, 0, places)])


def scatter(dy: HostArray, places: HostArray, dx: HostArray, geometry: PoolGeometry) -> None:
    """Compute dx = for each input, the sum of dy over the windows in which it is the chosen element."""
    g = geometry
    outputs, inputs = math.prod(g.out_spatial), math.prod(g.in_spatial)
    arrays = dy.reshape(g.planes, outputs), places.reshape(g.planes, outputs), dx.reshape(g.planes, inputs)
    parallel(_scatter, g.planes, *arrays, _starts(g), _offsets(g), grain=_GRAIN // inputs + 1)


@functools.lru_cache(maxsize=32)
def _starts(g: PoolGeometry) -> HostArray:
    """Return the index of the first element of every output's window, as if the plane extended into the padding."""
    return _index([np.arange(n) * s - p for n, s, p in zip(g.out_spatial, g.stride, g.pad, strict=True)], g)


@functools.lru_cache(maxsize=32)
def _offsets(g: PoolGeometry) -> HostArray:
    """Return how far each place lies behind the start of its window."""
    return _index([np.arange(k) for k in g.kernel], g)


def _index(per_axis: Sequence[HostArray], g: PoolGeometry) -> HostArray:
    index = np.zeros(1, np.int64)
    for positions, size in zip(per_axis, g.in_spatial, strict=True):
        index = (index[:, None] * size + positions).reshape(-1)
    return index


@kernel
def _scatter(
    first: int, last: int, dy: HostArray, places: HostArray, dx: HostArray, starts: HostArray, offsets: HostArray
) -> None:
    """Add gradients to the chosen inputs; a place that is not in the window or the plane is skipped."""
    for plane in range(first, last):
        gradient, place, target = dy[plane], places[plane], dx[plane]
        target[:] = 0
        for o in range(gradient.size):
            p = np.int64(place[o])
            if 0 <= p < offsets.size:
                at = starts[o] + offsets[p]
                if 0 <= at < target.size:
                    target[at] += gradient[o]
