"""Crop against slicing."""

from __future__ import annotations

import numpy as np
import pytest

from pycaffe_lms.errors import BlobCountError, LayerParamError, ShapeError
from pycaffe_lms.layers.base import Needs

from .cases import Case
from .harness import LayerBench, check_gradient


def _text(*offsets, axis=2):
    return f"crop_param {{ axis: {axis} {' '.join(f'offset: {o}' for o in offsets)} }}"


# a case, and the window
WANTED = [
    (Case("Crop", "", ((2, 3, 5, 6), (1, 1, 4, 3))), np.s_[:, :, :4, :3]),
    (Case("Crop", _text(1), ((2, 3, 5, 6), (2, 3, 4, 3))), np.s_[:, :, 1:, 1:4]),
    (Case("Crop", _text(0, 2), ((2, 3, 5, 6), (9, 9, 5, 3))), np.s_[:, :, :, 2:5]),
    (Case("Crop", _text(1, 0, 3, axis=1), ((2, 3, 5, 6), (2, 1, 5, 2))), np.s_[:, 1:2, :, 3:5]),
    (Case("Crop", _text(1, 1, 0, 0, axis=0), ((3, 4, 2, 2), (2, 2, 2, 2))), np.s_[1:, 1:3]),
    (Case("Crop", _text(4, axis=-1), ((2, 3, 6), (2, 3, 2))), np.s_[:, :, 4:]),
    (Case("Crop", _text(axis=0), ((4,), (4,))), np.s_[:]),
    (Case("Crop", _text(1, axis=0), ((4, 5), (2, 3))), np.s_[1:3, 1:4]),
    (
        Case("Crop", _text(1, 2, 0, 1, 1, axis=1), ((2, 3, 4, 2, 3, 4), (2, 2, 1, 2, 2, 1))),
        np.s_[:, 1:, 2:3, :, 1:, 1:2],
    ),
    (Case("Crop", _text(1), ((0, 3, 5, 6), (0, 3, 4, 3))), np.s_[:, :, 1:, 1:4]),
    (Case("Crop", "", ((2, 3, 5, 6), (2, 3, 0, 3))), np.s_[:, :, :0, :3]),
]
CASES: list[Case] = [case for case, _ in WANTED]


@pytest.mark.parametrize("dtype", [np.float32, np.float64], ids=["f32", "f64"])
@pytest.mark.parametrize("case, window", WANTED, ids=str)
def test_forward_and_backward(case, window, dtype):
    bench, rng = case.bench(dtype), np.random.default_rng(1)
    x, like = (b.astype(dtype) for b in case.make_bottoms(rng))
    (y,) = bench.forward([x, like])
    assert np.array_equal(y, x[window])
    dy = rng.normal(size=y.shape).astype(dtype)
    wanted = np.zeros_like(x)
    wanted[window] = dy
    (dx, dlike), _ = bench.backward([dy])
    assert np.array_equal(dx, wanted) and dlike.shape == like.shape and not dlike.any()


@pytest.mark.parametrize("case", [c for c in CASES[:8] if np.prod(c.shapes[0]) < 100], ids=str)
def test_gradient(case):
    check_gradient(case.bench(), case.make_bottoms(np.random.default_rng(2)))


def test_needs_and_propagate_down():
    for propagate in ((True, False), (False, True), (False, False)):
        bench = LayerBench("Crop", _text(axis=0), ((3,), (2,)), propagate_down=propagate)
        bench.forward([[1, 2, 3], [0, 0]])
        diffs, _ = bench.backward([[5, 6]])
        assert [None if d is None else d.tolist() for d in diffs] == [
            [5, 6, 0] if propagate[0] else None,
            [0, 0] if propagate[1] else None,
        ]
    assert bench.layer.backward_needs([True, True], []) == Needs()
    assert bench.layer.forward_needs() == Needs(bottoms=frozenset({0}))


@pytest.mark.parametrize(
    "text, shapes, error, message",
    [
        (_text(axis=3), ((2, 3), (2, 3)), LayerParamError, "axis 3 is out of range"),
        (_text(1, 1), ((2, 3, 4, 4, 4), (2, 3, 1, 1, 1)), LayerParamError, "has 2 offsets for 3 cropped axes"),
        (_text(axis=0), ((2, 3), (2,)), ShapeError, 'blob "b1": has shape .2,., fewer axes'),
        (_text(1, axis=1), ((2, 3), (2, 3)), ShapeError, "3 values from offset 1 on do not fit axis 1"),
        ("", ((2, 3, 4),), BlobCountError, "takes 2 bottom"),
    ],
)
def test_refused(text, shapes, error, message):
    with pytest.raises(error, match=f'layer "l".*{message}'):
        LayerBench("Crop", text, shapes)
