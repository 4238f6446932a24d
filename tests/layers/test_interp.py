"""Interp against a loop over the outputs in exact fractions."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from pycaffe_lms.errors import BlobCountError, LayerParamError, ShapeError
from pycaffe_lms.layers.base import Needs

from .cases import Case
from .harness import LayerBench, check_gradient


def _text(fields):
    return f"interp_param {{ {fields} }}"


# a case, and the size of its top
WANTED = [
    (Case("Interp", _text("height: 7 width: 9"), ((2, 3, 4, 5),)), (7, 9)),
    (Case("Interp", _text("height: 3 width: 4"), ((2, 2, 7, 9),)), (3, 4)),
    (Case("Interp", _text("height: 4 width: 8"), ((1, 2, 4, 5),)), (4, 8)),
    (Case("Interp", _text("height: 4 width: 5"), ((2, 1, 4, 5),)), (4, 5)),
    (Case("Interp", _text("zoom_factor: 3"), ((1, 2, 3, 4),)), (7, 10)),
    (Case("Interp", _text("shrink_factor: 2"), ((1, 2, 6, 7),)), (3, 4)),
    (Case("Interp", _text("zoom_factor: 2 shrink_factor: 3"), ((1, 1, 8, 9),)), (5, 5)),
    (Case("Interp", _text("zoom_factor: 2 pad_beg: -1 pad_end: -2"), ((2, 1, 6, 7),)), (5, 7)),
    (Case("Interp", _text("height: 3 width: 4 pad_end: -1 pad_beg: -1"), ((1, 2, 5, 6),)), (3, 4)),
    (Case("Interp", _text("height: 6 width: 70"), ((1, 2, 1, 1),)), (6, 70)),
    (Case("Interp", _text("height: 3 width: 90"), ((1, 2, 3, 2),)), (3, 90)),
    (Case("Interp", _text("height: 1 width: 1"), ((2, 2, 3, 4),)), (1, 1)),
    (Case("Interp", "", ((2, 3, 3, 3), (1, 7, 5, 4))), (5, 4)),
    (Case("Interp", _text("pad_beg: -1"), ((2, 1, 4, 4), (2, 1, 5, 6))), (5, 6)),
    (Case("Interp", _text("height: 7 width: 9"), ((0, 3, 4, 5),)), (7, 9)),
]
CASES: list[Case] = [case for case, _ in WANTED]


def _weights(size, out):
    """Return (out, size): the weight of each input in each output along one axis."""
    w = np.zeros((out, size))
    for o in range(out):
        at = Fraction(o * (size - 1), out - 1) if out > 1 else Fraction(0)
        for i in range(size):
            w[o, i] = float(max(Fraction(0), 1 - abs(at - i)))
    return w


@pytest.mark.parametrize("dtype, tol", [(np.float32, 1e-5), (np.float64, 1e-13)], ids=["f32", "f64"])
@pytest.mark.parametrize("case, size", WANTED, ids=str)
def test_forward_and_backward(case, size, dtype, tol):
    bench, rng = case.bench(dtype), np.random.default_rng(1)
    bottoms = [b.astype(dtype) for b in case.make_bottoms(rng)]
    p, x = bench.layer.param.interp_param, bottoms[0]
    cut = np.s_[:, :, -p.pad_beg : x.shape[2] + p.pad_end, -p.pad_beg : x.shape[3] + p.pad_end]
    down, across = (_weights(n, o) for n, o in zip(x[cut].shape[2:], size, strict=True))
    (y,) = bench.forward(bottoms)
    assert y.shape == (*x.shape[:2], *size)
    np.testing.assert_allclose(y, np.einsum("nchw,oh,pw->ncop", x[cut], down, across), rtol=tol, atol=tol)
    dy, expected = rng.normal(size=y.shape), np.zeros(x.shape)
    expected[cut] = np.einsum("ncop,oh,pw->nchw", dy, down, across)
    diffs, _ = bench.backward([dy])
    np.testing.assert_allclose(diffs[0], expected, rtol=20 * tol, atol=20 * tol)
    assert all(not d.any() for d in diffs[1:])


@pytest.mark.parametrize("case", [c for c in CASES if 0 < np.prod(c.shapes[0]) < 60], ids=str)
def test_gradient(case):
    check_gradient(case.bench(), case.make_bottoms(np.random.default_rng(2)), only_bottoms=[0])


def test_corners_fall_on_corners():
    x = np.random.default_rng(3).normal(size=(1, 1, 5, 7)).astype(np.float32)
    (y,) = LayerBench("Interp", _text("zoom_factor: 8"), (x.shape,), dtype=np.float32).forward([x])
    assert np.array_equal(y[:, :, ::8, ::8], x)
    assert y[0, 0, 0, 4] == pytest.approx((x[0, 0, 0, 0] + x[0, 0, 0, 1]) / 2)


def test_many_planes_go_in_chunks():
    x = np.random.default_rng(4).normal(size=(3, 5, 100, 120)).astype(np.float32)
    bench = LayerBench("Interp", _text("height: 150 width: 200"), (x.shape,), dtype=np.float32)
    (y,) = bench.forward([x])
    down, across = _weights(100, 150), _weights(120, 200)
    np.testing.assert_allclose(y, np.matmul(np.matmul(down, x), across.T), rtol=1e-4, atol=1e-5)
    (dx,), _ = bench.backward([y])
    np.testing.assert_allclose(dx, np.matmul(np.matmul(down.T, y), across), rtol=1e-4, atol=1e-4)


def test_needs_and_propagate_down():
    for propagate in ((True, False), (False, True), (False, False)):
        bench = LayerBench("Interp", "", ((1, 1, 1, 2), (1, 1, 1, 3)), propagate_down=propagate)
        assert bench.forward([[[[[1.0, 3]]]], np.full((1, 1, 1, 3), np.nan)])[0].tolist() == [[[[1, 2, 3]]]]
        diffs, _ = bench.backward([[[[[1, 2, 4]]]]])
        assert [None if d is None else d.ravel().tolist() for d in diffs] == [
            [2, 5] if propagate[0] else None,
            [0, 0, 0] if propagate[1] else None,
        ]
    assert bench.layer.backward_needs([True, True], []) == Needs()
    assert bench.layer.forward_needs() == Needs(bottoms=frozenset({0}))


IMAGE = (1, 1, 3, 3)


@pytest.mark.parametrize(
    "fields, shapes, error, message",
    [
        ("", (IMAGE,), LayerParamError, "has no size"),
        ("height: 2", (IMAGE,), LayerParamError, "has height alone"),
        ("height: 2 width: 2 zoom_factor: 2", (IMAGE,), LayerParamError, "both height and width and zoom_factor"),
        ("zoom_factor: 2", (IMAGE, IMAGE), LayerParamError, "second bottom, which gives the size, and zoom_factor"),
        ("zoom_factor: 0", (IMAGE,), LayerParamError, "zoom_factor is 0"),
        ("shrink_factor: -1", (IMAGE,), LayerParamError, "shrink_factor is -1"),
        ("height: 0 width: 2", (IMAGE,), LayerParamError, "height is 0"),
        ("zoom_factor: 2 pad_beg: 1", (IMAGE,), LayerParamError, "pad_beg is 1"),
        ("zoom_factor: 2 pad_beg: -2 pad_end: -1", (IMAGE,), ShapeError, 'blob "b0".*leave nothing'),
        ("zoom_factor: 2", ((1, 3, 3),), ShapeError, "4 axes"),
        ("", (IMAGE, (1, 3, 3)), ShapeError, 'blob "b1".*4 axes'),
        ("", (IMAGE, (1, 1, 0, 3)), ShapeError, 'blob "b1".*size of .0, 3.'),
        ("", (IMAGE, IMAGE, IMAGE), BlobCountError, "takes 1 to 2 bottom"),
    ],
)
def test_refused(fields, shapes, error, message):
    with pytest.raises(error, match=f'layer "l".*{message}'):
        LayerBench("Interp", _text(fields), shapes)
