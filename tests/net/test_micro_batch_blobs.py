"""Nets in micro-batches as users see them: with the blobs, parameters and layers of the prototxt."""

from __future__ import annotations

import logging

import numpy as np
import pytest

from pycaffe_lms.backend import get_device
from pycaffe_lms.backend.sim.device import SimDevice
from pycaffe_lms.errors import DiscardedRead, OutOfDeviceMemory, UsageError
from pycaffe_lms.formats.prototxt.parser import parse_net
from pycaffe_lms.lms.config import LMSConfig
from pycaffe_lms.pycaffe.classes import PycaffeNet
from tests.lms.split_nets import NETS, solver

PLACES = {
    "cpu": lambda **lms: {"device": get_device("cpu"), "lms": LMSConfig(**lms)},
    "sim": lambda **lms: {"device": SimDevice(64 << 20), "lms": LMSConfig(**lms)},
    "lms": lambda **lms: {
        "device": SimDevice(64 << 20, order="random", seed=4),
        "lms": LMSConfig(threshold_kb=1, **lms),
    },
}


def net_of(name="sums", place="cpu", **lms) -> PycaffeNet:
    parsed = parse_net(f"force_backward: true {NETS[name]}", "net.prototxt")
    options = PLACES[place](**lms)
    return PycaffeNet(parsed.message, 0, lines=parsed.lines, file="net.prototxt", seed=3, dtype="float64", **options)


@pytest.fixture(params=PLACES)
def pair(request):
    """A net in three parts, and the whole one."""
    return net_of(place=request.param, split=3), net_of(split=0)


def close(ours, theirs):
    np.testing.assert_allclose(ours, theirs, rtol=1e-11, atol=1e-13)


def test_names_layers_and_parameters_are_the_prototxts(pair):
    ours, theirs = pair
    assert len(ours.run_graph.nodes) > 2 * len(theirs.run_graph.nodes) > 0
    assert list(ours.blobs) == list(theirs.blobs) and list(ours.params) == list(theirs.params)
    assert [b.shape for b in ours.blobs.values()] == [b.shape for b in theirs.blobs.values()]
    assert list(ours._layer_names) == list(theirs._layer_names)
    for name in theirs.params:
        for a, b in zip(ours.params[name], theirs.params[name], strict=True):
            np.testing.assert_array_equal(a.data, b.data)


def test_values_and_gradients_by_hand(pair):
    ours, theirs = pair
    for net in pair:
        net.forward()
        net.backward()
    for name in theirs.blobs:
        close(ours.blobs[name].data, theirs.blobs[name].data)
        close(ours.blobs[name].diff, theirs.blobs[name].diff)
    for name in theirs.params:
        for a, b in zip(ours.params[name], theirs.params[name], strict=True):
            close(a.diff, b.diff)


def test_what_is_written_to_a_blob_counts(pair):
    """Before a forward that begins behind it, and a gradient before a backward that begins at it."""
    rng = np.random.default_rng(1)
    value, gradient = (rng.normal(size=pair[1].blobs["c2"].shape) for _ in range(2))
    for net in pair:
        net.forward()
        net.blobs["c2"].data[...] = value
        net.forward(start="c3")
        net.blobs["c2"].diff[...] = gradient
        net.backward(start="c2")
    for name in ("c2", "sum", "max", "loss"):
        close(pair[0].blobs[name].data, pair[1].blobs[name].data)
    close(pair[0].params["c1"][0].diff, pair[1].params["c1"][0].diff)
    close(pair[0].blobs["data"].diff, pair[1].blobs["data"].diff)


def test_a_view_that_is_held_stays_true(pair):
    ours, theirs = pair
    view, plain = ours.blobs["sum"].data, theirs.blobs["sum"].data
    for net in pair:
        net.forward()
    close(view, plain)
    view[...] = plain[...] = 0.5
    for net in pair:
        net.forward(start="max")
    close(ours.blobs["loss"].data, theirs.blobs["loss"].data)
    for net in pair:
        net.forward()
    close(view, plain)
    assert np.shares_memory(view, ours.blobs["sum"].data)


def test_layer_by_layer_and_with_callbacks(pair):
    ours, theirs = pair
    seen = {id(net): [] for net in pair}
    for net in pair:
        net.before_forward(lambda i, net=net: seen[id(net)].append(i))
        net.after_backward(lambda i, net=net: seen[id(net)].append(-i))
        net.forward()
        net.backward()
    assert seen[id(ours)] == seen[id(theirs)]
    close(ours.blobs["data"].diff, theirs.blobs["data"].diff)
    close(ours.params["c3"][0].diff, theirs.params["c3"][0].diff)


