"""ROIPooling against a loop over regions, cells and pixels."""

from __future__ import annotations

import math

import numpy as np
import pytest

from pycaffe_lms.backend import cuda_available
from pycaffe_lms.errors import BlobCountError, LayerParamError, ShapeError
from pycaffe_lms.layers.base import Needs

from .cases import Case
from .harness import CudaArrays, HostArrays, LayerBench, check_gradient


def _text(h=2, w=3, scale=0.25):
    return f"roi_pooling_param {{ pooled_h: {h} pooled_w: {w} spatial_scale: {scale} }}"


def _regions(rng, shapes):
    """Return a map, and regions inside and outside it; a small step changes neither images (their fraction is cut) nor
    rounded corners."""
    n, _, height, width = shapes[0]
    count = shapes[1][0]
    rois = np.empty((count, 5))
    rois[:, 0] = rng.integers(max(n, 1), size=count) + 0.25
    corners = np.sort(rng.integers(-1, max(height, width) + 2, size=(2, count, 2)), axis=0)
    rois[:, 1:3], rois[:, 3:] = 4 * corners[0] + 1, 4 * corners[1] - 1
    return [rng.normal(size=shapes[0]), rois.reshape(shapes[1])]


CASES: list[Case] = [
    Case("ROIPooling", _text(), ((2, 3, 6, 7), (5, 5)), maker=_regions),
    Case("ROIPooling", _text(4, 4), ((1, 2, 5, 5), (6, 5, 1, 1)), maker=_regions),  # cells that share pixels
    Case("ROIPooling", _text(1, 1), ((3, 1, 4, 6), (4, 5)), maker=_regions),
    Case("ROIPooling", _text(7, 5), ((2, 2, 9, 8), (12, 5)), maker=_regions),
    Case("ROIPooling", _text(20, 15), ((2, 1, 4, 3), (3, 5)), maker=_regions),  # more cells than a block has threads
    Case("ROIPooling", _text()[:-1] + "pad_ratio: 0.25 }", ((2, 3, 6, 7), (5, 5)), maker=_regions),
    Case("ROIPooling", _text(), ((2, 3, 6, 7), (0, 5)), maker=_regions),
    Case("ROIPooling", _text(), ((0, 3, 6, 7), (4, 5)), maker=_regions),
]


def _nearest(value):
    value = min(max(value, -(2.0**20)), 2.0**20)
    return math.floor(abs(value) + 0.5) * (1 if value >= 0 else -1)


def reference(x, rois, pooled, scale, pad=0.0):
    """Return (y, the index of each maximum) as defined."""
    kind, (images, channels, height, width) = x.dtype.type, x.shape
    rois = rois.reshape(-1, 5)
    y, where = np.zeros((len(rois), channels, *pooled), x.dtype), np.full((len(rois), channels, *pooled), -1)
    for r, roi in enumerate(rois):
        if not (np.isfinite(roi).all() and -1 < roi[0] < images):
            continue
        wide, high = (kind(pad) * (kind(b) - kind(a) + 1) for a, b in ((roi[1], roi[3]), (roi[2], roi[4])))
        roi = roi + np.array([0, -wide, -high, wide, high])
        left, top, right, bottom = (_nearest(float(kind(v) * kind(scale))) for v in roi[1:])
        step_h = kind(max(bottom - top + 1, 1)) / kind(pooled[0])
        step_w = kind(max(right - left + 1, 1)) / kind(pooled[1])
        for c, p, q in np.ndindex(channels, *pooled):
            rows, cols = (
                range(max(0, start + math.floor(kind(i) * step)), min(size, start + math.ceil(kind(i + 1) * step)))
                for i, start, step, size in ((p, top, step_h, height), (q, left, step_w, width))
            )
            best = -float(np.finfo(np.float32).max)
            for h in rows:
                for w in cols:
                    if x[int(roi[0]), c, h, w] > best:
                        best, where[r, c, p, q] = x[int(roi[0]), c, h, w], h * width + w
            if len(rows) and len(cols):
                y[r, c, p, q] = best
    return y, where


def _check(bench, x, rois, tolerance):
    layer = bench.layer
    y, where = reference(x, rois.astype(x.dtype), layer.pooled, layer.scale, layer.pad)
    assert np.array_equal(bench.forward([x, rois])[0], y)
    assert np.array_equal(bench.device.get(bench.scratch["argmax"]), where)
    dy, expected = np.random.default_rng(6).normal(size=y.shape), np.zeros(x.shape)
    for r, c, p, q in np.argwhere(where >= 0):
        expected[int(rois.reshape(-1, 5)[r, 0]), c].flat[where[r, c, p, q]] += dy[r, c, p, q]
    (dx, drois), _ = bench.backward([dy])
    np.testing.assert_allclose(dx, expected, rtol=tolerance, atol=10 * tolerance)
    assert drois.shape == rois.shape and not drois.any()


DTYPES = pytest.mark.parametrize("dtype, tolerance", [(np.float32, 1e-6), (np.float64, 1e-14)], ids=["f32", "f64"])


@DTYPES
@pytest.mark.parametrize("case", CASES, ids=str)
def test_forward_and_backward(case, dtype, tolerance):
    x, rois = case.make_bottoms(np.random.default_rng(1))
    _check(case.bench(dtype), x.astype(dtype), rois, tolerance)


