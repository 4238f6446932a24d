"""Upsample against loops over the values."""

from __future__ import annotations

import numpy as np
import pytest

from pycaffe_lms.backend import cuda_available
from pycaffe_lms.errors import BlobCountError, LayerParamError, ShapeError
from pycaffe_lms.layers.base import Needs

from .cases import Case
from .harness import CudaArrays, LayerBench, check_gradient


def _text(fields):
    return f"upsample_param {{ {fields} }}"


def _mask(places):
    """Return a maker of masks without an index twice in a plane, like those of poolings without overlap."""

    def maker(rng, shapes):
        n, c, h, w = shapes[0]
        rows = [rng.permutation(places)[: h * w] for _ in range(n * c)]
        # the fraction is cut off; with it a small step to either side stays in the place
        return [rng.normal(size=shapes[0]), np.reshape(rows, shapes[0]) + 0.25]

    return maker


# a case, and the size of its top
UNPOOL = [
    (Case("Upsample", "", ((2, 3, 2, 3),) * 2, maker=_mask(24)), (4, 6)),
    (Case("Upsample", _text("scale: 3"), ((1, 2, 2, 2),) * 2, maker=_mask(36)), (6, 6)),
    (Case("Upsample", _text("scale_h: 1 scale_w: 3"), ((1, 2, 2, 2),) * 2, maker=_mask(12)), (2, 6)),
    (Case("Upsample", _text("pad_out_h: true"), ((2, 1, 2, 3),) * 2, maker=_mask(18)), (3, 6)),
    (Case("Upsample", _text("scale: 2 pad_out_h: true pad_out_w: true"), ((1, 1, 2, 3),) * 2, maker=_mask(15)), (3, 5)),
    (Case("Upsample", _text("scale: 2 upsample_h: 3 upsample_w: 7"), ((1, 2, 2, 2),) * 2, maker=_mask(21)), (3, 7)),
    (Case("Upsample", "", ((1, 2, 2, 3),) * 2, maker=_mask(50)), (4, 6)),  # places that the top does not have
    (Case("Upsample", "", ((0, 3, 2, 3),) * 2, maker=_mask(24)), (4, 6)),
]
REPEAT = [
    (Case("Upsample", "", ((2, 3, 2, 3),)), (2, 2)),
    (Case("Upsample", _text("scale: 1"), ((1, 2, 2, 3),)), (1, 1)),
    (Case("Upsample", _text("scale_h: 3 scale_w: 2"), ((2, 1, 2, 4),)), (3, 2)),
    (Case("Upsample", _text("scale: 20"), ((1, 2, 2, 1),)), (20, 20)),
    (Case("Upsample", "", ((0, 3, 2, 3),)), (2, 2)),
]
CASES: list[Case] = [case for case, _ in UNPOOL + REPEAT]


def unpool(x, mask, out):
    """Return (y, the index of each value, -1 for none) by a loop in the order of the values."""
    y, places = np.zeros((*x.shape[:2], *out), x.dtype), np.full(x.shape, -1)
    for n, c, h, w in np.ndindex(x.shape):
        if -1 < mask[n, c, h, w] < out[0] * out[1]:
            places[n, c, h, w] = int(mask[n, c, h, w])
            y[n, c].flat[places[n, c, h, w]] = x[n, c, h, w]
    return y, places


def _check_unpooling(bench, x, mask, out):
    y, places = unpool(x, mask, out)
    assert np.array_equal(bench.forward([x, mask])[0], y)
    dy = np.random.default_rng(6).normal(size=y.shape).astype(bench.dtype)
    (dx, dmask), _ = bench.backward([dy])
    expected = np.zeros_like(x)
    for n, c, h, w in np.argwhere(places >= 0):
        expected[n, c, h, w] = dy[n, c].flat[places[n, c, h, w]]
    assert np.array_equal(dx, expected) and not dmask.any()


@pytest.mark.parametrize("dtype", [np.float32, np.float64], ids=["f32", "f64"])
@pytest.mark.parametrize("case, out", UNPOOL, ids=str)
def test_unpooling(case, out, dtype):
    x, mask = case.make_bottoms(np.random.default_rng(1))
    _check_unpooling(case.bench(dtype), x.astype(dtype), mask, out)


def _crowded(dtype, device=None):
    """Check many values for few places, and masks that no pooling writes."""
    rng = np.random.default_rng(5)
    mask = rng.integers(-3, 70, size=(2, 3, 40, 4)).astype(np.float64)
    mask[0, 0, :4, 0] = np.nan, np.inf, -np.inf, -0.5
    bench = LayerBench("Upsample", _text("upsample_h: 6 upsample_w: 9"), (mask.shape,) * 2, dtype=dtype, device=device)
    _check_unpooling(bench, rng.normal(size=mask.shape).astype(dtype), mask, (6, 9))


