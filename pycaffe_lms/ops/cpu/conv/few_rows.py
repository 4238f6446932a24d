"""Multiply a large matrix w (n, k) with few rows, as in fully connected layers at small batches.

Such a product takes the time of reading or writing w once; BLAS first copies w into its own order. Each kernel goes
through w in blocks of columns, for which the few rows stay in a cache. Blocks are long where w is read, since memory is
fetched ahead within a row only. Every sum runs in an order that shapes alone decide: the cuts between threads change no
bit.
"""

from __future__ import annotations

import numpy as np

from ....arrays import HostArray
from ..compiled import products, sums
from ..onednn import outer as onednn_outer
from ..threads import ELEMENTS, parallel

MOST = 12  # rows up to which these beat BLAS
_READ = 9216  # columns of w at a time, where sums run along them
_COLUMNS = 2304  # columns of w at a time, where sums run along the rows
_STORED = 1024  # columns of w at a time, where w is written
_IMAGES = 5  # rows of the small matrix that are kept in registers together
_DOTS = 4  # rows of w that are kept in registers together
_ROWS = 8  # rows of w that are added to a result at a time


def worthwhile(rows: int, n: int, k: int) -> bool:
    """Return whether these kernels beat BLAS at a product of `rows` rows with a matrix (n, k)."""
    return 1 < rows <= MOST and n * k >= ELEMENTS


