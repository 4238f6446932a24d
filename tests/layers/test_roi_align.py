"""ROIAlign and PSROIAlign against torchvision's values and loops over regions, cells, samples and pixels."""

from __future__ import annotations

import math

import numpy as np
import pytest

from pycaffe_lms.backend import cuda_available
from pycaffe_lms.errors import LayerParamError, ShapeError
from pycaffe_lms.layers.base import Needs
from pycaffe_lms.ops.records import Sampling

from .cases import Case
from .harness import CudaArrays, HostArrays, LayerBench
from .test_roi_pooling import ODD


def _align(h=2, w=3, scale=0.25, ratio=-1):
    return f"roi_align_param {{ pooled_h: {h} pooled_w: {w} spatial_scale: {scale} sampling_ratio: {ratio} }}"


def _grid(h=2, w=3, scale=0.25, pad=0.0):
    return f"roi_pooling_param {{ pooled_h: {h} pooled_w: {w} spatial_scale: {scale} pad_ratio: {pad} }}"


def _spread(outputs=2, cells=3, scale=0.25, number=2):
    numbers = f"output_dim: {outputs} group_size: {cells} sample_num: {number}"
    return f"psroi_align_param {{ spatial_scale: {scale} {numbers} }}"


def _regions(rng, shapes, reach=2):
    n, _, height, width = shapes[0]
    rois = np.empty((shapes[1][0], 5))
    rois[:, 0] = rng.integers(max(n, 1), size=len(rois)) + 0.25
    corners = np.sort(rng.uniform(-reach, max(height, width) + reach, size=(2, len(rois), 2)), axis=0)
    rois[:, 1:3], rois[:, 3:] = 4 * corners[0], 4 * corners[1]
    return [rng.normal(size=shapes[0]), rois.reshape(shapes[1])]


SHAPE = (2, 3, 6, 7)
CASES: list[Case] = [
    Case("ROIAlign", _align(), (SHAPE, (5, 5)), maker=_regions),
    Case("ROIAlign", _align(3, 3, 0.25, 2), (SHAPE, (6, 5, 1, 1)), maker=_regions),
    Case("ROIAlign", _align(9, 8, 0.25, 1), ((1, 2, 5, 4), (3, 5)), maker=_regions),
    Case("ROIAlign", _align(), (SHAPE, (0, 5)), maker=_regions),
    Case("ROIAlign", _align(), ((0, 3, 6, 7), (4, 5)), maker=_regions),
    Case("ROIAlign", _grid(), (SHAPE, (5, 5)), maker=_regions),
    Case("ROIAlign", _grid(1, 4, 0.25, 0.25), (SHAPE, (6, 5)), maker=_regions),
    Case("PSROIAlign", _spread(), ((2, 18, 6, 7), (5, 5)), maker=_regions),
    Case("PSROIAlign", _spread(1, 4, 0.25, 1), ((1, 16, 5, 5), (6, 5, 1, 1)), maker=_regions),
    Case("PSROIAlign", _spread(3, 1, 0.25, 3), ((3, 3, 14, 16), (4, 5)), maker=_regions),
]


def _points(layer, low, high, cell, cells, size):
    """Return the places of the samples of one cell along one axis, None for those that do not count."""
    s = layer.samples
    if layer.type == "PSROIAlign":
        start, end = low * s.scale, (high + 1) * s.scale
        step = max(end - start, 0.1) / cells
        near, far = (min(max(start + c * step, 0), size - 1) for c in (cell, cell + 1))
        places = [near + (i + 1) * step / (s.number + 1) for i in range(s.number)]
        return [at if at < far else None for at in places]
    if s.kind == Sampling.GRID:
        pad = (high - low + 1) * s.pad_ratio
        start, end = (low - pad) * s.scale - 0.5, (high + pad) * s.scale - 0.5
        if end <= start:
            return []
        at = start + cell * (end - start) / (cells - 1)
        return [at if -0.5 <= at <= size - 0.5 else None]
    start = low * s.scale
    step = max(high * s.scale - start, 1.0) / cells
    number = s.number or math.ceil(step)
    places = [start + cell * step + (i + 0.5) * step / number for i in range(number)]
    return [at if -1 <= at <= size else None for at in places]


def _weights(places, size):
    """Return the share of each pixel in the average of the samples."""
    found = np.zeros(size)
    for at in places:
        if at is not None:
            at = min(max(at, 0.0), size - 1.0)
            found += np.maximum(0, 1 - np.abs(np.arange(size) - at)) / len(places)
    return found


