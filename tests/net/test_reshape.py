"""Inputs change their shape: the net follows, parameters stay, memory does not pile up."""

from __future__ import annotations

import numpy as np
import pytest

from pycaffe_lms.backend import get_device
from pycaffe_lms.backend.sim.device import SimDevice
from pycaffe_lms.errors import CaffeError, ShapeError
from pycaffe_lms.lms.config import LMSConfig

from .nets import conv, inputs, ip, layer, loss, make_net, make_solver, relu
from .test_net import IMAGES, UNIT, feed, gradients

NET = (
    IMAGES
    + UNIT
    + layer("p", "Pooling", "x", text="pooling_param { pool: AVE global_pooling: true }")
    + ip("y", "p", 3)
    + loss("y")
)


def set_shape(net, batch, height=8, width=8):
    net.blobs["data"].reshape(batch, 3, height, width)
    net.blobs["label"].reshape(batch)


def run(net, shape):
    """Loss, gradients and y for one fixed batch of that shape, from cleared gradients."""
    set_shape(net, *shape)
    feed(net, seed=sum(shape))
    net.clear_param_diffs()
    for node in net.graph.nodes:  # the same dropout and statistics each time
        if hasattr(node.layer, "draws"):
            node.layer.draws = 0
    for blob in net.params["bn"]:
        blob.data[...] = 0
    value = net.forward_range()
    net.backward_range()
    return value, [g.tobytes() for g in gradients(net)], net.blobs["y"].data.tobytes()


SHAPES = [(4, 8, 8), (9, 8, 8), (2, 8, 8), (4, 8, 8), (4, 11, 6), (1, 5, 5), (9, 11, 11), (4, 8, 8)]


def test_bigger_smaller_and_back(place):
    """Every shape gives what a net that never had another shape gives, to the bit."""
    net = make_net(NET, place)
    before = [p.data.tobytes() for p in net.learnable_params]
    for shape in SHAPES:
        result = run(net, shape)
        assert net.blobs["x"].shape == (shape[0], 4, *shape[1:]) and net.blobs["y"].shape == (shape[0], 3)
        n, h, w = shape
        fresh = NET.replace("dim: 4 dim: 3 dim: 8 dim: 8", f"dim: {n} dim: 3 dim: {h} dim: {w}")
        fresh = fresh.replace("shape { dim: 4 }", f"shape {{ dim: {n} }}")
        assert result == run(make_net(fresh, place), shape)
    after = [p.data.tobytes() for p in net.learnable_params]
    changed = {i for i, (a, b) in enumerate(zip(before, after, strict=True)) if a != b}
    assert changed == {2, 3, 4}  # BatchNorm's statistics; all else stays


@pytest.mark.parametrize("lms", [None, LMSConfig(threshold_kb=1, ahead=1)], ids=["sim", "lms"])
def test_memory_does_not_pile_up(lms):
    device = SimDevice(64 << 20)
    net = make_net(NET, device=device, lms=lms)
    used = []
    for _ in range(4):
        for shape in SHAPES:
            run(net, shape)
        used.append((device.in_use(), net.runtime.resident_bytes))
    assert used[0] == used[1] == used[2] == used[3]


def test_blob_objects_and_parameter_values_stay(place):
    net = make_net(NET, place)
    blobs, x = dict(net.blobs), feed(net)[0]
    net.forward_range()
    net.reshape()
    assert all(net.blobs[name] is blob for name, blob in blobs.items())
    assert (net.blobs["data"].data == x).all()  # as before


def test_reshape_alone_computes_nothing(place):
    net = make_net(NET, place)
    set_shape(net, 2, 6, 7)
    net.reshape()
    assert net.blobs["x"].shape == (2, 4, 6, 7) and net.blobs["p"].shape == (2, 4, 1, 1)
    assert not net.blobs["x"].data.any()


def test_what_is_written_before_the_net_follows_is_used(place):
    net = make_net(NET, place)
    net.forward_range()
    set_shape(net, 7)
    x, _ = feed(net)
    net.forward_range()
    assert (net.blobs["data"].data == x).all() and net.blobs["y"].shape == (7, 3)


def test_a_shape_that_a_layer_refuses(place):
    """The error names file, line and layer; with a good shape the net goes on."""
    net = make_net(IMAGES + ip("y", "data", 3) + loss("y"), place)
    x, _ = feed(net)
    value = net.forward_range()
    net.blobs["data"].reshape(4, 3, 9, 9)
    for call in (net.forward_range, net.reshape, net.forward_range):
        with pytest.raises(CaffeError, match=r'some\.prototxt:3: layer "y" \(InnerProduct\)'):
            call()
    net.blobs["data"].reshape(4, 3, 8, 8)
    net.blobs["data"].data[...] = x
    assert net.forward_range() == value


@pytest.mark.parametrize("dims", [(-1, 2), (2,) * 33, (1, 2**31), (2**25, 2**24), (2**40, 2**40)])
def test_no_blob_shape(dims):
    net = make_net(IMAGES)
    with pytest.raises(ShapeError, match="is no blob shape") as caught:
        net.blobs["data"].reshape(*dims)
    assert caught.value.where.blob == "data" and net.blobs["data"].shape == (4, 3, 8, 8)


