"""Nets whose largest layer does not fit run it in parts: they train, to the numbers of the whole net."""

from __future__ import annotations

import functools
import logging

import numpy as np
import pytest

from pycaffe_lms.backend import get_device
from pycaffe_lms.backend.sim.device import SimDevice
from pycaffe_lms.errors import OutOfDeviceMemory, UsageError
from pycaffe_lms.formats.prototxt.parser import parse_net, parse_solver
from pycaffe_lms.lms.config import LMSConfig
from pycaffe_lms.net.net import Net
from pycaffe_lms.net.tuning import Tuning
from pycaffe_lms.solvers import SGDSolver

from .nets import TYPES, train, type_name
from .split_nets import NETS, SPLIT, managed_in_random_orders, solver

ITERATIONS = 3
CLOSE = {"float64": 1e-12, "float32": 2e-5}  # of the largest number of an array


@functools.cache
def whole(net, dtype="float64", **options):
    """Losses, and parameters with their gradients, of the whole net on the CPU."""
    return train(solver(net, get_device("cpu"), dtype=dtype, **options), ITERATIONS)


def assert_close(ours, theirs, dtype="float64"):
    np.testing.assert_allclose(ours[0], theirs[0], rtol=CLOSE[dtype])
    for a, b in zip(ours[1], theirs[1], strict=True):
        a, b = np.frombuffer(a, dtype), np.frombuffer(b, dtype)
        np.testing.assert_allclose(a, b, rtol=0, atol=CLOSE[dtype] * np.abs(b).max())


def spans(s):
    """Layers that run in parts, and in how many."""
    graph = s.net.graph
    return {
        (graph.nodes[r.first].name, graph.nodes[r.last].name): len(n) - 1
        for r, n in s.net.arrangement.micro_batched.starts.items()
    }


@functools.cache
def least(net, **options):
    """Bytes of the device that training needs without splitting, everything fetched on demand, gradients in two
    steps."""
    lms, tuning = LMSConfig(threshold_kb=1, ahead=0, split=0), Tuning(split_backward=True)
    s = solver(net, SimDevice(64 << 20), lms, tuning=tuning, **options)
    return s.runtime.resident_bytes + s.runtime.workspace_bytes + s.net.memory.plans()["train"].arena_bytes


@pytest.mark.parametrize("parts", [2, 3, 7])
@pytest.mark.parametrize("net", SPLIT)
def test_in_parts_a_net_trains_to_the_same_numbers(net, parts):
    """Seven images in parts of up to two sizes; random layers draw what they draw whole."""
    s = solver(net, get_device("cpu"), LMSConfig(split=parts), "float64")
    assert set(spans(s).values()) == {parts}
    assert_close(train(s, ITERATIONS), whole(net))
    on_device = solver(net, SimDevice(64 << 20, order="random", seed=parts), LMSConfig(split=parts), "float64")
    assert_close(train(on_device, ITERATIONS), whole(net))


@pytest.mark.parametrize("net", SPLIT)
def test_images_with_their_channels_last(net):
    """Images lie one behind the other in that order, too."""
    last = Tuning(channels_last=True)
    expected = train(solver(net, SimDevice(64 << 20), dtype="float64", tuning=last), ITERATIONS)
    s = solver(net, SimDevice(64 << 20), LMSConfig(threshold_kb=1, split=3), "float64", last)
    assert any(v.channels_last and v.rows for v in s.net.run_graph.values) or net != "branches"
    assert any(v.channels_last and not v.rows for v in s.net.run_graph.values)
    assert_close(train(s, ITERATIONS), expected)


def test_which_layers_run_in_parts():
    def of(net):
        return list(spans(solver(net, get_device("cpu"), LMSConfig(split=2))))

    assert of("chain") == [("conv1_1", "fc")]
    assert of("branches") == [("a", "cat"), ("scale", "fc")]
    assert of("sums") == [("c1", "fc")]
    assert of("up") == [("down1", "sig")]


@pytest.mark.parametrize("net", SPLIT)
def test_every_blob_of_a_forward_can_be_read_whole(net):
    """Products of matrices have other numbers of rows, so the last digits may differ; random choices do not."""
    split_memories, plain = (solver(net, get_device("cpu"), LMSConfig(split=n), "float64").net for n in (3, 0))
    split_memories.forward_range()
    plain.forward_range()
    assert list(split_memories.blobs) == list(plain.blobs)
    for name in plain.blobs:
        ours, theirs = (n.blobs[name].read_data() for n in (split_memories, plain))
        np.testing.assert_allclose(ours, theirs, rtol=1e-12, atol=1e-14, err_msg=name)
        np.testing.assert_array_equal(ours == 0, theirs == 0, err_msg=name)


@pytest.mark.parametrize("net", ["chain", "sums", "up"])
def test_a_budget_below_the_largest_layer(net):
    budget = int(0.75 * least(net))
    with pytest.raises(OutOfDeviceMemory):
        solver(net, SimDevice(64 << 20), LMSConfig(threshold_kb=1, budget=budget, split=0))
    device = SimDevice(64 << 20, order="random", seed=5)
    s = solver(net, device, LMSConfig(threshold_kb=1, budget=budget, split="auto"))
    assert len(spans(s)) == 1
    assert_close(train(s, ITERATIONS), whole(net, "float32"), "float32")
    assert device.in_use() <= budget and device.bytes_in > 0
    assert s.runtime.stats.held == 0


