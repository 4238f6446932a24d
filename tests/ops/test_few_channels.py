"""The weights' gradient of convolutions of few channels: emulated, and on a GPU, against the CPU's in float64."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from pycaffe_lms.backend import cuda, cuda_available
from pycaffe_lms.backend.bfloat16 import BFLOAT16
from pycaffe_lms.ops.cuda.conv import few_channels

from .emulated import COMPILER, Kernels
from .fake_cudnn import geometry

SHAPES = {
    "3x3, stride 2": geometry(3, 3, 32, (149, 155), 3, stride=2, pad=1),
    "one channel": geometry(1, 1, 64, (132, 133), 3),
    "rows in chunks": geometry(1, 4, 16, (9, 2100), 3, pad=1),
    "dilation": geometry(2, 2, 8, (95, 97), 3, pad=2, dilation=2),
    "three axes": geometry(1, 1, 32, (26, 27, 28), 3, pad=1),
    "many outputs": geometry(1, 3, 128, (130, 130), 2),
    "1x1": geometry(2, 4, 64, (91, 92), 1),
}


def wanted(g, x, dy):
    """The gradient in float64, from products of whole planes."""
    dw = np.zeros((g.out_channels, g.channels, *g.kernel))
    x = np.pad(x.astype(np.float64), [(0, 0), (0, 0), *((p, p) for p in g.pad)])
    for tap in np.ndindex(*g.kernel):
        places = zip(tap, g.dilation, g.stride, g.out_spatial, strict=True)
        window = x[(..., *(slice(t * d, t * d + (n - 1) * s + 1, s) for t, d, s, n in places))]
        flat = (a.reshape(*a.shape[:2], -1) for a in (dy.astype(np.float64), window))
        dw[(..., *tap)] = np.einsum("nos,ncs->oc", *flat)
    return dw


def found(g, put, get):
    """The gradient, and that added to a first one, in the formula's order; and what they should be."""
    rng = np.random.default_rng(3)
    shapes = (g.batch, g.channels, *g.in_spatial), (g.batch, g.out_channels, *g.out_spatial)
    x, dy = (rng.normal(size=shape).astype(np.float32) for shape in shapes)
    start = rng.normal(size=(g.out_channels, g.channels, *g.kernel)).astype(np.float32)
    last = lambda a: np.moveaxis(a, 1, -1).copy()  # noqa: E731
    plan = few_channels.plan(replace(g, channels_last=True), np.float32, 1 << 26)
    work = put(np.full(plan.workspace_bytes // 4 + 1, np.nan, np.float32)).view(np.uint8)[:-1]
    dw, added = put(np.full_like(last(start), np.nan)), put(last(start))
    for to, accumulate in ((dw, False), (added, True)):
        few_channels.backward_filter(plan, put(last(x)), put(last(dy)), to, work, accumulate)
    exact = wanted(g, x, dy)
    return [np.moveaxis(get(a), -1, 1) for a in (dw, added)], [exact, exact + start]


def check(given, expected, tolerance=1e-5):
    for a, b in zip(given, expected, strict=True):
        np.testing.assert_allclose(a, b, rtol=0, atol=tolerance * np.abs(expected[0]).max())


@pytest.mark.skipif(COMPILER is None, reason="no C++ compiler")
@pytest.mark.parametrize("name", SHAPES)
def test_emulated(name, tmp_path, monkeypatch):
    compiled = {}

    def launch(source, kernel, dtype, threads, *args, grid, block=256):
        if source not in compiled:
            (folder := tmp_path / str(len(compiled))).mkdir()
            compiled[source] = Kernels(folder, dtype, {kernel: source})
        compiled[source].run(kernel, grid, block, *args)

    monkeypatch.setattr(cuda, "launch", launch)
    monkeypatch.setattr(few_channels, "_PARTS", 5)
    check(*found(SHAPES[name], lambda a: a, lambda a: a))


@pytest.mark.gpu
@pytest.mark.skipif(not cuda_available(), reason="no GPU")
@pytest.mark.parametrize("name", SHAPES)
def test_on_a_gpu(name):
    cupy = cuda.require()
    check(*found(SHAPES[name], cupy.asarray, cupy.asnumpy))


def test_the_plan_knows_what_pays():
    first = replace(geometry(256, 3, 64, (227, 227), 3, stride=2), channels_last=True)
    assert few_channels.plan(first, np.float32, 1 << 26).parts <= 1056
    assert few_channels.plan(first, np.float32, 1 << 20).workspace_bytes <= 1 << 20
    assert few_channels.plan(first, np.float32, 1 << 10) is None
    refused = {
        "channels first": {"channels_last": False},
        "few positions": {"batch": 1},
        "many channels": {"channels": 8},
        "outputs that no warp covers": {"out_channels": 96},
        "more taps than a thread holds": {"kernel": (7, 7)},
        "groups": {"group": 3, "channels": 3, "out_channels": 24},
    }
    taken = [why for why, change in refused.items() if few_channels.plan(replace(first, **change), np.float32, 1 << 26)]
    assert taken == []
    assert few_channels.plan(first, BFLOAT16, 1 << 26) is None
