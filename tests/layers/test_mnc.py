"""ROIWarping, MaskPooling and MaskResize (MNC) against loops over regions, cells and pixels."""

from __future__ import annotations

import math
from functools import partial

import numpy as np
import pytest

from pycaffe_lms import TRAIN, Net
from pycaffe_lms.backend import cuda_available
from pycaffe_lms.backend.sim.device import SimDevice
from pycaffe_lms.errors import LayerParamError, ShapeError
from pycaffe_lms.formats.prototxt.parser import parse_net
from pycaffe_lms.layers.base import Needs
from pycaffe_lms.lms.config import LMSConfig

from .cases import Case
from .harness import CudaArrays, HostArrays, LayerBench
from .test_roi_align import _regions
from .test_roi_pooling import ODD


def _warp(h=2, w=3, scale=0.25):
    return f"roi_warping_param {{ pooled_h: {h} pooled_w: {w} spatial_scale: {scale} }}"


def _size(h, w):
    return f"mask_resize_param {{ output_height: {h} output_width: {w} }}"


SHAPE = (2, 3, 6, 7)
REGIONS = partial(_regions, reach=1)
WARPS = [
    Case("ROIWarping", _warp(), (SHAPE, (5, 5)), maker=REGIONS),
    Case("ROIWarping", _warp(5, 4), (SHAPE, (6, 5, 1, 1)), maker=REGIONS),
    Case("ROIWarping", _warp(1, 1), ((1, 2, 5, 4), (0, 5)), maker=REGIONS),
]
POOLS = [
    Case("MaskPooling", "", (SHAPE, (2, 1, 6, 7))),
    Case("MaskPooling", "", ((1, 70, 2, 3), (1, 1, 2, 3))),
]
RESIZES = [
    Case("MaskResize", _size(3, 4), ((2, 2, 6, 7),)),
    Case("MaskResize", _size(8, 9), ((1, 2, 5, 6),)),
    Case("MaskResize", _size(2, 12), ((1, 1, 1, 6),)),
]
CASES = WARPS + POOLS + RESIZES


def _weights(at, size):
    """Return the share of each pixel in a sample."""
    if not -0.5 <= at <= size - 0.5:
        return np.zeros(size)
    return np.maximum(0, 1 - np.abs(np.arange(size) - min(max(at, 0.0), size - 1.0)))


def _round(value):
    return math.copysign(math.floor(abs(value) + 0.5), value)


def _warped(x, rois, cells, scale, rounded=True):
    """Return y and the weights of rows and columns of each cell of each region."""
    y = np.zeros((len(rois), x.shape[1], *cells))
    weights = {}
    for r, (image, *corners) in enumerate(rois):
        if not (np.isfinite([image, *corners]).all() and -1 < image < len(x)):
            continue
        x1, y1, x2, y2 = (_round(v * scale) if rounded else v * scale for v in corners)
        for p, q in np.ndindex(*cells):
            rows = _weights(y1 + p * max(y2 - y1, 0) / cells[0], x.shape[2])
            columns = _weights(x1 + q * max(x2 - x1, 0) / cells[1], x.shape[3])
            y[r, :, p, q] = np.einsum("h,chw,w->c", rows, x[int(image)], columns)
            weights[r, p, q] = rows, columns
    return y, weights


DTYPES = pytest.mark.parametrize("dtype, tolerance", [(np.float32, 1e-5), (np.float64, 1e-12)], ids=["f32", "f64"])


def _check(text, x, rois, dtype, tolerance, device):
    bench = LayerBench("ROIWarping", text, (x.shape, rois.shape), dtype=dtype, device=device)
    x, rois = x.astype(dtype), rois.astype(dtype)
    flat = rois.astype(float).reshape(-1, 5)
    cells, scale = bench.top_shapes[0][2:], bench.layer.samples.scale
    y, weights = _warped(x.astype(float), flat, cells, scale)
    np.testing.assert_allclose(bench.forward([x, rois])[0], y, rtol=tolerance, atol=tolerance)
    dy = np.random.default_rng(6).normal(size=y.shape)
    dx = np.zeros(x.shape)
    for (r, p, q), (rows, columns) in weights.items():
        dx[int(flat[r, 0])] += np.einsum("h,c,w->chw", rows, dy[r, :, p, q], columns)
    (found, drois), _ = bench.backward([dy])
    np.testing.assert_allclose(found, dx, rtol=tolerance, atol=10 * tolerance)
    assert np.isfinite(drois).all() and not drois.reshape(-1, 5)[:, 0].any()


