"""Scale and Bias against NumPy's broadcasting, and their gradients, which always add up."""

from __future__ import annotations

import numpy as np
import pytest

from pycaffe_lms.errors import BlobCountError, LayerParamError, ShapeError
from pycaffe_lms.layers.base import Needs

from .cases import Case
from .harness import LayerBench, check_gradient

X = (2, 3, 4, 5)


def _both(fields, shapes, **more):
    return [
        Case("Scale", f"scale_param {{ {fields} }}", shapes, **more),
        Case("Bias", f"bias_param {{ {fields} }}", shapes, **more),
    ]


CASES: list[Case] = [
    *_both("", (X,)),
    *_both("", (X,), in_place=True),
    *_both("axis: 0", (X,)),
    *_both("axis: -1", (X,)),
    *_both("axis: 1 num_axes: 2", (X,)),
    *_both("axis: 0 num_axes: -1", (X,)),
    *_both("num_axes: 0", (X,)),
    *_both("axis: 0 num_axes: 2", ((1, 4, 3),)),
    *_both("", (X, (3,))),
    *_both("axis: 0", (X, (2, 3))),
    *_both("axis: -2", (X, (4, 5))),
    *_both("axis: 0", (X, X)),
    *_both("", (X, ())),
    *_both("", ((0, 3, 2),)),
    *_both("", ((0, 3), (3,))),
    *_both("", ((3, 2, 90, 90),)),  # more than one part per channel
    *_both("axis: 2", ((70, 80, 5),)),  # the same, channels last
    Case("Scale", "scale_param { bias_term: true }", (X,)),
    Case("Scale", "scale_param { bias_term: true }", (X,), in_place=True),
    Case("Scale", "scale_param { bias_term: true axis: 0 num_axes: -1 }", (X,)),
    Case("Scale", "scale_param { bias_term: true axis: 2 }", (X, (4, 5))),
]
SMALL = [c for c in CASES if 0 < np.prod(c.shapes[0]) < 1000]


def parts(bench, bottoms):
    """Return (factor or None, shift or None), shaped to broadcast against bottom 0."""
    layer, ndim = bench.layer, np.ndim(bottoms[0])
    first = bench.params[0] if layer.learned else np.asarray(bottoms[1])
    shape = first.shape + (1,) * (ndim - layer.axis - first.ndim)
    if layer.type == "Bias":
        return None, first.reshape(shape)
    return first.reshape(shape), bench.params[-1].reshape(shape) if layer.bias else None


