"""Convolutions through cuDNN: what is asked of the frontend (no GPU, a stand-in for it), and results on a GPU."""

import gc
import weakref

import numpy as np
import pytest

from pycaffe_lms.backend import cuda
from pycaffe_lms.errors import DeviceError
from pycaffe_lms.ops.cuda.conv import conv
from pycaffe_lms.ops.cuda.cudnn import convolution, library
from pycaffe_lms.ops.geometry import ConvGeometry

from .fake_cudnn import NotSupported, array, geometry

# --- without a GPU ---------------------------------------------------------------------------------------------------


GROUPED = geometry(4, 6, 8, (9, 7), 3, stride=2, pad=1, group=2)  # dw: 8 * 3 * 9 * 4 = 864 bytes


def test_graphs_state_every_size(frontend):
    convolution.plan(GROUPED, "float32", None)
    forward, data, weights = frontend.graphs
    assert [g.kind for g in frontend.graphs] == ["fprop", "dgrad", "wgrad"]
    x, w, y = [4, 6, 9, 7], [8, 3, 3, 3], [4, 8, 5, 4]
    assert [t.known["dim"] for t in forward.inputs] + [forward.output.known["dim"]] == [x, w, y]
    assert [t.known["dim"] for t in data.inputs] + [data.output.known["dim"]] == [y, w, x]
    assert [t.known["dim"] for t in weights.inputs] + [weights.output.known["dim"]] == [x, y, w]
    assert data.output.known["stride"] == [6 * 9 * 7, 9 * 7, 7, 1]
    assert forward.steps == {"padding": [1, 1], "stride": [2, 2], "dilation": [1, 1]}
    for graph in frontend.graphs:
        assert [t.known["uid"] for t in graph.inputs] == [1, 2] and graph.output.known["uid"] == 3


def test_one_axis_becomes_two(frontend):
    convolution.plan(geometry(2, 3, 4, (10,), 3), "float32", None, directions=["forward"])
    assert [t.known["dim"] for t in frontend.graphs[0].inputs] == [[2, 3, 1, 10], [4, 3, 1, 3]]


def test_what_cudnn_refuses_keeps_nobody_alive(frontend):
    """The refusal is remembered; the frames of who asked, and their nets, are not."""

    class Net:
        pass

    def ask():
        net = Net()
        with pytest.raises(convolution.CudnnUnsupported):
            convolution.plan(GROUPED, "float32", None)
        return weakref.ref(net)

    frontend.failure = NotSupported("no engine")
    asked = ask()
    frontend.failure = None  # it remembers its frames too
    gc.collect()
    assert asked() is None


def test_workspace_holds_the_largest_direction_and_room_to_accumulate(frontend):
    plan = convolution.plan(GROUPED, "float32", None)
    assert plan.workspace_by_direction == {"forward": 1000, "backward_data": 1000, "backward_filter": 1024 + 864}
    assert plan.workspace_bytes == 1888


@pytest.mark.parametrize("limit", [0, 500, 900, 1887, 1888, 5000])
def test_limit_counts_the_room_to_accumulate(frontend, limit):
    plan = convolution.plan(GROUPED, "float32", limit)
    assert plan.workspace_bytes <= max(limit, 864)


def test_same_shapes_share_graphs(frontend):
    first = convolution.plan(GROUPED, "float32", 4096)
    again = convolution.plan(GROUPED, np.float32, 4096)
    only = convolution.plan(GROUPED, "float32", 4096, directions=("forward",))
    assert len(frontend.graphs) == 3 and frontend.handles == 1
    assert again.graphs == first.graphs and only.graphs["forward"] is first.graphs["forward"]
    frontend.here.device = 1
    convolution.plan(GROUPED, "float32", 4096, directions=("forward",))
    assert len(frontend.graphs) == 4 and frontend.handles == 2


def test_engines_that_are_left_out(frontend):
    convolution.plan(GROUPED, "float32", None, directions=["forward"])
    left_out = frontend.graphs[0].left_out
    assert {"NONDETERMINISTIC", "DOWN_CONVERT_INPUTS"} <= set(left_out) and "TENSOR_CORE" not in left_out
    assert frontend.graphs[0].settings["compute_data_type"] == "float"


@pytest.mark.parametrize("failure", [NotSupported("no engine\nat all"), RuntimeError("bad parameter"), ValueError("x")])
def test_no_engine_is_unsupported(frontend, failure):
    frontend.failure = failure
    with pytest.raises(convolution.CudnnUnsupported, match="forward of ConvGeometry"):
        convolution.plan(GROUPED, "float32", None)