@pytest.mark.parametrize("net", SPLIT)
def test_what_fits_whole_runs_whole(net):
    """And so to the last bit as without a budget."""
    s = solver(net, SimDevice(64 << 20), LMSConfig(threshold_kb=1, budget=least(net), split="auto"))
    assert spans(s) == {}
    assert train(s, 2) == train(solver(net, SimDevice(64 << 20)), 2)


@pytest.mark.parametrize("net", SPLIT)
def test_large_model_support_changes_no_bit_of_a_net_in_parts(net):
    expected = train(solver(net, SimDevice(64 << 20), LMSConfig(split=3)), 2)
    for seed, s in enumerate(managed_in_random_orders(net, split=3)):
        assert train(s, 2) == expected, f"seed {seed}"
        assert s.runtime.stats.held == 0


@pytest.mark.parametrize("options", TYPES, ids=type_name)
def test_every_solver_type_and_the_automatic_mode(options):
    options = options | {"base_lr": 0.01}
    budget = int(0.8 * least("sums"))
    s = solver(
        "sums", SimDevice(64 << 20), LMSConfig(auto=True, threshold_kb=1, budget=budget, split="auto"), **options
    )
    [(span, parts)] = spans(s).items()
    assert span == ("c1", "fc") and parts > 1
    ours = train(s, ITERATIONS)
    assert ours == train(solver("sums", SimDevice(64 << 20), LMSConfig(split=parts), **options), ITERATIONS)
    np.testing.assert_allclose(ours[0], whole("sums", "float32", **options)[0], rtol=1e-4)


@pytest.mark.parametrize("options", [{"iter_size": 3}, {"clip_gradients": 0.1}, {"debug_info": "true"}], ids=str)
def test_accumulation_clipping_and_debugging(options):
    s = solver("chain", SimDevice(64 << 20), LMSConfig(threshold_kb=1, split=3), "float64", display=1, **options)
    expected = train(solver("chain", get_device("cpu"), dtype="float64", display=1, **options), ITERATIONS)
    assert_close(train(s, ITERATIONS), expected)


def test_a_resumed_run_goes_on_as_if_it_had_not_stopped(tmp_path):
    """In parts or whole: counters of random layers are those of the layer, not of its parts."""
    options = {"snapshot_prefix": f'"{tmp_path}/s"'}

    def make(parts):
        return solver("chain", SimDevice(64 << 20), LMSConfig(threshold_kb=1, split=parts), "float64", **options)

    straight = train(make(3), 4)
    begun = make(3)
    train(begun, 2)
    begun.snapshot()
    for parts in (3, 0):
        resumed = make(parts)
        resumed.restore(f"{tmp_path}/s_iter_2.solverstate")
        losses, values = train(resumed, 2)
        assert_close((losses, values), (straight[0][2:], straight[1]))
        if parts:
            assert (losses, values) == (straight[0][2:], straight[1])


def test_the_number_of_parts_is_the_smallest_or_a_faster_one():
    net, budget = "sums", int(0.75 * least("sums"))
    s = solver(net, SimDevice(64 << 20), LMSConfig(threshold_kb=1, budget=budget, split="auto"))
    [chosen] = spans(s).values()
    times = {}
    for parts in range(2, 8):
        try:
            other = solver(net, SimDevice(64 << 20), LMSConfig(threshold_kb=1, budget=budget, split=parts))
        except OutOfDeviceMemory:
            continue
        times[parts] = other.net.memory.plans()["train"].seconds
    fewest = min(times)
    assert fewest <= chosen <= 2 * fewest
    assert s.net.memory.plans()["train"].seconds == times[chosen] <= times[fewest]


def test_it_is_said_in_the_log(caplog):
    with caplog.at_level(logging.INFO, "pycaffe_lms.net.memory.fit"):
        lms = LMSConfig(threshold_kb=1, budget=int(0.75 * least("sums")), split="auto")
        s = solver("sums", SimDevice(64 << 20), lms)
        [k] = spans(s).values()
    sizes = {2: "3 or 4", 3: "2 or 3", 4: "1 or 2", 5: "1 or 2", 6: "1 or 2", 7: "1"}[k]
    said, rounded = [r.getMessage() for r in caplog.records]
    assert said == f'layers "c1" .. "fc" run in {k} parts of {sizes} images' and "not to the bit" in rounded
    names = [step.name for step in s.net.memory.plans()["train"].program.steps]
    assert f"forward:c3 [2/{k}]" in names and f"backward:pool [{k}/{k}]" in names


