"""InnerProduct in blocks of its outputs: parameters larger than the memory train, to the numbers of the whole layer."""

from __future__ import annotations

import functools
import logging

import numpy as np
import pytest

from pycaffe_lms.backend import get_device
from pycaffe_lms.backend.sim.device import SimDevice
from pycaffe_lms.errors import OutOfDeviceMemory, UsageError
from pycaffe_lms.lms.config import LMSConfig
from pycaffe_lms.net.tuning import Tuning

from .block_nets import VARIANTS
from .nets import TYPES, train, type_name
from .split_nets import NETS, solver
from .test_split import assert_close, spans

ITERATIONS = 3


def sim(order="latest", seed=0):
    return SimDevice(64 << 20, order=order, seed=seed)


@functools.cache
def whole(net, dtype="float64", **options):
    """Losses, and parameters with their gradients, of the whole net on the CPU."""
    return train(solver(net, get_device("cpu"), dtype=dtype, **options), ITERATIONS)


def blocks(s):
    """Layers that run in blocks, and in how many."""
    return {s.net.graph.nodes[i].name: len(cuts) - 1 for i, cuts in s.net.arrangement.micro_batched.cuts.items()}


@functools.cache
def least(net="fat"):
    """Device memory that a net needs whole, fetched on demand."""
    s = solver(net, sim(), LMSConfig(threshold_kb=1, ahead=0, split=0))
    return s.runtime.resident_bytes + s.runtime.workspace_bytes + s.net.memory.plans()["train"].arena_bytes


@pytest.mark.parametrize("place", ["cpu", "sim"])
@pytest.mark.parametrize("n", [2, 3, 8])
@pytest.mark.parametrize("net", VARIANTS)
def test_in_blocks_a_net_trains_to_the_same_numbers(net, n, place):
    device = get_device("cpu") if place == "cpu" else sim()
    s = solver(net, device, LMSConfig(split=0, split_outputs=n), "float64")
    assert blocks(s) == {name: min(n, 4) if name == "fc" else n for name in s.net.params}
    assert_close(train(s, ITERATIONS), whole(net))


@pytest.mark.parametrize("net", VARIANTS)
def test_large_model_support_changes_no_bit(net):
    expected = train(solver(net, sim(), LMSConfig(split=0, split_outputs=3)), 2)
    for seed in range(6):
        more = {"ahead": (0, 1, None)[seed % 3], "sync": seed % 4} if seed % 5 else {"recompute": True}
        lms = LMSConfig(threshold_kb=1, split=0, split_outputs=3, **more)
        s = solver(net, sim("random", seed), lms)
        assert train(s, 2) == expected, f"seed {seed}"
        assert s.runtime.stats.held == 0


@pytest.mark.parametrize("net", ["chain", "sums", pytest.param("branches", marks=pytest.mark.thorough)])
def test_together_with_parts_of_the_batch(net):
    lms = {"split": 3, "split_outputs": 2}
    ours = train(solver(net, sim(), LMSConfig(**lms), "float64"), ITERATIONS)
    s = solver(net, sim("random", 5), LMSConfig(threshold_kb=1, **lms), "float64")
    assert blocks(s) and spans(s)
    assert train(s, ITERATIONS) == ours
    assert_close(ours, whole(net))


@pytest.mark.parametrize("seed", [1, 2])
def test_fillers_draw_what_they_draw_whole(seed):
    ours, theirs = (
        solver("fat", sim(), LMSConfig(threshold_kb=1, split=0, split_outputs=n), random_seed=seed) for n in (5, 0)
    )
    for a, b in zip(ours.net.learnable_params, theirs.net.learnable_params, strict=True):
        assert a.shape == b.shape and a.read_data().tobytes() == b.read_data().tobytes()


def test_a_weight_that_does_not_fit_with_its_gradient_and_history_trains(caplog):
    """Such a net is refused whole, with the step that sets it; blocks are as few as fit, or a faster number."""
    budget = least() // 2
    with pytest.raises(OutOfDeviceMemory, match='layer "ip1".*update:ip1') as caught:
        solver("fat", sim(), LMSConfig(threshold_kb=1, budget=budget, split_outputs=0))
    assert "-lms_split_outputs" in str(caught.value)
    with caplog.at_level(logging.INFO, "pycaffe_lms.net.memory.fit"):
        s = solver("fat", sim(), LMSConfig(threshold_kb=1, budget=budget, split="auto"), "float32")
    n = blocks(s)["ip1"]
    assert 2 <= n <= 8 and spans(s) == {}
    assert f'layer "ip1" runs in {n} blocks of' in caplog.text
    names = {step.name for step in s.net.memory.plans()["train"].program.steps}
    assert {f"update:ip1 [outputs 1/{n}]", f"backward:ip1 [outputs {n}/{n}]", "forward:ip1 [gather]"} <= names
    assert_close(train(s, ITERATIONS), whole("fat", "float32"), "float32")
    assert s.runtime.arena.nbytes <= budget


