"""BN in both dialects against its formulas, its running statistics step by step, and its gradients."""

from __future__ import annotations

import numpy as np
import pytest

from pycaffe_lms.errors import LayerParamError, ShapeError
from pycaffe_lms.layers.base import TEST, Needs

from .cases import Case
from .harness import LayerBench, check_gradient

SEGNET = 'bn_param { scale_filler { type: "constant" value: 1 } shift_filler { type: "constant" value: 0.001 } }'
INFERENCE, FROZEN = "bn_param { bn_mode: INFERENCE }", "bn_param { frozen: true }"
X = (4, 3, 2, 5)

CASES: list[Case] = [
    Case("BN", "", (X,)),
    Case("BN", "", (X,), in_place=True),
    Case("BN", "bn_param { eps: 0.1 momentum: 0.5 }", ((3, 2, 4),)),
    Case("BN", "", ((6, 5),)),
    Case("BN", "", (X,), phase=TEST),
    Case("BN", "", (X,), phase=TEST, in_place=True),
    Case("BN", FROZEN, (X,)),
    Case("BN", FROZEN, (X,), in_place=True),
    Case("BN", SEGNET, (X,)),
    Case("BN", SEGNET, (X,), in_place=True),
    Case("BN", SEGNET, (X,), phase=TEST),
    Case("BN", INFERENCE, (X,)),
    Case("BN", INFERENCE, ((6, 5),)),
    Case("BN", "", ((2, 20, 70, 70),)),  # more than one part per channel
    Case("BN", "", ((1, 3),)),  # one value per channel
    *(Case("BN", text, ((0, 3, 2, 2),)) for text in ("", FROZEN, SEGNET, INFERENCE)),
]
SMALL = [c for c in CASES if 0 < np.prod(c.shapes[0]) < 1000]


def start(bench):
    """Write parameters as after some training, and return them in float64, flat."""
    rng = np.random.default_rng(11)
    for i, param in enumerate(bench.params):
        param[...] = rng.uniform(0.5, 2, size=param.shape) if i in (0, 3) else rng.normal(size=param.shape)
    return [p.reshape(-1).astype(np.float64) for p in bench.params]


def reference(x, params, layer):
    """Return (y, running mean, running var) by the formulas, channel by channel."""
    flat = np.asarray(x, np.float64).reshape(x.shape[0], x.shape[1], -1)
    y = np.zeros_like(flat)
    mean, var = (params[2].copy(), params[3].copy()) if len(params) > 2 else (None, None)
    for c in range(flat.shape[1]):
        if layer.affine:
            m, v = 0.0, 1.0 - layer.eps
        elif layer.use_global:
            m, v = mean[c], var[c]
        else:
            m, v = flat[:, c].mean(), flat[:, c].var()
            if mean is not None:
                mean[c] = layer.momentum * mean[c] + (1 - layer.momentum) * m
                var[c] = layer.momentum * var[c] + (1 - layer.momentum) * v
        y[:, c] = params[0][c] * (flat[:, c] - m) / np.sqrt(v + layer.eps) + params[1][c]
    return y.reshape(x.shape), mean, var


