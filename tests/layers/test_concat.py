"""Concat against np.concatenate."""

from __future__ import annotations

import numpy as np
import pytest

from pycaffe_lms.errors import BlobCountError, LayerParamError, ShapeError
from pycaffe_lms.layers.base import Needs, Runs

from .cases import Case
from .harness import LayerBench, check_gradient

CASES: list[Case] = [
    Case("Concat", "", ((2, 3, 4), (2, 1, 4), (2, 5, 4))),
    Case("Concat", "concat_param { axis: 0 }", ((2, 3), (4, 3))),
    Case("Concat", "concat_param { axis: -1 }", ((2, 3, 4), (2, 3, 1))),
    Case("Concat", "concat_param { concat_dim: 2 }", ((2, 3, 4), (2, 3, 1))),
    Case("Concat", "", ((2, 3), (2, 0), (2, 1))),
    Case("Concat", "", ((0, 3, 2), (0, 1, 2))),
    Case("Concat", "concat_param { axis: 0 }", ((0, 3), (2, 3))),
    Case("Concat", "", ((2, 3, 4),)),
]
AXES = [1, 0, -1, 2, 1, 1, 0, 1]


@pytest.mark.parametrize("dtype", [np.float32, np.float64], ids=["f32", "f64"])
@pytest.mark.parametrize("case, axis", list(zip(CASES, AXES, strict=True)), ids=str)
def test_forward_and_backward_move_blocks(case, axis, dtype):
    bench = case.bench(dtype)
    bottoms = [b.astype(dtype) for b in case.make_bottoms(np.random.default_rng(1))]
    (y,) = bench.forward(bottoms)
    assert np.array_equal(y, np.concatenate(bottoms, axis))
    diffs, _ = bench.backward([y])
    for diff, bottom in zip(diffs, bottoms, strict=True):
        assert np.array_equal(diff, bottom)


@pytest.mark.parametrize("case", CASES[:4], ids=str)
def test_gradient(case):
    check_gradient(case.bench(), case.make_bottoms(np.random.default_rng(2)))


def test_propagate_down_false():
    bench = LayerBench("Concat", "", ((1, 2), (1, 1), (1, 2)), propagate_down=(True, False, True))
    bench.forward([[[1, 2]], [[3]], [[4, 5]]])
    diffs, _ = bench.backward([[[1, 2, 3, 4, 5]]])
    assert diffs[0].tolist() == [[1, 2]] and diffs[1] is None and diffs[2].tolist() == [[4, 5]]


def test_one_bottom_shares_its_memory():
    layer = LayerBench("Concat", "", ((2, 3),)).layer
    assert layer.shares() == layer.shares_data() == {0: 0} and layer.declares.runs_on is Runs.NOWHERE
    assert layer.forward_needs() == Needs()
    layer = LayerBench("Concat", "", ((2, 3), (2, 3))).layer
    assert layer.shares() == {} and layer.declares.runs_on is Runs.DEVICE
    assert layer.backward_needs([True, True], []) == Needs()


@pytest.mark.parametrize(
    "text, shapes, error, message",
    [
        ("concat_param { axis: 1 concat_dim: 1 }", ((2, 3),) * 2, LayerParamError, "axis and concat_dim are both set"),
        ("concat_param { axis: 2 }", ((2, 3),) * 2, LayerParamError, "axis 2 is out of range"),
        ("concat_param { concat_dim: 2 }", ((2, 3),) * 2, LayerParamError, "concat_dim 2 is out of range"),
        ("", ((2, 3), (4, 3)), ShapeError, r'blob "b1": has shape \(4, 3\)'),
        ("", ((2, 3), (2, 3, 1)), ShapeError, "differs"),
        ("", (), BlobCountError, "takes at least 1 bottom"),
    ],
)
def test_refused(text, shapes, error, message):
    with pytest.raises(error, match=f'layer "l".*{message}'):
        LayerBench("Concat", text, shapes)
