"""ReLU6 against min(max(x, 0), 6) + slope * min(x, 0)."""

from __future__ import annotations

import math

import numpy as np
import pytest

from pycaffe_lms.errors import LayerParamError
from pycaffe_lms.layers.base import Needs

from .cases import Case
from .harness import LayerBench, check_gradient

LEAKY, NEGATIVE = "relu6_param { negative_slope: 0.1 }", "relu_param { negative_slope: -0.5 }"

CASES: list[Case] = [
    Case("ReLU6", "", ((2, 3, 4, 5),)),
    Case("ReLU6", "", ((2, 3, 4, 5),), in_place=True),
    Case("ReLU6", LEAKY, ((2, 7),)),
    Case("ReLU6", LEAKY, ((2, 7),), in_place=True),
    Case("ReLU6", NEGATIVE, ((5,),)),
    Case("ReLU6", "relu_param { negative_slope: 0.2 }", ((),)),
    Case("ReLU6", "", ((0, 3, 2, 2),)),
]


def bottoms(case, seed):
    return [4 * x for x in case.make_bottoms(np.random.default_rng(seed))]  # some beyond 6


@pytest.mark.parametrize("dtype", [np.float32, np.float64], ids=["f32", "f64"])
@pytest.mark.parametrize("case", CASES, ids=str)
def test_forward_is_the_formula(case, dtype):
    bench, (x,) = case.bench(dtype), bottoms(case, 1)
    slope = bench.layer.slope
    (y,) = bench.forward([x])
    expected = [min(max(v, 0), 6) + slope * min(v, 0) for v in np.asarray(x, dtype).ravel().tolist()]
    np.testing.assert_allclose(y.ravel(), expected, rtol=1e-6)


@pytest.mark.parametrize("case", [c for c in CASES if 0 not in c.shapes[0]], ids=str)
def test_gradient(case):
    check_gradient(case.bench(), bottoms(case, 2), kinks=[0.0, 6.0])


@pytest.mark.parametrize("text", ["", LEAKY, NEGATIVE])
def test_backward_at_the_kinks_and_at_nan(text):
    bench = LayerBench("ReLU6", text, ((6,),))
    bench.forward([[5.0, 0.0, -2.0, 6.0, 7.0, np.nan]])
    (dx,), _ = bench.backward([[5.0] * 6])
    assert dx.tolist() == [5, 5 * bench.layer.slope, 5 * bench.layer.slope, 0, 0, 0]


@pytest.mark.parametrize("text", ["", LEAKY])
def test_nan_and_infinity(text):
    bench = LayerBench("ReLU6", text, ((3,),))
    (y,) = bench.forward([[np.nan, np.inf, -np.inf]])
    assert math.isnan(y[0]) and y[1] == 6 and y[2] == (-np.inf if text else 0)


def test_needs_and_parameters():
    needs = {
        text: LayerBench("ReLU6", text, ((2,),)).layer.backward_needs([True], []) for text in ("", LEAKY, NEGATIVE)
    }
    top, bottom = Needs(tops=frozenset({0})), Needs(bottoms=frozenset({0}))
    assert needs == {"": top, LEAKY: top, NEGATIVE: bottom}
    bench = LayerBench("ReLU6", "", ((2,),), propagate_down=(False,))
    assert bench.layer.backward_needs([False], []) == Needs()
    bench.forward([[1.0, 2.0]])
    assert bench.backward([[1.0, 2.0]])[0] == [None]
    same = LayerBench("ReLU6", "relu6_param { negative_slope: 0.5 } relu_param { negative_slope: 0.5 }", ((2,),))
    assert same.layer.slope == 0.5
    with pytest.raises(LayerParamError, match='layer "l".*0.1, but relu_param has -0.5'):
        LayerBench("ReLU6", f"{LEAKY} {NEGATIVE}", ((2,),))
