"""Every element-wise layer against its formula in plain Python, its gradient, and Caffe's answers at the edges."""

from __future__ import annotations

import math

import numpy as np
import pytest

from pycaffe_lms.errors import LayerParamError
from pycaffe_lms.layers.base import InPlace, Needs
from pycaffe_lms.layers.registry import layer_class

from .cases import Case
from .harness import LayerBench, check_gradient

BOTTOM, TOP = Needs(bottoms=frozenset({0})), Needs(tops=frozenset({0}))
CLIP = "clip_param { min: -0.5 max: 0.75 }"
CUBE = "power_param { power: 3 }"
CASES: list[Case] = [
    Case("AbsVal", "", ((2, 3, 4, 5),)),
    Case("BNLL", "", ((2, 3, 4, 5),)),
    Case("Clip", CLIP, ((2, 3, 4, 5),)),
    Case("Clip", "", ((7,),)),
    Case("ELU", "", ((2, 3, 4, 5),)),
    Case("ELU", "", ((2, 3, 4, 5),), in_place=True),
    Case("ELU", "elu_param { alpha: 0.3 }", ((3, 7),), in_place=True),
    Case("ELU", "elu_param { alpha: 0 }", ((3, 7),), in_place=True),
    Case("ELU", "elu_param { alpha: -0.7 }", ((3, 7),)),
    Case("Exp", "", ((2, 3, 4, 5),)),
    Case("Exp", "", ((2, 7),), in_place=True),
    Case("Exp", "exp_param { base: 2 scale: 3 shift: 1 }", ((2, 7),), in_place=True),
    Case("Exp", "exp_param { base: 0.5 shift: -2 }", ((5,),)),
    Case("Exp", "exp_param { scale: 0 }", ((5,),)),
    Case("Log", "log_param { shift: 10 }", ((2, 3, 4, 5),)),
    Case("Log", "log_param { base: 2 scale: 0.5 shift: 8 }", ((2, 7),)),
    Case("Log", "log_param { base: 0.25 scale: -1 shift: 9 }", ((2, 7),)),
    Case("Power", "", ((2, 3, 4, 5),), in_place=True),
    Case("Power", "power_param { scale: -3 shift: 2 }", ((2, 7),), in_place=True),
    Case("Power", "power_param { power: 2 }", ((2, 7),)),
    Case("Power", "power_param { power: 2 scale: 0.5 shift: -1 }", ((2, 7),)),
    Case("Power", CUBE, ((2, 7),)),
    Case("Power", "power_param { power: 0.37 scale: 0.83 shift: 9 }", ((2, 3, 4, 5),)),
    Case("Power", "power_param { power: -1.5 scale: 2 shift: 20 }", ((2, 7),)),
    Case("Power", "power_param { power: 0 shift: 3 }", ((2, 7),), in_place=True),
    Case("Power", "power_param { power: 2 scale: 0 shift: 3 }", ((2, 7),)),
    Case("Sigmoid", "", ((2, 3, 4, 5),)),
    Case("Sigmoid", "sigmoid_param { engine: CUDNN }", ((2, 7),), in_place=True),
    Case("Swish", "", ((2, 3, 4, 5),)),
    Case("Swish", "swish_param { beta: 1.5 }", ((2, 7),)),
    Case("Swish", "swish_param { beta: 0 }", ((2, 7),)),
    Case("TanH", "", ((2, 3, 4, 5),)),
    Case("TanH", "tanh_param { engine: CUDNN }", ((2, 7),), in_place=True),
    Case("Threshold", "", ((2, 3, 4, 5),)),
    Case("Threshold", "threshold_param { threshold: 0.5 }", ((2, 7),), in_place=True),
    Case("BNLL", "", ((),)),
    Case("Swish", "", ((70001,),)),
    Case("TanH", "", ((70001,),), in_place=True),
    *(
        Case(name, "", ((0, 3, 2),))
        for name in ("AbsVal", "BNLL", "Clip", "ELU", "Exp", "Log", "Power", "Sigmoid", "Swish", "TanH", "Threshold")
    ),
]
SMALL = [c for c in CASES if 0 < math.prod(c.shapes[0]) < 1000]


def _base(options):
    return math.e if options.base == -1 else options.base


