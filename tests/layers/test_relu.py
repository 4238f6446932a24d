"""ReLU against max(x, 0) + slope * min(x, 0)."""

from __future__ import annotations

import numpy as np
import pytest

from pycaffe_lms.layers.base import Needs

from .cases import Case
from .harness import LayerBench, check_gradient

LEAKY, NEGATIVE = "relu_param { negative_slope: 0.1 }", "relu_param { negative_slope: -0.5 }"

CASES: list[Case] = [
    Case("ReLU", "", ((2, 3, 4, 5),)),
    Case("ReLU", "", ((2, 3, 4, 5),), in_place=True),
    Case("ReLU", LEAKY, ((2, 7),)),
    Case("ReLU", LEAKY, ((2, 7),), in_place=True),
    Case("ReLU", NEGATIVE, ((5,),)),
    Case("ReLU", "relu_param { engine: CUDNN }", ((3, 2),)),
    Case("ReLU", "", ((0, 3, 2, 2),)),
    Case("ReLU", LEAKY, ((0, 3),), in_place=True),
]


@pytest.mark.parametrize("dtype", [np.float32, np.float64], ids=["f32", "f64"])
@pytest.mark.parametrize("case", CASES, ids=str)
def test_forward_is_the_formula(case, dtype):
    bench, (x,) = case.bench(dtype), case.make_bottoms(np.random.default_rng(1))
    slope = bench.layer.param.relu_param.negative_slope
    (y,) = bench.forward([x])
    expected = [max(v, 0) + slope * min(v, 0) for v in x.astype(dtype).ravel().tolist()]
    np.testing.assert_allclose(y.ravel(), expected, rtol=1e-6)


@pytest.mark.parametrize("case", [c for c in CASES if 0 not in c.shapes[0]], ids=str)
def test_gradient(case):
    check_gradient(case.bench(), case.make_bottoms(np.random.default_rng(2)), kinks=[0.0])


@pytest.mark.parametrize("text", ["", LEAKY, NEGATIVE])
def test_backward_takes_the_slope_at_zero_and_nothing_at_nan(text):
    bench = LayerBench("ReLU", text, ((4,),))
    bench.forward([[1.0, 0.0, -2.0, np.nan]])
    (dx,), _ = bench.backward([[5.0, 5.0, 5.0, 5.0]])
    slope = bench.layer.slope
    assert dx.tolist() == [5, 5 * slope, 5 * slope, 0]


@pytest.mark.parametrize("text", ["", LEAKY])
def test_nan_and_infinity_go_through_as_in_caffe(text):
    bench = LayerBench("ReLU", text, ((4,),))
    (y,) = bench.forward([[np.nan, np.inf, -np.inf, -1.0]])
    assert np.isnan(y[0])
    if text:
        assert y[1:].tolist() == [np.inf, -np.inf, -bench.layer.slope]
    else:
        assert np.isnan(y[2]), "0 * -inf"
        assert y[1] == np.inf and y[3] == 0


def test_backward_needs():
    bench = LayerBench("ReLU", "", ((2,),))
    assert bench.layer.backward_needs([True], []) == Needs(tops=frozenset({0}))
    assert bench.layer.backward_needs([False], []) == Needs()
    bench = LayerBench("ReLU", NEGATIVE, ((2,),))
    assert bench.layer.backward_needs([True], []) == Needs(bottoms=frozenset({0}))
