"""Convolution against plain loops, its gradients, its checks, and that chunks change nothing but memory."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from pycaffe_lms.errors import BlobCountError, LayerParamError, ShapeError
from pycaffe_lms.ops.cpu.conv import conv
from pycaffe_lms.ops.geometry import ConvGeometry, conv_output_size

from .cases import Case
from .harness import LayerBench, check_gradient


def _case(fields, *shapes):
    return Case("Convolution", f"convolution_param {{ {fields} }}", shapes, n_top=len(shapes))


CASES: list[Case] = [
    _case("num_output: 4 kernel_size: 3 stride: 2", (2, 3, 6, 4)),
    _case("num_output: 3 kernel_size: 3 pad: 1 group: 3", (2, 3, 5, 4)),
    _case("num_output: 4 kernel_size: 3 pad: 2 dilation: 2 group: 2", (2, 2, 6, 5)),
    _case("num_output: 2 kernel_h: 3 kernel_w: 1 stride_h: 2 pad_w: 1", (1, 2, 7, 3)),
    _case("num_output: 4 kernel_size: 1", (3, 3, 2, 3)),
    _case("num_output: 4 kernel_size: 1 bias_term: false group: 2", (2, 4, 3, 2)),
    _case("num_output: 2 kernel_size: 1 stride: 2", (2, 3, 5, 4)),
    _case("num_output: 2 kernel_size: 2 pad: 3 stride: 3", (1, 2, 3, 2)),  # windows wholly in the padding
    _case("num_output: 3 kernel_size: 3 pad: 1", (2, 2, 4, 3), (2, 2, 4, 3)),
    _case("num_output: 3 kernel_size: 3 pad: 1 stride: 2", (2, 2, 7)),
    _case(
        "num_output: 2 kernel_size: 3 kernel_size: 2 kernel_size: 1 pad: 1 pad: 0 pad: 1 dilation: 2", (1, 2, 5, 4, 3)
    ),
    _case("num_output: 4 kernel_size: 3 group: 2 pad: 2 dilation: 2 stride: 2", (2, 4, 9)),
    _case(
        "num_output: 4 group: 2 kernel_shape { dim: 2 dim: 3 dim: 1 } stride_shape { dim: 1 dim: 2 dim: 1 } "
        "pad_shape { dim: 1 dim: 0 dim: 1 } dilation: 2 dilation: 1 dilation: 1",
        (2, 4, 4, 5, 3),
    ),
    _case(
        "num_output: 2 group: 2 kernel_size: 2 kernel_size: 3 kernel_size: 1 kernel_size: 2 stride: 1 stride: 2 "
        "stride: 1 stride: 1 pad: 1 pad: 0 pad: 0 pad: 1 dilation: 1 dilation: 1 dilation: 1 dilation: 2",
        (2, 4, 2, 4, 2, 3),
    ),
    _case("num_output: 3 kernel_size: 1 axis: 1", (2, 2, 2, 1, 2, 3)),
    _case("num_output: 2 kernel_size: 2", (0, 2, 2, 2, 2, 2)),
    Case(
        "NdConvolution",
        "convolution_param { num_output: 2 kernel_shape { dim: 3 } stride_shape { dim: 2 } pad_shape { dim: 1 } }",
        ((1, 2, 3, 4, 3),),
    ),
    _case("num_output: 3", (4, 5)),
    _case("num_output: 2 kernel_size: 2 axis: 2", (2, 2, 3, 4, 3)),
    _case("num_output: 2 kernel_size: 2 axis: -2", (2, 3, 3)),
    _case("num_output: 2 kernel_size: 3", (0, 2, 4, 4)),
]


def reference(x, w, b, param, axis):
    """Compute the definition, output by output."""
    n_axes = x.ndim - axis - 1
    x = x.reshape(-1, *x.shape[axis:])
    fields = {}
    for field, default in (("stride", 1), ("pad", 0), ("dilation", 1)):
        values = list(getattr(param, field)) or [default]
        values = values * n_axes if len(values) == 1 else values
        for i, suffix in enumerate("hw"):
            if field != "dilation" and param.HasField(f"{field}_{suffix}"):
                values[i] = getattr(param, f"{field}_{suffix}")
        if field != "dilation" and param.HasField(f"{field}_shape"):
            dims = list(getattr(param, f"{field}_shape").dim)
            values = dims * n_axes if len(dims) == 1 else dims
        fields[field] = values
    kernel, out = w.shape[2:], []
    for a in range(n_axes):
        reach = fields["dilation"][a] * (kernel[a] - 1) + 1
        out.append((x.shape[2 + a] + 2 * fields["pad"][a] - reach) // fields["stride"][a] + 1)
    y = np.zeros((x.shape[0], w.shape[0], *out))
    inputs, outputs = w.shape[1], w.shape[0] // param.group
    for n, o, *place in np.ndindex(*y.shape):
        for c, *tap in np.ndindex(*w.shape[1:]):
            at = [
                p * s - q + t * d
                for p, s, q, t, d in zip(place, fields["stride"], fields["pad"], tap, fields["dilation"], strict=True)
            ]
            if all(0 <= i < size for i, size in zip(at, x.shape[2:], strict=True)):
                y[(n, o, *place)] += w[(o, c, *tap)] * x[(n, o // outputs * inputs + c, *at)]
        if b is not None:
            y[(n, o, *place)] += b[o]
    return y


@pytest.mark.parametrize("dtype", [np.float32, np.float64], ids=["f32", "f64"])
@pytest.mark.parametrize("case", CASES, ids=str)
def test_forward_is_the_definition(case, dtype):
    bench, bottoms = case.bench(dtype), case.make_bottoms(np.random.default_rng(3))
    w, b = (*bench.params, None)[:2]
    for x, y in zip(bottoms, bench.forward(bottoms), strict=True):
        axis = bench.layer.axis
        expected = reference(x, w, b, bench.layer.param.convolution_param, axis)
        np.testing.assert_allclose(
            y, expected.reshape(*x.shape[:axis], *expected.shape[1:]), atol=1e-5 if dtype == np.float32 else 1e-12
        )


@pytest.mark.parametrize("case", [c for c in CASES if 0 not in c.shapes[0]], ids=str)
def test_gradient(case):
    check_gradient(case.bench(), case.make_bottoms(np.random.default_rng(4)))


def test_zero_batch_clears_gradients_or_leaves_them():
    bench = CASES[-1].bench()
    bench.forward([np.zeros((0, 2, 4, 4))])
    top = np.zeros((0, 2, 2, 2))
    bottom, params = bench.backward([top])
    assert bottom[0].shape == (0, 2, 4, 4) and not params[0].any() and not params[1].any()
    start = [np.ones(p.shape) for p in bench.params]
    assert bench.backward([top], accumulate=[True, True], param_diffs=start)[1][0].min() == 1


def test_gradients_accumulate_on_request_and_over_bottoms():
    bench = CASES[8].bench()
    rng = np.random.default_rng(5)
    bottoms = CASES[8].make_bottoms(rng)
    tops = [rng.normal(size=t.shape) for t in bench.forward(bottoms)]
    both = bench.backward(tops)[1]
    first, second = bench.backward([tops[0], None]), bench.backward([None, tops[1]])
    for i in range(2):
        np.testing.assert_allclose(both[i], first[1][i] + second[1][i])
    assert not first[0][1].any() and not second[0][0].any()
    start = [rng.normal(size=p.shape) for p in bench.params]
    added = bench.backward(tops, accumulate=[True, True], param_diffs=start)[1]
    for i in range(2):
        np.testing.assert_allclose(added[i], start[i] + both[i])


@pytest.mark.parametrize(
    "down, params", list(itertools.product([(True,), (False,)], itertools.product([True, False], repeat=2)))
)
def test_backward_reads_only_what_it_declares(down, params):
    if not any(down + params):
        return
    bench = LayerBench(
        "Convolution",
        "convolution_param { num_output: 3 kernel_size: 3 pad: 1 }",
        ((2, 2, 4, 4),),
        propagate_down=down,
        param_propagate=params,
    )
    needs = bench.layer.backward_needs(down, params)
    assert needs.bottoms == ({0} if params[0] else set()) and needs.params == ({0} if down[0] else set())
    assert not needs.tops
    check_gradient(bench, [np.random.default_rng(6).normal(size=(2, 2, 4, 4))])


@pytest.mark.parametrize("size, images", [(6, 5), (30, 5)])
@pytest.mark.parametrize("kernel, pad, group", [(3, 1, 2), (1, 0, 2)])
def test_workspace_limit_changes_memory_not_results(size, images, kernel, pad, group):
    out = conv_output_size(size, kernel, 1, pad, 1)
    shape = ConvGeometry(images, 6, 4, group, (size,) * 2, (out,) * 2, (kernel,) * 2, (1, 1), (pad,) * 2, (1, 1))
    rng = np.random.default_rng(8)
    x, dy = rng.normal(size=(images, 6, size, size)), rng.normal(size=(images, 4, out, out))
    w, b = rng.normal(size=(4, 6 // group, kernel, kernel)), rng.normal(size=4)
    results = []
    one = (shape.rows * shape.group + 4) * shape.out_size * 8
    for limit in (0, one // 2, one, 2 * one, 4 * one, 1 << 30):  # 2 and 4 leave a smaller last chunk
        plan = conv.conv_plan(shape, np.float64, limit)
        least = 0 if kernel == 1 else shape.rows * shape.out_size * 8
        assert plan.workspace_bytes <= max(limit, least)
        work = np.full(plan.workspace_bytes, 0xFF, np.uint8) if plan.workspace_bytes else None
        y, dx, dw = np.full_like(dy, np.nan), np.full_like(x, np.nan), np.full_like(w, np.nan)
        conv.conv_forward(plan, x, w, b, y, work)
        conv.conv_backward_data(plan, dy, w, dx, work)
        conv.conv_backward_filter(plan, x, dy, dw, work, False)
        results.append((y, dx, dw))
    for other in results[1:]:
        for one, two in zip(results[0], other, strict=True):
            np.testing.assert_allclose(one, two, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize(
    "fields, words",
    [
        ("num_output: 2", "has no kernel size"),
        ("kernel_size: 3", "num_output is 0"),
        ("num_output: 2 kernel_size: 0", "kernel_size is 0"),
        ("num_output: 2 kernel_size: 3 stride: 0", "stride is 0"),
        ("num_output: 2 kernel_size: 3 dilation: 0", "dilation is 0"),
        ("num_output: 2 kernel_h: 3", "no kernel_w"),
        ("num_output: 2 kernel_size: 3 kernel_h: 3 kernel_w: 3", "both kernel_size and kernel_h and kernel_w"),
        ("num_output: 2 kernel_size: 3 pad: 1 pad_h: 1", "both pad and pad_h"),
        ("num_output: 2 kernel_size: 3 kernel_size: 3 kernel_size: 3", "given 3 times"),
        ("num_output: 2 kernel_size: 3 kernel_shape { dim: 3 }", "both kernel_size and kernel_shape"),
        (
            "num_output: 2 kernel_h: 3 kernel_w: 3 kernel_shape { dim: 3 }",
            "both kernel_shape and kernel_h and kernel_w",
        ),
        ("num_output: 2 kernel_size: 3 stride: 1 stride_shape { dim: 3 }", "both stride and stride_shape"),
        ("num_output: 2 kernel_shape { dim: 3 dim: 3 dim: 3 }", "kernel_shape has 3 values"),
        ("num_output: 2 kernel_shape { dim: 3 } pad_shape { dim: -1 }", "negative"),
        ("num_output: 2 kernel_shape { dim: 0 }", "kernel_size is 0"),
        ("num_output: 3 kernel_size: 3 group: 2", "cannot be split"),
        ("num_output: 4 kernel_size: 3 group: 4", "cannot be split"),
        ("num_output: 2 kernel_size: 3 group: 0", "group is 0"),
        ("num_output: 2 kernel_size: 3 axis: 4", "axis 4 is out of range"),
        ("num_output: 2 kernel_h: 3 kernel_w: 3 axis: 2", "2 spatial axes, but it has 1"),
    ],
)
def test_impossible_parameters_name_the_layer(fields, words):
    with pytest.raises(LayerParamError) as caught:
        LayerBench("Convolution", f'name: "c7" convolution_param {{ {fields} }}', ((1, 6, 5, 5),))
    assert words in str(caught.value) and 'layer "c7" (Convolution)' in str(caught.value) and caught.value.fix


def test_impossible_shapes_are_errors():
    text = "convolution_param { num_output: 2 kernel_size: 3 }"
    with pytest.raises(ShapeError, match="too small for kernel"):
        LayerBench("Convolution", text, ((1, 2, 2, 5),))
    with pytest.raises(ShapeError, match="first bottom"):
        LayerBench("Convolution", text, ((1, 2, 5, 5), (1, 2, 5, 6)), n_top=2)
    with pytest.raises(BlobCountError):
        LayerBench("Convolution", text, ((1, 2, 5, 5), (1, 2, 5, 5)), n_top=1)
    bench = LayerBench("Convolution", text, ((1, 2, 5, 5),))
    bench.reshape([(3, 2, 7, 4)])
    assert bench.top_shapes == [(3, 2, 5, 2)]
    for shape in ((1, 3, 5, 5), (1, 2, 5), (2, 5, 5, 5)):
        with pytest.raises(ShapeError, match="set up for (4 axes|2 channels)"):
            bench.reshape([shape])
