"""PSROIPooling against a loop over regions, cells and pixels."""

from __future__ import annotations

import math

import numpy as np
import pytest

from pycaffe_lms.backend import cuda_available
from pycaffe_lms.errors import LayerParamError, ShapeError
from pycaffe_lms.layers.base import Needs

from .cases import Case
from .harness import CudaArrays, HostArrays, LayerBench, check_gradient
from .test_roi_pooling import ODD, _nearest, _regions


def _text(outputs=2, cells=3, scale=0.25):
    return f"psroi_pooling_param {{ output_dim: {outputs} group_size: {cells} spatial_scale: {scale} }}"


CASES: list[Case] = [
    Case("PSROIPooling", _text(), ((2, 18, 6, 7), (5, 5)), maker=_regions),
    Case("PSROIPooling", _text(1, 4), ((1, 16, 5, 5), (6, 5, 1, 1)), maker=_regions),
    Case("PSROIPooling", _text(3, 1), ((3, 3, 14, 16), (4, 5)), maker=_regions),
    Case("PSROIPooling", _text(), ((2, 18, 6, 7), (0, 5)), maker=_regions),
    Case("PSROIPooling", _text(), ((0, 18, 6, 7), (4, 5)), maker=_regions),
]


def reference(x, dy, rois, cells, scale):
    """Return (y, dx) as defined; coordinates in x's type, sums in float64."""
    kind, (images, channels, height, width) = x.dtype.type, x.shape
    outputs, rois = channels // cells**2, rois.reshape(-1, 5)
    y, dx = np.zeros((len(rois), outputs, cells, cells)), np.zeros(x.shape)
    for r, roi in enumerate(rois.astype(x.dtype)):
        if not (np.isfinite(roi).all() and -1 < roi[0] < images):
            continue
        starts = [kind(_nearest(v)) * kind(scale) for v in roi[1:3]]
        ends = [kind(_nearest(v) + 1) * kind(scale) for v in roi[3:]]
        steps = [max(b - a, kind(0.1)) / kind(cells) for a, b in zip(starts, ends, strict=True)]
        for d, p, q in np.ndindex(outputs, cells, cells):
            window = [int(roi[0]), (d * cells + p) * cells + q]
            for i, start, step, size in ((p, starts[1], steps[1], height), (q, starts[0], steps[0], width)):
                first, last = math.floor(kind(i) * step + start), math.ceil(kind(i + 1) * step + start)
                window.append(slice(max(first, 0), max(min(last, size), 0)))
            cell = x[tuple(window)]
            if cell.size:
                y[r, d, p, q] = cell.sum(dtype=np.float64) / cell.size
                dx[tuple(window)] += dy[r, d, p, q] / cell.size
    return y, dx


DTYPES = pytest.mark.parametrize("dtype, tolerance", [(np.float32, 1e-5), (np.float64, 1e-13)], ids=["f32", "f64"])


def _check(bench, x, rois, tolerance):
    dy = np.random.default_rng(6).normal(size=bench.top_shapes[0])
    y, dx = reference(x, dy, rois, bench.layer.cells, bench.layer.scale)
    np.testing.assert_allclose(bench.forward([x, rois])[0], y, rtol=tolerance, atol=tolerance)
    (got, drois), _ = bench.backward([dy])
    np.testing.assert_allclose(got, dx, rtol=tolerance, atol=10 * tolerance)
    assert drois.shape == rois.shape and not drois.any()


@DTYPES
@pytest.mark.parametrize("case", CASES, ids=str)
def test_forward_and_backward(case, dtype, tolerance):
    x, rois = case.make_bottoms(np.random.default_rng(1))
    _check(case.bench(dtype), x.astype(dtype), rois, tolerance)


def _odd(dtype, tolerance, device):
    rng = np.random.default_rng(3)
    x = rng.normal(size=(2, 18, 5, 6)).astype(dtype)
    bench = LayerBench("PSROIPooling", _text(), (x.shape, (len(ODD), 5)), dtype=dtype, device=device)
    _check(bench, x, np.array(ODD), tolerance)
    y = bench.forward([x, np.array(ODD)])[0]
    assert not y[4].any() and not y[8:].any() and y[:3].all()


def _many(dtype, tolerance, device):
    rng = np.random.default_rng(4)
    x, rois = _regions(rng, ((2, 32, 12, 15), (200, 5)))
    rois[:, 1:] += rng.normal(size=(200, 4))
    bench = LayerBench("PSROIPooling", _text(2, 4, 0.3), (x.shape, rois.shape), dtype=dtype, device=device)
    _check(bench, x.astype(dtype), rois, 10 * tolerance)


@DTYPES
@pytest.mark.parametrize("check", [_odd, _many])
def test_odd_and_many_regions(check, dtype, tolerance):
    check(dtype, tolerance, HostArrays())


@pytest.mark.gpu
@pytest.mark.skipif(not cuda_available(), reason="no GPU")
@DTYPES
@pytest.mark.parametrize("check", [_odd, _many])
def test_odd_and_many_regions_on_a_gpu(check, dtype, tolerance):
    check(dtype, tolerance, CudaArrays())


@pytest.mark.parametrize("case", CASES[:3], ids=str)
def test_gradient(case):
    x, rois = case.make_bottoms(np.random.default_rng(2))
    check_gradient(case.bench(), [x, rois])


def test_one_region_by_hand():
    x = np.arange(64.0).reshape(1, 4, 4, 4)
    bench = LayerBench("PSROIPooling", _text(1, 2, 0.5), (x.shape, (1, 5)))
    # pixels 0 to (5 + 1) / 2 = 3 both ways: cells [0, 2) and [1, 3)
    (y,) = bench.forward([x, [[0, 0, 0, 5, 5]]])
    assert y.tolist() == [[[[2.5, 19.5], [38.5, 55.5]]]]
    (dx, _), _ = bench.backward([[[[[4, 8], [12, 16]]]]])
    assert dx[0, 1].tolist() == [[0, 2, 2, 0], [0, 2, 2, 0], [0] * 4, [0] * 4] and dx.sum() == 40


def test_needs():
    bench = LayerBench("PSROIPooling", _text(), ((1, 18, 4, 4), (2, 5)))
    assert bench.layer.backward_needs([True, True], []) == Needs(bottoms=frozenset({1}))
    assert bench.layer.backward_needs([False, True], []) == Needs() and not bench.scratch


@pytest.mark.parametrize(
    "text, shapes, error, message",
    [
        ("", ((1, 18, 4, 4), (2, 5)), LayerParamError, "no output_dim or group_size"),
        (_text(cells=-1), ((1, 18, 4, 4), (2, 5)), LayerParamError, "no output_dim or group_size"),
        (_text(scale=-1), ((1, 18, 4, 4), (2, 5)), LayerParamError, "spatial_scale is -1"),
        (_text(), ((1, 17, 4, 4), (2, 5)), ShapeError, 'blob "b0".*17 channels.*take 18'),
        (_text(), ((1, 18, 4, 4), (2, 6)), ShapeError, 'blob "b1".*5 numbers'),
    ],
)
def test_refused(text, shapes, error, message):
    with pytest.raises(error, match=f'layer "l".*{message}'):
        LayerBench("PSROIPooling", text, shapes)
