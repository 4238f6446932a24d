"""Bits in place of values: what they say, and the same gradients to the bit as from values, on the CPU and on a GPU."""

from __future__ import annotations

import numpy as np
import pytest

from pycaffe_lms.backend import cuda, cuda_available
from pycaffe_lms.ops import load_ops
from pycaffe_lms.ops.bit_masks import bit_words
from pycaffe_lms.ops.records import Affine, AffineGradients, BatchNorm, FusedNormGradients, Grid, Moments, Rectified
from pycaffe_lms.ops.sum_parts import reduction_parts

SIZES = [1, 31, 32, 33, 127, 2048, 2049, 100_003]
DTYPES = pytest.mark.parametrize("dtype", [np.float32, np.float64], ids=["f32", "f64"])
DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]
LOW, HIGH = -0.5, 1.25
# (forward with bits, forward, arguments of both, where the slope is 1)
KINDS = {
    "relu": ("relu_bits_forward", "relu_forward", (0.0,), lambda x: x > 0),
    "leaky": ("relu_bits_forward", "relu_forward", (0.1,), lambda x: x > 0),
    "rising": ("relu_bits_forward", "relu_forward", (-0.3,), lambda x: x > 0),
    "relu6": ("relu6_bits_forward", "relu6_forward", (0.0,), lambda x: (x > 0) & (x < 6)),
    "leaky6": ("relu6_bits_forward", "relu6_forward", (0.2,), lambda x: (x > 0) & (x < 6)),
    "clip": ("clip_bits_forward", "clip_forward", (LOW, HIGH), lambda x: (x >= LOW) & (x <= HIGH)),
}
BACKWARD = {
    "relu": "relu_backward",
    "leaky": "relu_backward",
    "rising": "relu_backward",
    "relu6": "relu6_backward",
    "leaky6": "relu6_backward",
    "clip": "clip_backward",
}


@pytest.fixture(params=DEVICES)
def place(request):
    """(operations, put, get)."""
    if request.param == "cpu":
        return load_ops("cpu"), np.array, np.array
    if not cuda_available():
        pytest.skip("no GPU")
    cupy = cuda.require()
    return load_ops("cuda"), cupy.array, cupy.asnumpy