def times_transposed(x: HostArray, w: HostArray, y: HostArray, accumulate: bool) -> None:
    """Compute y (m, n) = x (m, k) w', or add it to y if `accumulate`."""
    (m, _), n = x.shape, len(w)
    blocks = -(-n // _DOTS)
    total = np.zeros((_DOTS * blocks, -(-m // _IMAGES) * _IMAGES), x.dtype)
    parallel(_dots, blocks, x, w, total, grain=ELEMENTS // max(1, _DOTS * w.shape[1]) + 1)
    if accumulate:
        y += total[:n, :m].T
    else:
        y[...] = total[:n, :m].T


def times(a: HostArray, w: HostArray, out: HostArray, accumulate: bool) -> None:
    """Compute out (m, k) = a (m, n) w, or add it to out if `accumulate`."""
    parallel(_row_sums, -(-out.shape[1] // _COLUMNS), a, w, out, accumulate)


def outer(a: HostArray, b: HostArray, out: HostArray, accumulate: bool) -> None:
    """Compute out (n, k) = a' b, or add it to out if `accumulate`, of a (m, n) and b (m, k)."""
    if not accumulate and onednn_outer.outer(a, b, out):
        return
    parallel(_outer, len(out), a, b, out, accumulate, grain=ELEMENTS // max(1, out.shape[1]) + 1)


@sums
def _dots_of_four(
    p: HostArray,
    q: HostArray,
    r: HostArray,
    s: HostArray,
    x0: HostArray,
    x1: HostArray,
    x2: HostArray,
    x3: HostArray,
    x4: HostArray,
) -> tuple[tuple[float, ...], ...]:
    zero = p.dtype.type(0)
    a0 = a1 = a2 = a3 = a4 = b0 = b1 = b2 = b3 = b4 = zero
    c0 = c1 = c2 = c3 = c4 = d0 = d1 = d2 = d3 = d4 = zero
    for j in range(p.size):
        a, b, c, d = p[j], q[j], r[j], s[j]
        v = x0[j]
        a0, b0, c0, d0 = a0 + a * v, b0 + b * v, c0 + c * v, d0 + d * v
        v = x1[j]
        a1, b1, c1, d1 = a1 + a * v, b1 + b * v, c1 + c * v, d1 + d * v
        v = x2[j]
        a2, b2, c2, d2 = a2 + a * v, b2 + b * v, c2 + c * v, d2 + d * v
        v = x3[j]
        a3, b3, c3, d3 = a3 + a * v, b3 + b * v, c3 + c * v, d3 + d * v
        v = x4[j]
        a4, b4, c4, d4 = a4 + a * v, b4 + b * v, c4 + c * v, d4 + d * v
    return (a0, a1, a2, a3, a4), (b0, b1, b2, b3, b4), (c0, c1, c2, c3, c4), (d0, d1, d2, d3, d4)


@products
def _dots(first: int, last: int, x: HostArray, w: HostArray, total: HostArray) -> None:
    """Compute total (rows of w, images), both rounded up: rows and images past the end repeat the last one."""
    m, k = x.shape
    most = len(w) - 1
    for begin in range(0, k, _READ):
        end = min(k, begin + _READ)
        for block in range(first, last):
            n = _DOTS * block
            p, q = w[n][begin:end], w[min(n + 1, most)][begin:end]
            r, s = w[min(n + 2, most)][begin:end], w[min(n + 3, most)][begin:end]
            for i in range(0, m, _IMAGES):
                x0, x1 = x[i][begin:end], x[min(i + 1, m - 1)][begin:end]
                x2, x3 = x[min(i + 2, m - 1)][begin:end], x[min(i + 3, m - 1)][begin:end]
                a, b, c, d = _dots_of_four(p, q, r, s, x0, x1, x2, x3, x[min(i + 4, m - 1)][begin:end])
                for t in range(_IMAGES):
                    total[n, i + t] += a[t]
                    total[n + 1, i + t] += b[t]
                    total[n + 2, i + t] += c[t]
                    total[n + 3, i + t] += d[t]


@products
def _row_sums(first: int, last: int, a: HostArray, w: HostArray, out: HostArray, accumulate: bool) -> None:
    """Compute out = a w, or add it, for blocks of columns."""
    m, n = a.shape
    even, whole = n // _ROWS * _ROWS, m // _IMAGES * _IMAGES
    for block in range(first, last):
        begin = block * _COLUMNS
        end = min(out.shape[1], begin + _COLUMNS)
        if not accumulate:
            for i in range(m):
                out[i][begin:end] = 0
        for r in range(0, even, _ROWS):
            w0, w1, w2, w3 = w[r][begin:end], w[r + 1][begin:end], w[r + 2][begin:end], w[r + 3][begin:end]
            w4, w5, w6, w7 = w[r + 4][begin:end], w[r + 5][begin:end], w[r + 6][begin:end], w[r + 7][begin:end]
            for i in range(0, whole, _IMAGES):
                y0, y1, y2 = out[i][begin:end], out[i + 1][begin:end], out[i + 2][begin:end]
                y3, y4 = out[i + 3][begin:end], out[i + 4][begin:end]
                a0, b0, c0, d0, e0, f0, g0, h0 = _eight(a[i], r)
                a1, b1, c1, d1, e1, f1, g1, h1 = _eight(a[i + 1], r)
                a2, b2, c2, d2, e2, f2, g2, h2 = _eight(a[i + 2], r)
                a3, b3, c3, d3, e3, f3, g3, h3 = _eight(a[i + 3], r)
                a4, b4, c4, d4, e4, f4, g4, h4 = _eight(a[i + 4], r)
                for j in range(y0.size):
                    p, q, s, t, u, v, x, z = w0[j], w1[j], w2[j], w3[j], w4[j], w5[j], w6[j], w7[j]
                    y0[j] += a0 * p + b0 * q + c0 * s + d0 * t + e0 * u + f0 * v + g0 * x + h0 * z
                    y1[j] += a1 * p + b1 * q + c1 * s + d1 * t + e1 * u + f1 * v + g1 * x + h1 * z
                    y2[j] += a2 * p + b2 * q + c2 * s + d2 * t + e2 * u + f2 * v + g2 * x + h2 * z
                    y3[j] += a3 * p + b3 * q + c3 * s + d3 * t + e3 * u + f3 * v + g3 * x + h3 * z
                    y4[j] += a4 * p + b4 * q + c4 * s + d4 * t + e4 * u + f4 * v + g4 * x + h4 * z
            for i in range(whole, m):
                row = out[i][begin:end]
                a0, b0, c0, d0, e0, f0, g0, h0 = _eight(a[i], r)
                for j in range(row.size):
                    near = a0 * w0[j] + b0 * w1[j] + c0 * w2[j] + d0 * w3[j]
                    row[j] += near + (e0 * w4[j] + f0 * w5[j] + g0 * w6[j] + h0 * w7[j])
        for r in range(even, n):
            w0 = w[r][begin:end]
            for i in range(m):
                row, factor = out[i][begin:end], a[i, r]
                for j in range(row.size):
                    row[j] += factor * w0[j]


@products
def _eight(row: HostArray, r: int) -> tuple[float, ...]:
    return row[r], row[r + 1], row[r + 2], row[r + 3], row[r + 4], row[r + 5], row[r + 6], row[r + 7]


@products
def _outer(first: int, last: int, a: HostArray, b: HostArray, out: HostArray, accumulate: bool) -> None:
    """Compute rows first to last of out: ten images at a time where there are as many, or five; then single ones."""
    m, k = b.shape
    many = 10 if m >= 10 else 5 if m >= 5 else 0
    for begin in range(0, k, _STORED):
        end = min(k, begin + _STORED)
        b0, b1, b2 = b[0][begin:end], b[min(1, m - 1)][begin:end], b[min(2, m - 1)][begin:end]
        b3, b4, b5 = b[min(3, m - 1)][begin:end], b[min(4, m - 1)][begin:end], b[min(5, m - 1)][begin:end]
        b6, b7 = b[min(6, m - 1)][begin:end], b[min(7, m - 1)][begin:end]
        b8, b9 = b[min(8, m - 1)][begin:end], b[min(9, m - 1)][begin:end]
        for n in range(first, last):
            row = out[n][begin:end]
            if not (accumulate or many):
                row[:] = 0
            if many:
                a0, a1, a2, a3, a4 = a[0, n], a[1, n], a[2, n], a[3, n], a[4, n]
            if many == 10:
                a5, a6, a7, a8, a9 = a[5, n], a[6, n], a[7, n], a[8, n], a[9, n]
                if accumulate:
                    for j in range(row.size):
                        near = a0 * b0[j] + a1 * b1[j] + a2 * b2[j] + a3 * b3[j] + a4 * b4[j]
                        row[j] += near + (a5 * b5[j] + a6 * b6[j] + a7 * b7[j] + a8 * b8[j] + a9 * b9[j])
                else:
                    for j in range(row.size):
                        near = a0 * b0[j] + a1 * b1[j] + a2 * b2[j] + a3 * b3[j] + a4 * b4[j]
                        row[j] = near + (a5 * b5[j] + a6 * b6[j] + a7 * b7[j] + a8 * b8[j] + a9 * b9[j])
            elif many and accumulate:
                for j in range(row.size):
                    row[j] += a0 * b0[j] + a1 * b1[j] + a2 * b2[j] + a3 * b3[j] + a4 * b4[j]
            elif many:
                for j in range(row.size):
                    row[j] = a0 * b0[j] + a1 * b1[j] + a2 * b2[j] + a3 * b3[j] + a4 * b4[j]
            for i in range(many, m):
                c, factor = b[i][begin:end], a[i, n]
                for j in range(row.size):
                    row[j] += factor * c[j]