_INF = float("inf")
ODD = [
    [0, 0, 0, 23, 19],  # the whole map
    [1, 8, 8, 0, 0],  # corners in the wrong order: 1 x 1
    [0, 2, 2, 6, 6],  # halves are rounded away from 0
    [0, -2, -6, 1.9, 1.9],
    [0, 100, 100, 120, 120],  # beyond the map
    [0, -1e30, -5, 1e30, 5],
    [1.9, 0, 0, 8, 8],  # the image is cut to 1
    [-0.5, 0, 0, 8, 8],  # and to 0
    [-1, 0, 0, 8, 8],
    [2, 0, 0, 8, 8],
    [1e30, 0, 0, 8, 8],
    [float("nan"), 0, 0, 8, 8],
    [0, float("nan"), 0, 8, 8],
    [0, 0, 0, _INF, 8],
    [_INF, 0, 0, 8, 8],
]


def _odd(dtype, tolerance, device):
    rng = np.random.default_rng(3)
    x = rng.normal(size=(2, 3, 5, 6)).astype(dtype)
    x[0, 0, 1:3, 2:4] = np.nan  # never a maximum
    x[0, 1] = -_INF
    x[1, 0] = 7  # the first one of equals
    bench = LayerBench("ROIPooling", _text(3, 2), (x.shape, (len(ODD), 5)), dtype=dtype, device=device)
    _check(bench, x, np.array(ODD), tolerance)
    y = bench.forward([x, np.array(ODD)])[0]
    assert not y[4].any() and not y[8:].any() and y[0, 1] == pytest.approx(-3.402823466385288598e38)


def _many(dtype, tolerance, device):
    rng = np.random.default_rng(4)
    x, rois = _regions(rng, ((2, 3, 12, 15), (300, 5)))
    rois[:, 1:] += rng.normal(size=(300, 4))
    x = np.round(3 * x).astype(dtype)  # with equal maxima
    bench = LayerBench("ROIPooling", _text(7, 6, 0.3), (x.shape, rois.shape), dtype=dtype, device=device)
    _check(bench, x, rois, 10 * tolerance)


@DTYPES
@pytest.mark.parametrize("check", [_odd, _many])
def test_odd_and_many_regions(check, dtype, tolerance):
    check(dtype, tolerance, HostArrays())


@pytest.mark.gpu
@pytest.mark.skipif(not cuda_available(), reason="no GPU")
@DTYPES
@pytest.mark.parametrize("check", [_odd, _many])
def test_odd_and_many_regions_on_a_gpu(check, dtype, tolerance):
    check(dtype, 10 * tolerance, CudaArrays())


@pytest.mark.parametrize("case", CASES[:5], ids=str)
def test_gradient(case):
    check_gradient(case.bench(), case.make_bottoms(np.random.default_rng(2)))


def test_one_region_by_hand():
    x = np.arange(36.0).reshape(1, 1, 6, 6)
    bench = LayerBench("ROIPooling", _text(2, 2, 0.0625), (x.shape, (1, 5)))
    # corners 16, 16, 63, 79 -> pixels 1..4 (63 / 16 rounds up) by 1..5: cells of 2 columns and 2.5 rows
    (y,) = bench.forward([x, [[0, 16, 16, 63, 79]]])
    assert y.tolist() == [[[[20, 22], [32, 34]]]]
    (dx, _), _ = bench.backward([[[[[1, 2], [3, 4]]]]])
    assert {i: v for i, v in enumerate(dx.ravel()) if v} == {20: 1, 22: 2, 32: 3, 34: 4}


def test_without_backward_no_index_is_kept():
    bench = LayerBench("ROIPooling", _text(), ((1, 2, 6, 7), (2, 5)), needs_backward=False)
    x, rois = _regions(np.random.default_rng(1), bench.bottom_shapes)
    assert np.array_equal(bench.forward([x, rois])[0], reference(x, rois, (2, 3), 0.25)[0]) and not bench.scratch


def test_needs_and_propagate_down():
    shapes = ((1, 1, 2, 2), (1, 5))
    for propagate in ((True, False), (False, True), (False, False)):
        bench = LayerBench("ROIPooling", _text(1, 1, 1), shapes, propagate_down=propagate)
        bench.forward([np.arange(4.0).reshape(shapes[0]), [[0, 0, 0, 1, 1]]])
        diffs, _ = bench.backward([[[[[5]]]]])
        assert [None if d is None else d.sum() for d in diffs] == [
            5 if propagate[0] else None,
            0 if propagate[1] else None,
        ]
    assert bench.layer.backward_needs([True, True], []) == Needs(bottoms=frozenset({1}))
    assert bench.layer.backward_needs([False, True], []) == Needs()


MAP = (1, 1, 4, 4)


@pytest.mark.parametrize(
    "text, shapes, error, message",
    [
        ("", (MAP, (2, 5)), LayerParamError, "no pooled_h or pooled_w"),
        (_text(0), (MAP, (2, 5)), LayerParamError, "no pooled_h or pooled_w"),
        (_text(scale=0), (MAP, (2, 5)), LayerParamError, "spatial_scale is 0"),
        (_text(), ((1, 4, 4), (2, 5)), ShapeError, 'blob "b0".*4 axes'),
        (_text(), (MAP, (2, 4)), ShapeError, 'blob "b1".*5 numbers'),
        (_text(), (MAP, ()), ShapeError, 'blob "b1".*5 numbers'),
        (_text(), (MAP,), BlobCountError, "takes 2 bottom"),
    ],
)
def test_refused(text, shapes, error, message):
    with pytest.raises(error, match=f'layer "l".*{message}'):
        LayerBench("ROIPooling", text, shapes)
