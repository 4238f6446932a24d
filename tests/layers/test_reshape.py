"""Flatten and Reshape: shapes, by hand; the memory is the bottom's."""

from __future__ import annotations

import numpy as np
import pytest

from pycaffe_lms.errors import LayerParamError, ShapeError
from pycaffe_lms.layers.base import InPlace, Needs, Runs

from .cases import Case
from .harness import LayerBench, check_gradient

X = (2, 3, 4, 5)


def dims(*sizes):
    return "shape { " + " ".join(f"dim: {d}" for d in sizes) + " }"


FLATTEN = [
    ("", X, (2, 60)),
    ("axis: 0", X, (120,)),
    ("axis: 1 end_axis: 2", X, (2, 12, 5)),
    ("axis: -3 end_axis: -2", X, (2, 12, 5)),
    ("axis: 2 end_axis: 2", X, X),
    ("axis: 0", (7,), (7,)),
    ("", (0, 3, 4), (0, 12)),
]
RESHAPE = [
    (dims(0, 0, -1), X, (2, 3, 20)),
    (dims(0, -1), X, (2, 60)),
    (dims(-1), X, (120,)),
    (dims(6, 20), X, (6, 20)),
    (dims(0, 0, 5, 4), X, (2, 3, 5, 4)),
    ("axis: 1 " + dims(12, 5), X, (2, 12, 5)),
    ("axis: 1 num_axes: 2 " + dims(-1), X, (2, 12, 5)),
    ("axis: -2 num_axes: 1 " + dims(5), X, (2, 3, 4, 5)),
    ("axis: -1 " + dims(1, 1), X, (2, 3, 4, 5, 1, 1)),
    ("axis: 1 num_axes: 0 " + dims(1), X, (2, 1, 3, 4, 5)),
    ("axis: 2 " + dims(0, -1), X, X),  # 0 copies axis 2
    (
        "num_axes: 1 " + dims(1, 0, -1),
        (6, 3, 4),
        (1, 3, 2, 3, 4),
    ),  # 0 copies axis 1, not the replaced one
    ("", (1, 1), ()),
    (dims(0, -1), (0, 3, 4), (0, 12)),
    (dims(-1, 12), (0, 3, 4), (0, 12)),
    (dims(0, 5, -1), (0, 3, 5), (0, 5, 3)),
]

SQUEEZE = [Case("Squeeze", "", ((2, 1, 3, 1),)), Case("Squeeze", "squeeze_param { axis: -1 }", ((3, 2, 1),))]
CASES: list[Case] = (
    [Case("Flatten", f"flatten_param {{ {text} }}", (shape,)) for text, shape, _ in FLATTEN]
    + [Case("Reshape", f"reshape_param {{ {text} }}", (shape,)) for text, shape, _ in RESHAPE]
    + SQUEEZE
)


@pytest.mark.parametrize(
    "case, top",
    list(zip(CASES, [t for *_, t in FLATTEN + RESHAPE], strict=False)),
    ids=str,
)
def test_shape_and_memory(case, top):
    bench, (x,) = case.bench(), case.make_bottoms(np.random.default_rng(1))
    assert bench.top_shapes == [top]
    (y,) = bench.forward([x])
    assert np.array_equal(y, x.reshape(top))
    (dx,), _ = bench.backward([y])
    assert np.array_equal(dx, x)


@pytest.mark.parametrize("case", [CASES[2], CASES[7]], ids=str)
def test_gradient(case):
    check_gradient(case.bench(), case.make_bottoms(np.random.default_rng(2)))


@pytest.mark.parametrize("type, text", [("Flatten", ""), ("Reshape", "reshape_param { " + dims(-1) + " }")])
def test_nothing_runs_and_nothing_is_read(type, text):
    layer = LayerBench(type, text, (X,)).layer
    assert layer.shares() == layer.shares_data() == {0: 0}
    assert layer.declares.runs_on is Runs.NOWHERE and layer.declares.in_place is InPlace.REFUSED
    assert layer.forward_needs() == layer.backward_needs([True], []) == Needs()


@pytest.mark.parametrize(
    "type, text, shape, error, message",
    [
        ("Flatten", "axis: 4", X, LayerParamError, "axis 4 is out of range"),
        ("Flatten", "end_axis: -5", X, LayerParamError, "end_axis -5 is out of range"),
        ("Flatten", "axis: 2 end_axis: 1", X, LayerParamError, "end_axis 1 comes before axis 2"),
        ("Flatten", "axis: 0", (), LayerParamError, "out of range for a bottom of 0 axes"),
        ("Reshape", dims(-1, -1), X, LayerParamError, "more than one dim of -1"),
        ("Reshape", dims(-2), X, LayerParamError, "a dim of -2"),
        ("Reshape", "axis: 5 " + dims(1), X, LayerParamError, "axis 5 is out of range"),
        ("Reshape", "axis: -6 " + dims(1), X, LayerParamError, "axis -6 is out of range"),
        ("Reshape", "axis: 2 num_axes: 3 " + dims(1), X, LayerParamError, "num_axes 3 from axis 2"),
        ("Reshape", "num_axes: -2 " + dims(1), X, LayerParamError, "num_axes -2"),
        ("Reshape", dims(0, 0, 0, 0, 0), X, LayerParamError, "dim 0 at position 4"),
        ("Reshape", dims(7, -1), X, ShapeError, "cannot be divided by 7"),
        ("Reshape", dims(7, 2), X, ShapeError, r"120 elements, which do not fit into \(7, 2\)"),
        ("Reshape", dims(2, 6), (0, 12), ShapeError, "do not fit"),
    ],
)
def test_refused(type, text, shape, error, message):
    with pytest.raises(error, match=f'layer "l".*{message}'):
        LayerBench(type, f"{type.lower()}_param {{ {text} }}", (shape,))


def test_squeeze_leaves_out_axes_of_size_1():
    for text, shape, out in (
        ("", (2, 1, 3, 1), (2, 3)),
        ("squeeze_param { axis: 1 }", (2, 1, 3, 1), (2, 3, 1)),
        ("squeeze_param { axis: -1 axis: 1 }", (2, 1, 3, 1), (2, 3)),
    ):
        assert LayerBench("Squeeze", text, (shape,)).top_shapes == [out]
    with pytest.raises(ShapeError, match="axis 0 is not of size 1"):
        LayerBench("Squeeze", "squeeze_param { axis: 0 }", ((2, 1),))
