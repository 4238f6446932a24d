"""Pooling over 1, 3 and more axes against the definition, the forks' fields, and that fewer axes give the same."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from pycaffe_lms.backend.sim.device import SimDevice
from pycaffe_lms.errors import LayerParamError, ShapeError
from pycaffe_lms.lms.config import LMSConfig
from pycaffe_lms.ops.cpu.pooling import pooling, pooling_nd
from pycaffe_lms.ops.geometry import PoolGeometry
from tests.lms import nets

from .cases import Case
from .harness import LayerBench, check_gradient

LEAST = -float(np.finfo(np.float32).max)


def _case(fields, shape, n_top=1, type="Pooling"):
    return Case(type, f"pooling_param {{ {fields} }}", (shape,), n_top=n_top)


def _shape(kernel, stride=(), pad=()):
    fields = (("kernel", kernel), ("stride", stride), ("pad", pad))
    return " ".join(f"{n}_shape {{ {' '.join(f'dim: {v}' for v in values)} }}" for n, values in fields if values)


WINDOWS = [
    ("kernel_size: 3 stride: 2", (2, 3, 7)),
    (_shape((3,), (2,), (1,)), (2, 2, 6)),
    ("global_pooling: true", (2, 3, 5)),
    (_shape((1, 2, 2), (1, 2, 2)), (1, 2, 3, 4, 5)),  # C3D's first pooling: the outer axis is left alone
    ("kernel_size: 2 stride: 2", (2, 2, 3, 4, 5)),
    (_shape((2, 3, 2), (2, 2, 1), (1, 1, 0)), (1, 2, 4, 5, 3)),
    (_shape((3, 2, 3), (3, 1, 2), (2, 0, 1)) + " ceil_mode: false", (1, 2, 4, 3, 4)),
    ("kernel_size: 2 stride: 4 round_mode: CEIL ceil_mode: true", (1, 1, 4, 5, 5)),  # windows that lie outside
    ("global_pooling: true", (2, 2, 3, 2, 4)),
    (_shape((2, 3, 4)), (2, 2, 3, 3, 4)),  # the inner axes are one window
    (_shape((2, 1, 2, 3), (1, 2, 2, 2), (1, 0, 0, 1)), (1, 2, 3, 4, 2, 3)),
    (_shape((2, 2, 1, 2, 2), (2, 2, 1, 2, 1)), (1, 1, 2, 3, 2, 2, 3)),
    ("kernel_size: 2", (0, 3, 4, 4, 2)),
]
CASES: list[Case] = (
    [_case(f"pool: {method} {fields}", shape) for method in ("MAX", "AVE") for fields, shape in WINDOWS]
    + [_case(fields, shape, n_top=2) for fields, shape in WINDOWS[1:8]]
    + [
        _case("pool: AVE " + _shape((2, 2), (1, 2), (0, 1)), (1, 2, 4, 5)),
        _case("pool: AVE_EXC_PAD " + _shape((2, 3, 2), (2, 2, 1), (1, 1, 0)), (1, 2, 4, 5, 3)),
        _case("pool: AVE_EXC_PAD " + _shape((3, 2, 3), (3, 1, 2), (2, 0, 1)), (1, 2, 4, 3, 4)),
        _case("pool: AVE_EXC_PAD " + _shape((3,), (2,), (1,)), (2, 2, 6)),
        _case(_shape((1, 2, 2), (1, 2, 2)), (1, 2, 3, 4, 5), type="NdPooling"),
    ]
)


def reference(x, bench):
    """Return (top, mask), window by window, for the kernel, stride and pad that the fields give."""
    layer = bench.layer
    sizes = x.shape[2:]
    kernel, stride, pad = layer.kernel or sizes, layer.stride, layer.pad
    up = np.ceil if layer.ceil else np.floor
    out = [int(up((n + 2 * p - k) / s)) + 1 for n, k, s, p in zip(sizes, kernel, stride, pad, strict=True)]
    if any(pad):
        out = [o - ((o - 1) * s >= n + p) for o, n, s, p in zip(out, sizes, stride, pad, strict=True)]
    y, mask = np.zeros((*x.shape[:2], *out)), np.full((*x.shape[:2], *out), -1.0)
    for n, c, *place in np.ndindex(*y.shape):
        starts = [o * s - p for o, s, p in zip(place, stride, pad, strict=True)]
        ends = [min(b + k, size + p) for b, k, size, p in zip(starts, kernel, sizes, pad, strict=True)]
        inside = [range(max(b, 0), min(e, size)) for b, e, size in zip(starts, ends, sizes, strict=True)]
        values = [(x[(n, c, *at)], int(np.ravel_multi_index(at, sizes))) for at in itertools.product(*inside)]
        if layer.max:
            best, where = LEAST, -1
            for value, index in values:
                if value > best:
                    best, where = value, index
            y[(n, c, *place)], mask[(n, c, *place)] = best, where
        elif values and layer.inside:
            y[(n, c, *place)] = np.mean([v for v, _ in values])
        elif values:
            y[(n, c, *place)] = sum(v for v, _ in values) / np.prod([e - b for b, e in zip(starts, ends, strict=True)])
    return y, mask


@pytest.mark.parametrize("dtype", [np.float32, np.float64], ids=["f32", "f64"])
@pytest.mark.parametrize("needs_backward", [True, False])
@pytest.mark.parametrize("case", CASES, ids=str)
def test_forward_is_the_definition(case, needs_backward, dtype):
    (x,) = case.make_bottoms(np.random.default_rng(3))
    bench = LayerBench(case.type, case.text, case.shapes, case.n_top, dtype, needs_backward=needs_backward)
    tops = bench.forward([x.astype(dtype)])
    y, mask = reference(x.astype(dtype), bench)
    assert tops[0].shape == y.shape
    np.testing.assert_allclose(tops[0], y, rtol=1e-6 if dtype == np.float32 else 1e-13, atol=1e-7)
    if case.n_top == 2:
        np.testing.assert_array_equal(tops[1], mask)


@pytest.mark.parametrize(
    "case",
    [c for c in CASES if c.shapes[0][0] and c.n_top == 1 and not ("MAX" in c.text and "CEIL" in c.text)],
    ids=str,
)
def test_gradient(case):
    shape = case.shapes[0]
    x = np.random.default_rng(4).permutation(int(np.prod(shape))).reshape(shape) * 0.01  # no kink in reach
    check_gradient(case.bench(), [x])


@pytest.mark.parametrize("fields, shape", WINDOWS[3:8])
def test_a_window_wholly_outside_gets_no_gradient_and_the_second_top_none(fields, shape):
    bench = LayerBench("Pooling", f"pooling_param {{ {fields} }}", (shape,), 2)
    y, mask = bench.forward([np.random.default_rng(5).normal(size=shape)])
    (dx,), _ = bench.backward([np.ones(y.shape), np.full(mask.shape, np.nan)])
    assert dx.sum() == (mask >= 0).sum()
    assert not bench.backward([None, np.ones(mask.shape)])[0][0].any()


@pytest.mark.parametrize("dtype", [np.float32, np.float64], ids=["f32", "f64"])
@pytest.mark.parametrize("pad, inside", [(0, False), (1, False), (1, True)])
def test_two_axes_through_the_general_operations_give_the_same_bits(pad, inside, dtype):
    rng = np.random.default_rng(6)
    out = (4, 3) if pad else (3, 3)
    g = PoolGeometry(5, (7, 6), out, (3, 2), (2, 2), (pad, pad), inside)
    x, dy = rng.normal(size=(5, 7, 6)).astype(dtype), rng.normal(size=(5, *out)).astype(dtype)
    results = []
    for module, suffix in ((pooling, ""), (pooling_nd, "_nd")):
        y, mask, dx = np.empty_like(dy), np.empty(dy.shape, np.uint8), np.empty_like(x)
        getattr(module, f"max_pool{suffix}_forward")(x, y, mask, None, g)
        getattr(module, f"max_pool{suffix}_backward")(dy, mask, dx, g)
        mean, share = np.empty_like(dy), np.empty_like(x)
        getattr(module, f"average_pool{suffix}_forward")(x, mean, g)
        getattr(module, f"average_pool{suffix}_backward")(dy, share, g)
        results.append((y, mask, dx, mean, share))
    for one, two in zip(*results, strict=True):
        np.testing.assert_allclose(one, two, rtol=1e-6, atol=1e-6)
    np.testing.assert_array_equal(results[0][1], results[1][1])


def test_axes_on_which_nothing_happens_go():
    g = PoolGeometry(2, (3, 4, 1, 5), (3, 1, 1, 1), (1, 4, 1, 5), (1, 2, 1, 1), (0,) * 4)
    assert g.simpler(keep_planes=False) == PoolGeometry(6, (1, 20), (1, 1), (1, 20), (1, 1), (0, 0))
    assert g.simpler(keep_planes=True) == PoolGeometry(2, (3, 20), (3, 1), (1, 20), (1, 1), (0, 0))
    row = PoolGeometry(2, (7,), (3,), (3,), (2,), (0,))
    assert row.simpler(keep_planes=True) == PoolGeometry(2, (1, 7), (1, 3), (1, 3), (1, 2), (0, 0))


def test_the_gradient_reads_no_data():
    for case in CASES:
        needs = case.bench().layer.backward_needs([True], [])
        assert not (needs.bottoms or needs.tops or needs.params)


@pytest.mark.parametrize(
    "fields, words",
    [
        ("kernel_size: 2 kernel_shape { dim: 2 }", "both kernel_size and kernel_shape"),
        ("kernel_h: 2 kernel_w: 2", "2 spatial axes, but it has 3"),
        ("kernel_size: 2 pad_h: 1", "2 spatial axes, but it has 3"),
        ("kernel_shape { dim: 2 dim: 2 }", "kernel_shape has 2 values"),
        ("kernel_shape { }", "kernel_shape has 0 values"),
        ("kernel_shape { dim: 2 dim: 0 dim: 2 }", "kernel is 0"),
        ("kernel_shape { dim: 2 } stride: 1 stride_shape { dim: 2 }", "both stride and stride_shape"),
        ("kernel_shape { dim: 2 } pad: 1 pad_shape { dim: 1 }", "both pad and pad_shape"),
        ("kernel_shape { dim: 2 } pad_shape { dim: -1 }", "negative"),
        ("kernel_shape { dim: 2 dim: 1 dim: 3 } pad: 1", "not smaller than kernel"),
        ("global_pooling: true kernel_shape { dim: 2 }", "global_pooling and kernel_shape"),
        ("global_pooling: true pad_shape { dim: 1 }", "takes no pad"),
        ("kernel_size: 2 round_mode: FLOOR ceil_mode: true", "round_mode FLOOR and ceil_mode true"),
        ("kernel_size: 2 round_mode: CEIL ceil_mode: false", "round_mode CEIL and ceil_mode false"),
    ],
)
def test_impossible_parameters_name_the_layer(fields, words):
    with pytest.raises(LayerParamError) as caught:
        LayerBench("NdPooling", f'name: "p1" pooling_param {{ {fields} }}', ((1, 2, 5, 5, 5),))
    assert words in str(caught.value) and 'layer "p1" (NdPooling)' in str(caught.value) and caught.value.fix


def test_the_number_of_axes_stays():
    bench = LayerBench("Pooling", "pooling_param { global_pooling: true }", ((1, 2, 3, 4, 5),))
    bench.reshape([(2, 1, 4, 2, 3)])
    assert bench.top_shapes == [(2, 1, 1, 1, 1)]
    with pytest.raises(ShapeError, match="set up for 5 axes"):
        bench.reshape([(1, 2, 3, 4)])
    with pytest.raises(ShapeError, match="fewer than 3 axes"):
        LayerBench("Pooling", "pooling_param { kernel_size: 2 }", ((2, 3),))


def _film(shape):
    """Return a net over 5 axes, like C3D: convolutions and poolings with a value per axis."""
    dims = " ".join(f"dim: {n}" for n in shape)
    data = nets._DATA.replace("shape { dim: 4 dim: 3 dim: 12 dim: 12 }", f"shape {{ {dims} }}")
    assert data != nets._DATA

    def conv(name, bottom, outputs):
        fields = f"num_output: {outputs} {_shape((3, 3, 3), (1, 1, 1), (1, 1, 1))} {nets._FILL}"
        return (
            f'layer {{ name: "{name}" type: "NdConvolution" bottom: "{bottom}" top: "{name}" convolution_param '
            f'{{ {fields} }} }}\nlayer {{ name: "relu_{name}" type: "ReLU" bottom: "{name}" top: "{name}" }}\n'
        )

    def pool(name, bottom, fields):
        return (
            f'layer {{ name: "{name}" type: "NdPooling" bottom: "{bottom}" top: "{name}" '
            f"pooling_param {{ {fields} }} }}\n"
        )

    return (
        data
        + conv("c1", "data", 4)
        + pool("p1", "c1", _shape((1, 2, 2), (1, 2, 2)))
        + conv("c2", "p1", 6)
        + pool("p2", "c2", _shape((2, 2, 2), (2, 2, 2)))
        + pool("p3", "c2", "pool: AVE " + _shape((2, 2, 2), (2, 2, 2), (1, 0, 0)))
        + pool("p4", "p3", "pool: AVE global_pooling: true")
        + 'layer { name: "flat2" type: "Flatten" bottom: "p2" top: "flat2" }\n'
        + 'layer { name: "flat4" type: "Flatten" bottom: "p4" top: "flat4" }\n'
        + 'layer { name: "cat" type: "Concat" bottom: "flat2" bottom: "flat4" top: "cat" }\n'
        + nets.head("cat")
    )


@pytest.mark.parametrize("seed", range(4))
def test_large_model_support_changes_no_bit(seed, monkeypatch):
    monkeypatch.setitem(nets.NETS, "film", _film((4, 2, 4, 8, 8)))
    resident = nets.train(nets.make_solver("film"), 3)
    device = SimDevice(64 << 20, order="random", seed=seed)
    lms = LMSConfig(threshold_kb=1, ahead=(0, 32)[seed % 2])
    assert nets.train(nets.make_solver("film", device, lms), 3) == resident
    assert device.bytes_in > 0 and len(set(resident[0])) == 3