def test_the_least_memory_gets_smaller_with_more_blocks():
    sizes = []
    for n in (0, 2, 4, 8):
        s = solver("fat", sim(), LMSConfig(threshold_kb=1, ahead=0, split=0, split_outputs=n))
        sizes.append(
            max(
                step.device_bytes({b: m.nbytes for b, m in s.net.memory.store.managed().items()})
                for step in s.net.memory.plans()["train"].program.steps
            )
        )
    weight = 4 * 90 * 256
    assert sizes[0] == 3 * weight  # data, gradient and history
    assert sizes == sorted(sizes, reverse=True) and sizes[3] < 0.2 * sizes[0]


@pytest.mark.parametrize("options", TYPES, ids=type_name)
def test_every_solver_type_and_the_automatic_mode(options):
    options = options | {"base_lr": 0.01}
    lms = {"split": 0, "split_outputs": 3}
    ours = train(solver("fat", sim(), LMSConfig(**lms), "float64", **options), ITERATIONS)
    assert_close(ours, whole("fat", **options))
    assert ours == train(solver("fat", sim(), LMSConfig(auto=True, threshold_kb=1, **lms), "float64", **options), 3)
    assert ours == train(solver("fat", sim(), LMSConfig(threshold_kb=1, ahead=0, **lms), "float64", **options), 3)


@pytest.mark.parametrize(
    "options",
    [{"iter_size": 3}, {"clip_gradients": 0.1}, {"debug_info": "true"}, {"regularization_type": '"L1"'}],
    ids=str,
)
def test_accumulation_clipping_debugging_and_the_other_decay(options):
    s = solver("multipliers", sim(), LMSConfig(threshold_kb=1, split_outputs=3), "float64", display=1, **options)
    expected = train(solver("multipliers", get_device("cpu"), dtype="float64", display=1, **options), ITERATIONS)
    assert_close(train(s, ITERATIONS), expected)


