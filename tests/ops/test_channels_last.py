"""Convolutions of channels-last arrays, against the same ones in the other order: on the CPU, and through cuDNN."""

from dataclasses import replace

import numpy as np
import pytest

from pycaffe_lms.backend import cuda
from pycaffe_lms.backend.sim.device import SimDevice
from pycaffe_lms.ops import load_ops, ops_of
from pycaffe_lms.ops.cuda.conv import im2col
from pycaffe_lms.ops.cuda.cudnn import convolution

from .fake_cudnn import geometry

CASES = {
    "1x1": geometry(8, 16, 24, (14, 14), 1),
    "1x1 stride 2": geometry(4, 16, 24, (13, 14), 1, stride=2),
    "3x3": geometry(4, 16, 32, (14, 13), 3, pad=1),
    "3x3 stride 2": geometry(4, 8, 16, (15, 15), 3, stride=2, pad=1),
    "7x7 stride 2": geometry(4, 3, 16, (31, 31), 7, stride=2, pad=3),
    "groups": geometry(4, 16, 24, (11, 9), 5, pad=2, group=2),
    "dilation": geometry(4, 8, 8, (17, 17), 3, pad=2, dilation=2),
    "three axes": geometry(2, 4, 8, (7, 8, 9), 3, stride=2, pad=1),
    "large": geometry(16, 64, 64, (28, 28), 3, pad=1),  # of those whose engines are measured
}
ENDINGS = [(False, False), (True, False), (False, True), (True, True)]  # bias, ReLU


def arrays(g, dtype):
    """x, w, b, dy and a first dw, all in the order of the formula."""
    rng = np.random.default_rng(11)
    x = rng.normal(size=(g.batch, g.channels, *g.in_spatial))
    w = rng.normal(size=(g.out_channels, g.group_channels, *g.kernel))
    dy = rng.normal(size=(g.batch, g.out_channels, *g.out_spatial))
    return [a.astype(dtype) for a in (x, w, rng.normal(size=g.out_channels), dy, rng.normal(size=w.shape))]


def turned(array):
    """The second axis moved to the end, in memory too."""
    return np.moveaxis(array, 1, -1).copy()


def results(ops, g, dtype, put, get, bias=False, relu=False):
    """y, dx, dw, dw added to a first one, db, in the order of the formula; outputs start as NaN."""
    x, w, b, dy, start = arrays(g, dtype)
    place = (lambda a: put(turned(a))) if g.channels_last else put
    fetch = (lambda a: np.moveaxis(get(a), -1, 1)) if g.channels_last else get
    plan = ops.conv.plan(g, np.dtype(dtype), 1 << 26, bias=bias, relu=relu)
    work = put(np.full(plan.workspace_bytes, 0xFF, np.uint8)) if plan.workspace_bytes else None
    y, dx, dw = (place(np.full_like(a, np.nan)) for a in (dy, x, w))
    x, w, dy, start = (place(a) for a in (x, w, dy, start))
    db = put(np.full_like(b, np.nan))
    ops.conv.forward(plan, x, w, put(b) if bias else None, y, work, relu=relu)
    ops.conv.backward_data(plan, dy, w, dx, work)
    ops.conv.backward_filter(plan, x, dy, dw, work, False)
    ops.conv.backward_filter(plan, x, dy, start, work, True)
    ops.conv_bias_gradient(dy, db, plan.geometry.grid, False)
    return [lambda a=a: fetch(a) for a in (y, dx, dw, start)] + [lambda: get(db)]


@pytest.mark.parametrize("bias, relu", ENDINGS)
@pytest.mark.parametrize("name", [n for n in CASES if n != "large"])
def test_both_orders_agree_on_the_cpu(name, bias, relu):
    ops, g = load_ops("cpu"), CASES[name]
    ours = results(ops, replace(g, channels_last=True), np.float64, np.array, np.array, bias, relu)
    theirs = results(ops, g, np.float64, np.array, np.array, bias, relu)
    for one, other in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(one(), other(), rtol=1e-12, atol=1e-12)
    assert not relu or (ours[0]() >= 0).all()


def test_queued_on_the_simulated_device():
    device = SimDevice()
    ops, g = ops_of(device), replace(CASES["groups"], channels_last=True)
    assert ops.conv_channels_last_plan(g, np.float32) is True
    late = results(ops, g, np.float64, np.array, np.array, True, True)
    assert np.isnan(late[0]()).all(), "nothing has run yet"
    device.synchronize()
    now = results(load_ops("cpu"), g, np.float64, np.array, np.array, True, True)
    for one, other in zip(late, now, strict=True):
        np.testing.assert_allclose(one(), other(), rtol=1e-12, atol=1e-12)


def test_depthwise_has_direct_kernels_in_both_orders():
    g = geometry(2, 6, 6, (9, 9), 3, group=6)
    assert g.depthwise and replace(g, channels_last=True).depthwise
    assert load_ops("cpu").conv_channels_last_plan(g, np.float32)


def test_shapes_carry_their_order():
    g = replace(geometry(2, 6, 4, (9,), 3), channels_last=True)
    assert g.with_axes(2).channels_last and g.with_axes(2).in_spatial == (1, 9)
    assert g.grid == (14, 4, 1) and replace(g, channels_last=False).grid == (2, 4, 7)


