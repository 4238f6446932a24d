"""Pooling against plain loops, values seen from Caffe, gradients, ties, NaNs, empty windows, checks."""

from __future__ import annotations

import numpy as np
import pytest

from pycaffe_lms.errors import BlobCountError, LayerParamError, ShapeError

from .cases import Case
from .harness import LayerBench, check_gradient

LEAST = -float(np.finfo(np.float32).max)


def _case(fields, shape=(2, 3, 6, 5), n_top=1):
    return Case("Pooling", f"pooling_param {{ {fields} }}", (shape,), n_top=n_top)


CASES: list[Case] = [
    _case(f"pool: {method} {fields}", shape)
    for method in ("MAX", "AVE")
    for fields, shape in (
        ("kernel_size: 2", (2, 3, 3, 5)),
        ("kernel_size: 3 stride: 2", (2, 3, 6, 5)),
        ("kernel_size: 3 stride: 2 round_mode: FLOOR", (2, 3, 6, 5)),
        ("kernel_size: 3 stride: 2 pad: 1", (2, 2, 6, 6)),
        ("kernel_size: 3 stride: 3 pad: 2", (2, 2, 4, 5)),
        ("kernel_h: 3 kernel_w: 2 stride_h: 2 stride_w: 1 pad_h: 0 pad_w: 1", (1, 2, 5, 4)),
        ("kernel_size: 2 stride: 4", (1, 2, 4, 5)),  # the last rows' windows lie outside
        ("kernel_size: 5 stride: 2", (1, 2, 4, 4)),  # larger than the input: rounding up leaves one window
        ("global_pooling: true", (2, 3, 4, 3)),
        ("kernel_size: 2", (0, 3, 4, 4)),
    )
] + [
    _case("kernel_size: 2 stride: 2", (2, 2, 5, 4), n_top=2),
    _case("kernel_size: 3 stride: 2 pad: 1", (2, 2, 5, 4), n_top=2),
    *(
        _case(f"pool: AVE_EXC_PAD {fields}", (2, 3, 6, 5))
        for fields in (
            "kernel_size: 3 stride: 1 pad: 1 ceil_mode: false",
            "kernel_size: 3 stride: 3 pad: 2",
            "kernel_h: 3 kernel_w: 7 stride: 2 pad_h: 0 pad_w: 3",
            "kernel_size: 2 stride: 4",
            "global_pooling: true",
        )
    ),
    _case("kernel_size: 16 stride: 3 pad: 1", (1, 2, 17, 18), n_top=2),  # more places than a byte counts
]


def windows(shape, param):
    """Return for every output (row, column) its window, as in Caffe: (row start, row end, column start, column end)."""
    height, width = shape[2:]

    def pick(square, pair):
        return [getattr(param, p) if param.HasField(p) else getattr(param, square) for p in pair]

    kernel = [height, width] if param.global_pooling else pick("kernel_size", ("kernel_h", "kernel_w"))
    stride, pad = pick("stride", ("stride_h", "stride_w")), pick("pad", ("pad_h", "pad_w"))
    up = np.floor if param.round_mode == param.FLOOR or "ceil_mode: false" in str(param) else np.ceil
    out = [int(up((n + 2 * p - k) / s)) + 1 for n, k, s, p in zip(shape[2:], kernel, stride, pad, strict=True)]
    if any(pad):
        out = [o - ((o - 1) * s >= n + p) for o, n, s, p in zip(out, shape[2:], stride, pad, strict=True)]
    starts = [[o * s - p for o in range(n)] for n, s, p in zip(out, stride, pad, strict=True)]
    return {
        (i, j): (r, min(r + kernel[0], height + pad[0]), c, min(c + kernel[1], width + pad[1]))
        for i, r in enumerate(starts[0])
        for j, c in enumerate(starts[1])
    }


def reference(x, param):
    """Return (top, index of each maximum in its plane, its place in the window before that is clipped)."""
    places = windows(x.shape, param)
    out = [max(p[a] for p in places) + 1 for a in (0, 1)]
    y, mask = np.zeros((*x.shape[:2], *out)), np.full((*x.shape[:2], *out), -1.0)
    place = mask.copy()
    width = x.shape[3] if param.global_pooling else param.kernel_w or param.kernel_size
    for (i, j), (r0, r1, c0, c1) in places.items():
        for n, c in np.ndindex(*x.shape[:2]):
            inside = [
                (x[n, c, r, q], r * x.shape[3] + q, (r - r0) * width + q - c0)
                for r in range(max(r0, 0), min(r1, x.shape[2]))
                for q in range(max(c0, 0), min(c1, x.shape[3]))
            ]
            if param.pool == param.AVE_EXC_PAD:
                y[n, c, i, j] = np.mean([v for v, _, _ in inside]) if inside else 0
                continue
            if param.pool == param.AVE:
                y[n, c, i, j] = sum(v for v, _, _ in inside) / ((r1 - r0) * (c1 - c0)) if inside else 0
                continue
            y[n, c, i, j] = LEAST
            for value, index, at in inside:
                if value > y[n, c, i, j]:
                    y[n, c, i, j], mask[n, c, i, j], place[n, c, i, j] = value, index, at
    return y, mask, place


