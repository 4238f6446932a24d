"""CUDA kernels of CenterLoss, DeephiResize, LocallyConnected, GuidedDropout, Warp, CTCGreedyDecoder's accuracies and
AVE_EXC_PAD, emulated on the host, against the CPU's."""

from __future__ import annotations

import numpy as np
import pytest

from pycaffe_lms.backend import cuda
from pycaffe_lms.ops import load_ops
from pycaffe_lms.ops.cuda.activation import dropout
from pycaffe_lms.ops.cuda.conv import local
from pycaffe_lms.ops.cuda.loss import center, ctc_decoder
from pycaffe_lms.ops.cuda.pooling import warp
from pycaffe_lms.ops.cuda.shape import resize
from pycaffe_lms.ops.geometry import PoolGeometry
from pycaffe_lms.ops.records import LabelRows, LocalWindows, Resize, Warping

from .emulated import COMPILER, Kernels
from .test_cuda_launches import shown

pytestmark = pytest.mark.skipif(COMPILER is None, reason="no C++ compiler")
TOLERANCE = {np.float32: 2e-6, np.float64: 1e-14}


@pytest.fixture(scope="module", params=TOLERANCE, ids=lambda d: np.dtype(d).name)
def both(request, tmp_path_factory):
    """Return a function that runs an operation on the CPU and its kernels on the host, and compares the results."""
    names = {center: "moves", resize: "forward backward", local: "forward backward_input backward_weight"}
    kernels = {
        module: Kernels(tmp_path_factory.mktemp("kernels"), request.param, {of: module._SOURCE})
        for module, of in names.items()
    }
    cpu, tolerance = load_ops("cpu").functions(), TOLERANCE[request.param]

    def compare(module, name, monkeypatch, arrays, out, *rest):
        def launch(source, kernel, dtype, threads, *args, block=64, grid=2):
            kernels[module].run(kernel, grid, block, *args)

        monkeypatch.setattr(module, "launch", launch)
        results = []
        for function in (cpu[name], getattr(module, name)):
            given = [None if a is None else a.astype(request.param) for a in arrays]
            function(*given, *rest)
            results.append(given[out])
        np.testing.assert_allclose(results[1], results[0], rtol=tolerance, atol=20 * tolerance)

    return compare


def test_moves_of_centres(both, monkeypatch):
    rng = np.random.default_rng(1)
    index, rows = rng.integers(4, size=9) + rng.uniform(0, 0.9, size=9), rng.normal(size=(3, 9, 300))
    both(center, "center_moves", monkeypatch, [index, *rows], 3, 9, 300)


@pytest.mark.parametrize("how", [{"nearest": False}, {"nearest": True}, {"nearest": False, "corners": True}], ids=str)
@pytest.mark.parametrize("size, out", [((4, 5), (8, 10)), ((7, 9), (3, 4)), ((1, 6), (5, 1)), ((5, 3), (5, 4))])
def test_resize(both, monkeypatch, size, out, how):
    rng, way = np.random.default_rng(2), Resize(3, size, out, **how)
    small, large = rng.normal(size=(1, 3, *size)), rng.normal(size=(1, 3, *out))
    both(resize, "resize_forward", monkeypatch, [small, np.full(large.shape, np.nan)], 1, way)
    both(resize, "resize_backward", monkeypatch, [large, np.full(small.shape, np.nan)], 1, way)