def reference(layer, x, dy, rois):
    """Return (y, dx): every cell is rows of weights times pixels times columns of weights."""
    (images, _, height, width), (cells_h, cells_w) = x.shape, dy.shape[2:]
    y, dx = np.zeros(dy.shape), np.zeros(x.shape)
    for r, (image, x1, y1, x2, y2) in enumerate(rois.reshape(-1, 5)):
        if not (np.isfinite([image, x1, y1, x2, y2]).all() and -1 < image < images):
            continue
        for p, q in np.ndindex(cells_h, cells_w):
            rows = _weights(_points(layer, y1, y2, p, cells_h, height), height)
            columns = _weights(_points(layer, x1, x2, q, cells_w, width), width)
            own = slice(p * cells_w + q, None, cells_h * cells_w) if layer.type == "PSROIAlign" else slice(None)
            y[r, :, p, q] = np.einsum("h,chw,w->c", rows, x[int(image), own], columns)
            dx[int(image), own] += np.einsum("h,c,w->chw", rows, dy[r, :, p, q], columns)
    return y, dx


DTYPES = pytest.mark.parametrize("dtype, tolerance", [(np.float32, 1e-5), (np.float64, 1e-12)], ids=["f32", "f64"])


def _check(bench, x, rois, tolerance):
    x, rois = x.astype(bench.dtype), np.asarray(rois, bench.dtype)
    dy = np.random.default_rng(6).normal(size=bench.top_shapes[0])
    y, dx = reference(bench.layer, x.astype(np.float64), dy, rois.astype(np.float64))
    np.testing.assert_allclose(bench.forward([x, rois])[0], y, rtol=tolerance, atol=tolerance)
    (got, drois), _ = bench.backward([dy])
    np.testing.assert_allclose(got, dx, rtol=tolerance, atol=10 * tolerance)
    assert drois is None


@DTYPES
@pytest.mark.parametrize("case", CASES, ids=str)
def test_forward_and_backward(case, dtype, tolerance):
    _check(case.bench(dtype), *case.make_bottoms(np.random.default_rng(1)), tolerance)


KINDS = [("ROIAlign", _align()), ("ROIAlign", _align(2, 2, 0.25, 3)), ("ROIAlign", _grid(2, 2, 0.25, 0.1))]
KINDS.append(("PSROIAlign", _spread(2, 2)))


def _odd(kind, text, dtype, tolerance, device):
    x = np.random.default_rng(3).normal(size=(2, 8, 5, 6))
    rois = [roi if abs(roi[1]) < 1e29 else [0, -1e5, -5, 1e5, 5] for roi in ODD]  # a loop over all its samples
    _check(LayerBench(kind, text, (x.shape, (len(ODD), 5)), dtype=dtype, device=device), x, rois, tolerance)


def _many(kind, text, dtype, tolerance, device):
    x, rois = _regions(np.random.default_rng(4), ((2, 12, 12, 15), (200, 5)))
    text = text.replace("output_dim: 2", "output_dim: 3")
    _check(LayerBench(kind, text, (x.shape, rois.shape), dtype=dtype, device=device), x, rois, 10 * tolerance)


@DTYPES
@pytest.mark.parametrize("kind, text", KINDS)
@pytest.mark.parametrize("check", [_odd, _many])
def test_odd_and_many_regions(check, kind, text, dtype, tolerance):
    check(kind, text, dtype, tolerance, HostArrays())


@pytest.mark.gpu
@pytest.mark.skipif(not cuda_available(), reason="no GPU")
@DTYPES
@pytest.mark.parametrize("kind, text", KINDS)
@pytest.mark.parametrize("check", [_odd, _many])
def test_odd_and_many_regions_on_a_gpu(check, kind, text, dtype, tolerance):
    check(kind, text, dtype, tolerance, CudaArrays())


# torchvision.ops.roi_align of torchvision 0.29.2 (aligned=False) in float64: of the two channels of each region
TORCHVISION = {
    -1: [
        [-0.441491, -0.373334, -0.044386, 0.163179, 0.365261, 0.308653],
        [0.1383, 0.417746, 0.400695, 0.200725, -0.119214, -0.351378],
        [-0.287483, -0.661943, -0.371304, 0.217457, 0.468987, 0.220765],
        [-0.026758, 0.315006, 0.679007, -0.00665, -0.262494, -0.476917],
        [-0.307959, -0.448335, -0.518425, 0.493369, 0.414386, 0.270439],
        [-0.289735, -0.164436, -0.013358, -0.596026, -0.661256, -0.62282],
        [-0.086701, 0.0, 0.0, 0.0, 0.0, 0.0],
        [0.419024, 0.0, 0.0, 0.0, 0.0, 0.0],
    ],
    2: [
        [-0.441491, -0.373334, -0.044386, 0.163179, 0.365261, 0.308653],
        [0.1383, 0.417746, 0.400695, 0.200725, -0.119214, -0.351378],
        [-0.287483, -0.661943, -0.371304, 0.217457, 0.468987, 0.220765],
        [-0.026758, 0.315006, 0.679007, -0.00665, -0.262494, -0.476917],
        [-0.307959, -0.439549, -0.518425, 0.493369, 0.406266, 0.270439],
        [-0.289735, -0.161213, -0.013358, -0.596026, -0.648298, -0.62282],
        [-0.01727, 0.0, 0.0, 0.0, 0.0, 0.0],
        [0.414984, 0.0, 0.0, 0.0, 0.0, 0.0],
    ],
}


