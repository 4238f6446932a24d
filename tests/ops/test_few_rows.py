"""Products of a large matrix with few rows: against sums in double, whatever the remainders and the threads."""

from __future__ import annotations

import numpy as np
import pytest

from pycaffe_lms.ops.cpu.conv import few_rows, inner_product

SIZES = [(10, 129, 1500), (2, 64, 700), (7, 33, 1025), (12, 1030, 41), (5, 3, 20_000)]
TOLERANCE = {np.float32: 2e-6, np.float64: 1e-14}


def _arrays(m, n, k, dtype):
    rng = np.random.default_rng(m * n + k)
    return [rng.standard_normal(shape).astype(dtype) for shape in ((m, k), (m, n), (n, k))]


def _close(got, want, terms):
    """Errors in units of the size of such a sum."""
    assert np.abs(got - want).max() <= TOLERANCE[got.dtype.type] * np.sqrt(terms) * 4


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("m, n, k", SIZES)
def test_the_three_products(m, n, k, dtype):
    x, dy, w = _arrays(m, n, k, dtype)
    assert few_rows.worthwhile(m, n, k)
    wide = [a.astype(np.float64) for a in (x, dy, w)]
    y, dx, dw = np.full((m, n), np.nan, dtype), np.full((m, k), np.nan, dtype), np.full((n, k), np.nan, dtype)
    outputs, back = np.einsum("mk,nk->mn", wide[0], wide[2]), np.einsum("mn,nk->mk", wide[1], wide[2])
    few_rows.times_transposed(x, w, y, False)
    _close(y, outputs, k)
    few_rows.times(dy, w, dx, False)
    _close(dx, back, n)
    y[:], dx[:] = dy, x
    few_rows.times_transposed(x, w, y, True)
    _close(y, outputs + wide[1], k + 1)
    few_rows.times(dy, w, dx, True)
    _close(dx, back + wide[0], n + 1)
    few_rows.outer(dy, x, dw, False)
    total = np.einsum("mn,mk->nk", wide[1], wide[0])
    _close(dw, total, m)
    before = w.copy()
    few_rows.outer(dy, x, w, True)
    _close(w, total + before, m + 1)


@pytest.mark.parametrize("transpose", [False, True])
@pytest.mark.parametrize("accumulate", [False, True])
@pytest.mark.parametrize("m", [6, 300])  # by these kernels, and by BLAS in pieces
def test_the_layer_s_operations_take_both_orders_of_the_weights(m, transpose, accumulate):
    n, k = 190, 301
    assert few_rows.worthwhile(m, n, k) == (m == 6)
    x, dy, w = _arrays(m, n, k, np.float64)
    stored = w.T.copy() if transpose else w
    y, dx, dw = np.empty((m, n)), np.ones((m, k)), np.ones_like(stored)
    bias = np.arange(n, dtype=np.float64)
    inner_product.inner_product_forward(x, stored, bias, y, m, n, k, transpose)
    inner_product.inner_product_backward_data(dy, stored, dx, m, n, k, transpose, accumulate)
    inner_product.inner_product_backward_weight(x, dy, dw, m, n, k, transpose, accumulate)
    _close(y, x @ w.T + bias, k)
    _close(dx, dy @ w + accumulate, n)
    _close(dw.T if transpose else dw, dy.T @ x + accumulate, m)


def test_cuts_between_threads_change_no_bit(monkeypatch):
    x, dy, w = _arrays(10, 203, 2100, np.float32)

    def products():
        y, dx, dw = np.empty_like(dy), np.empty_like(x), np.empty_like(w)
        few_rows.times_transposed(x, w, y, False)
        few_rows.times(dy, w, dx, False)
        few_rows.outer(dy, x, dw, False)
        return [a.tobytes() for a in (y, dx, dw)]

    def cut(function, n, *args, grain=1):
        for a, b in zip((0, n // 3), (n // 3, n), strict=True):
            function(a, b, *args)

    def whole(function, n, *args, grain=1):
        function(0, n, *args)

    results = []
    for way in (cut, whole):
        monkeypatch.setattr(few_rows, "parallel", way)
        results.append(products())
    assert results[0] == results[1] == products()


def test_infinite_weights_of_one_row_stay_there():
    """Remainders are filled by repeating, never by multiplying something with 0."""
    x, dy, w = _arrays(3, 65, 601, np.float32)
    w[64] = np.inf
    x[:] = 1
    y = np.empty_like(dy)
    few_rows.times_transposed(x, w, y, False)
    assert np.isinf(y[:, 64]).all() and np.isfinite(y[:, :64]).all()
