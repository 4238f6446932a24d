"""Depthwise convolution: direct kernels against the definition, by either name, and in a net like MobileNet."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from pycaffe_lms.backend import cuda_available
from pycaffe_lms.backend.sim.device import SimDevice
from pycaffe_lms.errors import LayerParamError
from pycaffe_lms.formats.prototxt.parser import parse_solver
from pycaffe_lms.lms.config import LMSConfig
from pycaffe_lms.net.tuning import Tuning
from pycaffe_lms.ops import load_ops
from pycaffe_lms.ops.cpu.conv import depthwise
from pycaffe_lms.ops.cuda.conv import depthwise as cuda_depthwise
from pycaffe_lms.ops.geometry import ConvGeometry, conv_output_size
from pycaffe_lms.solvers import SGDSolver
from tests.lms import nets

from .cases import Case
from .harness import CudaArrays, HostArrays, LayerBench, check_gradient
from .test_convolution import reference


def _case(fields, *shapes, type="Convolution"):
    return Case(type, f"convolution_param {{ {fields} }}", shapes, n_top=len(shapes))


CASES: list[Case] = [
    _case("num_output: 3 group: 3 kernel_size: 3 pad: 1", (2, 3, 9, 7)),
    _case("num_output: 4 group: 4 kernel_size: 3 pad: 1 stride: 2 bias_term: false", (2, 4, 8, 5)),
    _case("num_output: 6 group: 2 kernel_size: 3 dilation: 2 pad: 2", (1, 2, 6, 5)),  # three outputs per channel
    _case(
        "num_output: 2 kernel_h: 5 kernel_w: 2 stride_h: 3 stride_w: 2 pad_h: 2",
        (2, 2, 9, 6),
        type="DepthwiseConvolution",
    ),
    _case("num_output: 4 kernel_size: 3 group: 2 pad: 1", (2, 2, 4, 5), (2, 2, 4, 5), type="ConvolutionDepthwise"),
    _case("num_output: 2 group: 2 kernel_size: 8 pad: 3 stride: 2", (1, 2, 9, 10)),  # too many taps to unroll
    _case("num_output: 3 group: 3 kernel_size: 3 stride: 2 pad: 1", (2, 3, 9)),
    _case(
        "num_output: 4 group: 2 kernel_shape { dim: 2 dim: 3 dim: 1 } stride_shape { dim: 1 dim: 2 dim: 2 } "
        "pad_shape { dim: 1 dim: 0 dim: 1 } dilation: 1 dilation: 2 dilation: 1",
        (1, 2, 3, 7, 4),
        type="NdConvolution",
    ),
    _case("num_output: 2 group: 2 kernel_size: 2 stride: 3 pad: 1", (1, 2, 6, 5)),  # some inputs meet no tap
    _case("num_output: 2 group: 2 kernel_size: 1", (2, 2, 3, 3)),
    _case("num_output: 2 group: 2 kernel_size: 2 axis: 2", (2, 2, 2, 4, 3)),
    _case("num_output: 3 group: 3 kernel_size: 4 stride: 2 pad: 1", (2, 3, 3, 4), type="Deconvolution"),
    _case("num_output: 2 group: 2 kernel_size: 9 stride: 4 pad: 2", (1, 4, 2, 3), type="Deconvolution"),
    _case("num_output: 2 group: 2 kernel_size: 3", (0, 2, 4, 4)),
]


@pytest.mark.parametrize("dtype", [np.float32, np.float64], ids=["f32", "f64"])
@pytest.mark.parametrize("case", [c for c in CASES if c.type != "Deconvolution"], ids=str)
def test_forward_is_the_definition(case, dtype):
    bench, bottoms = case.bench(dtype), case.make_bottoms(np.random.default_rng(3))
    layer = bench.layer
    assert layer.operation is bench.device.ops.depthwise
    param = layer.param.convolution_param
    param.group = layer.group
    for x, y in zip(bottoms, bench.forward(bottoms), strict=True):
        expected = reference(x, bench.params[0], (*bench.params, None)[1], param, layer.axis)
        shape = (*x.shape[: layer.axis], *expected.shape[1:])
        np.testing.assert_allclose(y, expected.reshape(shape), atol=1e-5 if dtype == np.float32 else 1e-12)


@pytest.mark.parametrize("case", [c for c in CASES if c.shapes[0][0]], ids=str)
def test_gradient(case):
    check_gradient(case.bench(), case.make_bottoms(np.random.default_rng(4)))


def _geometry(shape, outputs, kernel, stride, pad, dilation=1):
    batch, channels, *sizes = shape
    out = tuple(conv_output_size(n, kernel, stride, pad, dilation) for n in sizes)
    axes = len(sizes)
    steps = ((n,) * axes for n in (kernel, stride, pad, dilation))
    return ConvGeometry(batch, channels, outputs, channels, tuple(sizes), out, *steps)


LARGE = [
    _geometry((8, 3, 57, 61), 3, 3, 1, 1),
    _geometry((8, 4, 57, 40), 8, 3, 2, 1),
    _geometry((4, 3, 40, 41), 3, 7, 1, 3),
    _geometry((4, 2, 40, 41), 2, 8, 2, 3),
    _geometry((2, 3, 9, 20, 21), 3, 3, 2, 1),
]


def _run(operation, g, put, get, dtype, accumulate=False):
    """Return y, dx, dw from fixed random arrays."""
    rng = np.random.default_rng(9)
    x = rng.normal(size=(g.batch, g.channels, *g.in_spatial)).astype(dtype)
    dy = rng.normal(size=(g.batch, g.out_channels, *g.out_spatial)).astype(dtype)
    w = rng.normal(size=(g.out_channels, 1, *g.kernel)).astype(dtype)
    b, dw = rng.normal(size=g.out_channels).astype(dtype), rng.normal(size=w.shape).astype(dtype)
    plan = operation.plan(g, np.dtype(dtype), 64 << 20)
    work = put(np.full(plan.workspace_bytes, 0xFF, np.uint8)) if plan.workspace_bytes else None
    x, dy, w, b, dw = (put(a) for a in (x, dy, w, b, dw))
    y, dx = put(np.full(dy.shape, np.nan, dtype)), put(np.full(x.shape, np.nan, dtype))
    operation.forward(plan, x, w, b, y, work)
    operation.backward_data(plan, dy, w, dx, work)
    operation.backward_filter(plan, x, dy, dw, work, accumulate)
    return [get(a) for a in (y, dx, dw)]


@pytest.mark.parametrize("accumulate", [False, True])
@pytest.mark.parametrize("g", LARGE, ids=str)
def test_direct_kernels_and_columns_agree(g, accumulate):
    assert g.depthwise
    same = lambda a: a  # noqa: E731
    expected = _run(load_ops("cpu").conv, g, same, same, np.float64, accumulate)
    for dtype, tolerance in ((np.float64, 1e-11), (np.float32, 1e-5)):
        for one, two in zip(expected, _run(load_ops("cpu").depthwise, g, same, same, dtype, accumulate), strict=True):
            np.testing.assert_allclose(two, one, rtol=tolerance, atol=tolerance * np.abs(one).max())


@pytest.mark.gpu
@pytest.mark.skipif(not cuda_available(), reason="no GPU")
@pytest.mark.parametrize("dtype, tolerance", [(np.float64, 1e-11), (np.float32, 1e-5)], ids=["float64", "float32"])
@pytest.mark.parametrize("g", LARGE, ids=str)
def test_a_gpu_sums_in_parts_and_always_in_the_same_order(g, dtype, tolerance, monkeypatch):
    monkeypatch.setattr(cuda_depthwise, "_EACH", (100, 300))
    cpu, gpu = HostArrays(), CudaArrays()
    assert gpu.ops.depthwise.plan(g, np.dtype(dtype), 0).parts > 1
    expected = _run(cpu.ops.depthwise, g, cpu.put, cpu.get, np.float64, True)
    first, again = (_run(gpu.ops.depthwise, g, gpu.put, gpu.get, dtype, True) for _ in range(2))
    for one, two, three in zip(expected, first, again, strict=True):
        np.testing.assert_allclose(two, one, rtol=tolerance, atol=tolerance * np.abs(one).max())
        np.testing.assert_array_equal(two, three)


@pytest.mark.parametrize("where", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("g", LARGE[1:3], ids=str)
def test_relu_in_the_same_kernel(g, dtype, where):
    """The bits of ReLU behind the convolution; NaN stays."""
    if where == "cuda" and not cuda_available():
        pytest.skip("no GPU")
    arrays = HostArrays() if where == "cpu" else CudaArrays()
    rng, operation = np.random.default_rng(2), arrays.ops.depthwise
    x = rng.normal(size=(g.batch, g.channels, *g.in_spatial)).astype(dtype)
    x[0, 0, 3, 3] = np.nan
    w, b = rng.normal(size=(g.out_channels, 1, *g.kernel)).astype(dtype), rng.normal(size=g.out_channels).astype(dtype)
    found = []
    for relu in (False, True):
        y = arrays.put(np.full((g.batch, g.out_channels, *g.out_spatial), 7, dtype))
        operation.forward(operation.plan(g, np.dtype(dtype), 0), *(arrays.put(a) for a in (x, w, b)), y, None, relu)
        found.append(arrays.get(y))
    assert np.isnan(found[0]).any() and (found[0] < 0).any()
    np.testing.assert_array_equal(found[1], np.where(found[0] < 0, 0, found[0]))


def test_threads_change_no_bit(monkeypatch):
    for g in LARGE[:2]:
        same = lambda a: a  # noqa: E731
        one = _run(load_ops("cpu").depthwise, g, same, same, np.float32)

        def in_parts(kernel, n, *args, grain):
            for cut in range(n):
                kernel(cut, cut + 1, *args)

        monkeypatch.setattr(depthwise, "parallel", in_parts)
        for a, b in zip(one, _run(load_ops("cpu").depthwise, g, same, same, np.float32), strict=True):
            np.testing.assert_array_equal(a, b)
        monkeypatch.undo()


def test_shapes_alone_decide():
    g = LARGE[0]
    assert g.depthwise and LARGE[1].depthwise
    assert not replace(g, group=1).depthwise
    assert not replace(g, channels=1, out_channels=4, group=1).depthwise  # one channel is no reason to leave products
    assert not replace(g, out_channels=3 * 17).depthwise
    assert not replace(g, kernel=(65, 3)).depthwise and replace(g, kernel=(3, 65)).depthwise


def test_group_may_be_left_out_but_not_be_another():
    text = "convolution_param { num_output: 8 kernel_size: 3 %s }"
    for kind in ("DepthwiseConvolution", "ConvolutionDepthwise"):
        for group in ("", "group: 4"):
            layer = LayerBench(kind, text % group, ((1, 4, 5, 5),)).layer
            assert layer.group == 4 and layer.params[0].shape == (8, 1, 3, 3)
        with pytest.raises(LayerParamError, match="has group 2") as caught:
            LayerBench(kind, 'name: "dw" ' + text % "group: 2", ((1, 4, 5, 5),))
        assert f'layer "dw" ({kind})' in str(caught.value) and caught.value.fix
        with pytest.raises(LayerParamError, match="cannot be split"):
            LayerBench(kind, text % "", ((1, 3, 5, 5),))


@pytest.mark.parametrize("needs", [((True,), (False, False)), ((False,), (True, True))])
def test_backward_reads_only_what_it_declares(needs):
    bench = LayerBench(
        "Convolution",
        "convolution_param { num_output: 2 group: 2 kernel_size: 3 }",
        ((2, 2, 4, 4),),
        propagate_down=needs[0],
        param_propagate=needs[1],
    )
    check_gradient(bench, [np.random.default_rng(6).normal(size=(2, 2, 4, 4))])


def _block(name, bottom, channels, outputs, stride):
    """Return MobileNet's block: a depthwise and a pointwise convolution, each with BatchNorm, Scale and ReLU."""
    by_channel = nets.unit(f"{name}_dw", bottom, channels, extra=f"group: {channels} stride: {stride}")
    return by_channel + nets.unit(f"{name}_pw", f"{name}_dw", outputs, 1)


