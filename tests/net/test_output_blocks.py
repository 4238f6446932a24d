"""Layers in blocks of outputs: the graph that runs, and the net as users see it."""

from __future__ import annotations

import numpy as np
import pytest

from pycaffe_lms.backend import get_device
from pycaffe_lms.backend.sim.device import SimDevice
from pycaffe_lms.errors import UsageError
from pycaffe_lms.formats.prototxt.parser import parse_net
from pycaffe_lms.layers.base import count
from pycaffe_lms.lms.config import LMSConfig
from pycaffe_lms.lms.program import BufferKind, kind_of
from pycaffe_lms.net.passes.micro_batch import split_values, with_micro_batches
from pycaffe_lms.net.passes.regions import cuttable, output_cuts
from pycaffe_lms.net.program.buffers import assign
from pycaffe_lms.pycaffe.classes import PycaffeNet
from tests.lms.block_nets import NETS

from .nets import graph


def net_of(n, name="fat", device=None, threshold=1, text=None):
    parsed = parse_net(f"force_backward: true {text or NETS[name]}", "net.prototxt")
    lms = LMSConfig(threshold_kb=threshold, split=1 if n is None else 0, split_outputs="auto" if n is None else n)
    device = device or SimDevice(64 << 20, order="random", seed=4)
    return PycaffeNet(
        parsed.message, 0, lines=parsed.lines, file="net.prototxt", seed=3, dtype="float64", device=device, lms=lms
    )


@pytest.mark.parametrize(
    ("outputs", "blocks", "cuts"),
    [
        (16, 2, [0, 8, 16]),
        (90, 3, [0, 28, 60, 90]),
        (4096, 3, [0, 1364, 2728, 4096]),
        (5, 2, [0, 2, 5]),
        (3, 8, [0, 1, 2, 3]),
        (10, 2, [0, 4, 10]),
    ],
)
def test_where_outputs_are_cut(outputs, blocks, cuts):
    assert output_cuts(outputs, blocks) == cuts


def test_blocks_a_chain_of_the_bottoms_gradient_and_a_gather():
    old = graph(NETS["fat"])
    [ip2] = [n.index for n in old.nodes if n.name == "ip2"]
    made = with_micro_batches(old, {}, {ip2: 3})
    mine = [n for n in made.graph.nodes if n.origin == ip2]
    assert [n.name for n in mine] == [
        "ip2 [spread 1/3]",
        "ip2 [outputs 1/3]",
        "ip2 [spread 2/3]",
        "ip2 [outputs 2/3]",
        "ip2 [outputs 3/3]",
        "ip2 [gather]",
    ]
    values = made.graph.values
    tops = [n.tops[0] for n in mine if n.block]
    assert [values[t].shape for t in tops] == [(6, 12), (6, 12), (6, 13)] and mine[-1].bottoms == tops
    [whole] = made.values[old.nodes[ip2].tops[0]]
    assert mine[-1].tops == [whole] and values[whole].name == "ip2" and values[whole].shape == (6, 37)
    assert mine[2].bottoms == [mine[0].tops[1]] and mine[4].bottoms == [mine[2].tops[1]]
    shapes = [[made.graph.params[p].shape for p in n.params] for n in mine if n.block]
    assert shapes == [[(12, 90), (12,)], [(12, 90), (12,)], [(13, 90), (13,)]]
    assert all(made.graph.nodes[p.node].params.count(p.index) == 1 and p.owner == p.index for p in made.graph.params)


def test_without_a_gradient_of_the_bottom_there_is_no_chain():
    old = graph(NETS["fat"])
    made = with_micro_batches(old, {}, dict.fromkeys(cuttable(old), 2))
    first = [n.name for n in made.graph.nodes if old.nodes[n.origin].name == "ip1"]
    assert first == ["ip1 [outputs 1/2]", "ip1 [outputs 2/2]", "ip1 [gather]"]


def test_parameters_have_a_buffer_for_each_block():
    old = graph(NETS["fat"])
    made = with_micro_batches(old, {}, dict.fromkeys(cuttable(old), 3))
    table = assign(made.graph, 4)
    split_memories = {v.id: v for v in split_values(old, made)}
    for param in old.params:
        pieces = [made.graph.params[p] for p in made.params[param.index]]
        assert kind_of(param.data) is BufferKind.SPLIT
        assert split_memories[param.data].buffers == tuple(p.data for p in pieces)
        assert [table.used_bytes[p.data] for p in pieces] == [4 * count(p.shape) for p in pieces]
        assert sum(p.shape[0] for p in pieces) == param.shape[0]
    names = [b.name for b in table.buffers]
    assert "ip1.param0 [1/3].data" in names and "fc.param1 [3/3].diff" in names


