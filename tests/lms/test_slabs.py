"""Layers in slabs: rows of the first spatial axis, with halos. They train to the numbers of whole layers."""

from __future__ import annotations

import functools
from dataclasses import replace
from math import ceil, prod

import numpy as np
import pytest

from pycaffe_lms.backend import get_device
from pycaffe_lms.backend.sim.device import SimDevice
from pycaffe_lms.errors import OutOfDeviceMemory
from pycaffe_lms.lms.config import LMSConfig
from pycaffe_lms.net.memory.fit import Need
from pycaffe_lms.net.memory.micro_batch_choice import Chosen, Shortage, Splitting
from pycaffe_lms.net.net import Net
from pycaffe_lms.net.tuning import Tuning
from pycaffe_lms.proto.caffe_pb2 import TEST, TRAIN

from .nets import train
from .slab_nets import SLAB_NETS, conv, data, unit
from .split_nets import NETS, _of, managed_in_random_orders, solver

CLOSE = 1e-10  # of the largest number of an array, in float64; gradients behind which BatchNorm lies are 0
SLABS = tuple(SLAB_NETS)


@functools.cache
def whole(net):
    return train(solver(net, get_device("cpu"), dtype="float64"), 3)


def assert_close(ours, theirs, tolerance=CLOSE, dtype="float64"):
    np.testing.assert_allclose(ours[0], theirs[0], rtol=tolerance)
    for a, b in zip(ours[1], theirs[1], strict=True):
        a, b = np.frombuffer(a, dtype), np.frombuffer(b, dtype)
        np.testing.assert_allclose(a, b, rtol=0, atol=tolerance * max(0.01, np.abs(b).max()))


def cuts(s):
    """Names of layers in slabs, with the first rows of their slabs."""
    return {s.net.graph.nodes[i].name: rows for i, rows in s.net.arrangement.micro_batched.slabs.items()}


@pytest.mark.parametrize("slabs", [2, 3, 5, 13])
@pytest.mark.parametrize("net", SLABS)
def test_in_slabs_a_net_trains_to_the_same_numbers(net, slabs):
    s = solver(net, get_device("cpu"), LMSConfig(split_slabs=slabs), "float64")
    assert len(cuts(s)) > 1
    assert_close(train(s, 3), whole(net))
    on_device = solver(net, SimDevice(64 << 20, order="random", seed=slabs), LMSConfig(split_slabs=slabs), "float64")
    assert_close(train(on_device, 3), whole(net))


def test_which_layers_run_in_slabs():
    """The largest, and with more slabs smaller ones too; slabs of layers with strides begin at whole windows."""
    few, many = (cuts(solver("unet", get_device("cpu"), LMSConfig(split_slabs=n))) for n in (2, 7))
    assert few.keys() < many.keys()
    assert many["d0"] == (0, 2, 4, 6, 8, 10, 12, 13) and many["p1"] == (0, 1, 2, 3, 4, 5, 6, 7)
    assert many["up0"] == (0, 2, 4, 6, 8, 10, 12, 14)
    assert many["cut0"] == many["d0"] and not {"loss", "data"} & many.keys()


@pytest.mark.parametrize("net", SLABS)
def test_channels_last(net):
    """Rows of an image lie one behind the other in that order; halos of several images do not."""
    last = Tuning(channels_last=True)
    expected = train(solver(net, SimDevice(64 << 20), dtype="float64", tuning=last), 3)
    s = solver(net, SimDevice(64 << 20), LMSConfig(threshold_kb=1, split_slabs=4), "float64", last)
    assert any(s.net.run_graph.nodes[v.producer].slab and v.channels_last for v in s.net.run_graph.values)
    assert_close(train(s, 3), expected)


@pytest.mark.parametrize("net", SLABS)
def test_large_model_support_changes_no_bit_of_a_net_in_slabs(net):
    expected = train(solver(net, SimDevice(64 << 20), LMSConfig(split_slabs=3)), 2)
    for seed, s in enumerate(managed_in_random_orders(net, split_slabs=3)):
        assert train(s, 2) == expected, f"seed {seed}"
        assert s.runtime.stats.held == 0 and s.runtime.device.bytes_in > 0


