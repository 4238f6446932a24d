"""SmoothL1Loss against a plain loop, and its gradients."""

from __future__ import annotations

import math

import numpy as np
import pytest

from pycaffe_lms import TRAIN, Net
from pycaffe_lms.errors import BlobCountError, LayerParamError, ShapeError
from pycaffe_lms.formats.prototxt.parser import parse_net
from pycaffe_lms.layers.base import Needs
from pycaffe_lms.layers.user_layer import UserLayer

from .cases import Case
from .harness import LayerBench, check_gradient

TYPE = "SmoothL1Loss"


def _case(n, shape, sigma=None, *others):
    return Case(TYPE, f"smooth_l1_loss_param {{ sigma: {sigma} }}" if sigma else "", (shape,) * n + others)


CASES: list[Case] = [
    _case(2, (3, 4, 2)),
    _case(3, (3, 4, 2)),
    _case(4, (3, 4, 2), 3.0),
    _case(2, (3, 4), 0.5),
    _case(1, (3, 4), 2.0, (3, 4, 1, 1), (3, 2, 2), (3, 4)),
    _case(4, (5,), 2.0),
    _case(4, (7, 90, 900), 2.0),  # more than one chunk and more than one part
    _case(4, (0, 3), 2.0),
]
SMALL = [c for c in CASES if 0 < np.prod(c.shapes[0]) < 100]


def loop(bottoms, sigma):
    """Return the loss before its division, and the gradient of a, one element at a time."""
    flat = [np.asarray(b, np.float64).reshape(-1) for b in bottoms]
    a, b, inside, outside = (*flat, *[np.ones(flat[0].size)] * (4 - len(flat)))
    terms, gradient = [], np.zeros(a.size)
    for i in range(a.size):
        d = inside[i] * (a[i] - b[i])
        if abs(d) < 1 / sigma**2:
            f, slope = 0.5 * (sigma * d) ** 2, sigma**2 * d
        else:
            f, slope = abs(d) - 0.5 / sigma**2, math.copysign(1, d)
        terms.append(outside[i] * f)
        gradient[i] = outside[i] * inside[i] * slope
    return math.fsum(terms), gradient


@pytest.mark.parametrize("dtype, tolerance", [(np.float32, 3e-5), (np.float64, 1e-11)], ids=["f32", "f64"])
@pytest.mark.parametrize("case", [c for c in CASES if np.prod(c.shapes[0]) < 100], ids=str)
def test_it_is_the_formula(case, dtype, tolerance):
    bench, bottoms = case.bench(dtype), case.make_bottoms(np.random.default_rng(1))
    total, gradient = loop(bottoms, math.sqrt(bench.layer.sigma2))
    items = max(1, len(bottoms[0]))
    assert float(bench.forward(bottoms)[0]) == pytest.approx(total / items, rel=tolerance, abs=tolerance)
    (da, db, *weights), _ = bench.backward([np.array(0.7)])
    np.testing.assert_allclose(da.reshape(-1), 0.7 * gradient / items, rtol=tolerance, atol=tolerance)
    np.testing.assert_array_equal(db.reshape(-1), -da.reshape(-1))
    assert weights == [None] * (len(bottoms) - 2)


def test_many_elements():
    (case,) = (c for c in CASES if np.prod(c.shapes[0]) > 100)
    bench, (a, b, inside, outside) = case.bench(np.float32), case.make_bottoms(np.random.default_rng(2))
    d = np.abs(inside * (a - b))
    f = np.where(d < 0.25, 2 * d * d, d - 0.125)
    assert float(bench.forward([a, b, inside, outside])[0]) == pytest.approx((outside * f).sum() / 7, rel=1e-4)


@pytest.mark.parametrize("case", SMALL, ids=str)
def test_gradient(case):
    check_gradient(case.bench(), case.make_bottoms(np.random.default_rng(4)), only_bottoms=[0, 1])


@pytest.mark.parametrize(
    "d, sigma, loss, slope",
    [(0.5, 1, 0.125, 0.5), (1, 1, 0.5, 1), (-3, 1, 2.5, -1), (0.2, 2, 0.08, 0.8), (1, 2, 0.875, 1)],
)
def test_by_hand(d, sigma, loss, slope):
    bench = LayerBench(TYPE, f"smooth_l1_loss_param {{ sigma: {sigma} }}", ((1, 1), (1, 1)))
    assert float(bench.forward([[[d]], [[0.0]]])[0]) == pytest.approx(loss)
    assert bench.backward([np.array(1.0)])[0][0][0, 0] == pytest.approx(slope)


