"""Split backwards: which layers have one, what each step reads, makes and costs, and that results are bit-identical.

See also tests/lms/test_split_backward.py (when a plan has them)."""

from __future__ import annotations

import pytest

from pycaffe_lms.backend import cuda_available, get_device
from pycaffe_lms.backend.sim.device import SimDevice
from pycaffe_lms.errors import OutOfDeviceMemory
from pycaffe_lms.formats.prototxt.parser import parse_solver
from pycaffe_lms.layers.base import Gradients, Lives
from pycaffe_lms.layers.conv.convolution import ConvolutionLayer
from pycaffe_lms.lms.config import LMSConfig
from pycaffe_lms.lms.cost.machine import MACHINES, Costs
from pycaffe_lms.lms.program import Mode
from pycaffe_lms.lms.report.layer_costs import layer_of
from pycaffe_lms.net.passes import param_order
from pycaffe_lms.net.program.costs import program_costs, step_flops
from pycaffe_lms.net.program.programs import SplitBackward
from pycaffe_lms.net.program.reduction import WHOLE, buckets
from pycaffe_lms.net.tuning import Tuning
from pycaffe_lms.solvers import solver_class
from tests.lms.nets import _DATA, NETS, _eltwise, _pool, conv, head, train

from . import test_joined_gradients as joined

MORE = {
    "strides, groups, a transposed one": _DATA
    + conv("a", "data", 6)
    + conv("b", "a", 6, 3, "stride: 2 group: 3")
    + conv("c", "b", 4).replace("Convolution", "Deconvolution")
    + _pool("p", "c")
    + head("p"),
    "two bottoms": _DATA
    + conv("a", "data", 4)
    + conv("b", "data", 4)
    + 'layer { name: "c" type: "Convolution" bottom: "a" bottom: "b" top: "c1" top: "c2" convolution_param { '
    "num_output: 4 kernel_size: 3 pad: 1 weight_filler { type: 'xavier' } } }\n"
    + _eltwise("s", "c1", "c2")
    + head("s"),
    "weights that do not learn": _DATA
    + conv("a", "data", 4)
    + conv("b", "a", 4).replace("convolution_param", "param { lr_mult: 0 } param { lr_mult: 1 } convolution_param")
    + head("b"),
    "no gradient above": _DATA
    + conv("a", "data", 4)
    + conv("b", "a", 4)
    + conv("c", "a", 4)
    + 'layer { name: "none" type: "Silence" bottom: "c" }\n'
    + head("b"),
    "convolutions": _DATA + conv("a", "data", 8) + conv("b", "a", 8) + conv("c", "b", 8) + _pool("p", "c") + head("p"),
    "fused": _DATA
    + conv("a", "data", 4)
    + conv("b", "a", 6)
    + 'layer { name: "relu_b" type: "ReLU" bottom: "b" top: "b" }\n'
    + conv("c", "b", 4)
    + head("c"),
}
TEXTS = NETS | MORE | {f"joined {name}": text for name, (text, _, _) in joined.NETS.items()}


def solver(net, device, separate=None, lms=None, *, tuning=None, dtype="float32", **options):
    fields = {"base_lr": 0.05, "momentum": 0.9, "lr_policy": "'fixed'", "max_iter": 9, "random_seed": 7} | options
    head_ = "\n".join(f"{name}: {value}" for name, value in fields.items())
    parsed = parse_solver(f"{head_} snapshot_after_train: false net_param {{ name: 'm'\n{TEXTS[net]} }}")
    tuning = Tuning(**{"channels_last": True, "split_backward": separate} | (tuning or {}))
    more = {"lines": parsed.lines, "device": device, "lms": lms, "dtype": dtype}
    return solver_class(parsed.message)(parsed.message, tuning=tuning, **more)


def steps_of(one, separate):
    """Backward steps of a solver's iteration, by name."""
    n, builder = len(one.net.graph.nodes) - 1, one.net.arrangement.builder
    halves = SplitBackward.ALL if separate else SplitBackward.NONE
    steps = builder.backward(n, 0, builder.loss_diffs(), accumulate=False, fused=True, split_backward=halves)
    return {s.step.name: s for s in steps}


def split_backward_count(one):
    return {layer_of(name) for name, s in steps_of(one, True).items() if s.makes is not Gradients.ALL}


# -- which ---------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    "net, layers",
    [
        ("residual", {"fc", "c2", "c3", "c4", "c5"}),  # c1 reads data, which has no gradient
        ("groups", {"fc", "fc6", "conv2"}),
        ("strides, groups, a transposed one", {"fc", "b", "c"}),
        ("two bottoms", {"fc", "c"}),
        ("weights that do not learn", {"fc", "b"}),
        ("no gradient above", {"fc", "b"}),  # c has nothing to do but to clear
        ("fused", {"fc", "c"}),  # b runs together with its ReLU, and overwrites what its top is given
    ],
)
def test_which_layers_make_them_in_two_steps(net, layers):
    one = solver(net, SimDevice(64 << 20))
    assert split_backward_count(one) == layers
    names = list(steps_of(one, True))
    for layer in layers:  # the parameters' gradients come first
        assert names.index(f"backward:{layer} [params]") + 1 == names.index(f"backward:{layer}")
    assert [n for n in names if "[params]" not in n] == list(steps_of(one, False))


