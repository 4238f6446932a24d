"""Slice against np.split."""

from __future__ import annotations

import numpy as np
import pytest

from pycaffe_lms.errors import BlobCountError, LayerParamError, ShapeError
from pycaffe_lms.layers.base import Needs, Runs

from .cases import Case
from .harness import LayerBench, check_gradient

# a case, its axis, and where the cuts are
WANTED = [
    (Case("Slice", "", ((2, 6, 3),), n_top=3), 1, [2, 4]),
    (Case("Slice", "slice_param { slice_point: 1 slice_point: 5 }", ((2, 6, 3),), n_top=3), 1, [1, 5]),
    (Case("Slice", "slice_param { axis: 0 slice_point: 3 }", ((5, 2),), n_top=2), 0, [3]),
    (Case("Slice", "slice_param { axis: -1 }", ((2, 3, 4),), n_top=2), 2, [2]),
    (Case("Slice", "slice_param { slice_dim: 2 }", ((2, 3, 4),), n_top=4), 2, [1, 2, 3]),
    (Case("Slice", "slice_param { slice_point: 3 }", ((2, 3),), n_top=2), 1, [3]),  # an empty last piece
    (Case("Slice", "", ((0, 4, 2),), n_top=2), 1, [2]),
    (Case("Slice", "slice_param { axis: 0 }", ((0, 4),), n_top=2), 0, [0]),
    (Case("Slice", "", ((2, 3, 4),)), 1, []),
]
CASES: list[Case] = [case for case, _, _ in WANTED]


@pytest.mark.parametrize("dtype", [np.float32, np.float64], ids=["f32", "f64"])
@pytest.mark.parametrize("case, axis, cuts", WANTED, ids=str)
def test_forward_and_backward_move_blocks(case, axis, cuts, dtype):
    bench = case.bench(dtype)
    (x,) = case.make_bottoms(np.random.default_rng(1))
    x = x.astype(dtype)
    tops = bench.forward([x])
    for y, wanted in zip(tops, np.split(x, cuts, axis), strict=True):
        assert np.array_equal(y, wanted)
    (dx,), _ = bench.backward(tops)
    assert np.array_equal(dx, x)


@pytest.mark.parametrize("case", CASES[:5], ids=str)
def test_gradient(case):
    check_gradient(case.bench(), case.make_bottoms(np.random.default_rng(2)))


def test_a_top_without_gradient_counts_as_zeros():
    bench = CASES[0].bench()
    tops = bench.forward([np.ones((2, 6, 3))])
    (dx,), _ = bench.backward([tops[0], None, 2 * tops[2]])
    assert np.array_equal(dx[0, :, 0], [1, 1, 0, 0, 2, 2]) and np.array_equal(
        dx, np.broadcast_to(dx[:1, :, :1], dx.shape)
    )


def test_propagate_down_false():
    bench = LayerBench("Slice", "", ((2, 4),), n_top=2, propagate_down=(False,))
    tops = bench.forward([np.ones((2, 4))])
    assert bench.backward(tops)[0] == [None]


def test_one_top_shares_its_memory():
    layer = LayerBench("Slice", "", ((2, 3),)).layer
    assert layer.shares() == layer.shares_data() == {0: 0} and layer.declares.runs_on is Runs.NOWHERE
    assert layer.forward_needs() == Needs()
    layer = LayerBench("Slice", "", ((2, 4),), n_top=2).layer
    assert (
        layer.shares() == {} and layer.declares.runs_on is Runs.DEVICE and layer.backward_needs([True], []) == Needs()
    )


@pytest.mark.parametrize(
    "text, shape, n_top, error, message",
    [
        ("slice_param { axis: 1 slice_dim: 1 }", (2, 4), 2, LayerParamError, "axis and slice_dim are both set"),
        ("slice_param { axis: 2 }", (2, 4), 2, LayerParamError, "axis 2 is out of range"),
        ("slice_param { slice_dim: 2 }", (2, 4), 2, LayerParamError, "slice_dim 2 is out of range"),
        ("slice_param { slice_point: 1 }", (2, 4), 3, LayerParamError, r"has 1 slice_point\(s\), but 3 top"),
        ("slice_param { slice_point: 2 slice_point: 2 }", (2, 4), 3, LayerParamError, "do not rise"),
        ("slice_param { slice_point: 0 }", (2, 4), 2, LayerParamError, "do not rise"),
        ("slice_param { slice_point: 5 }", (2, 4), 2, LayerParamError, "beyond the end of axis 1, whose size is 4"),
        ("", (2, 5), 2, ShapeError, r'blob "b0": has shape \(2, 5\).*cannot be cut into 2'),
        ("", (2, 5), 0, BlobCountError, "takes at least 1 top"),
    ],
)
def test_refused(text, shape, n_top, error, message):
    with pytest.raises(error, match=f'layer "l".*{message}'):
        LayerBench("Slice", text, (shape,), n_top=n_top)


def test_another_number_of_axes_later_is_refused():
    bench = CASES[4].bench()
    with pytest.raises(ShapeError, match="fewer than 3 axes"):
        bench.reshape([(2, 4)])
