"""Eltwise: sums, products and maxima by hand, ties, NaN, and gradients."""

from __future__ import annotations

import functools
import operator

import numpy as np
import pytest

from pycaffe_lms.backend import cuda, cuda_available
from pycaffe_lms.backend.bfloat16 import BFLOAT16
from pycaffe_lms.errors import BlobCountError, LayerParamError, ShapeError
from pycaffe_lms.layers.base import Needs
from pycaffe_lms.ops import load_ops
from tests.ops.test_bfloat16 import half

from .cases import Case
from .harness import LayerBench, check_gradient

NO_GPU = pytest.mark.skipif(not cuda_available(), reason="no GPU")
S = (2, 3, 2)
COEFF, PROD, MAX = "coeff: 2 coeff: -0.5", "operation: PROD", "operation: MAX"
UNSTABLE = "operation: PROD stable_prod_grad: false"


def _case(fields, n=2, shape=S):
    return Case("Eltwise", f"eltwise_param {{ {fields} }}", (shape,) * n)


CASES: list[Case] = [
    *[_case(fields, n) for fields in ("", PROD, UNSTABLE, MAX) for n in (2, 3, 5)],
    _case(COEFF),
    _case("coeff: 1 coeff: -1 coeff: 3", 3),
    _case(MAX + " " + COEFF),
    _case("", 2, ()),
    _case("", 1),
    _case("coeff: -2.5", 1),
    *[_case(fields, 2, (0, 4)) for fields in ("", PROD, UNSTABLE, MAX)],
]


def reference(bottoms, param):
    coeff = list(param.coeff) or [1.0] * len(bottoms)
    if param.operation == param.SUM:
        return sum(c * x for c, x in zip(coeff, bottoms, strict=True))
    return functools.reduce(operator.mul if param.operation == param.PROD else np.maximum, bottoms)


