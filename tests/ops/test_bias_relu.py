"""A bias and a ReLU behind a convolution, and both gradients in one pass: on the CPU, and on a GPU against the CPU."""

import itertools

import numpy as np
import pytest

from pycaffe_lms.backend import cuda, cuda_available
from pycaffe_lms.ops import load_ops
from pycaffe_lms.ops.records import Grid
from pycaffe_lms.ops.sum_parts import reduction_parts

SHAPES = [
    *((2, 3, 5), (3, 4, 8), (5, 3, 196), (3, 2, 3136), (40, 5, 49), (1, 1, 1), (0, 4, 3)),
    *((2, 70, 1), (900, 64, 1), (9000, 8, 1), (700, 36, 1), (300, 260, 1), (17, 33, 1), (0, 4, 1)),
]
DTYPES = pytest.mark.parametrize("dtype", [np.float32, np.float64], ids=["f32", "f64"])
FLAGS = list(itertools.product([False, True], repeat=4))  # ReLU, in place, bias, accumulate


def run(ops, put, shape, dtype, relu, in_place, bias, accumulate):
    """(dy_out, db) of fixed random arrays; what is not asked for is None."""
    rng = np.random.default_rng(3)
    y, dy = rng.normal(size=shape).astype(dtype), rng.normal(size=shape).astype(dtype)
    y[:1] = 0  # no gradient passes a 0
    start = rng.normal(size=shape[1]).astype(dtype)
    given = put(dy)
    out = given if in_place else put(np.full_like(dy, np.nan))
    db = put(start) if bias else None
    work = put(np.full(shape[1] * reduction_parts(*shape), np.nan, dtype)) if bias else None
    ops.conv_bias_relu.backward(put(y) if relu else None, given, out, db, accumulate, work, Grid(*shape))
    want = dy.astype(np.float64) * (y > 0) if relu else dy.astype(np.float64)
    total = want.sum(axis=(0, 2)) + (start if accumulate else 0)
    return out, db, want, total if bias else None


def check(out, db, want, total, dtype):
    np.testing.assert_array_equal(out, want)
    if total is not None:
        np.testing.assert_allclose(db, total, **tolerance(dtype))


def tolerance(dtype):
    return {"rtol": 1e-4, "atol": 3e-4} if dtype == np.float32 else {"rtol": 1e-11, "atol": 1e-11}


@DTYPES
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_gradients(shape, dtype):
    for flags in FLAGS:
        check(*run(load_ops("cpu"), np.array, shape, dtype, *flags), dtype)


def test_only_the_bias():
    dy, db = np.arange(12.0).reshape(2, 3, 2), np.ones(3)
    load_ops("cpu").conv_bias_relu.backward(None, dy, None, db, True, None, Grid(2, 3, 2))
    assert db.tolist() == [1 + 14, 1 + 22, 1 + 30] and dy.ravel().tolist() == list(range(12))


@pytest.fixture(scope="module")
def gpu():
    if not cuda_available():
        pytest.skip("no GPU")
    return load_ops("cuda"), cuda.require()


@pytest.mark.gpu
@DTYPES
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_gradients_on_a_gpu(gpu, shape, dtype):
    ops, cupy = gpu
    for flags in FLAGS:
        out, db, want, total = run(ops, cupy.array, shape, dtype, *flags)
        check(cupy.asnumpy(out), cupy.asnumpy(db) if db is not None else None, want, total, dtype)
        again, db_again, *_ = run(ops, cupy.array, shape, dtype, *flags)
        assert (again == out).all() and (db is None or (db_again == db).all())


@pytest.mark.gpu
@DTYPES
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_bias_and_relu_in_place_on_a_gpu(gpu, shape, dtype):
    from pycaffe_lms.ops.cuda import bias_relu

    cupy, rng = gpu[1], np.random.default_rng(5)
    start, b = rng.normal(size=shape).astype(dtype), rng.normal(size=shape[1]).astype(dtype)
    for bias, relu in ((True, False), (False, True), (True, True)):
        y = cupy.array(start)
        bias_relu.forward(y, cupy.array(b) if bias else None, relu, Grid(*shape))
        want = start + b[:, None] if bias else start
        np.testing.assert_array_equal(cupy.asnumpy(y), np.maximum(want, 0) if relu else want)


@pytest.mark.gpu
@pytest.mark.parametrize("shape", [(5, 3, 196), (900, 64, 1)], ids=str)
def test_arrays_that_begin_anywhere_give_the_same_bits(gpu, shape):
    ops, cupy = gpu
    rng = np.random.default_rng(6)
    y, dy = (rng.normal(size=shape).astype(np.float32) for _ in range(2))
    results = []
    for shift in (0, 1):
        values, gradient = (cupy.array(np.append(np.zeros(shift, np.float32), a))[shift:] for a in (y, dy))
        db, work = cupy.zeros(shape[1], np.float32), cupy.zeros(shape[1] * reduction_parts(*shape), np.float32)
        ops.conv_bias_relu.backward(values, gradient, gradient, db, False, work, Grid(*shape))
        results.append((cupy.asnumpy(gradient), cupy.asnumpy(db)))
    for one, other in zip(*results, strict=True):
        np.testing.assert_array_equal(one, other)
