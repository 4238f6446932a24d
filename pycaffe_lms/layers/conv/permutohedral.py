"""Gaussian filters over many dimensions by a permutohedral lattice, in time linear in the number of points.

Each of N points, with d features, lies in a simplex of a lattice. Its values are spread over the d + 1 corners, values
of neighbouring corners are mixed along each of d + 1 directions (1/4, 1/2, 1/4, or what exists of it), and each point
takes the sum of its corners. That is close to weights exp(-|f_i - f_j|^2 / 2), up to a constant factor.
Source: Adams, Baek, Davis, Fast High-Dimensional Filtering Using the Permutohedral Lattice (2010).
"""

from __future__ import annotations

import numpy as np

from ...arrays import HostArray
from ...ops.cpu.compiled import kernel
from ...ops.cpu.threads import parallel

__all__ = ["Lattice"]


class Lattice:
    """Filter values of N points by the lattice of their d features, (N, d).

    Attributes:
        corners: (N, d + 1), numbers of the corners of each point's simplex.
        weights: (N, d + 1), the shares of these corners, which add up to 1.
        neighbours: (d + 1, M, 2), the two neighbours of each corner along each direction; M where there is none.
    """

    def __init__(self, features: HostArray, dtype: np.dtype):
        points, d = features.shape
        places = np.empty((points, d + 1, d), np.int32)
        shares = np.empty((points, d + 1), np.float64)
        parallel(_simplices, points, np.ascontiguousarray(features, np.float64), _scales(d), places, shares, grain=1024)
        self.corners = np.empty((points, d + 1), np.int32)
        table = np.full(_table_size(points * (d + 1)), -1, np.int32)
        keys = np.empty((points * (d + 1), d), np.int32)
        count = _number(places.reshape(-1, d), table, keys, self.corners.reshape(-1))
        self.neighbours = np.empty((d + 1, count, 2), np.int32)
        parallel(_meet, d + 1, table, keys[:count], self.neighbours)
        self.weights = shares.astype(dtype)
        ones = np.ones((1, points), dtype)
        self.norm = 1 / self._filter(ones, False)  # (1, N)

    def apply(self, x: HostArray) -> HostArray:
        """Return filtered x (C, N), so that ones stay ones."""
        return np.asarray(self._filter(x, False) * self.norm)

    def transposed(self, dy: HostArray) -> HostArray:
        """Return the gradient of x (C, N), given that of `apply(x)`."""
        return self._filter(dy * self.norm, True)

    def _filter(self, x: HostArray, backwards: bool) -> HostArray:
        y = np.empty_like(x)
        parallel(_spread, len(x), np.ascontiguousarray(x), y, self.corners, self.weights, self.neighbours, backwards)
        return y


def _scales(d: int) -> HostArray:
    """Return the factors of features: corners are as far from each other as the mixing makes a deviation of 1."""
    i = np.arange(1, d + 1)
    return np.asarray((d + 1) * np.sqrt(2 / 3) / np.sqrt(i * (i + 1)))


def _table_size(entries: int) -> int:
    return 1 << max(4, (2 * entries - 1).bit_length())


@kernel
def _simplices(first: int, last: int, features: HostArray, scales: HostArray, places: HostArray, shares: HostArray):  # type: ignore[no-untyped-def]
    """Write the corners of the simplex that each point lies in, without their last coordinate, and their shares."""
    d = features.shape[1]
    y, base, rank, share = np.empty(d + 1), np.empty(d + 1), np.empty(d + 1, np.int64), np.empty(d + 2)
    for n in range(first, last):
        total = 0.0  # of scaled features from i on
        for i in range(d, 0, -1):
            scaled = features[n, i - 1] * scales[i - 1]
            y[i] = total - i * scaled
            total += scaled
        y[0] = total
        away = 0  # by how many multiples of d + 1 the rounded point leaves the plane where coordinates add up to 0
        for i in range(d + 1):
            whole = np.round(y[i] / (d + 1))
            base[i] = whole * (d + 1)
            away += int(whole)
        for i in range(d + 1):  # the largest difference has rank 0
            rank[i] = away
        for i in range(d + 1):
            for j in range(i + 1, d + 1):
                if y[i] - base[i] < y[j] - base[j]:
                    rank[i] += 1
                else:
                    rank[j] += 1
        share[:] = 0
        for i in range(d + 1):
            if rank[i] < 0:
                rank[i] += d + 1
                base[i] += d + 1
            elif rank[i] > d:
                rank[i] -= d + 1
                base[i] -= d + 1
            part = (y[i] - base[i]) / (d + 1)
            share[d - rank[i]] += part
            share[d - rank[i] + 1] -= part
        share[0] += 1 + share[d + 1]
        for corner in range(d + 1):
            shares[n, corner] = share[corner]
            for i in range(d):
                places[n, corner, i] = int(base[i]) + corner - (d + 1 if rank[i] > d - corner else 0)


