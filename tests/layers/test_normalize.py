"""Normalize against a plain loop over norms, and its gradients."""

from __future__ import annotations

import math

import numpy as np
import pytest

from pycaffe_lms.errors import ShapeError
from pycaffe_lms.layers.base import Needs

from .cases import Case
from .harness import LayerBench, check_gradient

PLACES, EACH = "across_spatial: false", "channel_shared: false"


def _norm(text, shape):
    return Case("Normalize", f"norm_param {{ {text} }}", (shape,))


CASES: list[Case] = [
    *(_norm(text, (2, 3, 4, 2)) for text in ("", PLACES, EACH, f"{PLACES} {EACH}")),
    _norm(f"{PLACES} {EACH} eps: 0.5", (2, 3, 3)),
    _norm(f"{EACH} eps: 0.5", (2, 3, 3)),
    *(_norm(text, (3, 5)) for text in ("", PLACES, EACH, f"{PLACES} {EACH}")),
    *(_norm(text, (2, 40, 9, 21)) for text in ("", PLACES, EACH, f"{PLACES} {EACH}")),  # several parts and blocks
    _norm(f"{PLACES} {EACH}", (0, 3, 4, 2)),
    _norm("", (0, 3, 4, 2)),
]


def loops(x, scale, param):
    """Compute one norm after the other, with exact sums."""
    y = np.zeros(x.shape)
    flat = x.reshape(*x.shape[:2], math.prod(x.shape[2:])).astype(np.float64)
    out = y.reshape(flat.shape)
    factor = np.broadcast_to(scale.reshape(-1), x.shape[1])
    for n in range(flat.shape[0]):
        for s in range(flat.shape[2]):
            over = flat[n] if param.across_spatial else flat[n, :, s]
            norm = math.sqrt(math.fsum(v * v for v in over.ravel()) + param.eps)
            for c in range(flat.shape[1]):
                out[n, c, s] = factor[c] * flat[n, c, s] / norm
    return y


@pytest.mark.parametrize("dtype, tolerance", [(np.float32, 2e-6), (np.float64, 1e-13)], ids=["f32", "f64"])
@pytest.mark.parametrize("case", [c for c in CASES if np.prod(c.shapes[0]) < 100], ids=str)
def test_forward_is_the_formula(case, dtype, tolerance):
    bench, (x,) = case.bench(dtype), case.make_bottoms(np.random.default_rng(1))
    (y,) = bench.forward([x])
    expected = loops(np.asarray(x, dtype), bench.params[0], bench.layer.param.norm_param)
    np.testing.assert_allclose(y, expected, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("case", [c for c in CASES if 0 < np.prod(c.shapes[0]) < 100], ids=str)
def test_gradient(case):
    check_gradient(case.bench(), case.make_bottoms(np.random.default_rng(2)))


@pytest.mark.parametrize("case", [c for c in CASES if np.prod(c.shapes[0]) > 100], ids=str)
def test_large_cases_are_the_formula_of_the_whole_array(case):
    bench, (x,) = case.bench(np.float32), case.make_bottoms(np.random.default_rng(3))
    param, axes = bench.layer.param.norm_param, (1, 2, 3) if bench.layer.across else 1
    (y,) = bench.forward([x])
    scale = bench.params[0].reshape(-1, 1, 1).astype(np.float64)
    unit = x / np.sqrt((x * x).sum(axis=axes, keepdims=True) + param.eps)
    np.testing.assert_allclose(y, scale * unit, rtol=1e-5, atol=1e-6)
    dy = np.random.default_rng(4).normal(size=x.shape)
    (dx,), (ds,) = bench.backward([dy], accumulate=[True], param_diffs=[np.full(bench.params[0].shape, 2, np.float32)])
    norm = np.sqrt((x * x).sum(axis=axes, keepdims=True) + param.eps)
    along = (scale * dy * unit).sum(axis=axes, keepdims=True)
    np.testing.assert_allclose(dx, (scale * dy - unit * along) / norm, rtol=1e-4, atol=1e-5)
    total = (unit * dy).sum(axis=(0, 2, 3))
    np.testing.assert_allclose(ds, 2 + (total.sum() if param.channel_shared else total), rtol=1e-4, atol=1e-4)


def test_eps_is_under_the_root():
    y = LayerBench("Normalize", "norm_param { eps: 16 }", ((1, 2),))
    y.params[0][...] = 10
    np.testing.assert_allclose(y.forward([[[3.0, 0.0]]])[0], [[6.0, 0.0]])
    default = LayerBench("Normalize", "", ((1, 2),), dtype=np.float32)
    default.params[0][...] = 1
    assert not default.forward([[[0.0, 0.0]]])[0].any(), "a zero vector stays zero"
    assert default.layer.eps == pytest.approx(1e-10)


def test_parameters_and_needs():
    shapes = {
        text: LayerBench("Normalize", f"norm_param {{ {text} }}", ((2, 3, 4),)).layer.params for text in ("", EACH)
    }
    assert [shapes[text][0].shape for text in ("", EACH)] == [(), (3,)]
    assert shapes[""][0].filler.type == "constant" and shapes[""][0].filler.value == 1
    filled = LayerBench("Normalize", 'norm_param { scale_filler { type: "constant" value: 20 } }', ((2, 3),)).layer
    assert filled.params[0].filler.value == 20
    needs, zero = filled.backward_needs, frozenset({0})
    assert needs([True], [True]) == Needs(bottoms=zero, params=zero) == needs([True], [False])
    assert needs([False], [True]) == Needs(bottoms=zero) and needs([False], [False]) == Needs()


@pytest.mark.parametrize("down, params", [((False,), (True,)), ((True,), (False,))])
def test_one_gradient_alone(down, params):
    bench = LayerBench(
        "Normalize", f"norm_param {{ {EACH} }}", ((2, 3, 2),), propagate_down=down, param_propagate=params
    )
    check_gradient(bench, [np.random.default_rng(5).normal(size=(2, 3, 2))])


def test_without_backward_and_refused():
    bench = LayerBench("Normalize", "", ((1, 2),), needs_backward=False)
    assert "dots" not in bench.layer.scratches
    assert bench.forward([[[3.0, 4.0]]])[0] / bench.params[0] == pytest.approx(np.array([[0.6, 0.8]]))
    with pytest.raises(ShapeError, match='layer "l".*has shape'):
        LayerBench("Normalize", "", ((3,),))
    bench = LayerBench("Normalize", f"norm_param {{ {EACH} }}", ((1, 2),))
    with pytest.raises(ShapeError, match="has 3 channels, but the layer was set up for 2"):
        bench.reshape([(1, 3)])