def test_another_batch():
    """The parts follow: 5 images in 3 parts, and one image whole."""
    parsed = parse_net(
        NETS["sums"]
        .replace("DummyData", "Input")
        .replace(
            "dummy_data_param {\n  shape { dim: 7 dim: 4 dim: 12 dim: 12 } shape { dim: 7 }\n"
            '  data_filler { type: "gaussian" } data_filler { type: "uniform" min: 0 max: 3.99 } }',
            "input_param { shape { dim: 7 dim: 4 dim: 12 dim: 12 } shape { dim: 7 } }",
        ),
        "net.prototxt",
    )
    ours, theirs = (
        PycaffeNet(parsed.message, 0, lines=parsed.lines, seed=3, dtype="float64", **PLACES["lms"](split=n))
        for n in (3, 0)
    )
    rng = np.random.default_rng(2)
    for items, parts in ((7, 3), (5, 3), (1, 1), (6, 3)):
        image, label = rng.normal(size=(items, 4, 12, 12)), rng.integers(4, size=items)
        for net in (ours, theirs):
            net.blobs["data"].reshape(*image.shape)
            net.blobs["label"].reshape(items)
            net.blobs["data"].data[...] = image
            net.blobs["label"].data[...] = label
            net.forward()
            net.backward()
        assert len([n for n in ours.run_graph.nodes if n.origin == ours.layer_index("c2")]) == parts
        close(ours.blobs["sum"].data, theirs.blobs["sum"].data)
        close(ours.params["c1"][0].diff, theirs.params["c1"][0].diff)


def test_kept_and_dropped_blobs_of_an_iteration(caplog):
    def make(split):
        return solver("sums", SimDevice(64 << 20), LMSConfig(threshold_kb=1, split=split), "float64")

    ours, theirs = make(3), make(0)
    view = ours.net.blobs["sum"].data
    ours.step(1)
    theirs.step(1)
    with pytest.raises(DiscardedRead, match=r'net.keep\("sum"\)'):
        _ = ours.net.blobs["sum"].data
    assert np.isnan(view).all() and 'net.keep("sum")' in caplog.text
    for s in (ours, theirs):
        s.net.keep("sum", "c2")
        s.step(1)
    for name in ("sum", "c2"):
        close(ours.net.blobs[name].data, theirs.net.blobs[name].data)
        close(ours.net.blobs[name].diff, theirs.net.blobs[name].diff)


def test_no_array_on_the_gpu_of_what_is_in_parts():
    net = net_of(place="sim", split=3)
    net.forward()
    with pytest.raises(UsageError, match="3 parts.*") as caught:
        _ = net.blobs["c2"].gpu_data
    assert "-lms_split off" in str(caught.value)


def test_a_net_without_a_solver_fits_a_budget_too(caplog):
    """Every pass that may follow fits, before the first one runs; what was filled in before stays."""
    whole = net_of(place="lms", split=0, ahead=0)
    whole.forward()
    whole.backward()
    plans = [p for p in whole.memory.plans().values() if p is not None]
    runtime = whole.runtime
    budget = runtime.resident_bytes + runtime.workspace_bytes + int(0.7 * max(p.arena_bytes for p in plans))
    with pytest.raises(OutOfDeviceMemory):
        net_of(place="lms", split=0, budget=budget).forward()
        net_of(place="lms", split=0, budget=budget).backward()
    ours, theirs = net_of(place="lms", budget=budget, split="auto"), net_of(split=0)
    value = np.random.default_rng(3).normal(size=theirs.blobs["c2"].shape)
    with caplog.at_level(logging.INFO):
        for net in (ours, theirs):
            net.forward(end="c1")
            net.blobs["c2"].data[...] = value
            net.forward(start="c3")
            net.backward()
    assert 'layers "c1" .. "fc" run in' in caplog.text
    for name in ("sum", "max", "loss"):
        close(ours.blobs[name].data, theirs.blobs[name].data)
    close(ours.params["c1"][0].diff, theirs.params["c1"][0].diff)


def test_what_was_filled_in_before_anything_ran_survives_the_splitting():
    whole = net_of(place="lms", split=0, ahead=0)
    whole.forward()
    whole.backward()
    most = max(p.arena_bytes for p in whole.memory.plans().values() if p is not None)
    budget = whole.runtime.resident_bytes + whole.runtime.workspace_bytes + int(0.7 * most)
    ours, theirs = net_of(place="lms", budget=budget, split="auto"), net_of(split=0)
    value = np.random.default_rng(3).normal(size=theirs.blobs["c2"].shape)
    for net in (ours, theirs):
        net.blobs["c2"].data = value
        net.blobs["c1_c1_0_split_1"].data = value
        net.forward(start="c3")
    assert ours.arrangement.micro_batched.starts
    close(ours.blobs["sum"].data, theirs.blobs["sum"].data)