@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize("net", SLABS)
def test_activations_in_16_bits(net, last):
    """The same bits managed or not; nearly the losses of whole layers; statistics are never rounded to 16 bits."""
    tuning = Tuning(half=True, channels_last=last)
    found = []
    for threshold in (0, 1):
        lms = LMSConfig(threshold_kb=threshold, split_slabs=4)
        s = solver(net, SimDevice(64 << 20, order="random", seed=threshold), lms, tuning=tuning)
        slabs = [node for node in s.net.run_graph.everyone() if node.slab is not None]
        assert any(node.half for node in slabs)
        small = {v.id for v in s.net.run_graph.values if len(v.shape) == 1}
        for node in slabs:
            copied = {int(name[-1]) for name in node.layer.scratches if name.startswith("copy.bottom")}
            assert not {node.bottoms[i] for i in copied} & small
            assert "copy.top0" not in node.layer.scratches or not small.intersection(node.tops)
        found.append(train(s, 3))
    assert found[0] == found[1]
    whole_losses = train(solver(net, SimDevice(64 << 20), tuning=tuning), 3)[0]
    np.testing.assert_allclose(found[0][0], whole_losses, rtol=0.02)


def test_split_backwards_change_no_bit():
    expected = train(solver("unet", SimDevice(64 << 20), LMSConfig(split_slabs=3)), 2)
    lms = LMSConfig(threshold_kb=1, split_slabs=3)
    assert train(solver("unet", SimDevice(64 << 20), lms, tuning=Tuning(split_backward=True)), 2) == expected


@pytest.mark.parametrize("net", SLABS)
def test_every_blob_can_be_read_whole(net):
    """Blobs and gradients of passes by hand; what a user writes to a blob reaches its slabs."""
    nets = [solver(net, get_device("cpu"), LMSConfig(split_slabs=n), "float64").net for n in (3, 0)]
    for one in nets:
        one.forward_range()
        one.backward_range()
    ours, theirs = nets
    assert list(ours.blobs) == list(theirs.blobs)
    for name in theirs.blobs:
        for read in ("read_data", "read_diff"):
            a, b = (getattr(n.blobs[name], read)() for n in nets)
            np.testing.assert_allclose(a, b, rtol=1e-10, atol=1e-12, err_msg=f"{name} {read}")
    name = {"unet": "d0", "images": "sum", "dropout": "c1"}[net]
    start = [node.name for node in theirs.graph.nodes].index({"unet": "p1", "images": "pr", "dropout": "drop1"}[net])
    for one in nets:
        values = one.blobs[name].read_data()
        one.blobs[name].data[...] = np.random.default_rng(1).normal(size=values.shape)
        one.forward_range(start)
    np.testing.assert_allclose(ours.blobs["loss"].read_data(), theirs.blobs["loss"].read_data(), rtol=1e-10)


@pytest.mark.parametrize("options", [{"iter_size": 2}, {"clip_gradients": 0.1}, {"debug_info": "true"}], ids=str)
@pytest.mark.parametrize("net", ["unet", "dropout"])
def test_options_of_solvers(net, options):
    ours, theirs = (
        train(solver(net, get_device("cpu"), lms, "float64", **options), 2) for lms in (LMSConfig(split_slabs=4), None)
    )
    assert_close(ours, theirs)