@pytest.mark.parametrize("dtype, tolerance", [(np.float32, 1e-6), (np.float64, 1e-14)], ids=["f32", "f64"])
@pytest.mark.parametrize("case", CASES, ids=str)
def test_forward_is_broadcasting(case, dtype, tolerance):
    bench, bottoms = case.bench(dtype), case.make_bottoms(np.random.default_rng(1))
    (y,) = bench.forward(bottoms)
    factor, shift = parts(bench, bottoms)
    expected = bottoms[0] * (1 if factor is None else factor) + (0 if shift is None else shift)
    np.testing.assert_allclose(y, expected, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("case", [c for c in SMALL if not (c.in_place and c.type == "Scale")], ids=str)
def test_gradient(case):
    check_gradient(case.bench(), case.make_bottoms(np.random.default_rng(2)))


@pytest.mark.parametrize("case", CASES, ids=str)
def test_float32_gradients_are_the_sums(case):
    """Compare with NumPy's sums in float64; in place too, where the net keeps the value that backward reads."""
    bench, bottoms = case.bench(np.float32), case.make_bottoms(np.random.default_rng(3))
    bottoms = [b.astype(np.float32) for b in bottoms]
    (y,) = bench.forward(bottoms)
    if case.in_place:
        bench._bottom[0] = bottoms[0].copy()
    dy = np.random.default_rng(4).normal(size=y.shape).astype(np.float32)
    kept = [np.full(p.shape, 3, np.float32) for p in bench.params]
    bottom_diff, once = bench.backward([dy])
    added = bench.backward([dy], accumulate=[True] * len(kept), param_diffs=kept)[1]
    factor, _ = parts(bench, bottoms)
    exact, axis, size = dy.astype(np.float64), bench.layer.axis, len(bench.layer.shape)
    others = tuple(a for a in range(y.ndim) if not axis <= a < axis + size)
    sums = [exact.sum(axis=others)]
    if case.type == "Scale":
        sums.insert(0, (exact * bottoms[0]).sum(axis=others))
    tolerance = {"rtol": 1e-5, "atol": 1e-3}
    np.testing.assert_allclose(bottom_diff[0], dy * (1 if factor is None else factor), **tolerance)
    if len(bottoms) > 1:
        np.testing.assert_allclose(bottom_diff[1], sums[0], **tolerance)
        sums = sums[1:]
    for got, more, want in zip(once, added, sums[: len(once)], strict=True):
        np.testing.assert_allclose(got, want, **tolerance)
        np.testing.assert_allclose(more, want + 3, **tolerance)


def test_propagate_down_false_and_needs():
    def needs(text, shapes, down, params, type="Scale"):
        bench = LayerBench(type, text, shapes, propagate_down=down, param_propagate=params)
        bottoms = [np.ones(s) for s in shapes]
        (y,) = bench.forward(bottoms)
        diffs, param_diffs = bench.backward([np.ones_like(y)])
        assert [d is not None for d in diffs] == list(down)
        assert [d is not None for d in param_diffs] == list(params)
        return bench.layer.backward_needs(list(down), list(params))

    zero, one, both = frozenset({0}), frozenset({1}), frozenset({0, 1})
    biased = "scale_param { bias_term: true }"
    assert needs("", (X,), (True,), (True,)) == Needs(bottoms=zero, params=zero)
    assert needs("", (X,), (True,), (False,)) == Needs(params=zero)
    assert needs(biased, (X,), (False,), (True, True)) == Needs(bottoms=zero)
    assert needs(biased, (X,), (True,), (False, True)) == Needs(params=zero)
    assert needs("", (X, (3,)), (True, False), ()) == Needs(bottoms=one)
    assert needs("", (X, (3,)), (False, True), ()) == Needs(bottoms=zero)
    assert needs("", (X, (3,)), (True, True), ()) == Needs(bottoms=both)
    assert needs(biased, (X, (3,)), (False, True), (True,)) == Needs(bottoms=zero)
    assert needs("", (X,), (True,), (True,), "Bias") == Needs()
    assert needs("", (X, (3,)), (False, True), (), "Bias") == Needs()


def test_default_fillers():
    scale = LayerBench("Scale", "scale_param { bias_term: true }", (X,)).layer.params
    assert [(p.shape, p.filler.type, p.filler.value) for p in scale] == [((3,), "constant", 1), ((3,), "constant", 0)]
    (bias,) = LayerBench("Bias", "", (X,)).layer.params
    assert (bias.shape, bias.filler.type, bias.filler.value) == ((3,), "constant", 0)
    text = 'scale_param { filler { type: "uniform" } bias_term: true bias_filler { value: 2 } }'
    scale = LayerBench("Scale", text, (X,)).layer.params
    assert scale[0].filler.type == "uniform" and scale[1].filler.value == 2


@pytest.mark.parametrize(
    "type, text, shapes, error, message",
    [
        ("Scale", "scale_param { axis: 4 }", (X,), LayerParamError, "axis 4 is out of range"),
        ("Bias", "bias_param { axis: 2 num_axes: 3 }", (X,), LayerParamError, "num_axes 3 from axis 2"),
        ("Scale", "scale_param { num_axes: -2 }", (X,), LayerParamError, "num_axes -2"),
        ("Scale", "", (X, (4,)), ShapeError, "do not match"),
        ("Bias", "bias_param { axis: 3 }", (X, (5, 1)), ShapeError, "do not match"),
        ("Scale", "", (X, (3,), (3,)), BlobCountError, "takes 1 to 2 bottom"),
    ],
)
def test_refused(type, text, shapes, error, message):
    with pytest.raises(error, match=f'layer "l".*{message}'):
        LayerBench(type, text, shapes)


def test_reshape():
    bench = LayerBench("Scale", "", (X,))
    bench.reshape([(7, 3)])
    with pytest.raises(ShapeError, match="do not match"):
        bench.reshape([(7, 4)])
    bench = LayerBench("Scale", "", (X, (3,)))
    bench.reshape([(2, 6), (6,)])
    assert bench.forward([np.ones((2, 6)), np.arange(6.0)])[0].tolist() == [list(range(6))] * 2
    bench = LayerBench("Scale", "scale_param { bias_term: true }", (X, (3,)))
    with pytest.raises(ShapeError, match="the bias was set up for"):
        bench.reshape([(2, 6), (6,)])
