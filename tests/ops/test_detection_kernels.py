"""CUDA kernels of detection layers, emulated on the host, against the operations of the CPU."""

from __future__ import annotations

import numpy as np
import pytest

from pycaffe_lms.ops import load_ops
from pycaffe_lms.ops.cuda.loss import smooth_l1, softmax
from pycaffe_lms.ops.cuda.pooling import roi, roi_align
from pycaffe_lms.ops.records import BoxWeights, Grid, LabelGrid, Samples, Sampling

from .emulated import COMPILER, Kernels

pytestmark = pytest.mark.skipif(COMPILER is None, reason="no C++ compiler")
DTYPES = (np.float32, np.float64)


class Emulated:
    """The kernels of one module, which its functions launch on the host."""

    def __init__(self, folder, dtype, module, sources):
        self.kernels, self.module = Kernels(folder, dtype, sources), module

    def __call__(self, monkeypatch, name, *args):
        monkeypatch.setattr(self.module, "launch", self._launch, raising=False)
        monkeypatch.setattr(self.module, "run", self._run, raising=False)
        getattr(self.module, name)(*args)

    def _launch(self, source, name, dtype, threads, *args):
        self.kernels.run(name, 1, 64, *args)

    def _run(self, source, name, arrays, *scalars):
        n = arrays[-1].size
        self.kernels.run(name, (n + 2047) // 2048, 256, *arrays, *scalars, 0, n)


def _made(tmp_path_factory, module, sources):
    folder = tmp_path_factory.mktemp(module.__name__.split(".")[-1])
    return {np.dtype(d): Emulated(folder, d, module, sources) for d in DTYPES}


@pytest.fixture(scope="module")
def aligned(tmp_path_factory):
    source = roi_align._SOURCE
    start = source.index('extern "C" __global__ void backward')
    middle = source.index('extern "C" __global__ void forward')
    comment = source.rindex("//", 0, start)
    last = source.index('extern "C" __global__ void corners')
    end = source.rindex("//", 0, last)
    names = {
        "forward": source[:comment],
        "backward": source[:middle] + source[start:end],
        "corners": source[:middle] + source[last:],
    }
    return _made(tmp_path_factory, roi_align, names)


@pytest.fixture(scope="module")
def pooled(tmp_path_factory):
    source = roi._SOURCE
    end = source.rindex("// One block", 0, source.index('extern "C" __global__ void backward'))
    return _made(tmp_path_factory, roi, {"forward": source[:end]})


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("pad", [0.0, 0.25])
def test_maxima_of_regions(pooled, monkeypatch, pad, dtype):
    rng, cpu = np.random.default_rng(1), load_ops("cpu").functions()
    low = rng.uniform(-12, 20, size=(40, 2))
    rois = np.column_stack([rng.integers(-1, 3, size=40), low, low + rng.uniform(-4, 20, size=(40, 2))]).astype(dtype)
    x, found = rng.normal(size=(2, 3, 5, 7)).astype(dtype), []
    for run in (lambda name, *args: cpu[name](*args), lambda *args: pooled[np.dtype(dtype)](monkeypatch, *args)):
        y, where = np.full((40, 3, 2, 3), np.nan, dtype), np.full((40, 3, 2, 3), -9, np.int32)
        run("roi_pool_forward", x, rois, y, where, 0.25, pad)
        found.append((y, where))
    for ours, theirs in zip(*found, strict=True):
        np.testing.assert_array_equal(ours, theirs)
    assert (found[0][1] >= 0).sum() > 100


SAMPLES = [
    Samples(Sampling.EVEN, 0.25, 0),
    Samples(Sampling.EVEN, 0.25, 2),
    Samples(Sampling.GRID, 0.25, 1, 0.2),
    Samples(Sampling.SPREAD, 0.25, 2),
    Samples(Sampling.WARP, 0.25),
]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("samples", SAMPLES, ids=str)
def test_samples_of_regions(aligned, monkeypatch, samples, dtype):
    rng, cpu = np.random.default_rng(1), load_ops("cpu").functions()
    rois = np.concatenate([rng.integers(-1, 3, size=(40, 1)), rng.uniform(-12, 30, size=(40, 4))], axis=1)
    rois[:30, 3:] = rois[:30, 1:3] / 2 + 12
    rois[:30, 1:3] /= 2
    rois[5, 2], rois[6] = np.nan, [1, -1e7, -50, 1e7, 50]
    x, cells = rng.normal(size=(2, 12, 5, 7)).astype(dtype), (2, 3)
    outputs = 2 if samples.kind == Sampling.SPREAD else 12
    dy = rng.normal(size=(40, outputs, *cells)).astype(dtype)
    rois = rois.astype(dtype)
    ours, theirs = np.full((2, *dy.shape), np.nan, dtype)
    cpu["roi_align_forward"](x, rois, ours, samples)
    aligned[np.dtype(dtype)](monkeypatch, "roi_align_forward", x, rois, theirs, samples)
    np.testing.assert_allclose(ours, theirs, rtol=1e-6 if dtype == np.float32 else 1e-12, atol=1e-12)
    assert np.count_nonzero(ours) > 40
    ours, theirs = np.full((2, *x.shape), np.nan, dtype)
    cpu["roi_align_backward"](dy, rois, ours, samples)
    aligned[np.dtype(dtype)](monkeypatch, "roi_align_backward", dy, rois, theirs, samples)
    np.testing.assert_allclose(ours, theirs, rtol=1e-5 if dtype == np.float32 else 1e-11, atol=1e-6)


@pytest.mark.parametrize("dtype", DTYPES)
def test_slopes_of_regions_corners(aligned, monkeypatch, dtype):
    rng, cpu, samples = np.random.default_rng(1), load_ops("cpu").functions(), Samples(Sampling.WARP, 0.25)
    rois = np.concatenate([rng.integers(-1, 3, size=(40, 1)), rng.uniform(-6, 30, size=(40, 4))], axis=1)
    rois[:30, 3:] = rois[:30, 1:3] / 2 + 12
    rois[:30, 1:3] /= 2
    rois[5, 2], rois[6] = np.nan, [1, 9, 9, 8, 9]
    rois, x = rois.astype(dtype), rng.normal(size=(2, 3, 5, 7)).astype(dtype)
    dy = rng.normal(size=(40, 3, 2, 3)).astype(dtype)
    ours, theirs = np.full((2, 40, 5, 3), np.nan, dtype)
    cpu["roi_warp_corners"](x, dy, rois, ours, samples)
    aligned[np.dtype(dtype)](monkeypatch, "roi_warp_corners", x, dy, rois, theirs, samples)
    np.testing.assert_allclose(ours, theirs, rtol=1e-5 if dtype == np.float32 else 1e-11, atol=1e-6)
    assert np.count_nonzero(ours[:, 1:]) > 40 and not ours[:, 0].any()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("given", [(False, False), (True, False), (True, True)])
def test_losses_of_items(tmp_path_factory, monkeypatch, given, dtype):
    rng, grid = np.random.default_rng(2), Grid(7, 5, 6)
    a, b, *weights = rng.normal(size=(4, 7, 5, 6)).astype(dtype)
    chosen = BoxWeights(*(w if use else None for w, use in zip(weights, given, strict=True)))
    ours, theirs = np.full((2, 7, 1, 6), np.nan, dtype)
    load_ops("cpu").functions()["smooth_l1_losses"](a, b, chosen, ours, 4.0, grid)
    kernels = _made(tmp_path_factory, smooth_l1, {"losses": smooth_l1._LOSSES})[np.dtype(dtype)]
    kernels(monkeypatch, "smooth_l1_losses", a, b, chosen, theirs, 4.0, grid)
    np.testing.assert_allclose(ours, theirs, rtol=1e-6 if dtype == np.float32 else 1e-14)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("ignored", [False, True])
def test_losses_of_labels(tmp_path_factory, monkeypatch, ignored, dtype):
    rng, grid = np.random.default_rng(3), LabelGrid(50, 4, 45, ignored, 2)
    prob = rng.uniform(size=(50, 4, 45)).astype(dtype)
    label = rng.integers(5 if ignored else 4, size=(50, 45)).astype(dtype)  # 4 is no class
    ours, theirs = np.full((2, 50, 45), 7, dtype)
    load_ops("cpu").functions()["softmax_losses"](prob, label, ours, grid)
    kernels = _made(tmp_path_factory, softmax, {"losses": softmax._LOSSES})[np.dtype(dtype)]
    kernels(monkeypatch, "softmax_losses", prob, label, theirs, grid)
    np.testing.assert_allclose(ours, theirs, rtol=1e-5 if dtype == np.float32 else 1e-12)
    assert np.isnan(ours).any() == ignored and (ours == 0).any() == ignored
