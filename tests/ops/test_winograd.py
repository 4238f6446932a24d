"""Convolution through Winograd's transforms: against plain sums in double, in both types."""

from __future__ import annotations

import numpy as np
import pytest

from pycaffe_lms.ops.column_plan import ColumnPlan
from pycaffe_lms.ops.cpu.conv import conv, winograd_tiles
from pycaffe_lms.ops.geometry import ConvGeometry
from pycaffe_lms.ops.winograd_plan import WinogradPlan, winograd_plan

LIMIT = 64 << 20
#        batch, channels, outputs, group, in_spatial, kernel, pad
CASES = [
    (3, 32, 48, 1, (24, 22), 3, (1, 1)),  # several rows of tiles, none of them cut
    (5, 64, 96, 2, (21, 19), 3, (1, 0)),  # cut tiles, groups, pads that differ
    (4, 32, 32, 1, (23, 25), 3, (0, 2)),
    (2, 64, 96, 2, (30, 31), 3, (2, 0)),
]
ERROR = {np.float32: 1e-5, np.float64: 5e-14}  # in units of the largest value


def _geometry(batch, channels, outputs, group, spatial, kernel, pad):
    out = tuple(n + 2 * p - kernel + 1 for n, p in zip(spatial, pad, strict=True))
    return ConvGeometry(batch, channels, outputs, group, spatial, out, (kernel, kernel), (1, 1), pad, (1, 1))


def _arrays(g: ConvGeometry, dtype):
    rng = np.random.default_rng(g.channels + g.batch)
    shapes = (
        (g.batch, g.channels, *g.in_spatial),
        (g.out_channels, g.group_channels, *g.kernel),
        (g.batch, g.out_channels, *g.out_spatial),
    )
    return [rng.standard_normal(shape).astype(dtype) for shape in shapes]


def _reference(g: ConvGeometry, x, w, dy):
    """y, dx and dw by a sum over taps, in double."""
    x, w, dy = (a.astype(np.float64) for a in (x, w, dy))
    (high, wide), (out_high, out_wide) = g.pad, g.out_spatial
    padded = np.pad(x, ((0, 0), (0, 0), (high, high), (wide, wide)))
    split = padded.reshape(g.batch, g.group, g.group_channels, *padded.shape[2:])
    kernels = w.reshape(g.group, g.group_outputs, g.group_channels, *g.kernel)
    grad = dy.reshape(g.batch, g.group, g.group_outputs, out_high, out_wide)
    y, dpadded, dw = np.zeros_like(grad), np.zeros_like(split), np.zeros_like(kernels)
    for i in range(g.kernel[0]):
        for j in range(g.kernel[1]):
            seen = np.s_[:, :, :, i : i + out_high, j : j + out_wide]
            y += np.einsum("ngchw,goc->ngohw", split[seen], kernels[..., i, j], optimize=True)
            dpadded[seen] += np.einsum("ngohw,goc->ngchw", grad, kernels[..., i, j], optimize=True)
            dw[..., i, j] = np.einsum("ngohw,ngchw->goc", grad, split[seen], optimize=True)
    dx = dpadded.reshape(padded.shape)[:, :, high : high + x.shape[2], wide : wide + x.shape[3]]
    return y.reshape(dy.shape), dx, dw.reshape(w.shape)


