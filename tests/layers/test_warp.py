"""Warp and FlowWarp against loops over places, their gradients, and slopes at whole numbers."""

from __future__ import annotations

import math

import numpy as np
import pytest

from pycaffe_lms.errors import ShapeError

from .cases import Case
from .harness import LayerBench, check_gradient

NAN = "flow_warp_param { fill_value: NOT_A_NUMBER }"


def flows(rng, shapes):
    """Draw flows of which some lead outside, none near a whole number, where slopes jump."""
    whole = rng.integers(-2, 3, size=shapes[1])
    return [rng.normal(size=shapes[0]), whole + rng.uniform(0.1, 0.9, size=shapes[1])]


CASES: list[Case] = [
    Case("Warp", "", ((2, 3, 5, 4), (2, 2, 5, 4)), maker=flows),
    Case("FlowWarp", "", ((2, 3, 4, 6), (2, 2, 4, 6)), maker=flows),
    Case("Warp", "", ((1, 2, 1, 7), (1, 2, 1, 7)), maker=flows),
    Case("Warp", "", ((3, 1, 18, 17), (3, 2, 18, 17)), maker=flows),
    Case("FlowWarp", "", ((2, 1, 3, 1), (2, 2, 3, 1)), maker=flows),
    Case("Warp", "", ((0, 2, 3, 4), (0, 2, 3, 4))),
]


def loop(x, flow, closed, fill=0.0):
    """The definition, place by place: PWC-Net's borders are closed, FlowNet 2's repeat the last row and column."""
    n, c, height, width = x.shape
    y = np.full(x.shape, fill)
    for i, h, w in np.ndindex(n, height, width):
        column, row = w + flow[i, 0, h, w], h + flow[i, 1, h, w]
        if closed and not (0 <= column <= width - 1 and 0 <= row <= height - 1):
            continue
        if not closed and not (0 <= column < width and 0 <= row < height):
            continue
        left, top = math.floor(column), math.floor(row)
        total = np.zeros(c)
        for r, down in ((top, 1 - (row - top)), (top + 1, row - top)):
            for k, across in ((left, 1 - (column - left)), (left + 1, column - left)):
                total += down * across * x[i, :, min(r, height - 1), min(k, width - 1)]
        y[i, :, h, w] = total
    return y


@pytest.mark.parametrize("dtype, tolerance", [(np.float32, 3e-6), (np.float64, 1e-13)], ids=["f32", "f64"])
@pytest.mark.parametrize("case", CASES, ids=str)
def test_is_a_loop(case, dtype, tolerance):
    x, flow = (b.astype(dtype) for b in case.make_bottoms(np.random.default_rng(1)))
    wanted = loop(x.astype(np.float64), flow.astype(np.float64), case.type == "Warp")
    np.testing.assert_allclose(case.bench(dtype).forward([x, flow])[0], wanted, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("case", [c for c in CASES if 0 < np.prod(c.shapes[0]) < 200], ids=str)
def test_gradient(case):
    """Of the map everywhere; of the flow where its slopes do not jump: no place lies within 0.1 of a whole number."""
    check_gradient(case.bench(), case.make_bottoms(np.random.default_rng(2)))


def test_places_outside():
    """The borders themselves, places a little beyond them, NaN and infinity."""
    x = np.arange(1.0, 13.0).reshape(1, 1, 3, 4)
    flow = np.zeros((1, 2, 3, 4))
    flow[0, 0, 0] = [0, 2, 1.5, 0.25]  # columns 0, 3, 3.5, 3.25
    flow[0, 0, 1] = [-1e-9, np.nan, np.inf, 1]  # columns -1e-9, NaN, infinity, 4
    flow[0, 1, 2] = [0, 0.5, 1, -3]  # rows 2, 2.5, 3, -1
    (closed,) = LayerBench("Warp", "", (x.shape, flow.shape)).forward([x, flow])
    np.testing.assert_array_equal(closed[0, 0], [[1, 4, 0, 0], [0, 0, 0, 0], [9, 0, 0, 0]])
    (half_open,) = LayerBench("FlowWarp", "", (x.shape, flow.shape)).forward([x, flow])
    np.testing.assert_array_equal(half_open[0, 0], [[1, 4, 4, 4], [0, 0, 0, 0], [9, 10, 0, 0]])
    (filled,) = LayerBench("FlowWarp", NAN, (x.shape, flow.shape)).forward([x, flow])
    nothing = np.nan
    np.testing.assert_array_equal(filled[0, 0], [[1, 4, 4, 4], [nothing] * 4, [9, 10, nothing, nothing]])
    for kind, text in (("Warp", ""), ("FlowWarp", NAN)):
        bench = LayerBench(kind, text, (x.shape, flow.shape))
        (y,) = bench.forward([x, flow])
        outside = ~np.isfinite(y[0, 0]) if text else y[0, 0] == 0
        dx, dflow = bench.backward([np.ones(x.shape)])[0]
        assert not dflow[0, :, outside].any() and dx.sum() == pytest.approx((~outside).sum())


def test_slopes_of_the_flow_at_whole_numbers():
    """PWC-Net: the mean of both sides, one beyond the border counting as 0; FlowNet 2: to the right, and below."""
    x = np.array([[1.0, 2, 4, 8], [16, 32, 64, 128]]).reshape(1, 1, 2, 4)
    flow = np.zeros((1, 2, 2, 4))
    bench = LayerBench("Warp", "", (x.shape, flow.shape))
    bench.forward([x, flow])
    _, dflow = bench.backward([np.ones(x.shape)])[0]
    np.testing.assert_array_equal(dflow[0, 0], [[0.5, 1.5, 3, 2], [8, 24, 48, 32]])
    np.testing.assert_array_equal(dflow[0, 1], [[7.5, 15, 30, 60]] * 2)
    bench = LayerBench("FlowWarp", "", (x.shape, flow.shape))
    bench.forward([x, flow])
    _, dflow = bench.backward([np.ones(x.shape)])[0]
    np.testing.assert_array_equal(dflow[0, 0], [[1, 2, 4, 0], [16, 32, 64, 0]])
    np.testing.assert_array_equal(dflow[0, 1], [[15, 30, 60, 120], [0] * 4])


def test_backward_reads_what_it_needs():
    layer = LayerBench("Warp", "", ((1, 2, 3, 4), (1, 2, 3, 4))).layer
    assert [layer.backward_needs(p, []).bottoms for p in ((1, 0), (0, 1), (1, 1), (0, 0))] == [
        {1},
        {0, 1},
        {0, 1},
        set(),
    ]


def test_refused():
    for kind in ("Warp", "FlowWarp"):
        for flow in ((2, 2, 3, 5), (2, 3, 3, 4), (1, 2, 3, 4), (2, 2, 12)):
            with pytest.raises(ShapeError, match=r'blob "b1".*\n.*flow of its size: \(2, 2, 3, 4\)'):
                LayerBench(kind, "", ((2, 3, 3, 4), flow))
        with pytest.raises(ShapeError, match='blob "b0"'):
            LayerBench(kind, "", ((2, 3, 4), (2, 2, 4)))