@pytest.mark.parametrize("windows", [LocalWindows(3, 2, 1), LocalWindows(2, 1, 0), LocalWindows(1, 1, 0)], ids=str)
def test_locally_connected(both, monkeypatch, windows):
    rng, shape = np.random.default_rng(3), (2, 3, 5, 4)
    out = [(s + 2 * windows.pad - windows.size) // windows.stride + 1 for s in shape[2:]]
    x, dy = rng.normal(size=shape), rng.normal(size=(2, 4, *out))
    w, b = rng.normal(size=(4, 1, 3 * windows.size**2, out[0] * out[1])), rng.normal(size=(1, 1, 4, out[0] * out[1]))
    for bias in (b, None):
        both(local, "local_forward", monkeypatch, [x, w, bias, np.full(dy.shape, np.nan)], 3, windows)
    both(local, "local_backward_input", monkeypatch, [dy, w, np.full(shape, np.nan)], 2, windows)
    for add in (False, True):
        start = w if add else np.full(w.shape, np.nan)
        both(local, "local_backward_weight", monkeypatch, [x, dy, start], 2, windows, add)


@pytest.mark.parametrize("dtype", TOLERANCE, ids=lambda d: np.dtype(d).name)
def test_factors_of_guided_dropout(dtype, monkeypatch, tmp_path):
    """More channels than a block has threads; a block of draws begins within an item; an item without a channel."""
    kernels = Kernels(tmp_path, dtype, {"guided_factors threshold_factors": dropout._FACTORS})

    def launch(source, kernel, dtype, threads, *args, block, grid):
        kernels.run(kernel, grid, block, *args)

    monkeypatch.setattr(dropout, "launch", launch)
    guidance = np.random.default_rng(5).normal(size=(4, 301)).astype(dtype)
    guidance[1], guidance[2, 7] = -1e9, np.nan
    key = np.array([2**40 + 3, 2**33 + 1, 2**32 + 5], np.uint64)
    for name, rest in (("guided_factors", (key, 1.5)), ("threshold_factors", (0.25,))):
        ours, theirs = (np.full(guidance.shape, np.nan, dtype) for _ in range(2))
        load_ops("cpu").functions()[name](guidance, ours, *rest)
        getattr(dropout, name)(guidance, theirs, *rest)
        np.testing.assert_allclose(theirs, ours, rtol=TOLERANCE[dtype])
        assert not ours[1].any() and 0.2 < (ours[[0, 3]] == 0).mean() < 0.8


@pytest.mark.parametrize("dtype", TOLERANCE, ids=lambda d: np.dtype(d).name)
@pytest.mark.parametrize("how", [Warping(True, 0.0), Warping(False, np.nan)], ids=["PWC-Net", "FlowNet 2"])
def test_warps(dtype, how, monkeypatch, tmp_path):
    """Maps of more positions than a block has threads; many outputs from one place, whole numbers, places outside."""
    kernels = Kernels(tmp_path, dtype, {"forward sources backward backward_flow": warp._SOURCE})

    def launch(source, kernel, dtype, threads, *args, block=64, grid=3):
        kernels.run(kernel, grid, block, *args)

    monkeypatch.setattr(warp, "launch", launch)
    rng, shape = np.random.default_rng(6), (2, 3, 19, 31)
    x, dy = (rng.normal(size=shape).astype(dtype) for _ in range(2))
    flow = rng.normal(size=(2, 2, 19, 31)).astype(dtype) * 4
    flow[0, :, ::3] = np.rint(flow[0, :, ::3])
    flow[1, 0, 4:14] = 7.5 - np.arange(31)  # three hundred outputs from one column
    cpu, found = load_ops("cpu").functions(), []
    for name in ("warp_forward", "warp_backward", "warp_backward_flow"):
        for function in (cpu[name], getattr(warp, name)):
            work, out = np.full((2, 3 * 19 * 31), 2**32 - 1, np.uint32), np.full(shape, np.nan, dtype)
            if name == "warp_backward":
                function(flow, dy, out, work, how)
            elif name == "warp_forward":
                function(x, flow, out, how)
            else:
                out = np.full(flow.shape, np.nan, dtype)
                function(x, flow, dy, out, how)
            found.append(out)
        np.testing.assert_allclose(found[-1], found[-2], rtol=TOLERANCE[dtype], atol=20 * TOLERANCE[dtype])
    assert (found[0] == 0).any() or np.isnan(found[0]).any()


@pytest.mark.parametrize("dtype", TOLERANCE, ids=lambda d: np.dtype(d).name)
def test_accuracies_of_lines(dtype, monkeypatch, tmp_path):
    """More lines than a block has threads, of which some are right, and some have nothing to find."""
    kernels = Kernels(tmp_path, dtype, {"strip distances both_shares": ctc_decoder._SOURCE})

    def launch(source, kernel, dtype, threads, *args, block=64, grid=3):
        kernels.run(kernel, grid, block, *args)

    monkeypatch.setattr(ctc_decoder, "launch", launch)
    rng, items = np.random.default_rng(8), 300
    labels = rng.integers(-1, 3, (items, 4)).astype(dtype)
    found = rng.integers(1, 3, (items, 6)).astype(np.int32)
    found[:, 0] = rng.integers(0, 3, items)
    results = []
    for function in (load_ops("cpu").functions()["line_accuracy"], ctc_decoder.line_accuracy):
        given, line, distance = np.full((items, 4), np.nan, dtype), np.zeros((items, 5), np.int32), np.empty(items)
        accuracy = np.full((1, 2, 1, 1), np.nan, dtype)
        function(found, labels, given, line, distance, accuracy, LabelRows(items, 4, 1, 4), 0)
        results.append((given, distance, accuracy))
    for ours, theirs in zip(*results, strict=True):
        np.testing.assert_allclose(theirs, ours, rtol=TOLERANCE[dtype])
    assert ((results[0][1] == 0) & (found[:, 0] == 0)).any() and 0 < results[0][2][0, 1, 0, 0] < 0.5


@pytest.mark.parametrize("order", ["", "_last", "_nd"])
def test_averages_of_what_is_inside(monkeypatch, tmp_path, order):
    """Windows 3 x 2 with padding, of planes and with channels last; stride 2 leaves one beyond the far border."""
    rng, g = np.random.default_rng(4), PoolGeometry(6, (7, 6), (4, 4), (3, 2), (2, 2), (1, 1), inside=True)
    x, dy = rng.normal(size=(2, 3, 7, 6)).astype(np.float32), rng.normal(size=(2, 3, 4, 4)).astype(np.float32)
    rest = (3, g) if order == "_last" else (g,)

    def launch(source, kernel, dtype, threads, *args, block=64, grid=2):
        folder = tmp_path / kernel
        folder.mkdir()
        Kernels(folder, np.float32, {kernel: source}).run(kernel, grid, block, *args)

    monkeypatch.setattr(cuda, "launch", launch)
    results = []
    for device in ("cpu", "cuda"):
        ops, y, dx = load_ops(device).functions(), np.full_like(dy, np.nan), np.full_like(x, np.nan)
        ops[f"average_pool{order}_forward"](*shown((x, y)), *rest)
        ops[f"average_pool{order}_backward"](*shown((dy, dx)), *rest)
        results.append((y, dx))
    for one, two in zip(*results, strict=True):
        np.testing.assert_allclose(one, two, rtol=2e-6, atol=1e-6)