NET = (
    nets._DATA
    + nets.unit("c1", "data", 4)
    + _block("c2", "c1", 4, 6, 1)
    + _block("c3", "c2_pw", 6, 8, 2)
    + nets.head("c3_pw")
)


@pytest.fixture(autouse=True)
def the_nets(monkeypatch):
    monkeypatch.setitem(nets.NETS, "mobile", NET)
    by_name = NET.replace('type: "Convolution" bottom: "c1"', 'type: "DepthwiseConvolution" bottom: "c1"')
    assert by_name != NET
    monkeypatch.setitem(nets.NETS, "mobile_by_name", by_name.replace("group: 4 ", ""))


@pytest.mark.parametrize("seed", range(4))
def test_large_model_support_changes_no_bit(seed):
    resident = nets.train(nets.make_solver("mobile"), 3)
    device = SimDevice(64 << 20, order="random", seed=seed)
    lms = LMSConfig(threshold_kb=1, ahead=(0, 32)[seed % 2])
    assert nets.train(nets.make_solver("mobile", device, lms), 3) == resident
    assert device.bytes_in > 0 and len(set(resident[0])) == 3


def test_both_names_train_alike():
    assert nets.train(nets.make_solver("mobile"), 2) == nets.train(nets.make_solver("mobile_by_name"), 2)