@DTYPES
@pytest.mark.parametrize("case", WARPS, ids=str)
def test_regions_are_the_loop(case, dtype, tolerance):
    _check(case.text, *case.make_bottoms(np.random.default_rng(1)), dtype, tolerance, HostArrays())


def _odd(dtype, tolerance, device):
    rois = np.array([*(roi for roi in ODD if abs(roi[1]) < 1e29), [0, 9, 9, 3, 3]], float)
    _check(_warp(), np.random.default_rng(3).normal(size=(2, 4, 5, 6)), rois, dtype, tolerance, device)


def _many(dtype, tolerance, device):
    x, rois = REGIONS(np.random.default_rng(4), ((2, 12, 12, 15), (200, 5)))
    _check(_warp(7, 7), x, rois, dtype, 10 * tolerance, device)


def _slopes(dtype, tolerance, device):
    """Regions whose corners are pixels, so that nothing is rounded; forward differences, as slopes are to the right."""
    rng, scale = np.random.default_rng(2), 0.25
    x = rng.normal(size=(2, 3, 7, 9))
    rois = 4.0 * np.array([[0, 1, 0, 6, 5], [0.25, 2, 3, 8, 6], [0, 0, 0, 2, 1], [0.25, 4, 4, 4, 4], [0, 5, 1, 8, 6]])
    bench = LayerBench("ROIWarping", _warp(3, 3), (x.shape, rois.shape), dtype=dtype, device=device)
    bench.forward([x.astype(dtype), rois.astype(dtype)])
    dy = rng.normal(size=bench.top_shapes[0])
    (_, drois), _ = bench.backward([dy])
    for r, k in np.ndindex(5, 4):
        ends = []
        for step in (0.0, 1e-3):
            moved = rois.copy()
            moved[r, 1 + k] += step
            if k > 1 and rois[r, 1 + k] == rois[r, k - 1]:  # at one place a region does not grow: it has no slope there
                moved = rois
            ends.append((_warped(x, moved, (3, 3), scale, rounded=False)[0] * dy).sum())
        assert drois[r, 1 + k] == pytest.approx((ends[1] - ends[0]) / 1e-3, rel=1e4 * tolerance, abs=1e4 * tolerance)
    assert np.count_nonzero(drois[:, 1:]) > 15


CHECKS = pytest.mark.parametrize("check", [_odd, _many, _slopes])


@DTYPES
@CHECKS
def test_odd_regions_and_slopes(check, dtype, tolerance):
    check(dtype, tolerance, HostArrays())


@pytest.mark.gpu
@pytest.mark.skipif(not cuda_available(), reason="no GPU")
@DTYPES
@CHECKS
def test_odd_regions_and_slopes_on_a_gpu(check, dtype, tolerance):
    check(dtype, tolerance, CudaArrays())


@DTYPES
@pytest.mark.parametrize("case", RESIZES, ids=str)
def test_masks_of_another_size(case, dtype, tolerance):
    bench, (x,) = case.bench(dtype), case.make_bottoms(np.random.default_rng(2))
    (y,) = bench.forward([x.astype(dtype)])
    rows, columns = (
        np.array([_weights(o * size / out, size) for o in range(out)])
        for size, out in zip(x.shape[2:], y.shape[2:], strict=True)
    )
    np.testing.assert_allclose(y, np.einsum("ph,nchw,qw->ncpq", rows, x, columns), rtol=tolerance, atol=tolerance)
    dy = np.random.default_rng(3).normal(size=y.shape)
    (dx,), _ = bench.backward([dy])
    np.testing.assert_allclose(dx, np.einsum("ph,ncpq,qw->nchw", rows, dy, columns), rtol=tolerance, atol=tolerance)