@pytest.mark.parametrize("ratio", TORCHVISION)
def test_values_of_torchvision(ratio):
    x = np.sin(np.arange(120) * 0.7).reshape(2, 2, 5, 6)
    rois = [[0, 4, 2, 19, 17], [1, -6, -3, 12.5, 9.25], [0, 10, 8, 11, 9], [1, 14, 10, 40, 30]]
    (y,) = LayerBench("ROIAlign", _align(ratio=ratio), (x.shape, (4, 5))).forward([x, rois])
    np.testing.assert_allclose(y.reshape(8, 6), TORCHVISION[ratio], atol=6e-7)


def test_corners_of_cells_by_hand():
    """A region over pixels 1 to 2 of a ramp: corners lie at the pixels' borders, 0.5, 1.5 and 2.5."""
    x = np.broadcast_to(np.arange(4.0), (1, 1, 4, 4))
    (y,) = LayerBench("ROIAlign", _grid(1, 2, 0.5), (x.shape, (1, 5))).forward([x, [[0, 2, 2, 6, 6]]])
    assert y.tolist() == [[[[0.5, 1.5, 2.5]] * 2]]
    assert not LayerBench("ROIAlign", _grid(), (x.shape, (1, 5))).forward([x, [[0, 6, 2, 6, 6]]])[0].any()


def test_a_sample_per_cell_by_hand():
    """Cells of 1.5 pixels with one sample in their middle, of a ramp along each axis."""
    x = np.arange(4.0) + 10 * np.arange(4.0)[:, None]
    bench = LayerBench("PSROIAlign", _spread(1, 2, 0.5, 1), ((1, 4, 4, 4), (1, 5)))
    (y,) = bench.forward([np.broadcast_to(x, (1, 4, 4, 4)), [[0, 0, 0, 5, 5]]])
    np.testing.assert_allclose(y, [[[[8.25, 9.75], [23.25, 24.75]]]])


def test_huge_regions_take_no_longer():
    bench = LayerBench("ROIAlign", _align(2, 2, 1), ((1, 1, 4, 4), (1, 5)))
    y = bench.forward([np.ones((1, 1, 4, 4)), [[0, -3e5, -3e5, 3e5, 3e5]]])[0]
    np.testing.assert_allclose(y, 0, atol=1e-8)
    assert y.all()


def test_needs():
    for kind, text in KINDS[1:]:
        bench = LayerBench(kind, text, ((1, 8, 4, 4), (2, 5)))
        assert bench.propagate_down == (True, False)
        assert bench.layer.backward_needs([True, False], []) == Needs(bottoms=frozenset({1})) and not bench.scratch


@pytest.mark.parametrize(
    "kind, text, shapes, error, message",
    [
        ("ROIAlign", "", (SHAPE, (2, 5)), LayerParamError, "no pooled_h or pooled_w"),
        ("ROIAlign", _grid(0), (SHAPE, (2, 5)), LayerParamError, "no pooled_h or pooled_w"),
        ("ROIAlign", _grid() + _align(), (SHAPE, (2, 5)), LayerParamError, "roi_align_param and roi_pooling_param"),
        ("ROIAlign", _align(scale=0), (SHAPE, (2, 5)), LayerParamError, "spatial_scale is 0"),
        ("ROIAlign", _align(), (SHAPE[1:], (2, 5)), ShapeError, 'blob "b0".*4 axes'),
        (
            "PSROIAlign",
            _spread(number=0),
            ((1, 18, 4, 4), (2, 5)),
            LayerParamError,
            "no output_dim, group_size or sample",
        ),
        ("PSROIAlign", _spread(), ((1, 17, 4, 4), (2, 5)), ShapeError, 'blob "b0".*17 channels.*take 18'),
        ("PSROIAlign", _spread(), ((1, 18, 4, 4), (2, 6)), ShapeError, 'blob "b1".*5 numbers'),
    ],
)
def test_refused(kind, text, shapes, error, message):
    with pytest.raises(error, match=f'layer "l".*{message}'):
        LayerBench(kind, text, shapes)
