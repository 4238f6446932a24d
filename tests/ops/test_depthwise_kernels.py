"""The kernels of depthwise convolutions in both memory orders: emulated, and on a GPU, against those of the CPU."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from pycaffe_lms.backend import cuda, cuda_available
from pycaffe_lms.ops import load_ops
from pycaffe_lms.ops.cuda.conv import depthwise

from .emulated import COMPILER, Kernels
from .fake_cudnn import geometry

SHAPES = {
    "3x3": geometry(2, 8, 8, (9, 7), 3, pad=1, group=8),
    "stride 2": geometry(2, 36, 36, (7, 6), 3, stride=2, pad=1, group=36),
    "two side by side": geometry(2, 6, 6, (14, 5), 3, pad=1, group=6),
    "three outputs of a channel": geometry(2, 3, 9, (7, 6), 3, pad=1, group=3),
    "dilation": geometry(2, 12, 12, (13, 9), 3, pad=2, dilation=2, group=12),
    "8x8": geometry(1, 2, 2, (12, 9), 8, stride=2, pad=3, group=2),
    "inputs without taps": geometry(2, 4, 4, (9, 10), 2, stride=3, pad=1, group=4),
    "three axes": geometry(2, 4, 4, (5, 6, 7), 3, stride=2, pad=1, group=4),
}
NAMES = "forward backward_data backward_filter"


def operands(g, dtype=np.float32):
    """x, w, b, dy and a first dw, all in the order of the formula."""
    rng = np.random.default_rng(5)
    shapes = (g.batch, g.channels, *g.in_spatial), (g.out_channels, 1, *g.kernel), (g.out_channels,)
    shapes += (g.batch, g.out_channels, *g.out_spatial), (g.out_channels, 1, *g.kernel)
    return [rng.normal(size=shape).astype(dtype) for shape in shapes]


def results(operation, g, put, get, dtype=np.float32, half=False):
    """y, y with ReLU, dx, dw, dw added to a first one, in the order of the formula; outputs start as NaN.

    half: as cut for bfloat16, which on a GPU is wider.
    """
    x, w, b, dy, start = operands(g, dtype)
    place = (lambda a: put(np.moveaxis(a, 1, -1).copy())) if g.channels_last else put
    fetch = (lambda a: np.moveaxis(get(a), -1, 1)) if g.channels_last else get
    plan = operation.plan(g, np.dtype(dtype), 1 << 26, half)
    work = put(np.full(plan.workspace_bytes // 4, np.nan, np.float32)).view(np.uint8) if plan.workspace_bytes else None
    y, rectified, dx = (place(np.full_like(a, np.nan)) for a in (dy, dy, x))
    dw, added = place(np.full_like(w, np.nan)), place(start)
    x, w, dy, b = place(x), place(w), place(dy), put(b)
    operation.forward(plan, x, w, None, y, work)
    operation.forward(plan, x, w, b, rectified, work, True)
    operation.backward_data(plan, dy, w, dx, work)
    operation.backward_filter(plan, x, dy, dw, work, False)
    operation.backward_filter(plan, x, dy, added, work, True)
    return [fetch(a) for a in (y, rectified, dx, dw, added)]


class Emulated:
    """Compiles each source that is launched, once, and runs it on the host."""

    def __init__(self, folder, dtype):
        self.folder, self.dtype, self.compiled = folder, dtype, {}

    def launch(self, source, name, dtype, threads, *args, grid, block=256):
        assert np.dtype(dtype) == self.dtype
        if source not in self.compiled:
            folder = self.folder / str(len(self.compiled))
            folder.mkdir()
            names = "add_parts" if source == depthwise.ADD_PARTS else NAMES
            self.compiled[source] = Kernels(folder, dtype, {names: source})
        if grid:
            self.compiled[source].run(name, grid, block, *args)


@pytest.fixture
def emulated(tmp_path, monkeypatch):
    """The operation for CUDA, its kernels compiled for the host and float32."""
    operation = load_ops("cuda").depthwise  # before: other modules import `launch` when they are loaded
    monkeypatch.setattr(cuda, "launch", Emulated(tmp_path, np.dtype(np.float32)).launch)
    monkeypatch.setattr(depthwise, "aligned", lambda *arrays: int(all(a.ctypes.data % 16 == 0 for a in arrays)))
    return operation


def same(array):
    """A copy that begins at a multiple of 16 bytes."""
    memory = np.empty(array.nbytes + 16, np.uint8)
    start = -memory.ctypes.data % 16
    copy = memory[start : start + array.nbytes].view(array.dtype).reshape(array.shape)
    copy[...] = array
    return copy


def check(found, expected, tolerance):
    for role, one, other in zip(("y", "relu", "dx", "dw", "dw + first"), found, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=tolerance, atol=tolerance * np.abs(other).max(), err_msg=role)


@pytest.mark.skipif(COMPILER is None, reason="no C++ compiler")
@pytest.mark.parametrize("name", SHAPES)
def test_emulated_kernels(name, emulated, monkeypatch):
    """As on the CPU, and both orders of the same bits but for sums over images."""
    monkeypatch.setattr(depthwise, "_THREADS", 1)
    monkeypatch.setattr(depthwise, "_EACH", (40, 300))
    g = SHAPES[name]
    assert g.depthwise
    expected = results(load_ops("cpu").depthwise, g, np.array, np.array)
    first = results(emulated, g, same, np.array)
    last = results(emulated, replace(g, channels_last=True), same, np.array, half=name in ("3x3", "stride 2"))
    check(first, expected, 2e-6)
    check(last, expected, 2e-6)
    for one, other in zip(first[:3], last, strict=False):
        np.testing.assert_array_equal(one, other)


# --- on a GPU ---------------------------------------------------------------------------------------------------------
LARGE = {
    "5x5": geometry(2, 4, 4, (10, 9), 5, pad=2, group=4),
    "no padding": geometry(1, 36, 36, (3, 4), 3, group=36),
    "56x56": geometry(4, 144, 144, (56, 56), 3, pad=1, group=144),
    "112x112, stride 2": geometry(3, 96, 96, (112, 112), 3, stride=2, pad=1, group=96),
    "7x7 taps": geometry(2, 24, 24, (56, 56), 7, pad=3, group=24),
}
ON_A_GPU = {**SHAPES, **LARGE}


@pytest.mark.gpu
@pytest.mark.skipif(not cuda_available(), reason="no GPU")
@pytest.mark.parametrize("dtype, tolerance", [(np.float64, 1e-11), (np.float32, 1e-5)], ids=["float64", "float32"])
@pytest.mark.parametrize("name", ON_A_GPU)
def test_on_a_gpu(name, dtype, tolerance):
    """As on the CPU in float64; both orders and a second run give the same bits, but for sums over images."""
    g, cupy = ON_A_GPU[name], cuda.require()
    expected = results(load_ops("cpu").depthwise, g, np.array, np.array, np.float64)
    ops = load_ops("cuda").depthwise
    orders = g, replace(g, channels_last=True)
    first, last = (results(ops, order, cupy.array, cupy.asnumpy, dtype) for order in orders)
    again = results(ops, orders[1], cupy.array, cupy.asnumpy, dtype)
    check(first, expected, tolerance)
    check(last, expected, tolerance)
    for k, (one, other, second) in enumerate(zip(first, last, again, strict=True)):
        np.testing.assert_array_equal(other, second)
        if k < 3:
            np.testing.assert_array_equal(one, other)


@pytest.mark.gpu
@pytest.mark.skipif(not cuda_available(), reason="no GPU")
@pytest.mark.parametrize("name", ["3x3", "stride 2", "two side by side", "56x56"])
def test_arrays_that_begin_in_between(name):
    """The same bits where no array begins at a multiple of 16 bytes."""
    g, cupy = replace(ON_A_GPU[name], channels_last=True), cuda.require()

    def moved(array):
        memory = cupy.empty(array.size + 1, array.dtype)[1:].reshape(array.shape)
        memory[...] = cupy.asarray(array)
        return memory

    placed, off = (results(load_ops("cuda").depthwise, g, put, cupy.asnumpy) for put in (cupy.array, moved))
    for one, other in zip(placed, off, strict=True):
        np.testing.assert_array_equal(one, other)