@DTYPES
@pytest.mark.parametrize("case", POOLS, ids=str)
def test_masks_times_maps(case, dtype, tolerance):
    bench, (x, mask) = case.bench(dtype), case.make_bottoms(np.random.default_rng(2))
    (y,) = bench.forward([x.astype(dtype), mask.astype(dtype)])
    np.testing.assert_allclose(y, x * mask, rtol=tolerance, atol=tolerance)
    dy = np.random.default_rng(3).normal(size=y.shape)
    (dx, dmask), _ = bench.backward([dy])
    np.testing.assert_allclose(dx, dy * mask, rtol=tolerance, atol=tolerance)
    np.testing.assert_allclose(dmask, (dy * x).sum(axis=1, keepdims=True), rtol=tolerance, atol=20 * tolerance)


def test_needs():
    bench = WARPS[0].bench()
    for wanted, bottoms in (([True, False], {1}), ([False, True], {0, 1}), ([False, False], set())):
        assert bench.layer.backward_needs(wanted, []) == Needs(bottoms=frozenset(bottoms))


NET = """
layer { name: "in" type: "Input" top: "x" top: "regions" input_param { shape { dim: [2, 3, 8, 9] }
  shape { dim: [4, 5] } } }
layer { name: "c" type: "Convolution" bottom: "x" top: "c"
  convolution_param { num_output: 6 kernel_size: 3 pad: 1 weight_filler { type: "gaussian" std: 0.3 } } }
layer { name: "fc" type: "InnerProduct" bottom: "regions" top: "moved"
  inner_product_param { num_output: 5 weight_filler { type: "constant" } } }
layer { name: "sum" type: "Eltwise" bottom: "regions" bottom: "moved" top: "rois" }
layer { name: "warp" type: "ROIWarping" bottom: "c" bottom: "rois" top: "warp"
  roi_warping_param { pooled_h: 6 pooled_w: 6 spatial_scale: 0.5 } }
layer { name: "m" type: "Convolution" bottom: "warp" top: "m"
  convolution_param { num_output: 1 kernel_size: 1 weight_filler { type: "gaussian" std: 0.5 } } }
layer { name: "masks" type: "Sigmoid" bottom: "m" top: "masks" }
layer { name: "small" type: "MaskResize" bottom: "masks" top: "small"
  mask_resize_param { output_height: 3 output_width: 3 } }
layer { name: "pool" type: "Pooling" bottom: "warp" top: "pool" pooling_param { kernel_size: 2 stride: 2 } }
layer { name: "masked" type: "MaskPooling" bottom: "pool" bottom: "small" top: "masked" }
layer { name: "loss" type: "Reduction" bottom: "masked" top: "loss" loss_weight: 1
  reduction_param { operation: SUMSQ } }
"""


def test_in_a_net():
    """The same numbers with and without Large Model Support; the regions' gradient reaches what makes them."""
    found = []
    for options in ({}, {"device": SimDevice(64 << 20), "lms": LMSConfig(threshold_kb=0.1)}):
        net = Net(parse_net(NET).message, TRAIN, dtype="float64", seed=3, **options)
        net.blobs["x"].data[...] = np.random.default_rng(1).normal(size=(2, 3, 8, 9))
        net.blobs["regions"].data[...] = [[0, 0, 2, 12, 13], [1, 4, 4, 15, 10], [0, 6, 0, 16, 14], [1, 2, 2, 8, 8]]
        net.forward()
        net.backward()
        found.append([net.blobs["loss"].data.copy()] + [p.diff.copy() for k in ("c", "fc", "m") for p in net.params[k]])
        net.close()
    assert all(map(np.array_equal, *found)) and all(values.any() for values in found[0])


@pytest.mark.parametrize(
    "kind, text, shapes, error, message",
    [
        ("ROIWarping", "", (SHAPE, (2, 5)), LayerParamError, "no pooled_h or pooled_w"),
        ("ROIWarping", _warp(scale=0), (SHAPE, (2, 5)), LayerParamError, "spatial_scale is 0"),
        ("ROIWarping", _warp(), (SHAPE, (2, 4)), ShapeError, '"b1"'),
        ("MaskPooling", "", (SHAPE, (2, 3, 6, 7)), ShapeError, '"b1": has shape .2, 3, 6, 7.'),
        ("MaskResize", "", (SHAPE,), LayerParamError, "has no size"),
        ("MaskResize", _size(13, 7), (SHAPE,), ShapeError, "becomes"),
    ],
)
def test_refused(kind, text, shapes, error, message):
    with pytest.raises(error, match=f'layer "l".*{message}'):
        LayerBench(kind, text, shapes)