def test_what_cudnn_is_not_asked(frontend):
    for bad in (geometry(0, 3, 4, (9, 9), 3), geometry(2, 3, 4, (5, 5, 5, 5), 3)):
        with pytest.raises(convolution.CudnnUnsupported):
            convolution.plan(bad, "float32", None)
    with pytest.raises(convolution.CudnnUnsupported, match="float16"):
        convolution.plan(GROUPED, "float16", None)
    with pytest.raises(convolution.CudnnUnsupported, match="float64"):
        convolution.plan(GROUPED, "float64", None)
    cuda.set_math("fp32")
    with pytest.raises(convolution.CudnnUnsupported, match="fp32 mode"):
        convolution.plan(GROUPED, "float32", None)
    assert not frontend.graphs


def test_the_operations_pass_pointers_by_role(frontend):
    plan = conv.conv_plan(GROUPED, np.float32, 1 << 20)
    x, w, y, work = array(0x1000), array(0x2000), array(0x3000), array(0x4000, plan.workspace_bytes)
    conv.conv_forward(plan, x, w, None, y, work)
    conv.conv_backward_data(plan, y, w, x, work)
    conv.conv_backward_filter(plan, x, y, w, work, False)
    runs = [graph.runs for graph in frontend.graphs]
    assert runs == [
        [({1: 0x1000, 2: 0x2000, 3: 0x3000}, 0x4000, 0)],
        [({1: 0x3000, 2: 0x2000, 3: 0x1000}, 0x4000, 0)],
        [({1: 0x1000, 2: 0x3000, 3: 0x2000}, 0x4000, 0)],
    ]


def test_accumulating_goes_through_the_end_of_the_workspace(frontend, monkeypatch):
    launched = []
    monkeypatch.setattr(cuda, "launch", lambda *args: launched.append(args[1:]))
    plan = convolution.plan(GROUPED, "float32", None)
    dw, work = array(0x2000, 864), array(0x4000, plan.workspace_bytes)
    plan.backward_filter(array(0x1000), array(0x3000), dw, work, True)
    assert frontend.graphs[2].runs == [({1: 0x1000, 2: 0x3000, 3: 0x4400}, 0x4000, 0)]
    assert launched == [("add_into", np.float32, 216, 0x4400, dw, 216, 1)]
    with pytest.raises(AssertionError, match="1887 bytes where 1888"):
        plan.backward_filter(array(0x1000), array(0x3000), dw, array(0x4000, plan.workspace_bytes - 1), True)


def test_the_handle_follows_the_current_stream(frontend):
    plan = convolution.plan(GROUPED, "float32", 0, directions=["forward"])
    for stream in (0, 5, 5, 0):
        frontend.here.stream = stream
        plan.forward(array(16), array(32), None, array(48), None)
    assert frontend.streams == [(71, 0), (71, 5), (71, 0)]


def test_a_failure_names_direction_and_shapes(frontend):
    plan = convolution.plan(GROUPED, "float32", 0)
    frontend.failure = RuntimeError("CUDNN_STATUS_EXECUTION_FAILED\nmore")
    with pytest.raises(DeviceError, match=r"backward_data of ConvGeometry\(batch=4.*EXECUTION_FAILED$"):
        plan.backward_data(array(16), array(32), array(48), None)


def test_absence_has_a_reason(monkeypatch):
    library.load.cache_clear()
    monkeypatch.setattr(library, "_load", lambda: (_ for _ in ()).throw(OSError("damaged")))
    try:
        assert not convolution.available() and "damaged" in convolution.why_not()
        with pytest.raises(convolution.CudnnUnsupported, match="damaged"):
            convolution.plan(GROUPED, "float32", None)
    finally:
        library.load.cache_clear()


# --- on a GPU --------------------------------------------------------------------------------------------------------

CASES = {
    "1x1": geometry(8, 16, 24, (14, 14), 1),
    "3x3": geometry(4, 16, 32, (14, 13), 3, pad=1),
    "7x7 stride 2": geometry(4, 3, 16, (31, 31), 7, stride=2, pad=3),
    "rows left over": geometry(3, 4, 8, (14, 14), 3, stride=2),
    "groups": geometry(4, 8, 12, (11, 9), 5, pad=2, group=2),
    "depthwise": geometry(4, 16, 16, (15, 15), 3, pad=1, group=16),
    "dilation": geometry(4, 8, 8, (17, 17), 3, pad=2, dilation=2),
    "one axis": geometry(4, 5, 6, (33,), 3, pad=1),
    "three axes": geometry(2, 4, 6, (7, 8, 9), 3, stride=2, pad=1),
}