def test_passes_by_hand_are_whole():
    one = solver("residual", SimDevice(64 << 20), True)
    builder = one.net.arrangement.builder
    by_hand = builder.backward(len(one.net.graph.nodes) - 1, 0, builder.loss_diffs(), accumulate=True)
    assert all(s.makes is Gradients.ALL for s in by_hand)
    one.net.forward_range()
    one.net.backward_range()
    assert not any(
        "[params]" in s.step.name
        for key in one.net.memory.plans()
        if key.startswith("backward")
        for s in one.net.memory.steps(key)
    )


def test_what_each_step_touches():
    one = solver("chain", SimDevice(64 << 20))
    graph, buffers = one.net.run_graph, one.net.memory.buffers
    workspace = {
        graph.nodes[n.index].scratch[s.name]
        for n in graph.nodes
        for s in n.layer.scratches.values()
        if s.lives is Lives.CALL
    }

    def touched(name):
        step = steps_of(one, True)[name].step
        return {(buffers[a.buffer].name, a.mode) for a in step.accesses if a.buffer not in workspace}

    read, made = Mode.READ, Mode.OVERWRITE
    assert touched("backward:fc [params]") == {
        ("fc.diff", read),
        ("pool2.data", read),
        ("fc.param0.diff", made),
        ("fc.param1.diff", made),
    }
    assert touched("backward:fc") == {("fc.diff", read), ("fc.param0.data", read), ("pool2.diff", made)}


@pytest.mark.parametrize("net", TEXTS)
def test_both_halves_touch_what_the_whole_does(net):
    """And write what it writes, each gradient once."""
    one = solver(net, SimDevice(64 << 20))
    whole, halves = steps_of(one, False), steps_of(one, True)
    for layer in split_backward_count(one):
        parts = [halves[f"backward:{layer} [params]"].step, halves[f"backward:{layer}"].step]
        expected = {(a.buffer, a.mode) for a in whole[f"backward:{layer}"].step.accesses}
        assert {(a.buffer, a.mode) for part in parts for a in part.accesses} == expected
        written = [{a.buffer for a in part.accesses if a.mode is not Mode.READ} for part in parts]
        calls = {b for b in written[0] & written[1] if one.net.memory.buffers[b].call_scratch}
        assert written[0] & written[1] == calls


def test_operations_and_seconds_are_those_of_each_half():
    one = solver("residual", SimDevice(64 << 20))
    graph, memory = one.net.run_graph, one.net.memory
    whole, halves = steps_of(one, False), steps_of(one, True)
    for layer in split_backward_count(one):
        params, bottoms = (halves[f"backward:{layer}{half}"] for half in (" [params]", ""))
        both = step_flops(graph, whole[f"backward:{layer}"])
        assert step_flops(graph, params) == step_flops(graph, bottoms) == both / 2 > 0

    def costs(steps, measured) -> Costs:
        sizes = {b: m.nbytes for b, m in memory.memories.items()}
        return program_costs(graph, list(steps.values()), {}, memory.buffers, sizes, MACHINES["h200"], measured)

    def seconds(steps, measured, name):
        return costs(steps, measured).steps[list(steps).index(name)]

    name, half = "backward:c3", "backward:c3 [params]"
    assert seconds(halves, {}, half) + seconds(halves, {}, name) > seconds(whole, {}, name) > seconds(halves, {}, half)
    assert (seconds(halves, {name: 8.0}, half), seconds(halves, {name: 8.0}, name)) == (4, 4)
    both = {name: 3.0, half: 5.0}
    assert (seconds(whole, both, name), seconds(halves, both, half), seconds(halves, both, name)) == (8, 5, 3)


@pytest.mark.parametrize("net", ["residual", "shared", "groups"])
def test_ranks_sum_the_same_gradients_in_the_same_order(net):
    one = solver(net, SimDevice(64 << 20))
    found = [buckets(one.net.run_graph, list(steps_of(one, s).values()), 4, WHOLE) for s in (False, True)]
    assert [b.params for b in found[0]] == [b.params for b in found[1]]


# -- results -------------------------------------------------------------------------------------------------------
OPTIONS = [{}, {"iter_size": 2}, {"iter_size": 3, "clip_gradients": 0.5}]


@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("net", TEXTS)
def test_bits_are_those_of_one_step(net, options):
    for device in (lambda: get_device("cpu"), lambda: SimDevice(64 << 20, order="random", seed=4)):
        expected = train(solver(net, device(), False, **options), 2)
        assert train(solver(net, device(), True, **options), 2) == expected