FORMULA = {
    "AbsVal": lambda x, p: abs(x),
    "BNLL": lambda x, p: math.log(1 + math.exp(x)),
    "Clip": lambda x, p: max(p.clip_param.min, min(x, p.clip_param.max)),
    "ELU": lambda x, p: x if x > 0 else p.elu_param.alpha * (math.exp(x) - 1),
    "Exp": lambda x, p: _base(p.exp_param) ** (p.exp_param.shift + p.exp_param.scale * x),
    "Log": lambda x, p: math.log(p.log_param.shift + p.log_param.scale * x, _base(p.log_param)),
    "Power": lambda x, p: (p.power_param.shift + p.power_param.scale * x) ** p.power_param.power,
    "Sigmoid": lambda x, p: 1 / (1 + math.exp(-x)),
    "Swish": lambda x, p: x / (1 + math.exp(-p.swish_param.beta * x)),
    "TanH": lambda x, p: (math.exp(2 * x) - 1) / (math.exp(2 * x) + 1),
    "Threshold": lambda x, p: float(x > p.threshold_param.threshold),
}


@pytest.mark.parametrize("dtype", [np.float32, np.float64], ids=["f32", "f64"])
@pytest.mark.parametrize("case", CASES, ids=str)
def test_forward_is_the_formula(case, dtype):
    bench, (x,) = case.bench(dtype), case.make_bottoms(np.random.default_rng(1))
    (y,) = bench.forward([x])
    assert y.dtype == dtype and y.shape == case.shapes[0]
    expected = [FORMULA[case.type](v, bench.layer.param) for v in np.asarray(x, dtype).ravel().tolist()]
    eps = np.finfo(dtype).eps
    np.testing.assert_allclose(y.ravel(), expected, rtol=20 * eps, atol=4 * eps)


@pytest.mark.parametrize("case", [c for c in SMALL if c.type != "Threshold"], ids=str)
def test_gradient(case):
    kinks = {"Clip": [-0.5, 0.75], "AbsVal": [0.0], "ELU": [0.0]}.get(case.type, [])
    check_gradient(case.bench(), case.make_bottoms(np.random.default_rng(2)), kinks=kinks)


@pytest.mark.parametrize("case", [c for c in CASES if c.shapes == ((0, 3, 2),) and c.type != "Threshold"], ids=str)
def test_an_empty_batch_has_an_empty_gradient(case):
    bench = case.bench()
    bench.forward([np.empty((0, 3, 2))])
    (dx,), _ = bench.backward([np.empty((0, 3, 2))])
    assert dx.shape == (0, 3, 2)


def _run(type_, text, xs, dtype=np.float32):
    """Return (y, dx for dy = 1); dx is None if the layer has no backward."""
    bench = LayerBench(type_, text, ((len(xs),),), dtype=dtype)
    (y,) = bench.forward([xs])
    (dx,), _ = bench.backward([np.ones(len(xs))]) if bench.propagate_down[0] else ((None,), ())
    return y.tolist(), None if dx is None else dx.tolist()


# -- edges -------------------------------------------------------------------------------------------------------------
def test_the_sign_of_zero_is_zero():
    assert _run("AbsVal", "", [-2, 0, 3]) == ([2, 0, 3], [-1, 0, 1])


def test_clip_is_inclusive_and_sends_nan_to_its_minimum():
    assert _run("Clip", CLIP, [-0.5, 0.75, -0.6, 0.8]) == ([-0.5, 0.75, -0.5, 0.75], [1, 1, 0, 0])
    assert _run("Clip", CLIP, [math.nan, math.inf, -math.inf]) == ([-0.5, 0.75, -0.5], [0, 0, 0])


def test_clip_without_ends_is_zero_and_with_crossed_ends_its_minimum():
    assert _run("Clip", "", [-1, 0, 1]) == ([0, 0, 0], [0, 1, 0])
    assert _run("Clip", "clip_param { min: 2 max: 1 }", [0, 1.5, 3]) == ([2, 2, 2], [0, 0, 0])


def test_threshold_is_strict():
    assert _run("Threshold", "threshold_param { threshold: 0.5 }", [0.5, 0.5001, -1, math.nan]) == ([0, 1, 0, 0], None)


@pytest.mark.parametrize("dtype", [np.float32, np.float64], ids=["f32", "f64"])
def test_nothing_overflows_that_need_not(dtype):
    far = [-1e4, -100.0, 100.0, 1e4]
    y, dx = _run("BNLL", "", far, dtype)
    assert y[2:] == [100, 1e4] and y[0] == 0 and y[1] < 1e-40
    np.testing.assert_allclose(dx, [0, 0, 1, 1], atol=1e-40)
    tail = math.exp(-100)
    np.testing.assert_allclose(_run("Sigmoid", "", far, dtype), ([0, tail, 1, 1], [0, tail, 0, 0]), atol=2e-45)
    assert _run("TanH", "", far, dtype) == ([-1, -1, 1, 1], [0, 0, 0, 0])
    swish = ([0, -100 * tail, 100, 1e4], [0, -99 * tail, 1, 1])
    np.testing.assert_allclose(_run("Swish", "", far, dtype), swish, atol=2e-43)
    assert _run("ELU", "", far, dtype) == ([-1, -1, 100, 1e4], [0, 0, 1, 1])
    assert _run("ELU", "elu_param { alpha: -1 }", far, dtype)[0] == [1, 1, 100, 1e4]
    assert _run("Exp", "exp_param { shift: -1e4 }", [1e4], dtype) == ([1], [1])


