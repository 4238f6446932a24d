"""LRN against the formulas, written as plain loops, and its gradients."""

from __future__ import annotations

import numpy as np
import pytest

from pycaffe_lms.errors import LayerParamError, ShapeError

from .cases import Case
from .harness import LayerBench, check_gradient


def _case(fields, shape=(2, 7, 3, 3)):
    return Case("LRN", f"lrn_param {{ {fields} }}", (shape,))


CASES: list[Case] = [
    _case(""),
    _case("local_size: 3 alpha: 0.7 beta: 0.5 k: 2"),
    _case("local_size: 15"),  # wider than the channels are many
    _case("local_size: 1 beta: 1.3"),
    _case("local_size: 3", (1, 40, 2, 1)),
    _case("local_size: 3", (0, 3, 2, 2)),
    _case("norm_region: WITHIN_CHANNEL local_size: 3"),
    _case("norm_region: WITHIN_CHANNEL local_size: 5 alpha: 2 beta: 0.6", (2, 2, 4, 7)),
    _case("norm_region: WITHIN_CHANNEL local_size: 9", (1, 2, 3, 4)),
    _case("norm_region: WITHIN_CHANNEL", (0, 2, 3, 4)),
]


def reference(x, lrn):
    half, y = lrn.local_size // 2, np.zeros_like(x)
    for n, c, h, w in np.ndindex(*x.shape):
        if lrn.norm_region == lrn.ACROSS_CHANNELS:
            window, scale = x[n, max(c - half, 0) : c + half + 1, h, w], lrn.k
            share = lrn.alpha / lrn.local_size
        else:
            window, scale = x[n, c, max(h - half, 0) : h + half + 1, max(w - half, 0) : w + half + 1], 1.0
            share = lrn.alpha / lrn.local_size**2
        scale += share * (window**2).sum()
        y[n, c, h, w] = x[n, c, h, w] * scale**-lrn.beta
    return y


@pytest.mark.parametrize("dtype", [np.float32, np.float64], ids=["f32", "f64"])
@pytest.mark.parametrize("case", CASES, ids=str)
def test_forward_is_the_formula(case, dtype):
    bench, (x,) = case.bench(dtype), case.make_bottoms(np.random.default_rng(3))
    (y,) = bench.forward([x])
    tolerance = 1e-6 if dtype == np.float32 else 1e-13
    np.testing.assert_allclose(y, reference(x, bench.layer.param.lrn_param), rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("case", [c for c in CASES if 0 not in c.shapes[0]], ids=str)
def test_gradient(case):
    check_gradient(case.bench(), case.make_bottoms(np.random.default_rng(4)))


def test_zero_batch():
    for case in (CASES[5], CASES[9]):
        bench = case.bench()
        (y,) = bench.forward([np.zeros(case.shapes[0])])
        assert bench.backward([y])[0][0].shape == case.shapes[0]


def test_k_is_ignored_within_channels():
    x = np.random.default_rng(5).normal(size=(1, 2, 4, 4))
    text = "lrn_param {{ norm_region: WITHIN_CHANNEL k: {} }}"
    (one,), (two,) = (LayerBench("LRN", text.format(k), (x.shape,)).forward([x]) for k in (1, 5))
    np.testing.assert_array_equal(one, two)


def test_a_large_neighbour_leaves_no_trace():
    x = np.full((1, 64, 1, 1), 0.5, np.float32)
    x[0, 8] = 1e6  # a running sum would keep the rounding error of 1e12
    (y,) = LayerBench("LRN", "", (x.shape,), dtype=np.float32).forward([x])
    np.testing.assert_allclose(y[0, 20:40], 0.5 * 1.25**-0.75, rtol=1e-6)


@pytest.mark.parametrize("region", ["ACROSS_CHANNELS", "WITHIN_CHANNEL"])
def test_backward_reads_the_bottom_only(region):
    layer = LayerBench("LRN", f"lrn_param {{ norm_region: {region} }}", ((1, 2, 3, 3),)).layer
    needs = layer.backward_needs([True], [])
    assert needs.bottoms == {0} and not needs.tops and not layer.backward_needs([False], []).bottoms


def test_errors_name_the_layer_and_a_fix():
    with pytest.raises(LayerParamError, match=r'layer "n" \(LRN\).*local_size is 4') as caught:
        LayerBench("LRN", 'name: "n" lrn_param { local_size: 4 }', ((1, 2, 3, 3),))
    assert caught.value.fix == "use local_size: 5"
    with pytest.raises(ShapeError, match="4 axes"):
        LayerBench("LRN", "", ((1, 2, 3),))