@pytest.mark.parametrize("net", TEXTS)
def test_bits_under_lms(net):
    """Freed memory is poisoned there, so a half that reads what it did not declare is found."""
    expected = train(solver(net, SimDevice(64 << 20)), 2)
    for seed, lms in enumerate(
        (
            LMSConfig(threshold_kb=1, ahead=0),
            LMSConfig(threshold_kb=1),
            LMSConfig(threshold_kb=1, recompute=True),
            LMSConfig(auto=True, threshold_kb=1, budget=700 << 10),
        )
    ):
        one = solver(net, SimDevice(64 << 20, order="random", seed=seed), True, lms)
        assert any(s.makes is Gradients.PARAMS for s in one.net.memory.steps("train") if hasattr(s, "makes"))
        assert train(one, 2) == expected


@pytest.mark.parametrize(
    "tuning",
    [
        {"half": True},
        {"half": True, "channels_last": False},
        {"fuse": False},
        {"channels_last": False},
        {"pack": True},
        {"masks": False},
        {"graph": False},
    ],
    ids=str,
)
@pytest.mark.parametrize("net", ["residual", "branches", "groups", "joined strides"])
def test_bits_of_other_settings(net, tuning):
    expected = train(solver(net, SimDevice(64 << 20), False, tuning=tuning), 2)
    assert train(solver(net, SimDevice(64 << 20), True, tuning=tuning), 2) == expected
    lms = LMSConfig(threshold_kb=1, ahead=0)
    assert train(solver(net, SimDevice(64 << 20), True, lms, tuning=tuning), 2) == expected


@pytest.mark.parametrize("lms", [None, LMSConfig(threshold_kb=1, ahead=0)], ids=["resident", "managed"])
def test_weights_that_layers_take_in_another_order(lms, monkeypatch):
    """Then both halves work on copies in workspace: one on the weights', one on the gradient's."""
    monkeypatch.setattr(param_order, "may_store_last", lambda graph, users: False)
    found = [train(one := solver("residual", SimDevice(64 << 20), s, lms), 2) for s in (False, True)]
    assert found[0] == found[1]
    steps, node = steps_of(one, True), next(n for n in one.net.run_graph.nodes if n.name == "c3")
    params, bottoms = ({a.buffer for a in steps[f"backward:c3{half}"].step.accesses} for half in (" [params]", ""))
    assert node.scratch["order.param_diff0"] in params - bottoms and node.scratch["order.param0"] in bottoms


@pytest.mark.parametrize("lms", [None, LMSConfig(threshold_kb=1, ahead=0)], ids=["resident", "managed"])
def test_images_that_a_layer_takes_in_another_order(lms, monkeypatch):
    monkeypatch.setattr(ConvolutionLayer, "takes_channels_last", lambda self, *_: self.name == "conv2")
    found = [train(one := solver("groups", SimDevice(64 << 20), s, lms), 2) for s in (False, True)]
    assert found[0] == found[1]
    steps, node = steps_of(one, True), next(n for n in one.net.run_graph.nodes if n.name == "conv2")
    params, bottoms = ({a.buffer for a in steps[f"backward:conv2{half}"].step.accesses} for half in (" [params]", ""))
    assert node.scratch["copy.bottom_diff0"] in bottoms - params
    assert node.scratch["copy.top_diff0"] in bottoms & params


@pytest.mark.parametrize("split", [{"split": 2}, {"split_outputs": 2}], ids=str)
def test_layers_in_parts(split):
    expected = train(solver("chain", SimDevice(64 << 20), False, LMSConfig(**split)), 2)
    one = solver("chain", SimDevice(64 << 20), True, LMSConfig(threshold_kb=1, **split))
    assert any("[params]" in s.step.name for s in one.net.memory.steps("train"))
    assert train(one, 2) == expected


GPU_NETS = ["residual", "groups", "strides, groups, a transposed one", "two bottoms", "convolutions"]


@pytest.mark.gpu
@pytest.mark.skipif(not cuda_available(), reason="no GPU")
@pytest.mark.parametrize("tuning", [{}, {"half": True}, {"channels_last": False}], ids=str)
@pytest.mark.parametrize("net", GPU_NETS)
def test_bits_on_a_gpu(net, tuning):
    """Step by step and from recordings, in which the halves of a whole backward may run beside each other."""
    device = get_device("cuda")
    expected = train(solver(net, device, False, tuning=tuning), 6)
    for graph in (False, True):
        for lms in (None, LMSConfig(threshold_kb=1), LMSConfig(threshold_kb=1, ahead=0)):
            one = solver(net, device, True, lms, tuning=tuning | {"graph": graph})
            assert train(one, 6) == expected
            one.close()
            one.runtime.close()


def test_an_error_names_the_layer():
    with pytest.raises(OutOfDeviceMemory) as caught:
        solver("residual", SimDevice(64 << 20), True, LMSConfig(threshold_kb=1, budget=16 << 10))
    assert caught.value.where.layer is not None and "[params]" not in caught.value.where.layer
    assert caught.value.where.type is not None