@pytest.mark.parametrize("last", [False, True])
def test_no_image_is_turned_around_it(last):
    """It runs in the order of its bottom: no copies in another one beside it."""
    parsed = parse_solver(nets.solver_text("mobile"), "mobile.prototxt")
    solver = SGDSolver(parsed.message, device=SimDevice(64 << 20), tuning=Tuning(channels_last=last))
    own = [node for node in solver.net.graph.nodes if node.name in ("c2_dw", "c3_dw")]
    assert len(own) == 2
    for node in own:
        assert not node.layer.by_products and node.channels_last is last
        assert not [name for name in node.layer.scratches if name.startswith(("copy.", "order."))]
    expected = nets.train(nets.make_solver("mobile"), 3)[0]
    np.testing.assert_allclose(nets.train(solver, 3)[0], expected, rtol=1e-5)


@pytest.mark.parametrize("lms", [None, LMSConfig(threshold_kb=1)])
def test_it_runs_with_the_relu_after_it(lms, monkeypatch):
    """One step in an iteration, of the bits of two."""
    net = nets._DATA + DEPTHWISE + nets.head("dw")
    monkeypatch.setitem(nets.NETS, "rectified", net)
    parsed = parse_solver(nets.solver_text("rectified"), "rectified.prototxt")
    results = []
    for fuse in (False, True):
        solver = SGDSolver(parsed.message, device=SimDevice(64 << 20), lms=lms, tuning=Tuning(fuse=fuse))
        assert ("dw+relu_dw" in [group.name for group in solver.net.graph.groups]) == fuse
        results.append(nets.train(solver, 3))
    assert results[0] == results[1]


DEPTHWISE = """
layer { name: "dw" type: "Convolution" bottom: "data" top: "dw" convolution_param {
  num_output: 6 group: 3 kernel_size: 3 pad: 1 weight_filler { type: "gaussian" std: 0.4 } } }
layer { name: "relu_dw" type: "ReLU" bottom: "dw" top: "dw" }
"""
