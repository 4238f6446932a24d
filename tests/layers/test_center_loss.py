"""CenterLoss against loops over single items, the gradient of its features, and in a net that learns centres."""

from __future__ import annotations

import numpy as np
import pytest

from pycaffe_lms.errors import LayerParamError, ShapeError

from .cases import Case
from .harness import LayerBench, check_gradient

TYPE = "CenterLoss"
FIELDS = 'center_loss_param {{ num_output: {} center_filler {{ type: "gaussian" std: 1 }} }}'
CASES: list[Case] = [
    Case(TYPE, FIELDS.format(3), ((7, 5), (7,)), integer_bottoms=((1, 3),)),
    Case(TYPE, FIELDS.format(6) + " loss_weight: 0.25", ((4, 3, 2, 2), (4, 1)), integer_bottoms=((1, 2),)),
    Case(TYPE, FIELDS.format(5), ((300, 70), (300, 1, 1, 1)), integer_bottoms=((1, 5),)),
    Case(TYPE, "center_loss_param { num_output: 2 }", ((3, 2), (3,)), integer_bottoms=((1, 2),)),
    Case(TYPE, FIELDS.format(2), ((0, 3), (0,)), integer_bottoms=((1, 2),)),
]


def _loops(x, labels, centers, weight):
    """The loss, the gradient of the features, and the moves of the centres, item by item in float64."""
    items = len(x)
    x, labels, centers = x.reshape(items, -1).astype(float), labels.reshape(-1).astype(int), centers.astype(float)
    loss, dx, moves = 0.0, np.zeros(x.shape), np.zeros(centers.shape)
    for i, k in enumerate(labels):
        loss += ((x[i] - centers[k]) ** 2).sum() / 2 / items
        dx[i] = (x[i] - centers[k]) * weight / items
    for k in range(len(centers)):
        mine = [i for i in range(items) if labels[i] == k]
        for i in mine:
            moves[k] += (centers[k] - x[i]) / (1 + len(mine))
    return loss, dx, moves


@pytest.mark.parametrize("dtype, tolerance", [(np.float32, 2e-5), (np.float64, 1e-12)], ids=["f32", "f64"])
@pytest.mark.parametrize("case", CASES[:3], ids=str)
def test_is_the_loop(case, dtype, tolerance):
    bench, rng = case.bench(dtype), np.random.default_rng(3)
    x, labels = (b.astype(dtype) for b in case.make_bottoms(rng))
    loss, dx, moves = _loops(x, labels, bench.params[0], 3.0)
    assert float(bench.forward([x, labels])[0]) == pytest.approx(loss, rel=tolerance)
    start = rng.normal(size=moves.shape).astype(dtype)
    for add in (False, True):
        found, (dcenters,) = bench.backward([np.array(3.0)], accumulate=[add], param_diffs=[start])
        np.testing.assert_allclose(found[0].reshape(dx.shape), dx, rtol=tolerance, atol=tolerance)
        np.testing.assert_allclose(dcenters, moves + add * start, rtol=10 * tolerance, atol=10 * tolerance)
        assert found[1] is None


def test_one_step_of_rate_one_brings_a_lone_centre_half_way():
    """1 item of a class: the move is (c - x) / 2."""
    bench = LayerBench(TYPE, FIELDS.format(2), ((1, 2), (1,)))
    bench.params[0][...] = [[1, 2], [5, 6]]
    assert float(bench.forward([[[3, 8]], [1]])[0]) == (4 + 4) / 2
    _, (dcenters,) = bench.backward([np.array(1.0)])
    assert dcenters.tolist() == [[0, 0], [1, -1]]


def test_a_label_that_is_no_class_makes_the_loss_nan_and_moves_nothing():
    bench = LayerBench(TYPE, FIELDS.format(2), ((2, 2), (2,)))
    assert np.isnan(float(bench.forward([np.ones((2, 2)), [0, 2]])[0]))
    _, (dcenters,) = bench.backward([np.array(1.0)])
    assert np.isfinite(dcenters).all() and not dcenters[1].any()


@pytest.mark.parametrize("case", CASES[:2], ids=str)
def test_gradient_of_the_features(case):
    check_gradient(case.bench(), case.make_bottoms(np.random.default_rng(5)), only_bottoms=(0,))


@pytest.mark.parametrize(
    "fields, shapes, error",
    [
        ("", ((2, 3), (2,)), LayerParamError),
        ("center_loss_param { num_output: 2 axis: 2 }", ((2, 3), (2,)), LayerParamError),
        ("center_loss_param { num_output: 2 }", ((2, 3), (3,)), ShapeError),
        ("center_loss_param { num_output: 2 }", ((2, 3), (2, 2)), ShapeError),
    ],
)
def test_refused(fields, shapes, error):
    with pytest.raises(error, match='layer "l"'):
        LayerBench(TYPE, fields, shapes)