_ODD = -0x61C8864680B583EB  # any odd number of 64 bits: products keep their lowest ones


@kernel
def _find(key: HostArray, table: HostArray, keys: HostArray) -> int:
    """Return the place in the table of a key, or the free place where it would be."""
    mask = len(table) - 1
    at = 0
    for part in key:
        at = (at ^ part) * _ODD
        at ^= at >> 29
    place = at & mask
    while table[place] >= 0:
        other, same = keys[table[place]], True
        for i in range(len(key)):
            if other[i] != key[i]:
                same = False
                break
        if same:
            break
        place = (place + 1) & mask
    return place


@kernel
def _number(places: HostArray, table: HostArray, keys: HostArray, numbers: HostArray) -> int:
    """Write the number of each corner, in the order in which they come first; return how many there are."""
    count = 0
    for n in range(len(places)):
        at = _find(places[n], table, keys)
        if table[at] < 0:
            table[at] = count
            keys[count] = places[n]
            count += 1
        numbers[n] = table[at]
    return count


@kernel
def _meet(first: int, last: int, table: HostArray, keys: HostArray, neighbours: HostArray):  # type: ignore[no-untyped-def]
    """Write the neighbours of every corner along directions: the last one's coordinate is not stored."""
    corners, d = keys.shape
    key = np.empty(d, np.int32)
    for direction in range(first, last):
        for n in range(corners):
            for side in range(2):
                sign = 1 if side else -1
                for i in range(d):
                    key[i] = keys[n, i] + sign
                if direction < d:
                    key[direction] = keys[n, direction] - sign * d
                found = table[_find(key, table, keys)]
                neighbours[direction, n, side] = corners if found < 0 else found


@kernel
def _spread(  # type: ignore[no-untyped-def]
    first: int,
    last: int,
    x: HostArray,
    y: HostArray,
    corners: HostArray,
    weights: HostArray,
    neighbours: HostArray,
    backwards: bool,
):
    """Filter channels first to last of x (C, N). backwards: mix along the directions in the other order."""
    directions, count, _ = neighbours.shape
    channels, points = last - first, x.shape[1]
    half = weights.dtype.type(0.5)
    held, mixed = np.zeros((count + 1, channels), x.dtype), np.zeros((count + 1, channels), x.dtype)
    row = np.empty(channels, x.dtype)
    for n in range(points):
        for c in range(channels):
            row[c] = x[first + c, n]
        for k in range(directions):
            target, weight = held[corners[n, k]], weights[n, k]
            for c in range(channels):
                target[c] += weight * row[c]
    for k in range(directions):
        direction = directions - 1 - k if backwards else k
        for n in range(count):
            own, to = held[n], mixed[n]
            a, b = held[neighbours[direction, n, 0]], held[neighbours[direction, n, 1]]
            for c in range(channels):
                to[c] = half * (own[c] + half * (a[c] + b[c]))
        held, mixed = mixed, held
    for n in range(points):
        row[:] = 0
        for k in range(directions):
            source, weight = held[corners[n, k]], weights[n, k]
            for c in range(channels):
                row[c] += weight * source[c]
        for c in range(channels):
            y[first + c, n] = row[c]