def _run(plan, x, w, dy, before=None):
    """y, dx, dw; dw is added to `before` if given."""
    work = np.full(plan.workspace_bytes, 255, np.uint8)  # NaN in every type
    y, dx, dw = np.full_like(dy, np.nan), np.full_like(x, np.nan), np.full_like(w, np.nan)
    if before is not None:
        dw[...] = before
    conv.conv_forward(plan, x, w, None, y, work)
    conv.conv_backward_data(plan, dy, w, dx, work)
    conv.conv_backward_filter(plan, x, dy, dw, work, before is not None)
    return y, dx, dw


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("case", CASES, ids=str)
@pytest.mark.parametrize("one_by_one", [False, True])
def test_all_three_against_plain_sums(case, dtype, one_by_one):
    """one_by_one: in chunks of one image, as where workspace is scarce."""
    g = _geometry(*case)
    plan = winograd_plan(g, np.dtype(dtype).itemsize, LIMIT)
    if one_by_one:
        enough = plan.workspace_bytes
        limits = range(0, enough, 50_000)
        plan = next(p for p in (winograd_plan(g, np.dtype(dtype).itemsize, n) for n in limits) if p is not None)
        assert plan.images == 1
    else:
        assert plan.images > 1
    x, w, dy = _arrays(g, dtype)
    for got, want in zip(_run(plan, x, w, dy), _reference(g, x, w, dy), strict=True):
        assert np.abs(got - want).max() <= ERROR[dtype] * np.abs(want).max()


@pytest.mark.parametrize("case", CASES[1::2], ids=str)
def test_the_weights_gradient_is_added(case):
    g = _geometry(*case)
    plan = winograd_plan(g, 8, LIMIT)
    x, w, dy = _arrays(g, np.float64)
    before = np.random.default_rng(9).standard_normal(w.shape)
    want = _reference(g, x, w, dy)[2] + before
    assert np.abs(_run(plan, x, w, dy, before)[2] - want).max() <= 5e-14 * np.abs(want).max()


def test_cuts_between_threads_change_no_bit(monkeypatch):
    g = _geometry(*CASES[1])
    plan, arrays = winograd_plan(g, 4, LIMIT), _arrays(g, np.float32)

    def cut(function, n, *args, grain=1):
        for a, b in ((0, n // 3), (n // 3, n)):
            if a < b:
                function(a, b, *args)

    before = [a.tobytes() for a in _run(plan, *arrays)]
    monkeypatch.setattr(winograd_tiles, "parallel", cut)
    monkeypatch.setattr(conv.winograd, "spread", cut)
    assert [a.tobytes() for a in _run(plan, *arrays)] == before


@pytest.mark.parametrize("size", winograd_tiles._SIZES)
def test_the_matrices_make_a_correlation(size):
    """In one dimension, against numpy.correlate."""
    outputs, kernel = size
    rng = np.random.default_rng(4)
    x, w = rng.standard_normal(outputs + kernel - 1), rng.standard_normal(kernel)
    m = winograd_tiles.matrices(outputs, kernel)
    y = m["outputs"] @ ((m["weights"] @ w) * (m["inputs"] @ x))
    np.testing.assert_allclose(y, np.correlate(x, w, "valid"), rtol=1e-12)


def test_shapes_and_workspace_alone_choose_the_way():
    """Too little workspace, thin or few products, steps and holes: column matrices."""
    fits = _geometry(*CASES[0])
    plan = conv.conv_plan(fits, np.float32, LIMIT)
    assert isinstance(plan, WinogradPlan) and plan.workspace_bytes <= LIMIT
    assert isinstance(conv.conv_plan(fits, np.float32, 64 << 10), ColumnPlan)
    for limit in range(0, 4 << 20, 100_000):
        plan = winograd_plan(fits, 4, limit)
        assert plan is None or plan.workspace_bytes <= limit
    others = [
        _geometry(3, 16, 48, 1, (24, 22), 3, (1, 1)),  # few channels
        _geometry(3, 40, 48, 1, (24, 22), 3, (1, 1)),  # 40 is no multiple of 16
        _geometry(1, 32, 48, 1, (24, 22), 3, (1, 1)),  # few tiles
        _geometry(0, 32, 48, 1, (24, 22), 3, (1, 1)),
        _geometry(99, 32, 48, 1, (5, 5), 3, (1, 1)),  # tiles that are mostly cut away
        _geometry(3, 32, 48, 1, (24, 22), 3, (3, 3)),  # outputs that see nothing
        _geometry(3, 32, 48, 1, (24, 22), 5, (2, 2)),
    ]
    for g in others:
        assert isinstance(conv.conv_plan(g, np.float32, LIMIT), ColumnPlan)