@pytest.mark.parametrize("a, b, loss", [(1e30, 0, 1e30), (np.inf, np.inf, np.nan), (np.nan, 0, np.nan)])
def test_diverging_differences(a, b, loss):
    bench = LayerBench(TYPE, "", ((1, 1), (1, 1)), dtype=np.float32)
    np.testing.assert_equal(bench.forward([[[a]], [[b]]])[0], np.float32(loss))
    np.testing.assert_equal(bench.backward([np.array(1.0)])[0][0][0, 0], np.nan if np.isnan(loss) else 1.0)


@pytest.mark.parametrize("down", [(True, False, False, False), (False, True, False, False)])
def test_one_side_alone(down):
    bench = LayerBench(TYPE, "", ((2, 3),) * 4, propagate_down=down)
    assert bench.layer.backward_needs(list(down), []) == Needs(bottoms=frozenset(range(4)))
    check_gradient(bench, list(np.random.default_rng(5).normal(size=(4, 2, 3))))


def test_declarations():
    layer = LayerBench(TYPE, "", ((2, 3),) * 3).layer
    assert layer.declares.is_loss and layer.declares.no_backward == layer.declares.ignores_force_backward == {2, 3}
    assert layer.backward_needs([False] * 3, []) == Needs()
    bench = LayerBench(TYPE, "", ((2, 3),) * 2, needs_backward=False)
    assert float(bench.forward([np.ones((2, 3)), np.zeros((2, 3))])[0]) == pytest.approx(1.5)


@pytest.mark.parametrize(
    "text, shapes, error, message",
    [
        ("", ((2, 3), (3, 3)), ShapeError, "the first axes differ"),
        ("", ((2, 3), (2, 4)), ShapeError, r'has shape \(2, 4\), 4 elements per item, but "b0"'),
        ("", ((2, 3), (2, 3), (2, 3), (3, 2)), ShapeError, r"has shape \(3, 2\)"),
        ("", ((2, 3), (2, 3), ()), ShapeError, r"has shape \(\)"),
        ("", ((2, 3),), BlobCountError, "takes 2 to 4 bottom"),
        ("smooth_l1_loss_param { sigma: 0 }", ((2, 3), (2, 3)), LayerParamError, "sigma is 0"),
    ],
)
def test_refused(text, shapes, error, message):
    with pytest.raises(error, match=f'layer "l".*{message}'):
        LayerBench(TYPE, text, shapes)


END_TO_END = """
layer { name: "x" type: "Input" top: "x" input_param { shape { dim: 3 dim: 4 } } }
layer { name: "a" type: "InnerProduct" bottom: "x" top: "a"
  inner_product_param { num_output: 5 weight_filler { type: "gaussian" } } }
layer { name: "weights" type: "Python" bottom: "a" top: "target" top: "inside" top: "outside"
  python_param { module: "%s" layer: "Targets" } }
layer { name: "loss" type: "SmoothL1Loss" top: "loss" %s
  bottom: "a" bottom: "target" bottom: "inside" bottom: "outside" }
"""


class Targets(UserLayer):
    """Make targets and weights from what a layer that learns has made, as py-faster-rcnn's ProposalTargetLayer does."""

    def setup(self, bottom, top):
        pass

    def reshape(self, bottom, top):
        for blob in top:
            blob.reshape(*bottom[0].data.shape)

    def forward(self, bottom, top):
        top[0].data[...] = np.where(bottom[0].data > 0, 0.25, -4)
        top[1].data[...] = 0.5
        top[2].data[...] = 2

    def backward(self, top, propagate_down, bottom):
        assert not top[1].diff.any() and not top[2].diff.any()
        bottom[0].diff[...] = 0


@pytest.mark.parametrize("down", ["", "propagate_down: [true, true, true, true]"])
@pytest.mark.parametrize("force", ["", "force_backward: true"])
def test_weights_made_by_a_layer_that_learns(down, force):
    """Fast R-CNN's layer gives gradients to bottoms 0 and 1 alone, whatever is asked of it."""
    net = Net(parse_net(END_TO_END % (__name__, down) + force).message, TRAIN, dtype="float64")
    x = np.random.default_rng(3).normal(size=(3, 4))
    net.blobs["x"].data[...] = x
    net.forward()
    net.backward()
    a = net.blobs["a"].data
    d = 0.5 * (a - np.where(a > 0, 0.25, -4))
    slope = 2 * 0.5 * np.clip(d, -1, 1) / 3
    np.testing.assert_allclose(net.params["a"][0].diff, slope.T @ x, rtol=1e-12)
