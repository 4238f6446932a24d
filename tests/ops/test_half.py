"""Values in 16 bits: every pattern comes back, rounding is to nearest, what is too large is cut and counted."""

from __future__ import annotations

import numpy as np
import pytest

from pycaffe_lms.backend import cuda, cuda_available
from pycaffe_lms.ops import load_ops

DTYPES = pytest.mark.parametrize("dtype", [np.float32, np.float64], ids=["f32", "f64"])
KINDS = pytest.mark.parametrize("kind", ["fp16", "bf16"])


@pytest.fixture(params=["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def place(request):
    """(operations, put, get)."""
    if request.param == "cpu":
        return load_ops("cpu"), np.array, np.array
    if not cuda_available():
        pytest.skip("no GPU")
    cupy = cuda.require()
    return load_ops("cuda"), cupy.array, cupy.asnumpy


def there(place, x, kind):
    """(the 16 bits, how many were cut)."""
    ops, put, get = place
    half, cut = put(np.zeros(x.shape, np.uint16)), put(np.full(1, 5, np.int64))
    ops.to_half(put(x), half, kind, cut)
    return get(half), int(get(cut)[0]) - 5


def back(place, half, kind, dtype):
    ops, put, get = place
    x = put(np.zeros(half.shape, dtype))
    ops.from_half(put(half), x, kind)
    return get(x)


def values_of(kind):
    """What all 65536 patterns stand for, by the formats' definitions."""
    bits = np.arange(1 << 16, dtype=np.int64)
    exponents, fraction = (5, 10) if kind == "fp16" else (8, 7)
    sign = np.where(bits >> 15, -1.0, 1.0)
    e, f = bits >> fraction & ((1 << exponents) - 1), (bits & ((1 << fraction) - 1)) / (1 << fraction)
    bias = (1 << (exponents - 1)) - 1
    with np.errstate(over="ignore"):
        normal = sign * (1 + f) * 2.0 ** (e - bias)
    values = np.where(e == 0, sign * f * 2.0 ** (1 - bias), normal)
    top = e == (1 << exponents) - 1
    return np.where(top, np.where(f == 0, sign * np.inf, np.nan), values)


@DTYPES
@KINDS
def test_every_pattern_comes_back(place, kind, dtype):
    half, values = np.arange(1 << 16).astype(np.uint16), values_of(kind)
    found = back(place, half, kind, dtype)
    np.testing.assert_array_equal(found, values.astype(dtype))
    again, cut = there(place, found, kind)
    number = ~np.isnan(values)
    np.testing.assert_array_equal(again[number], half[number])
    assert np.isnan(values_of(kind)[again[~number]]).all() and cut == 0


@DTYPES
@KINDS
@pytest.mark.parametrize("size", [1, 5, 2049, 70_001])
def test_rounding_is_to_the_nearest_and_to_even(place, kind, size, dtype):
    rng = np.random.default_rng(size)
    x = (rng.normal(size=size) * 2.0 ** rng.integers(-13, 14, size)).astype(np.float32).astype(dtype)
    table = np.sort(values_of(kind)[np.isfinite(values_of(kind))])
    middle = (table[:-1] + table[1:]) / 2  # ties, exact in float64 and here in float32 too
    ties = middle[np.abs(middle) < 1e4][:: max(1, len(middle) // size)].astype(np.float32).astype(dtype)
    x = np.concatenate([x, ties])
    half, cut = there(place, x, kind)
    found = values_of(kind)[half]
    at = np.clip(np.searchsorted(table, x), 1, len(table) - 1)
    low, high = table[at - 1], table[at]
    exact = x.astype(np.float64)
    np.testing.assert_array_equal(np.abs(found - exact), np.minimum(exact - low, high - exact))
    tie = (exact - low == high - exact) & (low != high)
    assert (half[tie] & 1 == 0).all() and cut == 0


@DTYPES
def test_what_is_too_large_for_fp16_is_cut_and_counted(place, dtype):
    x = np.array([65504, 65505, -70000, 1e30, np.inf, -np.inf, np.nan, 3, *[1e5] * 2100], dtype)
    half, cut = there(place, x, "fp16")
    found = values_of("fp16")[half]
    assert cut == 3 + 2100
    expected = [65504, 65504, -65504, 65504, np.inf, -np.inf, np.nan, 3, *[65504] * 2100]
    np.testing.assert_array_equal(found, expected)


def test_bf16_keeps_the_range_of_float32(place):
    x = np.array([1e-38, -3e38, 1e30, np.inf, np.nan, np.float32(3.4e38)], np.float32)
    half, cut = there(place, x, "bf16")
    found = values_of("bf16")[half]
    assert cut == 0 and np.isnan(found[4])
    np.testing.assert_allclose(found[:3], x[:3], rtol=2.0**-8)
    assert found[3] == found[5] == np.inf  # beyond the largest: to the nearest, as IEEE rounds