def test_what_does_not_fit_even_so_is_refused():
    """One image at a time is the end; an update needs the whole parameter."""
    with pytest.raises(OutOfDeviceMemory) as caught:
        solver("sums", SimDevice(64 << 20), LMSConfig(threshold_kb=1, budget=least("sums") // 8, split="auto"))
    text = str(caught.value)
    assert "sums.prototxt" in text and "layer" in text and "fix:" in text
    with pytest.raises(UsageError, match="-lms_split -1 is negative"):
        LMSConfig(split=-1)


def _fed(device, lms):
    """A solver whose images come from outside, four at first."""
    text = NETS["sums"].replace("dim: 7", "dim: 4").replace("DummyData", "Input")
    head, fillers, tail = text.partition("dummy_data_param")
    shapes = "input_param { shape { dim: 4 dim: 4 dim: 12 dim: 12 } shape { dim: 4 } } }\n"
    net = head + shapes + tail[tail.index("layer {") :]
    parsed = parse_solver(
        'base_lr: 0.05 momentum: 0.9 lr_policy: "fixed" max_iter: 9 random_seed: 7 snapshot_after_train: false '
        f"net_param {{ {net} }}",
        "fed.prototxt",
    )
    return SGDSolver(parsed.message, lines=parsed.lines, device=device, lms=lms, dtype="float64")


def test_a_batch_that_grows_while_training():
    """The larger one does not fit whole: from then on layers run in parts, and updates go on with their histories."""

    def run(s):
        rng, seen = np.random.default_rng(1), []
        for items in (4, 4, 20, 20, 4, 24):
            s.net.blobs["data"].reshape(items, 4, 12, 12)
            s.net.blobs["label"].reshape(items)
            s.net.blobs["data"].data[...] = rng.normal(size=(items, 4, 12, 12))
            s.net.blobs["label"].data[...] = rng.integers(4, size=items)
            s.step(1)
            seen.append(s.net.loss())
        return seen, [b.read_data().tobytes() for b in s.net.learnable_params]

    small = _fed(SimDevice(64 << 20), LMSConfig(threshold_kb=1, ahead=0))
    plan = small.net.memory.plans()["train"]
    budget = 3 * (small.runtime.resident_bytes + small.runtime.workspace_bytes + plan.arena_bytes)
    s = _fed(SimDevice(64 << 20), LMSConfig(threshold_kb=1, budget=budget, split="auto"))
    assert spans(s) == {}
    ours = run(s)
    assert list(spans(s)) == [("c1", "fc")]
    assert_close(ours, run(_fed(get_device("cpu"), None)))


def test_a_test_net_runs_in_parts_too():
    """It is planned by itself: a forward needs less than an iteration."""
    tested = {"test_iter": 2, "test_interval": 2, "test_initialization": "true"}
    budget = int(0.5 * least("sums"))
    with pytest.raises(OutOfDeviceMemory):
        solver("sums", SimDevice(64 << 20), LMSConfig(threshold_kb=1, budget=budget, split=0), **tested)
    s = solver("sums", SimDevice(64 << 20), LMSConfig(threshold_kb=1, budget=budget, split="auto"), **tested)
    train(s, ITERATIONS)
    [test_net] = s.test_nets
    assert (
        s.net.arrangement.micro_batched.starts
        and test_net.params["c1"][0].data_memory is s.net.params["c1"][0].data_memory
    )
    reference = solver("sums", get_device("cpu"), **tested)
    train(reference, ITERATIONS)
    for a, b in ((s, reference), (test_net, reference.test_nets[0])):
        net_a, net_b = (getattr(x, "net", x) for x in (a, b))
        np.testing.assert_allclose(net_a.loss(), net_b.loss(), rtol=1e-5)


@pytest.mark.parametrize("net", ["chain", "sums"])
def test_parts_are_repeated_from_a_recording(net):
    """From the fourth iteration on; keys of random layers are read from buffers, so each run draws anew."""
    lms = LMSConfig(threshold_kb=1, split=3)
    device = SimDevice(64 << 20)
    rematerialized = solver(net, device, lms, tuning=Tuning(graph=True))
    stepped = solver(net, SimDevice(64 << 20), lms, tuning=Tuning(graph=False))
    assert train(rematerialized, 6) == train(stepped, 6)
    assert device.launches >= 2


def test_a_net_without_such_layers_says_so(caplog):
    net = 'layer { name: "d" type: "DummyData" top: "d" dummy_data_param { shape { dim: 8 } } }'
    net += 'layer { name: "r" type: "Reduction" bottom: "d" top: "r" }'
    Net(parse_net(net, "n.prototxt").message, 0, lms=LMSConfig(split=4))
    assert "-lms_split 4: no layers of net" in caplog.text


@pytest.mark.parametrize("place", ["c1", "fc"])
def test_layers_in_parts_may_be_asked_to_run_again(place, monkeypatch):
    """Also the last one, whose top a loss reads whole: it stays out of the run."""
    text = NETS["sums"].replace(f'name: "{place}"', f'name: "{place}" lms_param {{ policy: RECOMPUTE }}', 1)
    monkeypatch.setitem(NETS, "again", text)
    s = solver("again", SimDevice(64 << 20), LMSConfig(threshold_kb=1, split=3), "float64")
    assert (place in {name for span in spans(s) for name in span}) is (place == "c1")
    assert_close(train(s, ITERATIONS), whole("sums"))
    assert bool(s.net.memory.plans()["train"].rematerialized) is (place == "c1")
