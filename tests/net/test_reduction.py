"""Which gradients are summed over ranks in one call, and where: by sizes and backward steps alone."""

from __future__ import annotations

import numpy as np
import pytest

from pycaffe_lms.net.program.reduction import WHOLE, BucketSizes, Reduction, buckets, digest

from .nets import CPU, Place, conv, inputs, ip, layer, loss, make_net, relu

MIB = 1 << 20


class Sums:
    """Stands for `size` ranks that all have the same gradients."""

    size, can_capture = 2, True

    def __init__(self):
        self.calls = []

    def average(self, arrays):
        self.calls.append([a.shape for a in arrays])
        for a in arrays:
            a *= self.size
        return 1 / self.size


def back(net):
    builder = net.arrangement.builder
    return builder.backward(len(net.graph.nodes) - 1, 0, builder.loss_diffs(), accumulate=False)


def named(net, found):
    return [[(net.graph.nodes[p.node].name, p.position) for p in b.params] for b in found]


def three(outputs=10):
    return inputs(x=(2, 12), label=(2,)) + ip("a", "x", outputs) + ip("b", "a", 30) + ip("c", "b", 4) + loss("c")


def test_large_ones_alone_small_ones_together():
    net = make_net(three())
    found = buckets(net.graph, back(net), 4, BucketSizes(1200, 550, 500))
    # bytes, in the order of the backward: c 480 + 16, b 1200 + 120, a 480 + 40
    assert named(net, found) == [[("b", 0)], [("c", 0), ("c", 1), ("b", 1)], [("a", 0), ("a", 1)]]
    steps = [s.step.name for s in back(net)]
    assert [steps[b.after] for b in found] == ["backward:b", "backward:b", "backward:a"]


def test_the_last_call_for_which_updates_wait_is_small():
    net = make_net(three())
    found = buckets(net.graph, back(net), 4, BucketSizes(10000, 2000, 400))
    assert named(net, found) == [[("c", 0), ("c", 1), ("b", 0), ("b", 1)], [("a", 0), ("a", 1)]]


def test_they_are_due_when_the_last_layer_that_shares_them_is_done():
    shared = 'param { name: "w" } param { name: "b" }'
    text = (
        inputs(x=(2, 4), label=(2,)) + ip("a", "x", 4, shared) + ip("b", "a", 4, shared) + ip("c", "b", 3) + loss("c")
    )
    net = make_net(text)
    (found,) = buckets(net.graph, back(net), 4, WHOLE)
    steps = [s.step.name for s in back(net)]
    assert [(net.graph.nodes[p.node].name, p.position) for p in found.params] == [
        ("c", 0),
        ("c", 1),
        ("a", 0),
        ("a", 1),
    ]
    assert steps[found.after] == "backward:a"


def test_layers_that_do_not_learn_are_left_out():
    fixed = "param { lr_mult: 0 } param { lr_mult: 0 }"
    text = inputs(x=(2, 4), label=(2,)) + ip("a", "x", 4, fixed) + ip("b", "a", 4) + loss("b")
    net = make_net(text)
    assert named(net, buckets(net.graph, back(net), 4, WHOLE)) == [[("b", 0), ("b", 1)]]
    assert buckets(net.graph, [], 4, WHOLE) == []


@pytest.mark.parametrize("place", [CPU, Place("sim"), Place("lms")], ids=lambda p: p.name)
@pytest.mark.parametrize("layer_wise", [True, False])
def test_order_and_means_do_not_depend_on_the_place(monkeypatch, place, layer_wise):
    monkeypatch.setattr(Reduction, "sizes", BucketSizes(2000, 400, 100))
    text = (
        inputs(data=(2, 3, 6, 6), label=(2,))
        + conv("conv", "data", 20)
        + relu("relu", "conv")
        + ip("ip", "conv", 5)
        + loss("ip")
    )
    rng = np.random.default_rng(1)
    data = {"data": rng.normal(size=(2, 3, 6, 6)), "label": [1, 3]}
    plain = make_net(text)
    net = make_net(text, place)
    sums = Sums()
    if not net.device.is_host:
        average = sums.average
        sums.average = lambda arrays: net.device.queue(average, list(arrays)) or 1 / sums.size
    net.reduction = Reduction(net.runtime, sums, layer_wise)
    for n in (plain, net):
        for name, values in data.items():
            n.blobs[name].data = values
        n.iteration(True, key="train", reduce=n is net)
    for mine, theirs in zip(net.learnable_params, plain.learnable_params, strict=True):
        assert np.array_equal(mine.read_diff(), theirs.read_diff())  # the mean of two that are equal
    assert sums.calls == [[(5, 720)], [(20, 3, 3, 3)], [(5,), (20,)]]


def test_where_the_sums_stand_among_the_steps():
    text = three()
    net = make_net(text)
    order = {}
    for layer_wise in (True, False):
        woven = Reduction(net.runtime, Sums(), layer_wise).woven(net.memory.executor, back(net))
        order[layer_wise] = [s.step.name for s in woven]
    assert order[True][-2:] == order[False][-2:] == ["reduce:c", "reduced"]
    alone = Reduction(net.runtime, Sums(), True).alone(net.memory.executor, back(net))
    assert [s.step.name for s in alone] == ["reduce:c", "reduced"]
    managed = make_net(three(300), Place("lms"))
    woven = Reduction(managed.runtime, Sums(), False).woven(managed.memory.executor, back(managed))
    assert [s.step.name for s in woven] == order[False]  # all are small: one call, when the last is done


def test_the_digest_tells_nets_apart():
    def number(text, itemsize=4):
        net = make_net(text)
        return digest(net.graph, back(net), itemsize)

    assert number(three()) == number(three()) < 2**32
    others = [three(11), three().replace('"c"', '"d"'), inputs(x=(2, 12), label=(2,)) + ip("c", "x", 4) + loss("c")]
    assert len({number(three()), number(three(), 8), *map(number, others)}) == 5


def test_a_net_without_reduction_and_a_layer_without_parameters():
    net = make_net(inputs(x=(2, 4), label=(2,)) + layer("n", "AbsVal", "x") + loss("n"))
    net.reduce_by_hand(back(net), "nothing")
    assert "nothing, reduction" not in net.memory.plans()
