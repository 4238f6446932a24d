"""Products of a large matrix w (n, k) with few rows, as in fully connected layers at small batches.

Their time is that of reading or writing w once; BLAS first copies w into its own order. Each kernel goes through w in
blocks of columns, for which the few rows stay in the first cache. Every sum runs in an order that shapes alone decide:
the cuts between threads change no bit.
"""

from __future__ import annotations

import numpy as np

from .compiled import kernel, sums
from .threads import ELEMENTS, parallel

MOST = 12  # rows up to which these beat BLAS
_COLUMNS = 1024  # of w at a time
_STORED = 512  # the same, of a w that is written
_IMAGES = 5  # rows whose sums with two rows of w are kept in registers
_ROWS = 8  # of w that are added to a result at a time


def worthwhile(rows: int, n: int, k: int) -> bool:
    """Whether a product of `rows` rows with a matrix (n, k) is one of these."""
    return 1 < rows <= MOST and n * k >= ELEMENTS


def times_transposed(x, w, y) -> None:
    """y (m, n) = x (m, k) w'."""
    (m, _), n = x.shape, len(w)
    pairs = -(-n // 2)
    total = np.zeros((2 * pairs, -(-m // _IMAGES) * _IMAGES), x.dtype)
    parallel(_dots, pairs, x, w, total, grain=ELEMENTS // max(1, 2 * w.shape[1]) + 1)
    y[...] = total[:n, :m].T


def times(a, w, out) -> None:
    """out (m, k) = a (m, n) w."""
    parallel(_row_sums, -(-out.shape[1] // _COLUMNS), a, w, out)


def outer(a, b, out, accumulate: bool) -> None:
    """out (n, k) (+)= a' b, of a (m, n) and b (m, k)."""
    parallel(_outer, len(out), a, b, out, accumulate, grain=ELEMENTS // max(1, out.shape[1]) + 1)


@sums
def _dots_of_two(u, v, x0, x1, x2, x3, x4):
    zero = u.dtype.type(0)
    a0 = a1 = a2 = a3 = a4 = b0 = b1 = b2 = b3 = b4 = zero
    for j in range(u.size):
        p, q = u[j], v[j]
        a0 += p * x0[j]
        a1 += p * x1[j]
        a2 += p * x2[j]
        a3 += p * x3[j]
        a4 += p * x4[j]
        b0 += q * x0[j]
        b1 += q * x1[j]
        b2 += q * x2[j]
        b3 += q * x3[j]
        b4 += q * x4[j]
    return (a0, a1, a2, a3, a4), (b0, b1, b2, b3, b4)


@kernel
def _dots(first, last, x, w, total):
    """total (rows of w, images), both rounded up: what is beyond repeats the last row or image."""
    m, k = x.shape
    for begin in range(0, k, _COLUMNS):
        end = min(k, begin + _COLUMNS)
        for pair in range(first, last):
            n = 2 * pair
            u, v = w[n][begin:end], w[min(n + 1, len(w) - 1)][begin:end]
            for i in range(0, m, _IMAGES):
                x0, x1 = x[i][begin:end], x[min(i + 1, m - 1)][begin:end]
                x2, x3 = x[min(i + 2, m - 1)][begin:end], x[min(i + 3, m - 1)][begin:end]
                a, b = _dots_of_two(u, v, x0, x1, x2, x3, x[min(i + 4, m - 1)][begin:end])
                for s in range(_IMAGES):
                    total[n, i + s] += a[s]
                    total[n + 1, i + s] += b[s]


@kernel
def _row_sums(first, last, a, w, out):
    """For blocks of columns."""
    m, n = a.shape
    even = n // _ROWS * _ROWS
    for block in range(first, last):
        begin = block * _COLUMNS
        end = min(out.shape[1], begin + _COLUMNS)
        for i in range(m):
            out[i][begin:end] = 0
        for r in range(0, even, _ROWS):
            w0, w1, w2, w3 = w[r][begin:end], w[r + 1][begin:end], w[r + 2][begin:end], w[r + 3][begin:end]
            w4, w5, w6, w7 = w[r + 4][begin:end], w[r + 5][begin:end], w[r + 6][begin:end], w[r + 7][begin:end]
            for i in range(m):
                row = out[i][begin:end]
                a0, a1, a2, a3 = a[i, r], a[i, r + 1], a[i, r + 2], a[i, r + 3]
                a4, a5, a6, a7 = a[i, r + 4], a[i, r + 5], a[i, r + 6], a[i, r + 7]
                for j in range(row.size):
                    near = a0 * w0[j] + a1 * w1[j] + a2 * w2[j] + a3 * w3[j]
                    row[j] += near + (a4 * w4[j] + a5 * w5[j] + a6 * w6[j] + a7 * w7[j])
        for r in range(even, n):
            w0 = w[r][begin:end]
            for i in range(m):
                row, factor = out[i][begin:end], a[i, r]
                for j in range(row.size):
                    row[j] += factor * w0[j]


@kernel
def _outer(first, last, a, b, out, accumulate):
    m, k = b.shape
    whole = m // _IMAGES * _IMAGES
    for begin in range(0, k, _STORED):
        end = min(k, begin + _STORED)
        for n in range(first, last):
            row = out[n][begin:end]
            for i in range(0, whole, _IMAGES):
                b0, b1, b2 = b[i][begin:end], b[i + 1][begin:end], b[i + 2][begin:end]
                b3, b4 = b[i + 3][begin:end], b[i + 4][begin:end]
                a0, a1, a2, a3, a4 = a[i, n], a[i + 1, n], a[i + 2, n], a[i + 3, n], a[i + 4, n]
                if i or accumulate:
                    for j in range(row.size):
                        row[j] += a0 * b0[j] + a1 * b1[j] + a2 * b2[j] + a3 * b3[j] + a4 * b4[j]
                else:
                    for j in range(row.size):
                        row[j] = a0 * b0[j] + a1 * b1[j] + a2 * b2[j] + a3 * b3[j] + a4 * b4[j]
            for i in range(whole, m):
                b0, a0 = b[i][begin:end], a[i, n]
                if i or accumulate:
                    for j in range(row.size):
                        row[j] += a0 * b0[j]
                else:
                    for j in range(row.size):
                        row[j] = a0 * b0[j]