@pytest.mark.parametrize("net", ["unet", "dropout"])
def test_a_run_in_slabs_resumes_whole(net, tmp_path):
    """Snapshots hold no slabs; random layers go on where they were."""
    prefix = {"snapshot_prefix": f'"{tmp_path / net}"'}
    one = solver(net, get_device("cpu"), LMSConfig(split_slabs=4), "float64", **prefix)
    one.step(2)
    one.snapshot()
    one.step(2)
    other = solver(net, get_device("cpu"), None, "float64", **prefix)
    other.restore(str(next(tmp_path.glob("*.solverstate*"))))
    other.step(2)
    for ours, theirs in zip(one.net.params.values(), other.net.params.values(), strict=True):
        for a, b in zip(ours, theirs, strict=True):
            np.testing.assert_allclose(a.data, b.data, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("net", SLABS)
def test_test_nets_run_in_slabs(net):
    """With global statistics BatchNorm takes one pass; Dropout passes values on."""
    outputs = []
    for slabs in (0, 4):
        fields = {"test_iter": 1, "test_interval": 1, "test_initialization": "true"}
        s = solver(net, get_device("cpu"), LMSConfig(split_slabs=slabs), "float64", **fields)
        s.step(2)
        tested = s.test_nets[0]
        tested.forward_range()
        outputs.append({name: blob.read_data().copy() for name, blob in tested.blobs.items()})
        assert (len(tested.run_graph.nodes) > 2 * len(tested.graph.nodes)) is bool(slabs)
    for name, expected in outputs[0].items():
        np.testing.assert_allclose(outputs[1][name], expected, rtol=1e-8, atol=1e-10, err_msg=name)


@pytest.mark.parametrize("phase", [TRAIN, TEST], ids=["TRAIN", "TEST"])
def test_outputs_and_other_sizes(phase, tmp_path):
    """The last blob, which no layer reads, is one array; with another size the net is cut anew."""
    text = 'input: "data" input_shape { dim: 1 dim: 2 dim: 12 dim: 8 }\n' + unit("c1", "data", 4)
    path = tmp_path / "net.prototxt"
    path.write_text(text + conv("out", "c1", 3) + _of("prob", "Softmax", "out"))
    found = []
    for slabs in (0, 5):
        net = Net(str(path), phase=phase, lms=LMSConfig(split_slabs=slabs), dtype="float64", seed=3)
        for rows in (12, 16):
            net.blobs["data"].reshape(1, 2, rows, 8)
            net.reshape()
            net.blobs["data"].data[...] = np.random.default_rng(rows).normal(size=(1, 2, rows, 8))
            net.forward_range()
            found.append(net.blobs["prob"].read_data().copy())
            cut = net.arrangement.micro_batched.slabs.values()
            assert {end for *_, end in cut} == ({rows} if slabs else set())
    for whole_net, in_slabs in zip(found[:2], found[2:], strict=True):
        np.testing.assert_allclose(in_slabs, whole_net, rtol=1e-12)
        np.testing.assert_allclose(in_slabs.sum(axis=1), 1)


@functools.cache
def least(net):
    """Bytes of the device that training needs with whole layers, everything fetched on demand, gradients in two
    steps."""
    lms, tuning = LMSConfig(threshold_kb=1, ahead=0), Tuning(split_backward=True)
    s = solver(net, SimDevice(64 << 20), lms, tuning=tuning)
    return s.runtime.resident_bytes + s.runtime.workspace_bytes + s.net.memory.plans()["train"].arena_bytes


def test_a_budget_below_the_largest_layer():
    """One volume has no parts of its batch, so automatic mode cuts it into slabs."""
    budget = int(0.75 * least("unet"))
    with pytest.raises(OutOfDeviceMemory):
        solver("unet", SimDevice(64 << 20), LMSConfig(threshold_kb=1, budget=budget))
    device = SimDevice(64 << 20, order="random", seed=5)
    s = solver("unet", device, LMSConfig(threshold_kb=1, budget=budget, split="auto"))
    assert "join0" in cuts(s) and not s.net.arrangement.micro_batched.starts
    ours = train(s, 3)
    assert device.in_use() <= budget and device.bytes_in > 0
    n = s.net.splitting.slabs(s.net.graph)
    assert ours == train(solver("unet", SimDevice(64 << 20), LMSConfig(split_slabs=n)), 3)
    whole32 = train(solver("unet", get_device("cpu")), 3)
    assert_close(ours, whole32, 1e-3, "float32")


def test_up_to_four_times_as_many_are_tried(monkeypatch):
    """Of the fewest that fit, one and a half, two, three and four times as many; the fastest are adopted."""
    tried = []

    def seconds(need, chosen):
        tried.append(chosen.slabs)
        return abs(chosen.slabs - 3 * tried[0])

    monkeypatch.setattr(Need, "_predicted", seconds)
    lms = LMSConfig(threshold_kb=1, budget=int(0.75 * least("unet")), split="auto", auto=True)
    s = solver("unet", SimDevice(64 << 20), lms)
    few = tried[0]
    assert tried == [few, ceil(1.5 * few), 2 * few, 3 * few, 4 * few]
    assert s.net.splitting.chosen.slabs == 3 * few and "join0" in cuts(s)


def test_what_fits_whole_runs_whole():
    s = solver("unet", SimDevice(64 << 20), LMSConfig(threshold_kb=1, budget=least("unet"), split="auto"))
    assert cuts(s) == {} and train(s, 2) == train(solver("unet", SimDevice(64 << 20)), 2)


def test_a_limit_of_layers_limits_the_choices():
    """A step that needs ten times the memory asks for ten slabs; then twice the memory, for as many as there can be."""
    net = solver("unet", get_device("cpu")).net
    steps = net.arrangement.all_steps(fused=True)
    need = [1000 if net.graph.nodes[one.node].name == "d0" else 0 for one in steps]
    short = Shortage(net.graph, net.arrangement.micro_batched, steps, need, {}, 100)
    free = Splitting(asked=0, asked_blocks=0, asked_slabs=None)
    assert free.widen(short) and free.slabs(net.graph) == 10
    again = replace(short, need=[2 * n // 10 for n in need])
    for more, possible in ((13, True), (12, False)):
        limited = replace(free, chosen=Chosen(), layers_left=(10 + more) * len(net.graph.nodes))
        assert limited.widen(short) and limited.slabs(net.graph) == 10
        assert limited.widen(again) is possible and limited.slabs(net.graph) == (13 if possible else 10)


def test_what_stands_in_the_way_is_said(monkeypatch):
    """The largest layer is one that needs all rows: no number of slabs helps."""
    fc = 'inner_product_param { num_output: 64 weight_filler { type: "xavier" } }'
    text = data(1, 2, 64, 64, label=(1, 64)) + conv("c", "data", 4) + _of("mvn", "MVN", "c")
    text += _of("gp", "Pooling", "mvn", more="pooling_param { pool: AVE global_pooling: true }")
    text += _of("fc", "InnerProduct", "gp", more=fc) + _of("l", "EuclideanLoss", "fc label")
    monkeypatch.setitem(NETS, "stands", text)
    lms = LMSConfig(threshold_kb=1, budget=120_000, split="auto")
    with pytest.raises(OutOfDeviceMemory, match='layer "mvn" cannot run in slabs: it needs all rows at once'):
        solver("stands", SimDevice(64 << 20), lms)


def random_net(seed):
    """A chain of random layers over one to three spatial axes, with a sum and a loss, and the shape of its blob."""
    rng = np.random.default_rng(seed)
    axes = int(rng.integers(1, 4))
    shape = (int(rng.integers(1, 3)), 4, *(int(n) for n in rng.integers(9, 14 if axes < 3 else 11, size=axes)))
    text, bottom, size = data(*shape, label=(shape[0], 2)), "data", list(shape[2:])
    for i in range(6):
        name, kind = f"l{i}", rng.choice(["conv", "pool", "up", "unit", "relu", "sum"])
        k, s, p, d = (int(rng.integers(1, n)) for n in (5, 3, 3, 3))
        p -= 1
        if kind == "conv" and min(size) + 2 * p >= d * (k - 1) + 1:
            group = int(rng.choice([1, 2, 4]))
            fields = f"kernel_size: {k} stride: {s} pad: {p} dilation: {d} group: {group}"
            text += conv(name, bottom, 4, fields)
            size = [(n + 2 * p - d * (k - 1) - 1) // s + 1 for n in size]
        elif kind == "pool" and p < k and s <= k and min(size) >= k:
            how, ceil = rng.choice(["MAX", "AVE", "AVE_EXC_PAD"]), bool(rng.integers(0, 2))
            mode = "CEIL" if ceil else "FLOOR"
            fields = f"pool: {how} kernel_size: {k} stride: {s} pad: {p} round_mode: {mode}"
            text += _of(name, "Pooling", bottom, more=f"pooling_param {{ {fields} }}")
            outs = []
            for n in size:
                out = (-(-(n + 2 * p - k) // s) if ceil else (n + 2 * p - k) // s) + 1
                outs.append(out - 1 if p and (out - 1) * s >= n + p else out)
            size = outs
        elif kind == "up" and max(size) < 16 and s * (min(size) - 1) + d * (k - 1) + 1 - 2 * p >= 1:
            text += conv(name, bottom, 4, f"kernel_size: {k} stride: {s} pad: {p} dilation: {d}", "Deconvolution")
            size = [s * (n - 1) + d * (k - 1) + 1 - 2 * p for n in size]
        elif kind == "unit":
            text += _of(f"bn{i}", "BatchNorm", bottom, name)
            text += _of(f"scale{i}", "Scale", name, name, "scale_param { bias_term: true }")
        elif kind == "sum":
            text += _of(f"{name}a", "TanH", bottom) + _of(name, "Eltwise", f"{name}a {bottom}")
        else:
            text += _of(name, "ReLU", bottom, more="relu_param { negative_slope: 0.1 }")
        bottom = name
    text += _of("flat", "Flatten", bottom) + _of(
        "fc", "InnerProduct", "flat", more='inner_product_param { num_output: 2 weight_filler { type: "xavier" } }'
    )
    assert prod(size) > 0
    return text + _of("loss", "EuclideanLoss", "fc label")


@pytest.mark.parametrize("seed", [pytest.param(s, marks=pytest.mark.thorough if s % 3 else ()) for s in range(24)])
def test_random_nets(seed, monkeypatch):
    """Odd sizes, strides, paddings, dilation, groups, 1 to 3 spatial axes, random numbers of slabs."""
    name = f"random slabs {seed}"
    monkeypatch.setitem(NETS, name, random_net(seed))
    slabs = int(np.random.default_rng(seed).integers(2, 12))

    def trained(device, lms=None, dtype="float32"):
        return train(solver(name, device, lms, dtype, base_lr=1e-4), 2)

    in_slabs = LMSConfig(split_slabs=slabs)
    ours = trained(get_device("cpu"), in_slabs, "float64")
    assert_close(ours, trained(get_device("cpu"), dtype="float64"))
    device = SimDevice(64 << 20, order="random", seed=seed)
    lms = LMSConfig(threshold_kb=1, split_slabs=slabs, frac=0.001)
    assert trained(device, lms) == trained(SimDevice(64 << 20), in_slabs)
