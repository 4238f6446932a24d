"""A diff that users write to a top under no loss: no backward of its layer runs, so it changes no gradient."""

from __future__ import annotations

import numpy as np
import pytest

from .nets import inputs, ip, layer, loss, make_net
from .test_net import feed, gradients

BASE = inputs(data=(24, 40), label=(24,)) + ip("a", "data", 40)
SHARING = {  # a top `f` that shares memory with `a`
    "Flatten": layer("f", "Flatten", "a"),
    "Reshape": layer("f", "Reshape", "a", text="reshape_param { shape { dim: 0 dim: 2 dim: 20 } }"),
    "Concat": layer("f", "Concat", "a"),
    "Slice": layer("f", "Slice", "a"),
    "Permute": layer("f", "Permute", "a", text="permute_param { order: 0 order: 1 }"),
    "Split": layer("f", "Split", "a", "f g"),
}
NETS = {name: BASE + text + ip("b", "a", 3) + loss("b") for name, text in SHARING.items()} | {
    "Power": BASE + layer("f", "Power", "a") + ip("b", "a", 3) + loss("b"),
    "one of a Split's": BASE + layer("s", "Split", "a", "f g") + ip("b", "g", 3) + loss("b"),
    "two of them": BASE
    + layer("e", "Flatten", "a")
    + SHARING["Reshape"].replace('"a"', '"e"')
    + ip("b", "a", 3)
    + loss("b"),
    "in place": BASE + layer("f", "Flatten", "a") + layer("r", "ReLU", "f", "f") + ip("b", "a", 3) + loss("b"),
    "behind a Slice": BASE + layer("s", "Slice", "a", "u v") + layer("f", "Flatten", "v") + ip("b", "u", 3) + loss("b"),
    "not propagated": BASE
    + layer("f", "Flatten", "a")
    + ip("c", "f", 3, "propagate_down: false")
    + ip("b", "a", 3)
    + loss("b")
    + loss("c", "l2", "l2"),
}


@pytest.mark.parametrize("name", NETS)
def test_what_is_written_there_reaches_no_parameter(name, place):
    net = make_net(NETS[name], place)
    feed(net)
    net.forward()
    net.backward()
    expected = gradients(net)
    assert any(g.any() for g in expected)
    splits = [top for node in net.graph.nodes if node.layer.type == "Split" for top in net.top_names[node.name]]
    given = {
        b
        for node in net.graph.nodes
        if node.need_backward
        for b, wanted in zip(net.bottom_names[node.name], node.propagate, strict=True)
        if wanted
    }
    under_none = [top for top in ("f", *splits) if top not in given]
    assert "f" in under_none
    for top in under_none:
        net.blobs[top].diff[...] = 7
    for _ in range(2):  # nor does it stay for a later pass
        net.clear_param_diffs()
        net.forward()
        net.backward()
        for ours, theirs in zip(gradients(net), expected, strict=True):
            np.testing.assert_array_equal(ours, theirs)


@pytest.mark.parametrize("name", SHARING)
def test_what_is_written_counts_under_force_backward(name, place):
    """Then every top takes a gradient: the sum of both is that of `a`."""
    net = make_net("force_backward: true " + BASE + SHARING[name] + ip("b", "a", 3), place)
    feed(net)
    net.forward()
    rng = np.random.default_rng(1)
    f, b = (rng.normal(size=net.blobs[n].shape).astype(np.float32) for n in ("f", "b"))
    net.blobs["f"].diff[...] = f
    net.blobs["b"].diff[...] = b
    net.backward()
    expected = f.reshape(24, 40) + b @ net.params["b"][0].data
    np.testing.assert_allclose(net.params["a"][1].diff, expected.sum(0), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", ["Flatten", "Reshape", "Concat", "Slice", "Permute"])
def test_what_is_written_under_a_loss_counts_where_a_backward_starts(name, place):
    net = make_net(BASE + SHARING[name] + ip("b", "f", 3) + loss("b"), place)
    feed(net)
    net.forward()
    d = np.random.default_rng(1).normal(size=net.blobs["f"].shape).astype(np.float32)
    net.blobs["f"].diff[...] = d
    net.backward(start="f")
    np.testing.assert_allclose(net.params["a"][1].diff, d.reshape(24, 40).sum(0), rtol=1e-5, atol=1e-5)