@pytest.mark.parametrize("dtype, tolerance", [(np.float32, 2e-4), (np.float64, 1e-11)], ids=["f32", "f64"])
@pytest.mark.parametrize("case", [c for c in CASES if np.prod(c.shapes[0])], ids=str)
def test_forward_is_the_formula(case, dtype, tolerance):
    bench, (x,) = case.bench(dtype), case.make_bottoms(np.random.default_rng(1))
    params = start(bench)
    x = 3 * x + 2
    y, mean, var = reference(x, params, bench.layer)
    np.testing.assert_allclose(bench.forward([x])[0], y, rtol=tolerance, atol=tolerance)
    if mean is not None:
        np.testing.assert_allclose(bench.params[2].reshape(-1), mean, rtol=tolerance, atol=tolerance)
        np.testing.assert_allclose(bench.params[3].reshape(-1), var, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("case", [c for c in SMALL if c.shapes[0] != (1, 3)], ids=str)
def test_gradient(case):
    bench = case.bench()
    start(bench)
    check_gradient(bench, case.make_bottoms(np.random.default_rng(2)), tol=2e-6)


def test_parameter_gradients_add_up():
    bench = LayerBench("BN", "", (X,))
    start(bench)
    (y,) = bench.forward([np.random.default_rng(3).normal(size=X)])
    once = bench.backward([np.ones_like(y)])[1]
    twice = bench.backward([np.ones_like(y)], accumulate=[True] * 4, param_diffs=[np.full((1, 3, 1, 1), 2.0)] * 4)[1]
    for a, b in zip(once[:2], twice[:2], strict=True):
        np.testing.assert_allclose(b, a + 2)
    assert once[2:] == twice[2:] == [None, None]


def test_running_statistics_step_by_step():
    bench = LayerBench("BN", "", ((2, 1),))
    bench.params = [np.full((1, 1, 1, 1), v) for v in (1.0, 0.0, 0.0, 0.0)]
    bench.forward([[[1.0], [3.0]]])  # mean 2, variance 1
    assert [p.item() for p in bench.params[2:]] == pytest.approx([0.2, 0.1])
    bench.forward([[[1.0], [3.0]]])
    assert [p.item() for p in bench.params[2:]] == pytest.approx([0.38, 0.19])
    empty = LayerBench("BN", "", ((0, 1),))
    empty.params = [np.full((1, 1, 1, 1), 5.0)] * 4
    empty.forward([np.zeros((0, 1))])
    assert empty.params[2].item() == empty.params[3].item() == 5, "an empty batch moves nothing"


def test_parameters():
    def params(text, **more):
        layer = LayerBench("BN", text, ((2, 3, 4, 4),), **more).layer
        return [(p.shape, p.filler.type, round(p.filler.value, 3), p.lr_mult) for p in layer.params]

    shape = (1, 3, 1, 1)
    plain = [(shape, "constant", 1, 1), (shape, "constant", 0, 1), (shape, "constant", 0, 0), (shape, "constant", 0, 0)]
    assert params("") == params("", phase=TEST) == plain
    assert params(FROZEN) == [(shape, "constant", v, 0) for v in (1, 0, 0, 1)]
    assert params(SEGNET) == [(shape, "constant", v, 1) for v in (1, 0.001)]
    text = 'bn_param { slope_filler { type: "gaussian" } bias_filler { value: 2 } }'
    assert params(text)[0][1] == "gaussian" and params(text)[1][2] == 2


def test_what_is_frozen_has_no_learning_rate():
    specs = "param { lr_mult: 1 } param { lr_mult: 2 } param { lr_mult: 3 } param { lr_mult: 4 }"
    frozen, moving = (LayerBench("BN", f"{text} {specs}", (X,)).layer for text in (FROZEN, ""))
    assert [s.lr_mult for s in frozen.param.param] == [0, 0, 0, 0]
    assert [s.lr_mult for s in moving.param.param] == [1, 2, 0, 0]


def test_needs_and_scratch():
    def needs(text, down, learn):
        layer = LayerBench("BN", text, (X,)).layer
        return layer.backward_needs([down], [learn] * len(layer.params))

    zero = frozenset({0})
    assert needs("", True, True) == needs(SEGNET, True, False) == needs(INFERENCE, True, False) == Needs(params=zero)
    assert needs(INFERENCE, True, True) == Needs(bottoms=zero, params=zero)
    assert needs("", False, True) == needs(INFERENCE, False, False) == Needs()
    assert "normal" not in LayerBench("BN", FROZEN, (X,)).layer.scratches
    for text in ("", SEGNET, FROZEN):
        bench = LayerBench("BN", text, (X,), needs_backward=False)
        assert "normal" not in bench.layer.scratches
        params, x = start(bench), np.random.default_rng(4).normal(size=X)
        expected = reference(x, params, bench.layer)[0]
        np.testing.assert_allclose(bench.forward([x])[0], expected, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("text", ["", FROZEN, SEGNET, INFERENCE])
def test_parameters_alone(text):
    n = 2 if text in (SEGNET, INFERENCE) else 4
    bench = LayerBench("BN", text, (X,), propagate_down=(False,), param_propagate=(True,) * n)
    start(bench)
    (y,) = bench.forward([np.random.default_rng(5).normal(size=X)])
    (dx,), diffs = bench.backward([np.ones_like(y)])
    assert dx is None and all(np.isfinite(d).all() for d in diffs)
    if text == FROZEN:
        assert not any(d.any() for d in diffs)
    else:
        np.testing.assert_allclose(diffs[1].reshape(-1), 40)
        assert not any(d.any() for d in diffs[2:])


@pytest.mark.parametrize(
    "text, shape, error, message",
    [
        ("bn_param { bn_mode: LEARN momentum: 0.5 }", X, LayerParamError, "mixes bn_mode of SegNet's BN with momentum"),
        ("", (3,), ShapeError, r"has shape \(3,\)"),
    ],
)
def test_refused(text, shape, error, message):
    with pytest.raises(error, match=f'layer "l".*{message}'):
        LayerBench("BN", text, (shape,))


def test_reshape():
    bench = LayerBench("BN", "", (X,))
    bench.reshape([(2, 3, 7)])
    with pytest.raises(ShapeError, match="has 4 channels, but the layer was set up for 3"):
        bench.reshape([(2, 4, 7)])