@pytest.mark.parametrize("dtype", [np.float32, np.float64], ids=["f32", "f64"])
@pytest.mark.parametrize("needs_backward", [True, False])
@pytest.mark.parametrize("case", CASES, ids=str)
def test_forward_is_the_definition(case, needs_backward, dtype):
    (x,) = case.make_bottoms(np.random.default_rng(3))
    x = x.astype(dtype)
    bench = LayerBench("Pooling", case.text, case.shapes, case.n_top, dtype, needs_backward=needs_backward)
    tops = bench.forward([x])
    y, mask, place = reference(x, bench.layer.param.pooling_param)
    assert tops[0].shape == y.shape
    np.testing.assert_allclose(tops[0], y, rtol=1e-6 if dtype == np.float32 else 1e-13, atol=1e-7)
    if case.n_top == 2:
        np.testing.assert_array_equal(tops[1], mask)
    assert ("mask" in bench.scratch) == (needs_backward and "AVE" not in case.text)
    if "mask" in bench.scratch:
        kind = np.uint16 if "16" in case.text else np.uint8
        assert bench.scratch["mask"].dtype == kind
        np.testing.assert_array_equal(bench.scratch["mask"], np.where(place < 0, np.iinfo(kind).max, place))


@pytest.mark.parametrize(
    "side, kind, none", [(15, np.uint8, 255), (16, np.uint16, 65535), (255, np.uint16, 65535), (256, np.int32, -1)]
)
def test_the_saved_place_has_the_smallest_type_that_holds_the_window(side, kind, none):
    text, shape = f"pooling_param {{ kernel_size: {side} stride: {side} }}", (1, 1, side + 1, side)
    bench = LayerBench("Pooling", text, (shape,), dtype=np.float32)
    x = np.zeros(shape)
    x[0, 0, side - 1, side - 1] = 1  # the window's last place
    x[0, 0, side] = np.nan  # all that the second window holds
    bench.forward([x])
    places = bench.scratch["mask"]
    assert places.dtype == kind
    np.testing.assert_array_equal(places.reshape(-1), [side * side - 1, none])
    (dx,), _ = bench.backward([np.array([[[[3.0], [5.0]]]])])
    assert dx[0, 0, side - 1, side - 1] == 3 and dx.sum() == 3


# a maximum of -FLT_MAX (a window wholly outside) would swamp the differences: it has its own test below
SMOOTH = [c for c in CASES if 0 not in c.shapes[0] and c.n_top == 1 and not ("MAX" in c.text and "stride: 4" in c.text)]


@pytest.mark.parametrize("case", SMOOTH, ids=str)
def test_gradient(case):
    rng = np.random.default_rng(4)
    shape = case.shapes[0]
    x = rng.permutation(int(np.prod(shape))).reshape(shape) * 0.01  # no two values near each other: no kink in reach
    check_gradient(case.bench(), [x])


def test_a_second_top_gets_no_gradient():
    bench = CASES[-1].bench()
    x = np.random.default_rng(5).normal(size=CASES[-1].shapes[0])
    y, mask = bench.forward([x])
    (dx,), _ = bench.backward([np.ones(y.shape), None])
    (same,), _ = bench.backward([np.ones(y.shape), np.full(mask.shape, 9.0)])
    (zero,), _ = bench.backward([None, np.ones(mask.shape)])
    np.testing.assert_array_equal(dx, same)
    assert dx.sum() == y.size and not zero.any()


def test_backward_reads_no_data():
    for case in CASES:
        needs = case.bench().layer.backward_needs([True], [])
        assert not (needs.bottoms or needs.tops or needs.params)


def test_average_divides_by_the_window_clipped_to_the_padding():
    bench = LayerBench("Pooling", "pooling_param { pool: AVE kernel_size: 3 stride: 2 pad: 1 }", ((1, 1, 6, 6),))
    (y,) = bench.forward([np.ones((1, 1, 6, 6))])
    np.testing.assert_allclose(y[0, 0, -1], [1 / 3, 0.5, 0.5, 0.25])  # as seen from BVLC Caffe