def reference(g: ConvGeometry, x, w, dy):
    """y, dx and dw in float64, one kernel tap at a time."""
    pads = [(0, 0), (0, 0)] + [(p, p) for p in g.pad]
    x = np.pad(x.astype(np.float64), pads)
    w, dy = w.astype(np.float64), dy.astype(np.float64)
    y, dx, dw = np.zeros_like(dy), np.zeros_like(x), np.zeros_like(w)
    c, o = g.group_channels, g.group_outputs
    for tap in np.ndindex(*g.kernel):
        spans = zip(tap, g.stride, g.dilation, g.out_spatial, strict=True)
        window = tuple(slice(t * d, t * d + s * (n - 1) + 1, s) for t, s, d, n in spans)
        for i in range(g.group):
            ins = (slice(None), slice(i * c, (i + 1) * c), *window)
            outs = (slice(None), slice(i * o, (i + 1) * o))
            weights = (slice(i * o, (i + 1) * o), slice(None), *tap)
            y[outs] += np.einsum("nc...,oc->no...", x[ins], w[weights])
            dx[ins] += np.einsum("no...,oc->nc...", dy[outs], w[weights])
            positions = (0, *range(2, x.ndim))
            dw[weights] += np.tensordot(dy[outs], x[ins], (positions, positions))
    inside = tuple(slice(p, p + n) for p, n in zip(g.pad, g.in_spatial, strict=True))
    return y, dx[(slice(None), slice(None), *inside)], dw


def run_on_gpu(g: ConvGeometry, dtype, mode, set_math, limit=1 << 28):
    """(what was computed, reference) for y, dx, dw and dw accumulated on ones; outputs start as NaN."""
    cupy = cuda.require()
    set_math(mode)
    rng = np.random.default_rng(1701)
    x = rng.standard_normal((g.batch, g.channels, *g.in_spatial)).astype(dtype)
    w = rng.standard_normal((g.out_channels, g.group_channels, *g.kernel)).astype(dtype)
    dy = rng.standard_normal((g.batch, g.out_channels, *g.out_spatial)).astype(dtype)
    plan = convolution.plan(g, dtype, limit)
    work = cupy.full(max(1, plan.workspace_bytes), 255, np.uint8)
    dev_x, dev_w, dev_dy = cupy.asarray(x), cupy.asarray(w), cupy.asarray(dy)
    y, dx, dw = (cupy.full_like(a, np.nan) for a in (dev_dy, dev_x, dev_w))
    total = cupy.ones_like(dev_w)
    plan.forward(dev_x, dev_w, None, y, work)
    plan.backward_data(dev_dy, dev_w, dx, work)
    plan.backward_filter(dev_x, dev_dy, dw, work, False)
    plan.backward_filter(dev_x, dev_dy, total, work, True)
    want = reference(g, x, w, dy)
    return [cupy.asnumpy(a) for a in (y, dx, dw, total)], [*want, want[2] + 1]


@pytest.mark.gpu
@pytest.mark.usefixtures("gpu")
@pytest.mark.parametrize("name", CASES)
def test_results(name, math_mode):
    got, want = run_on_gpu(CASES[name], "f4", "tf32", math_mode)
    for role, a, b in zip(("y", "dx", "dw", "dw + 1"), got, want, strict=True):
        assert np.abs(a - b).max() <= 5e-3 * np.abs(b).max(), role


@pytest.mark.gpu
@pytest.mark.usefixtures("gpu")
@pytest.mark.parametrize("name", CASES)
def test_runs_agree_to_the_bit(name, math_mode):
    first, _ = run_on_gpu(CASES[name], "f4", "tf32", math_mode)
    for _ in range(3):
        for a, b in zip(run_on_gpu(CASES[name], "f4", "tf32", math_mode)[0], first, strict=True):
            np.testing.assert_array_equal(a, b)


@pytest.mark.gpu
@pytest.mark.usefixtures("gpu")
def test_results_without_workspace(math_mode):
    got, want = run_on_gpu(CASES["3x3"], "f4", "tf32", math_mode, limit=0)
    for a, b in zip(got, want, strict=True):
        assert np.abs(a - b).max() <= 5e-3 * np.abs(b).max()