def test_what_has_no_value_is_infinite_or_nan_without_a_warning():
    y, dx = _run("Log", "", [0, -1, math.inf])
    assert y[0] == -math.inf and math.isnan(y[1]) and y[2] == math.inf
    assert dx == [math.inf, -1, 0]
    assert _run("Exp", "", [1e3, -1e3]) == ([math.inf, 0], [math.inf, 0])
    y, _ = _run("Power", "power_param { power: 0.5 }", [-1, 0, 4])
    assert math.isnan(y[0]) and y[1:] == [0, 2]
    assert _run("Power", "power_param { power: -1 }", [0, 2])[0] == [math.inf, 0.5]
    assert _run("Power", "power_param { power: 2 }", [1e30])[0] == [math.inf]


@pytest.mark.parametrize("name", ["AbsVal", "BNLL", "ELU", "Exp", "Log", "Power", "Sigmoid", "Swish", "TanH"])
def test_nan_stays_nan(name):
    assert math.isnan(_run(name, "", [math.nan])[0][0])


# -- Power's special forms ---------------------------------------------------------------------------------------------
def test_a_constant_power_does_not_read_its_bottom():
    for text, value in (("power: 0 scale: 5", 1), ("scale: 0 power: 3 shift: 2", 8), ("power: -1 scale: 0", math.inf)):
        bench = LayerBench("Power", f"power_param {{ {text} }}", ((2,),))
        assert bench.layer.forward_needs() == Needs() == bench.layer.backward_needs([True], [])
        assert _run("Power", f"power_param {{ {text} }}", [math.nan, math.inf]) == ([value, value], [0, 0])


def test_the_slope_of_a_power_at_zero():
    assert _run("Power", CUBE, [0, 2, -1]) == ([0, 8, -1], [0, 12, 3])
    assert _run("Power", "power_param { power: 2 }", [0, 2, -1]) == ([0, 4, 1], [0, 4, -2])
    assert _run("Power", "power_param { power: 0.5 }", [0, 4])[1] == [math.inf, 0.25]


# -- declarations ------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("name", "text", "needs"),
    [
        ("AbsVal", "", BOTTOM),
        ("BNLL", "", BOTTOM),
        ("Clip", CLIP, BOTTOM),
        ("ELU", "", TOP),
        ("ELU", "elu_param { alpha: -1 }", BOTTOM),
        ("Exp", "", TOP),
        ("Log", "", BOTTOM),
        ("Power", "", Needs()),
        ("Power", CUBE, BOTTOM),
        ("Sigmoid", "", TOP),
        ("Swish", "", BOTTOM),
        ("TanH", "", TOP),
        ("Threshold", "", Needs()),
    ],
)
def test_backward_needs(name, text, needs):
    layer = LayerBench(name, text, ((2,),)).layer
    assert layer.backward_needs([True], []) == needs
    assert layer.backward_needs([False], []) == Needs()


@pytest.mark.parametrize("case", [c for c in SMALL if c.type != "Threshold" and not c.in_place], ids=str)
def test_no_gradient_where_none_is_wanted(case):
    bench = LayerBench(case.type, case.text, case.shapes, propagate_down=(False,))
    bench.forward(case.make_bottoms(np.random.default_rng(3)))
    assert bench.backward([np.ones(case.shapes[0])]) == ([None], [])


def test_only_absval_refuses_to_work_in_place():
    assert {name for name in FORMULA if layer_class(name).declares.in_place is InPlace.REFUSED} == {"AbsVal"}
    assert {name for name in FORMULA if layer_class(name).declares.no_backward is None} == {"Threshold"}


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("Exp", "exp_param { base: 0 }"),
        ("Exp", "exp_param { base: -2 }"),
        ("Exp", "exp_param { base: nan }"),
        ("Exp", "exp_param { base: inf }"),
        ("Log", "log_param { base: 1 }"),
        ("Log", "log_param { base: 0 }"),
        ("Log", "log_param { base: -0.5 }"),
    ],
)
def test_a_base_without_logarithm_is_refused(name, text):
    with pytest.raises(LayerParamError, match=f'layer "l" \\({name}\\).*base') as caught:
        LayerBench(name, text, ((2,),))
    assert "-1 for e" in caught.value.fix