@pytest.mark.parametrize("dtype", [np.float32, np.float64], ids=["f32", "f64"])
def test_the_last_value_for_a_place_stays(dtype):
    _crowded(dtype)


@pytest.mark.gpu
@pytest.mark.skipif(not cuda_available(), reason="no GPU")
@pytest.mark.parametrize("dtype", [np.float32, np.float64], ids=["f32", "f64"])
def test_the_last_value_for_a_place_stays_on_a_gpu(dtype):
    for _ in range(5):
        _crowded(dtype, CudaArrays())


@pytest.mark.parametrize("dtype, tol", [(np.float32, 1e-5), (np.float64, 1e-13)], ids=["f32", "f64"])
@pytest.mark.parametrize("case, scale", REPEAT, ids=str)
def test_repetition(case, scale, dtype, tol):
    bench, rng = case.bench(dtype), np.random.default_rng(1)
    x = case.make_bottoms(rng)[0].astype(dtype)
    (y,) = bench.forward([x])
    assert np.array_equal(y, np.kron(x, np.ones(scale, dtype)))
    dy, expected = rng.normal(size=y.shape), np.zeros(x.shape)
    for n, c, h, w in np.ndindex(y.shape):
        expected[n, c, h // scale[0], w // scale[1]] += dy[n, c, h, w]
    np.testing.assert_allclose(bench.backward([dy])[0][0], expected, rtol=tol, atol=20 * tol)


@pytest.mark.parametrize("case", [c for c in CASES if 0 not in c.shapes[0]], ids=str)
def test_gradient(case):
    check_gradient(case.bench(), case.make_bottoms(np.random.default_rng(2)))


def test_it_undoes_a_pooling():
    x = np.random.default_rng(3).normal(size=(2, 3, 5, 7))
    pool = LayerBench("Pooling", "pooling_param { kernel_size: 2 stride: 2 }", (x.shape,), n_top=2)
    top, mask = pool.forward([x])
    bench = LayerBench("Upsample", _text("upsample_h: 5 upsample_w: 7"), (top.shape, mask.shape))
    (y,) = bench.forward([top, mask])
    assert np.array_equal(np.sort(y[y != 0]), np.sort(top.ravel())) and np.array_equal(y[y != 0], x[y != 0])


def test_needs_and_propagate_down():
    shapes = ((1, 1, 1, 1),) * 2
    for propagate in ((True, False), (False, True), (False, False)):
        bench = LayerBench("Upsample", "", shapes, propagate_down=propagate)
        assert bench.forward([[[[[7]]]], [[[[2]]]]])[0].ravel().tolist() == [0, 0, 7, 0]
        diffs, _ = bench.backward([np.arange(4.0).reshape(1, 1, 2, 2)])
        assert [None if d is None else d.item() for d in diffs] == [
            2 if propagate[0] else None,
            0 if propagate[1] else None,
        ]
    assert bench.layer.backward_needs([True, True], []) == Needs(bottoms=frozenset({1}))
    assert bench.layer.backward_needs([False, True], []) == Needs()
    assert LayerBench("Upsample", "", shapes[:1]).layer.backward_needs([True], []) == Needs()


@pytest.mark.parametrize(
    "fields, shapes, error, message",
    [
        ("scale: 0", ((1, 1, 2, 2),), LayerParamError, "scale of 0"),
        ("upsample_h: 0 upsample_w: 3", ((1, 1, 2, 2),) * 2, LayerParamError, "scale of 0"),
        ("scale_h: 2", ((1, 1, 2, 2),), LayerParamError, "has scale_h alone"),
        ("upsample_w: 2", ((1, 1, 2, 2),) * 2, LayerParamError, "has upsample_w alone"),
        ("scale: 2 scale_h: 2 scale_w: 2", ((1, 1, 2, 2),), LayerParamError, "scale, and scale_h and scale_w"),
        ("upsample_h: 4 upsample_w: 4", ((1, 1, 2, 2),), LayerParamError, "one bottom, and upsample_h"),
        ("pad_out_w: true", ((1, 1, 2, 2),), LayerParamError, "one bottom, and pad_out_w"),
        ("scale: 3 pad_out_w: true", ((1, 1, 2, 2),) * 2, LayerParamError, "pad_out_w goes with a scale of 2, not 3"),
        ("upsample_h: 4 upsample_w: 4 pad_out_h: true", ((1, 1, 2, 2),) * 2, LayerParamError, "upsample_h and pad_out"),
        ("", ((1, 2, 2),), ShapeError, "4 axes"),
        ("", ((1, 1, 2, 2), (1, 1, 2, 3)), ShapeError, 'blob "b1".*values of bottom 0 have shape'),
        ("", ((1, 1, 2, 2),) * 3, BlobCountError, "takes 1 to 2 bottom"),
    ],
)
def test_refused(fields, shapes, error, message):
    with pytest.raises(error, match=f'layer "l".*{message}'):
        LayerBench("Upsample", _text(fields), shapes)