def test_parameters_are_read_and_written_as_wholes():
    ours, theirs = net_of(3), net_of(0)
    for name in theirs.params:
        for a, b in zip(ours.params[name], theirs.params[name], strict=True):
            assert a.shape == b.shape and (a.data == b.data).all()
    values = np.random.default_rng(0).normal(size=(37, 90))
    held = ours.params["ip2"][0].data
    for net in (ours, theirs):
        net.params["ip2"][0].data[...] = values
        net.forward()
        net.backward()
    np.testing.assert_allclose(ours.blobs["loss"].data, theirs.blobs["loss"].data, rtol=1e-12)
    for name in theirs.params:
        for a, b in zip(ours.params[name], theirs.params[name], strict=True):
            np.testing.assert_allclose(a.diff, b.diff, rtol=1e-11, atol=1e-14)
    np.testing.assert_allclose(ours.blobs["data"].diff, theirs.blobs["data"].diff, rtol=1e-11, atol=1e-14)
    held *= 2  # a view that is held is the net's own memory
    ours.forward()
    theirs.params["ip2"][0].data[...] *= 2
    theirs.forward()
    np.testing.assert_allclose(ours.blobs["loss"].data, theirs.blobs["loss"].data, rtol=1e-12)
    ours.clear_param_diffs()
    ours.backward()
    theirs.clear_param_diffs()
    theirs.backward()
    np.testing.assert_allclose(ours.params["fc"][0].diff, theirs.params["fc"][0].diff, rtol=1e-11, atol=1e-14)


def test_no_array_on_the_gpu_of_a_parameter_in_blocks():
    with pytest.raises(UsageError, match="lies in 3 parts"):
        _ = net_of(3).params["ip1"][0].gpu_data


def test_memory_on_the_host_of_the_whole_goes_when_nobody_looks():
    net = net_of(3)
    blob = net.params["ip1"][0]
    before = blob.data.copy()
    net.forward()
    assert blob.data_memory.host is None
    assert (blob.read_data() == before).all() and blob.data_memory.host is not None


def test_files_are_those_of_the_whole_net(tmp_path):
    ours, theirs = net_of(3), net_of(0)
    for net, name in ((ours, "a"), (theirs, "b")):
        net.save(str(tmp_path / name))
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()
    other = net_of(2, text=NETS["fat"].replace("xavier", "constant"))
    other.copy_from(str(tmp_path / "b"))
    assert (other.params["ip1"][0].data == theirs.params["ip1"][0].data).all()


def test_nets_that_share_parameters_lie_alike():
    device = get_device("sim", capacity=64 << 20)
    ours, theirs = net_of(3, device=device), net_of(0, device=device)
    theirs.share_with(ours)
    assert theirs.arrangement.micro_batched.cuts == ours.arrangement.micro_batched.cuts
    ours.params["ip1"][0].data[...] *= 0.5
    assert (theirs.params["ip1"][0].data == ours.params["ip1"][0].data).all()
    for net in (ours, theirs):
        net.forward()
    theirs.params["fc"][1].data[...] = 3
    ours.forward()
    assert (ours.params["fc"][1].data == 3).all()
    whole = net_of(0, device=device)
    ours.share_with(whole)
    assert not ours.arrangement.micro_batched.cuts
    stiff = net_of(
        0, device=device, text=NETS["fat"].replace('name: "ip1"', 'name: "ip1" lms_param { policy: KEEP }', 1)
    )
    with pytest.raises(UsageError, match='"ip1".*3 blocks of outputs'):
        stiff.share_with(net_of(3, device=device))


def test_passes_by_hand_on_a_device_that_cannot_hold_a_weight_with_its_gradient():
    """Blocks are chosen at the first forward; views and blobs that were taken before go on."""
    device = SimDevice(250 << 10)  # ip1: a weight of 180 KiB, and its gradient
    net, whole = net_of(None, device=device), net_of(0)
    blob = net.params["ip1"][0]
    view = blob.data
    assert not net.arrangement.micro_batched.cuts
    for one in (net, whole):
        one.params["ip1"][0].data[...] = 0.01
        one.forward()
        one.backward()
    assert net.arrangement.micro_batched.cuts and net.params["ip1"][0] is blob
    np.testing.assert_allclose(blob.diff, whole.params["ip1"][0].diff, rtol=1e-11, atol=1e-14)
    view[...] = 0.02
    whole.params["ip1"][0].data[...] = 0.02
    for one in (net, whole):
        one.forward()
    np.testing.assert_allclose(net.blobs["loss"].data, whole.blobs["loss"].data, rtol=1e-12)