# --- on a GPU: cuDNN in TF32 against column matrices in float32 -------------------------------------------------------


def columns_alone():
    """The operations by column matrices alone."""
    ops = load_ops("cuda")

    def conv_plan(g, dtype, limit, **ending):
        from pycaffe_lms.ops.cuda.conv.conv import ConvPlan

        columns = im2col.plan(g, dtype.itemsize, limit)
        return ConvPlan(g, columns.workspace_bytes, columns=columns)

    ops.bind("conv_plan", conv_plan)
    return ops


def on_gpu(name, math_mode, bias, relu, last):
    cupy, ops, g = cuda.require(), load_ops("cuda"), CASES[name]
    math_mode("fp32")
    want = [r() for r in results(columns_alone(), g, np.float32, cupy.array, cupy.asnumpy, bias, relu)]
    math_mode("tf32")
    g = replace(g, channels_last=last)
    return [r() for r in results(ops, g, np.float32, cupy.array, cupy.asnumpy, bias, relu)], want


@pytest.mark.gpu
@pytest.mark.usefixtures("gpu")
@pytest.mark.parametrize("last", [False, True], ids=["first", "last"])
@pytest.mark.parametrize("bias, relu", ENDINGS)
@pytest.mark.parametrize("name", CASES)
def test_results_on_a_gpu(name, bias, relu, last, math_mode, monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    got, want = on_gpu(name, math_mode, bias, relu, last)
    for role, one, other in zip(("y", "dx", "dw", "dw + first", "db"), got, want, strict=True):
        assert np.abs(one - other).max() <= 5e-3 * np.abs(other).max(), role
    assert not relu or (got[0] >= 0).all()


@pytest.mark.gpu
@pytest.mark.usefixtures("gpu")
@pytest.mark.parametrize("name", CASES)
def test_cudnn_convolves_channels_last(name, math_mode, monkeypatch, tmp_path):
    """Not only in name: all three directions are cuDNN's, in the plan as in the answer."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    math_mode("tf32")
    ops, g = load_ops("cuda"), replace(CASES[name], channels_last=True)
    assert ops.conv_channels_last_plan(g, np.float32)
    assert set(convolution.DIRECTIONS) <= set(ops.conv.plan(g, np.float32, 1 << 26).cudnn.engines)
    assert not ops.conv_channels_last_plan(g, np.float64)


@pytest.mark.gpu
@pytest.mark.usefixtures("gpu")
def test_measured_engines_are_found_again(math_mode, monkeypatch, tmp_path):
    """Another process reads the choice; a file of nobody's measures anew and need not agree."""
    from pycaffe_lms.ops.cuda.cudnn import build, choice

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.delenv("PYCAFFE_LMS_CUDNN", raising=False)
    math_mode("tf32")
    g, found = replace(CASES["large"], channels_last=True), []
    free = cuda.require().cuda.runtime.memGetInfo()[0]
    for _ in range(2):
        monkeypatch.setattr(build, "_graphs", {})
        monkeypatch.setattr(build, "_stores", {})
        found.append(convolution.plan(g, "float32", 1 << 28, fused=convolution.Fused(True, True)).engines)
        monkeypatch.setattr(choice, "measure", None)  # a second call would fail
    assert found[0] == found[1]
    assert free - cuda.require().cuda.runtime.memGetInfo()[0] < 1 << 28, "scratch memory went back"


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
@pytest.mark.parametrize("stride, channels", [(1, 16), (2, 16), (2, 18)])
def test_a_gradient_that_is_added_to_what_is_there(device, stride, channels):
    if device == "cuda" and not cuda.available():
        pytest.skip("no GPU")
    ops, cuda_arrays = load_ops(device), device == "cuda"
    put = cuda.require().asarray if cuda_arrays else np.array
    fetch = cuda.require().asnumpy if cuda_arrays else np.array
    g = replace(geometry(8, channels, 24, (14, 13), 1, stride=stride), channels_last=True)
    _, w, _, dy, _ = arrays(g, np.float32)
    start = np.random.default_rng(2).normal(size=(8, 14, 13, channels)).astype(np.float32)
    plan, dx = ops.conv.plan(g, np.dtype(np.float32), 1 << 26), put(start)
    nbytes = ops.conv_add.backward_data_plan(plan)
    assert nbytes == (8 * 7 * 7 * channels * 4 if cuda_arrays and stride == 2 else 0)
    work = put(np.full(nbytes, 0xFF, np.uint8)) if nbytes else None
    ops.conv_add.backward_data(plan, put(turned(dy)), put(w), dx, work)
    expected = start.astype(np.float64)
    expected[:, ::stride, ::stride] += np.einsum("nohw,oc->nhwc", dy.astype(np.float64), w[:, :, 0, 0])
    np.testing.assert_allclose(fetch(dx), expected, rtol=4e-3, atol=2e-2 if cuda_arrays else 1e-5)  # TF32: 11 bits
    for other in ("3x3", "groups"):
        plan = ops.conv.plan(replace(CASES[other], channels_last=True), np.dtype(np.float32), 1 << 26)
        assert ops.conv_add.backward_data_plan(plan) is None
    assert ops.conv_add.backward_data_plan(ops.conv.plan(CASES["1x1"], np.dtype(np.float32), 1 << 26)) is None