@pytest.mark.parametrize("dtype, tolerance", [(np.float32, 1e-6), (np.float64, 1e-14)], ids=["f32", "f64"])
@pytest.mark.parametrize("case", CASES, ids=str)
def test_forward_is_the_formula(case, dtype, tolerance):
    bench, bottoms = case.bench(dtype), case.make_bottoms(np.random.default_rng(1))
    (y,) = bench.forward(bottoms)
    expected = reference(bottoms, bench.layer.param.eltwise_param)
    np.testing.assert_allclose(y, expected, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("case", [c for c in CASES if 0 not in c.shapes[0]], ids=str)
def test_gradient(case):
    check_gradient(case.bench(), case.make_bottoms(np.random.default_rng(2)))


@pytest.mark.parametrize("backend", ["cpu", pytest.param("cuda", marks=[pytest.mark.gpu, NO_GPU])])
@pytest.mark.parametrize("dtype", [np.float32, np.float64, BFLOAT16], ids=["f32", "f64", "bf16"])
def test_a_gradient_with_coefficient_1_may_be_that_of_the_sum(backend, dtype):
    """Bits: NaN (as the operation itself makes it), infinities and -0 too."""
    put, get = (np.array, np.array) if backend == "cpu" else (cuda.require().array, cuda.require().asnumpy)

    def numbers(array):
        return (get(array).astype(np.uint32) << 16).view(np.float32) if dtype == BFLOAT16 else get(array)

    values = np.array([1.5, -0.0, np.inf, np.nan, -3.25], np.float32)
    given = put(half(values) if dtype == BFLOAT16 else values.astype(dtype))
    dy, other, twice = (put(np.zeros_like(get(given))) for _ in range(3))
    load_ops(backend).eltwise_sum.backward(given, [dy], [1.0])  # a GPU has one NaN alone
    np.testing.assert_array_equal(numbers(dy), values)
    before = get(dy).tobytes()
    load_ops(backend).eltwise_sum.backward(dy, [twice, dy, other], [2.0, 1.0, 1.0])
    assert get(dy).tobytes() == get(other).tobytes() == before
    np.testing.assert_array_equal(numbers(twice), 2 * values)
    load_ops(backend).eltwise_sum.backward(dy, [dy], [1.0])
    assert get(dy).tobytes() == before
    load_ops(backend).eltwise_sum.backward(twice, [twice], [0.5])
    assert get(twice).tobytes() == before


def test_which_gradients_may_take_the_memory_of_the_tops():
    pairs = {
        fields: _case(fields, n).bench().layer.in_place_reuse(False)
        for fields, n in (("", 3), (COEFF, 2), ("coeff: 1 coeff: -1 coeff: 1", 3), (PROD, 2), (MAX, 2))
    }
    assert pairs[""] == (("top_diff", 0, 0), ("top_diff", 0, 1), ("top_diff", 0, 2))
    assert pairs["coeff: 1 coeff: -1 coeff: 1"] == (("top_diff", 0, 0), ("top_diff", 0, 2))
    assert pairs[COEFF] == pairs[PROD] == pairs[MAX] == ()
    assert all(_case(fields).bench().layer.in_place_reuse(True) == () for fields in ("", PROD, MAX))


def test_ties_of_the_maximum():
    bench = LayerBench("Eltwise", "eltwise_param { operation: MAX }", ((4,),) * 3)
    (y,) = bench.forward([[1.0, 2, 0, 5], [1.0, 2, 3, 5], [1.0, 4, 3, 0]])
    assert y.tolist() == [1, 4, 3, 5]
    diffs, _ = bench.backward([[1.0, 10, 100, 1000]])
    assert [d.tolist() for d in diffs] == [[0, 0, 0, 0], [1, 0, 100, 1000], [0, 10, 0, 0]]


def test_nan_in_the_maximum_follows_the_comparisons():
    bench = LayerBench("Eltwise", "eltwise_param { operation: MAX }", ((3,),) * 3)
    (y,) = bench.forward([[np.nan, 1, 1], [2.0, np.nan, 1], [0.0, 5, np.nan]])
    assert y[0] == 2 and np.isnan(y[1]) and y[2] == 1


def test_unstable_gradient_at_zero_is_no_number_the_stable_one_is():
    bottoms = [[0.0, 2.0], [3.0, 4.0]]
    stable = LayerBench("Eltwise", "eltwise_param { operation: PROD }", ((2,),) * 2)
    stable.forward(bottoms)
    assert stable.backward([[1.0, 1.0]])[0][0].tolist() == [3, 4]
    unstable = LayerBench("Eltwise", f"eltwise_param {{ {UNSTABLE} }}", ((2,),) * 2)
    unstable.forward(bottoms)
    dx = unstable.backward([[1.0, 1.0]])[0][0]
    assert np.isnan(dx[0]) and dx[1] == 4


@pytest.mark.parametrize("fields", ["", PROD, UNSTABLE, MAX])
def test_propagate_down_false(fields):
    case = _case(fields, 3)
    full, part = case.bench(), LayerBench("Eltwise", case.text, case.shapes, propagate_down=(False, True, False))
    bottoms = case.make_bottoms(np.random.default_rng(3))
    dy = [np.ones(S)]
    full.forward(bottoms), part.forward(bottoms)
    want, got = full.backward(dy)[0], part.backward(dy)[0]
    assert got[0] is None and got[2] is None and np.array_equal(got[1], want[1])


def test_backward_needs():
    def needs(fields, *down):
        bench = _case(fields, len(down)).bench()
        return bench.layer.backward_needs(list(down), [])

    assert needs("", True, True) == needs(MAX, True, True) == needs(PROD, False, False) == Needs()
    assert needs(PROD, True, True) == Needs(bottoms=frozenset({0, 1}))
    assert needs(PROD, True, False, False) == Needs(bottoms=frozenset({1, 2}))
    assert needs(UNSTABLE, True, False, False) == Needs(bottoms=frozenset({0}), tops=frozenset({0}))


def test_the_mask_is_kept_only_for_backward():
    text = "eltwise_param { operation: MAX }"
    assert not LayerBench("Eltwise", text, (S, S), needs_backward=False).layer.scratches
    bench = LayerBench("Eltwise", text, (S, S), needs_backward=False)
    assert bench.forward([np.zeros(S), np.ones(S)])[0].all()
    assert LayerBench("Eltwise", text, (S, S)).layer.scratches["mask"].dtype == np.uint8
    assert LayerBench("Eltwise", text, (S,) * 300).layer.scratches["mask"].dtype == np.uint16


@pytest.mark.parametrize(
    "fields, shapes, error, message",
    [
        (PROD + " coeff: 1 coeff: 1", (S, S), LayerParamError, "coeff has no meaning for PROD"),
        (COEFF, (S, S, S), LayerParamError, "2 coeff for 3 bottoms"),
        ("", (S, (3, 2, 2)), ShapeError, r'blob "b1": has shape \(3, 2, 2\)'),
        ("", (S, (12,)), ShapeError, "has shape"),
        ("", (), BlobCountError, "takes at least 1 bottom"),
        (PROD, (S,), BlobCountError, "takes at least 2 bottom"),
        (MAX, (S,), BlobCountError, "takes at least 2 bottom"),
    ],
)
def test_refused(fields, shapes, error, message):
    with pytest.raises(error, match=f'layer "l".*{message}'):
        LayerBench("Eltwise", f"eltwise_param {{ {fields} }}", shapes)