def test_shapes_that_are_fine():
    """No axes at all is one number; as a list, as NumPy integers, empty."""
    blob = make_net(IMAGES).blobs["label"]
    for dims, shape in [
        ((), ()),
        (([2, 3],), (2, 3)),
        ((np.int64(5),), (5,)),
        ((0, 7), (0, 7)),
        ((1,) * 32, (1,) * 32),
    ]:
        blob.reshape(*dims)
        assert blob.shape == shape and blob.data.shape == shape and blob.count == int(np.prod(shape))


def test_legacy_axes():
    blob = make_net(IMAGES).blobs["data"]
    assert (blob.num, blob.channels, blob.height, blob.width) == (4, 3, 8, 8)
    blob.reshape(6, 2)
    assert (blob.num, blob.channels, blob.height, blob.width) == (6, 2, 1, 1)
    blob.reshape(1, 2, 3, 4, 5)
    with pytest.raises(ShapeError, match="at most 4 axes, not 5"):
        _ = blob.num


def test_a_parameters_size_is_fixed():
    net = make_net(IMAGES + ip("y", "data", 3))
    weight = net.params["y"][0]
    weight.reshape(3, 3, 8, 8)  # another view of the same numbers
    assert weight.data.shape == (3, 3, 8, 8)
    for dims in ((4, 192), (3, 191)):
        with pytest.raises(ShapeError, match=r"y\[0\].*576 elements"):
            weight.reshape(*dims)
    assert weight.shape == (3, 3, 8, 8)


def test_things_of_one_name_stay_apart_after_a_reshape(place):
    """Two unnamed losses, Softmax under its bottom's name."""
    head = layer("l1", "SoftmaxWithLoss", "a label", "") + layer("l2", "SoftmaxWithLoss", "b label", "")
    text = IMAGES + ip("a", "data", 3) + layer("s", "Softmax", "a", "a") + ip("b", "data", 3) + head
    net = make_net(text, place)
    results = []
    for _ in range(2):
        feed(net)
        net.clear_param_diffs()
        value = net.forward_range()
        net.backward_range()
        results.append((value, [g.tobytes() for g in gradients(net)]))
        net.reshape()
    assert results[0] == results[1]


def test_an_input_with_a_layer_in_place_on_it(place):
    net = make_net(IMAGES + layer("s", "Scale", "data", "data") + ip("y", "data", 3) + loss("y"), place)
    for batch in (4, 2, 9):
        net.blobs["data"].reshape(batch, 3, 8, 8)
        net.blobs["label"].reshape(batch)
        feed(net)
        net.forward_range()
        assert net.blobs["y"].shape == (batch, 3)


def test_shared_parameters_stay_shared(place):
    """Also where the layer that owns them in the other net has another name."""
    spec = 'param { name: "w" } param { name: "b" } '
    data = inputs(data=(4, 30), label=(4,))
    first = make_net(data + ip("a", "data", 30, spec) + ip("b", "a", 30, spec) + loss("b"), place)
    second = make_net(data + ip("b", "data", 30) + loss("b"), runtime=first.runtime, device=None, lms=None)
    second.share_with(first)
    second.reshape()
    first.params["a"][0].data[...] = 3
    assert (second.params["b"][0].data == 3).all()


def test_a_solver_goes_on_after_a_reshape(place):
    """With its history: as a solver whose batch never changed, where the gradient does not depend on the batch size."""
    results = []
    for changes in (False, True):
        solver = make_solver(inputs(data=(4, 300)) + ip("y", "data", 3, "loss_weight: 1"), place)
        net = solver.net
        for batch in (4, 8, 4):
            if changes:
                net.blobs["data"].reshape(batch, 300)
            net.blobs["data"].data[...] = 0
            net.blobs["data"].data[:4] = 1
            solver.step(1)
        results.append(net.params["y"][0].data.copy())
    np.testing.assert_array_equal(*results)


def test_relu_after_reshape_keeps_in_place_sharing(place):
    net = make_net(IMAGES + conv("x", "data", 2) + relu("r", "x") + ip("y", "x", 3) + loss("y"), place)
    for shape in ((4, 8, 8), (2, 8, 8)):
        set_shape(net, *shape)
        feed(net)
        net.forward(end="x")
        raw = net.blobs["x"].data.copy()
        net.forward()
        assert (net.blobs["x"].data == np.maximum(raw, 0)).all() and raw.min() < 0
        assert len({v.data for v in net.graph.values if v.name == "x"}) == 1


def test_memory_of_nets_that_share_is_counted_once_however_often_one_is_reshaped():
    def text(batch):
        return inputs(data=(batch, 3), label=(batch,)) + ip("y", "data", 300) + loss("y")

    def pair(batch, device):
        first = make_net(text(4), device=device)
        second = make_net(text(batch), device=device, runtime=first.runtime)
        second.share_with(first)
        return first, second

    counted = []
    for batch in (4, 40, 4, 12):
        if not counted:
            first, second = pair(batch, SimDevice(64 << 20))
        second.blobs["data"].reshape(batch, 3)
        second.blobs["label"].reshape(batch)
        second.forward_range()
        counted.append(first.runtime.resident_bytes)
    assert counted == [pair(batch, SimDevice(64 << 20))[0].runtime.resident_bytes for batch in (4, 40, 4, 12)]
    assert counted[1] - counted[0] >= 2 * 36 * 300 * 4
    assert pair(4, get_device("cpu"))[0].lms.stats()["resident_bytes"] == 0
