"""Nets that share parameters in another memory order than their own: values stay, and layers transpose."""

from __future__ import annotations

import numpy as np
import pytest

from pycaffe_lms.backend import cuda_available, get_device
from pycaffe_lms.backend.sim.device import SimDevice
from pycaffe_lms.errors import UsageError
from pycaffe_lms.lms.config import LMSConfig
from pycaffe_lms.net.tuning import Tuning

from .nets import conv, inputs, ip, make_net
from .order_nets import copies, make, train, values

TEXT = inputs(x=(2, 3, 6, 5)) + conv("c", "x", 4) + conv("d", "c", 5)


def pair(text=TEXT, other=TEXT, last=False, device=None, lms=None):
    """A net whose images lie so, and one whose lie otherwise, with other values, on one device."""
    device = device or SimDevice(64 << 20)
    options = {"device": device, "lms": lms}
    mine = make_net(text, tuning=Tuning(channels_last=last), seed=1, **options)
    theirs = make_net(other, tuning=Tuning(channels_last=not last), seed=2, **options)
    return mine, theirs


def result(net) -> np.ndarray:
    net.blobs["x"].data[...] = np.arange(180).reshape(2, 3, 6, 5) % 11 - 5
    net.forward()
    return net.blobs["d"].read_data().copy()


@pytest.mark.parametrize("lms", [None, LMSConfig(threshold_kb=0.1)], ids=["", "lms"])
@pytest.mark.parametrize("last", [False, True])
def test_either_may_take_the_others(last, lms):
    net, other = pair(last=last, lms=lms)
    alone, _ = pair(last=last, lms=lms)
    for name in "cd":
        for mine, theirs in zip(alone.params[name], other.params[name], strict=True):
            mine.data[...] = theirs.data
    expected = result(alone)
    assert (result(net) != expected).any()
    net.share_with(other)
    assert copies(net) == {"c.order.param0", "d.order.param0"} and not copies(other)
    assert result(net).tobytes() == expected.tobytes()
    blob = net.params["d"][0]
    assert blob.data_memory is other.params["d"][0].data_memory
    blob.data[1, 2] = 3
    assert (other.params["d"][0].data[1, 2] == 3).all() and (other.params["d"][0].data == blob.data).all()
    alone.params["d"][0].data[1, 2] = 3
    assert result(net).tobytes() == result(alone).tobytes()
    net.blobs["x"].reshape(1, 3, 6, 5)
    net.reshape()
    assert (net.params["d"][0].data == other.params["d"][0].data).all()


def test_shared_on():
    """Whoever took the parameters before keeps what he has, in its order."""
    net, other = pair()
    third = make_net(TEXT, tuning=Tuning(channels_last=False), seed=3, device=net.device)
    third.share_with(net)
    before = result(third)
    net.share_with(other)
    assert result(third).tobytes() == before.tobytes() and (result(net) != before).any()
    third.share_with(net)
    np.testing.assert_array_equal(result(third), result(net))
    own = make_net(TEXT, tuning=Tuning(channels_last=False), seed=3, device=net.device)
    third.share_with(own)
    assert not copies(third) and result(third).tobytes() == result(own).tobytes()


def test_gradients_keep_their_values():
    net, other = pair()
    gradient = np.random.default_rng(3).normal(size=(4, 3, 3, 3)).astype(np.float32)
    net.params["c"][0].diff[...] = gradient
    held = net.params["c"][0].diff
    net.share_with(other)
    assert (net.params["c"][0].diff == gradient).all() and (held == gradient).all()
    held[...] = 0
    assert (net.params["c"][0].diff == gradient).all()  # it is of the memory that was


@pytest.mark.parametrize("lms", [None, LMSConfig(threshold_kb=0.1)], ids=["", "lms"])
@pytest.mark.parametrize("last", [False, True])
def test_training_goes_on(last, lms):
    """With the parameters of a net in the other order, as with their values; the histories are the solver's own."""
    solvers = [make("tied", last=last, lms=lms) for _ in range(2)]
    for solver, shares in zip(solvers, (True, False), strict=True):
        solver.step(2)
        before = [b.read_data().copy() for b in solver.history_blobs()]
        other = make("tied", last=not last, device=solver.net.device, lms=lms, random_seed=8).net
        if shares:
            solver.net.share_with(other)
            assert copies(solver.net)
        else:
            for mine, theirs in zip(solver.net.learnable_params, other.learnable_params, strict=True):
                mine.data[...] = theirs.read_data()
        found = [b.read_data() for b in solver.history_blobs()]
        assert all((a == b).all() for a, b in zip(found, before, strict=True))
    assert train(solvers[0], 3) == train(solvers[1], 3)
    found = [b.read_data() for b in solvers[0].history_blobs()]
    assert [a.tobytes() for a in found] == values(solvers[1])[len(solvers[0].net.learnable_params) :][: len(found)]


def test_who_cannot_take_it():
    """A layer that sees the weights as a matrix."""
    text = inputs(x=(2, 3, 3, 3)) + conv("c", "x", 4, 'param { name: "w" }')
    text += ip("f", "x", 4, 'param { name: "w" share_mode: PERMISSIVE }')
    plain = inputs(x=(2, 3, 6, 5)) + conv("c", "x", 4)
    net, other = pair(text, plain)
    before = net.params["c"][0].read_data().copy()
    with pytest.raises(UsageError, match="is stored channels-last") as caught:
        net.share_with(other)
    assert caught.value.where.layer == "c" and (net.params["c"][0].data == before).all()


def test_a_test_net_has_the_order_of_the_train_net():
    solver = make("residual", test_iter=1, test_interval=100)
    test_net = solver.test_nets[0]
    solver.step(1)
    solver.test_all()
    assert not copies(test_net)
    for name, blobs in solver.net.params.items():
        for mine, theirs in zip(test_net.params[name], blobs, strict=True):
            assert mine.data_memory is theirs.data_memory and (mine.data == theirs.data).all()


@pytest.mark.gpu
@pytest.mark.skipif(not cuda_available(), reason="no GPU")
@pytest.mark.parametrize("last", [False, True])
def test_on_a_gpu(last):
    net, other = pair(last=last, device=get_device("cuda"))
    expected = result(other)
    net.share_with(other)
    np.testing.assert_allclose(result(net), expected, rtol=1e-2, atol=5e-2)
    assert (net.params["c"][0].data == other.params["c"][0].data).all()
