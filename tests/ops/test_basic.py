"""Copies, sums and norms of whole arrays, and the host half of the reductions on a GPU."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pycaffe_lms.ops.cpu import basic
from pycaffe_lms.ops.cuda import basic as cuda_basic
from pycaffe_lms.ops.cuda.source import divider
from pycaffe_lms.ops.sum_parts import reduction_parts

from .emulated import COMPILER, Kernels

WORK = np.empty(1024)
DTYPES = pytest.mark.parametrize("dtype", [np.float32, np.float64], ids=["f32", "f64"])


def normal(*shape, dtype=np.float64, seed=1):
    return np.random.default_rng(seed).normal(size=shape).astype(dtype)


@DTYPES
def test_fill_and_copy(dtype):
    y = np.empty((2, 3), dtype)
    basic.fill(y, 2.5)
    assert (y == 2.5).all()
    x = normal(6, dtype=dtype)
    basic.copy(x, y)
    assert np.array_equal(y.ravel(), x)
    basic.copy(x, x.reshape(2, 3))
    assert np.array_equal(y.ravel(), x)


@pytest.mark.parametrize("n", [1, 2, 3, 6])
@pytest.mark.parametrize("alias", [None, 0, -1])
def test_sums_keep_their_order_and_may_land_in_an_input(n, alias):
    xs = [normal(4, dtype=np.float32, seed=i) * 10.0 ** (3 * i) for i in range(n)]
    xs = [x.astype(np.float32) for x in xs]
    expected = xs[0].copy()
    for x in xs[1:]:
        expected = expected + x
    y = np.empty(4, np.float32) if alias is None else xs[alias]
    basic.sum_arrays(xs, y)
    assert np.array_equal(y, expected)


@DTYPES
@pytest.mark.parametrize("size", [0, 1, 1000, 700_001])
def test_norms_are_float64_sums(dtype, size):
    x, out = normal(size, dtype=dtype), np.full(3, 7.0)
    basic.sum_squares(x, out, 1, WORK)
    exact = x.astype(np.float64)
    assert out == pytest.approx([7, (exact**2).sum(), 7], rel=1e-13)


@pytest.mark.pure
@given(st.integers(1, 2**31), st.integers(1, 2**31), st.integers(0))
def test_dividers_are_exact(d, n, i):
    d, magic, shift = divider(d, n)
    for value in (i % n, n - 1, max(0, (n - 1) // d * d - 1), (n - 1) // d * d):
        assert magic < 2**33 and value * magic < 2**63
        assert value * magic >> shift == value // d


@pytest.mark.pure
def test_dividers_beyond_32_bits_divide():
    assert divider(10, 2**31 + 1) == (10, 0, 0)
    assert divider(0, 5)[0] == 1, "an empty array has sizes of 0, and no kernel that divides by them"


@pytest.mark.pure
@given(st.integers(0, 10**8), st.integers(0, 10**6), st.integers(1, 10**5))
def test_parts_are_few_and_never_empty_of_purpose(outer, dim, inner):
    parts = reduction_parts(outer, dim, inner)
    if inner == 1 and dim > 1:  # a block adds up 128 channels
        assert 1 <= parts <= max(1, outer)
        assert parts == 1 or (parts - 1) * ((dim + 127) // 128) <= 1056
    else:
        assert 1 <= parts <= max(1, (outer * inner + 4095) // 4096)
        assert parts == 1 or parts * dim <= 4096


SIZES = [3, 0, *range(1, 40), 30_000]  # more than a kernel takes


@DTYPES
def test_arrays_are_scaled_together_as_each_alone(dtype):
    xs = [normal(n, dtype=dtype, seed=n) for n in SIZES]
    ys = [x.copy() for x in xs]
    basic.scale_all(ys, 1 / 3)
    for x, y in zip(xs, ys, strict=True):
        assert np.array_equal(y, x * dtype(1 / 3))


@DTYPES
@pytest.mark.skipif(COMPILER is None, reason="no C++ compiler")
def test_the_kernel_scales_each_array_once(dtype, tmp_path, monkeypatch):
    kernels, launches = Kernels(tmp_path, dtype, {"scale_all": cuda_basic._SCALE_ALL}), []

    def launch(source, name, of, threads, *args, grid):
        launches.append(grid)
        kernels.run(name, grid, 256, *args)

    monkeypatch.setattr(cuda_basic, "launch", launch)
    xs = [normal(n, dtype=dtype, seed=n) for n in SIZES]
    ys = [x.copy() for x in xs]
    cuda_basic.scale_all(ys, 1 / 3)
    for x, y in zip(xs, ys, strict=True):
        assert np.array_equal(y, x * dtype(1 / 3))
    assert len(launches) == -(-sum(n > 0 for n in SIZES) // cuda_basic._TOGETHER)