def test_clipping_where_blocks_are_chosen_while_it_is_prepared():
    options = {"clip_gradients": 0.1}
    s = solver("fat", sim(), LMSConfig(threshold_kb=1, budget=least() // 2, split="auto"), "float32", **options)
    assert blocks(s)
    assert_close(train(s, ITERATIONS), whole("fat", "float32", **options), "float32")


@pytest.mark.parametrize("kind", ["BINARYPROTO", "HDF5"])
def test_snapshots_go_from_blocks_to_whole_and_back(tmp_path, kind):
    options = {"snapshot_prefix": f'"{tmp_path}/s"', "type": '"Adam"', "base_lr": 0.01, "snapshot_format": kind}
    end = ".h5" if kind == "HDF5" else ""

    def make(n):
        return solver("fat", sim(), LMSConfig(threshold_kb=1, split=0, split_outputs=n), "float64", **options)

    straight = train(make(3), 4)
    for first in (3, 0):
        begun = make(first)
        train(begun, 2)
        begun.snapshot()
        shapes = [b.shape for b in begun.history_blobs()]
        assert shapes == 2 * [b.shape for b in begun.net.learnable_params]
        for n in (3, 2, 0):
            resumed = make(n)
            resumed.restore(f"{tmp_path}/s_iter_2.solverstate{end}")
            assert [b.read_data().tobytes() for b in resumed.history_blobs()] == [
                b.read_data().tobytes() for b in begun.history_blobs()
            ]
            losses, values = train(resumed, 2)
            assert_close((losses, values), (straight[0][2:], straight[1]))
            if n == first == 3:
                assert (losses, values) == (straight[0][2:], straight[1])


def test_a_batch_that_grows_while_training(monkeypatch):
    """From then on the layer runs in blocks: its parameters and histories go on from where they are."""
    text = NETS["fat"].replace("DummyData", "Input")
    head, _, tail = text.partition("dummy_data_param")
    shapes = "input_param { shape { dim: 1 dim: 4 dim: 8 dim: 8 } shape { dim: 1 } } }\n"
    monkeypatch.setitem(NETS, "fed", head + shapes + tail[tail.index("layer {") :])

    def run(s):
        rng, seen = np.random.default_rng(1), []
        for items in (1, 1, 200, 200):
            s.net.blobs["data"].reshape(items, 4, 8, 8)
            s.net.blobs["label"].reshape(items)
            s.net.blobs["data"].data[...] = rng.normal(size=(items, 4, 8, 8))
            s.net.blobs["label"].data[...] = rng.integers(4, size=items)
            s.step(1)
            seen.append(s.net.loss())
        return seen, [b.read_data().tobytes() for b in s.net.learnable_params]

    budget = 700 << 10  # an update of the first weight takes 540 KiB; the images of the large batch 400 KiB
    s = solver("fed", sim(), LMSConfig(threshold_kb=1, budget=budget, split=1, split_outputs="auto"), "float64")
    assert blocks(s) == {}
    weight = s.net.params["ip1"][0]
    ours = run(s)
    assert "ip1" in blocks(s) and s.net.params["ip1"][0] is weight
    assert_close(ours, run(solver("fed", get_device("cpu"), dtype="float64")))


def test_a_test_net_shares_the_blocks():
    tested = {"test_iter": 2, "test_interval": 1, "test_initialization": "true"}
    s = solver("fat", sim(), LMSConfig(threshold_kb=1, budget=least() // 2, split="auto"), **tested)
    train(s, ITERATIONS)
    [test_net] = s.test_nets
    assert test_net.arrangement.micro_batched.cuts.keys() == s.net.arrangement.micro_batched.cuts.keys()
    for piece, theirs in zip(test_net.run_graph.learnable, s.net.run_graph.learnable, strict=True):
        assert test_net.memory.memories[piece.data] is s.net.memory.memories[theirs.data]
    reference = solver("fat", get_device("cpu"), **tested)
    train(reference, ITERATIONS)
    np.testing.assert_allclose(test_net.loss(), reference.test_nets[0].loss(), rtol=1e-5)


def test_blocks_are_repeated_from_a_recording():
    lms, device = LMSConfig(threshold_kb=1, split=0, split_outputs=3), sim()
    rematerialized = solver("fat", device, lms, tuning=Tuning(graph=True))
    assert train(rematerialized, 6) == train(solver("fat", sim(), lms, tuning=Tuning(graph=False)), 6)
    assert device.launches >= 2


@pytest.mark.parametrize(
    "change",
    [
        ("num_output: 90", "num_output: 90 transpose: true"),
        ('top: "ip1" ', 'top: "ip1" lms_param { policy: KEEP } '),
        ('top: "ip1" ', 'top: "ip1" param { name: "w" } '),
    ],
    ids=["transposed", "kept", "shared"],
)
def test_what_cannot_be_cut_stays_whole(change, monkeypatch):
    text = NETS["fat"].replace(*change, 1)
    if 'name: "w"' in change[1]:  # another layer has the same weight
        text += (
            'layer { name: "twin" type: "InnerProduct" bottom: "data" top: "twin" param { name: "w" } '
            "inner_product_param { num_output: 90 } }\n"
            'layer { name: "quiet" type: "Silence" bottom: "twin" }'
        )
    monkeypatch.setitem(NETS, "stiff", text)
    s = solver("stiff", sim(), LMSConfig(threshold_kb=1, split=0, split_outputs=3), "float64")
    assert set(blocks(s)) == {"ip2", "fc"}
    assert_close(train(s, ITERATIONS), train(solver("stiff", get_device("cpu"), dtype="float64"), ITERATIONS))
    with pytest.raises(OutOfDeviceMemory, match="update:ip1|all the time"):
        solver("stiff", sim(), LMSConfig(threshold_kb=1, budget=least() // 2, split="auto"))


@pytest.mark.parametrize("place", ["ip1", "ip2"])
def test_a_layer_in_blocks_may_be_asked_to_run_again(place, monkeypatch):
    text = NETS["fat"].replace(f'name: "{place}"', f'name: "{place}" lms_param {{ policy: RECOMPUTE }}', 1)
    text = text.replace(
        f'name: "relu_{place}" type: "ReLU" bottom: "{place}" top: "{place}"',
        f'name: "relu_{place}" type: "Sigmoid" bottom: "{place}" top: "sig_{place}"',
    )
    text = text.replace(f'bottom: "{place}" top: "{place}" }}', f'bottom: "sig_{place}" top: "drop" }}')
    text = text.replace('bottom: "ip1" top: "ip2"', 'bottom: "drop" top: "ip2"')
    if place == "ip2":
        text = text.replace('bottom: "ip2" top: "fc"', 'bottom: "sig_ip2" top: "fc"').replace(
            '"drop" top: "ip2"', '"ip1" top: "ip2"'
        )
    monkeypatch.setitem(NETS, "again", text)
    s = solver("again", sim(), LMSConfig(threshold_kb=1, split=0, split_outputs=3), "float64")
    expected = train(solver("again", sim(), LMSConfig(split=0, split_outputs=3), "float64"), ITERATIONS)
    assert train(s, ITERATIONS) == expected


def test_numbers_that_mean_nothing():
    with pytest.raises(UsageError, match="-lms_split_outputs -1 is negative"):
        LMSConfig(split_outputs=-1)


def test_a_net_without_such_layers_says_so(caplog):
    solver("up", sim(), LMSConfig(split_outputs=4))
    assert "-lms_split_outputs 4: no layer of net" in caplog.text