def values(size, dtype):
    x = np.random.default_rng(size).normal(scale=3, size=size).astype(dtype)
    special = [0, -0.0, np.nan, np.inf, -np.inf, 6, LOW, HIGH, np.finfo(dtype).tiny, -np.finfo(dtype).tiny]
    x[: len(special)] = np.array(special, dtype)[: x.size]
    return np.roll(x, size // 3)


def unpack(words, size):
    """The bits, one at a time."""
    return [bool(int(words[i // 32]) >> (i % 32) & 1) for i in range(size)]


@DTYPES
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("size", SIZES[:-1])
def test_bits_and_gradients(place, kind, size, dtype):
    ops, put, get = place
    with_bits, plain, args, test = KINDS[kind]
    x, dy = values(size, dtype), values(size + 1, dtype)[1:]
    slope = args[0] if len(args) == 1 else 0.0
    words = bit_words(size)
    for in_place in (False, True):
        given = put(x)
        y, expected = given if in_place else put(np.zeros_like(x)), put(np.zeros_like(x))
        bits = put(np.full(words * (2 if slope else 1), 0xDEADBEEF, np.uint32))
        ops.functions()[with_bits](given, y, bits, *args)
        ops.functions()[plain](put(x), expected, *args)
        np.testing.assert_array_equal(get(y), get(expected))
        kept = get(bits)
        assert unpack(kept[:words], size) == test(x).tolist()
        assert [int(w) >> (size % 32) for w in kept[words - 1 : words]] == [0] or size % 32 == 0
        if slope:
            assert unpack(kept[words:], size) == (x <= 0).tolist()
        gradient = put(dy)
        dx, from_values = gradient if in_place else put(np.zeros_like(dy)), put(np.zeros_like(dy))
        ops.bits.backward(bits, gradient, dx, slope)
        ops.functions()[BACKWARD[kind]](put(x), put(dy), from_values, *args)
        assert get(dx).tobytes() == get(from_values).tobytes() or _same_but_for_nan_signs(get(dx), get(from_values))


def _same_but_for_nan_signs(a, b):
    real = ~np.isnan(a)
    return np.array_equal(a, b, equal_nan=True) and a[real].tobytes() == b[real].tobytes()


@DTYPES
@pytest.mark.parametrize("size", SIZES)
def test_positive_bits(place, size, dtype):
    ops, put, get = place
    x, bits = values(size, dtype), put(np.full(bit_words(size), 0xFFFFFFFF, np.uint32))
    ops.positive_bits(put(x), bits)
    expected = np.packbits(np.pad(x > 0, (0, -size % 32)), bitorder="little")
    np.testing.assert_array_equal(get(bits).view(np.uint8), expected)


@DTYPES
@pytest.mark.parametrize("shape", [(3, 5, 49), (2, 4, 196), (900, 64, 1), (17, 33, 1), (1, 1, 1)], ids=str)
def test_a_fused_convolution_finds_the_same_gradient(place, shape, dtype):
    ops, put, get = place
    rng = np.random.default_rng(2)
    y, dy = rng.normal(size=shape).astype(dtype), rng.normal(size=shape).astype(dtype)
    found = []
    for saves in (False, True):
        bits = put(np.zeros(bit_words(y.size), np.uint32)) if saves else None
        if saves:
            ops.positive_bits(put(y), bits)
        out, db = put(dy), put(np.ones(shape[1], dtype))
        work = put(np.zeros(shape[1] * reduction_parts(*shape), dtype))
        ops.conv_bias_relu.backward(None if saves else put(y), out, out, db, True, work, Grid(*shape), bits)
        found.append((get(out).tobytes(), get(db).tobytes()))
    assert found[0] == found[1]
    np.testing.assert_array_equal(np.frombuffer(found[1][0], dtype).reshape(shape), dy * (y > 0))


@DTYPES
@pytest.mark.parametrize("use_global", [False, True], ids=["batch", "global"])
@pytest.mark.parametrize("shape", [(3, 5, 49), (2, 4, 196), (300, 64, 1), (17, 33, 1)], ids=str)
def test_a_fused_normalisation_finds_the_same_gradients(place, shape, use_global, dtype):
    from pycaffe_lms.ops.sum_parts import fused_norm_work

    ops, put, get = place
    rng, c = np.random.default_rng(3), shape[1]
    x, r, dy = (rng.normal(size=shape).astype(dtype) for _ in range(3))
    per_channel = rng.normal(size=c), rng.uniform(1, 2, c), rng.normal(size=c), np.ones(c)
    mean, inv_std, *affine = [put(a.astype(dtype)) for a in per_channel]
    affine = Moments(mean, inv_std), Affine(*affine)
    for residual in (True, False):
        y = put(np.zeros_like(x))
        ops.fused_norm.forward(put(x), put(r) if residual else None, y, *affine, True, Grid(*shape))
        bits, found = put(np.zeros(bit_words(x.size), np.uint32)), []
        ops.positive_bits(y, bits)
        for shown in (None, bits):
            dr, dx = put(np.zeros_like(x)), put(np.zeros_like(x))
            sums = put(np.zeros(c, dtype)), put(np.zeros(c, dtype))
            work = put(np.zeros(fused_norm_work(*shape), dtype))
            ops.fused_norm.backward(
                put(x),
                put(dy),
                FusedNormGradients(dx, dr, AffineGradients(*sums)),
                Rectified(y if shown is None and residual else None, shown),
                *affine,
                work,
                BatchNorm(Grid(*shape), 1e-5, use_global=use_global),
            )
            found.append([get(a).tobytes() for a in (dr, dx, *sums)])
        assert found[0] == found[1]
        np.testing.assert_array_equal(np.frombuffer(found[1][0], dtype).reshape(shape), dy * (get(y) > 0))


@DTYPES
@pytest.mark.parametrize(
    "shape", [(300, 64, 1), (17, 32, 1), (5, 96, 1), (33, 160, 1), (7, 48, 1), (2, 4, 196)], ids=str
)
@pytest.mark.parametrize("residual", [True, False], ids=["sum", "no sum"])
def test_a_fused_normalisation_keeps_where_its_result_is_positive(place, shape, residual, dtype):
    ops, put, get = place
    rng, c = np.random.default_rng(4), shape[1]
    x, r = (rng.normal(size=shape).astype(dtype) for _ in range(2))
    per_channel = rng.normal(size=c), rng.uniform(1, 2, c), rng.normal(size=c), np.ones(c)
    mean, inv_std, *affine = [put(a.astype(dtype)) for a in per_channel]
    affine = Moments(mean, inv_std), Affine(*affine)
    y, bits = put(np.full_like(x, np.nan)), put(np.full(bit_words(x.size), 0xA5A5A5A5, np.uint32))
    ops.fused_norm.forward(put(x), put(r) if residual else None, y, *affine, True, Grid(*shape), bits)
    alone = put(np.full_like(x, np.nan))
    ops.fused_norm.forward(put(x), put(r) if residual else None, alone, *affine, True, Grid(*shape))
    np.testing.assert_array_equal(get(y), get(alone))
    expected = np.packbits(get(y).reshape(-1) > 0, bitorder="little")
    np.testing.assert_array_equal(get(bits).view(np.uint8)[: expected.size], expected)