def test_ties_go_to_the_first_and_nan_never_wins():
    bench = LayerBench("Pooling", "pooling_param { kernel_size: 2 stride: 2 }", ((1, 1, 2, 6),), 2, np.float32)
    nan = np.nan
    y, mask = bench.forward([np.array([[[[1, 3, nan, nan, nan, 2], [3, 3, nan, nan, 1, nan]]]])])
    np.testing.assert_array_equal(y[0, 0, 0], np.array([3, LEAST, 2], np.float32))
    np.testing.assert_array_equal(mask[0, 0, 0], [1, -1, 5])
    (dx,), _ = bench.backward([np.ones(y.shape), None])
    np.testing.assert_array_equal(dx[0, 0], [[0, 1, 0, 0, 0, 1], [0, 0, 0, 0, 0, 0]])


@pytest.mark.parametrize("n_top", [1, 2])
@pytest.mark.parametrize("needs_backward", [True, False])
def test_a_window_wholly_outside_is_least_and_gets_no_gradient(n_top, needs_backward):
    text = "pooling_param { kernel_size: 2 stride: 5 }"
    bench = LayerBench("Pooling", text, ((1, 1, 4, 4),), n_top, needs_backward=needs_backward)
    y, *mask = bench.forward([np.arange(16.0).reshape(1, 1, 4, 4)])
    np.testing.assert_array_equal(y[0, 0], [[5, LEAST], [LEAST, LEAST]])
    if mask:
        np.testing.assert_array_equal(mask[0][0, 0], [[5, -1], [-1, -1]])
    if needs_backward:
        (dx,), _ = bench.backward([np.ones(y.shape)] + [None] * (n_top - 1))
        assert dx.sum() == 1 and dx[0, 0, 1, 1] == 1


def test_global_pooling_follows_the_input():
    bench = LayerBench("Pooling", "pooling_param { pool: AVE global_pooling: true }", ((2, 3, 4, 5),))
    bench.reshape([(1, 2, 7, 3)])
    x = np.random.default_rng(6).normal(size=(1, 2, 7, 3))
    np.testing.assert_allclose(bench.forward([x])[0][..., 0, 0], x.mean(axis=(2, 3)))


@pytest.mark.parametrize(
    "fields, words",
    [
        ("", "has no kernel size"),
        ("kernel_size: 0", "kernel is 0"),
        ("kernel_h: 2", "no kernel_w"),
        ("kernel_w: 2", "no kernel_h"),
        ("kernel_size: 2 kernel_h: 2", "both kernel_size and kernel_h"),
        ("kernel_size: 2 stride: 1 stride_w: 2", "both stride and stride_w"),
        ("kernel_size: 2 pad: 1 pad_h: 1", "both pad and pad_h"),
        ("kernel_size: 2 stride: 0", "stride is 0"),
        ("kernel_size: 2 pad: 2", "not smaller than kernel"),
        ("global_pooling: true kernel_size: 2", "global_pooling and kernel_size"),
        ("global_pooling: true pad: 1", "takes no pad"),
        ("kernel_size: 2 pool: STOCHASTIC pad: 1", "takes no pad"),
    ],
)
def test_impossible_parameters_name_the_layer(fields, words):
    with pytest.raises(LayerParamError) as caught:
        LayerBench("Pooling", f'name: "p1" pooling_param {{ {fields} }}', ((1, 2, 5, 5),))
    assert words in str(caught.value) and 'layer "p1" (Pooling)' in str(caught.value) and caught.value.fix


def test_impossible_shapes_and_counts_are_errors():
    with pytest.raises(ShapeError, match="no window"):
        LayerBench("Pooling", "pooling_param { kernel_size: 5 }", ((1, 1, 3, 3),))
    with pytest.raises(LayerParamError, match="second top"):
        LayerBench("Pooling", "pooling_param { kernel_size: 2 pool: AVE }", ((1, 1, 4, 4),), n_top=2)
    with pytest.raises(BlobCountError):
        LayerBench("Pooling", "pooling_param { kernel_size: 2 }", ((1, 1, 4, 4),), n_top=3)


def test_no_saved_place_makes_backward_write_outside():
    bench = LayerBench("Pooling", "pooling_param { kernel_size: 3 stride: 2 pad: 1 }", ((1, 1, 5, 5),))
    (y,) = bench.forward([np.ones((1, 1, 5, 5))])
    for place in range(256):  # of which only some lie in the plane
        bench.scratch["mask"][...] = place
        (dx,), _ = bench.backward([np.ones(y.shape)])
        assert dx.sum() <= y.size and ((dx == 0) | (dx == 1)).all()
