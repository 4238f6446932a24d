"""The arrays that layers get are made once, and again only where memory moved; they keep no memory from being freed."""

from __future__ import annotations

import dataclasses
import gc
import weakref

import numpy as np
import pytest

from pycaffe_lms.backend import cuda_available, get_device
from pycaffe_lms.backend.sim.device import SimDevice
from pycaffe_lms.lms.config import LMSConfig
from pycaffe_lms.net.run.executor import Executor
from pycaffe_lms.net.tuning import Tuning

from .by_hand import SHAPE, TEXT, training
from .nets import TRAIN, make_net

STEPS = Tuning(fuse=False, masks=False, graph=False)


@pytest.fixture
def made(monkeypatch):
    """How often a pass was made."""
    calls = []
    for name in ("_forward_pass", "_backward_pass"):
        inner = getattr(Executor, name)
        monkeypatch.setattr(
            Executor, name, lambda self, node, *rest, inner=inner: calls.append(node.name) or inner(self, node, *rest)
        )
    return calls


@pytest.mark.parametrize("lms", [None, LMSConfig(threshold_kb=1), LMSConfig(threshold_kb=1, auto=True)], ids=str)
def test_once_for_a_program(made, lms):
    """Under Large Model Support too: a plan has one place for each."""
    net = make_net(TEXT, device=SimDevice(64 << 20), lms=lms, tuning=STEPS)
    net.forward()
    assert made
    made.clear()
    for _ in range(3):
        net.forward()
    assert not made


def test_again_where_memory_moved(made):
    net = make_net(TEXT, device=SimDevice(64 << 20), tuning=STEPS)
    net.blobs["data"].data[...] = np.random.default_rng(0).standard_normal(SHAPE, dtype=np.float32)
    net.forward()
    weights, bias = net.params["ip"]
    values = weights.data.copy()
    weights.data_memory.give_back()
    keeps = net.device.take(weights.data_memory.nbytes)  # so that it comes to lie elsewhere
    weights.data_memory.state = type(weights.data_memory.state).HEAD_AT_CPU
    weights.data[...] = 2 * values
    made.clear()
    net.forward()
    assert made == ["ip"] and keeps is not None
    pooled = net.blobs["pool"].data.reshape(SHAPE[0], -1)
    assert pooled.any()
    np.testing.assert_allclose(net.blobs["ip"].data, pooled @ (2 * values.T) + bias.data, rtol=1e-5, atol=1e-6)


def test_of_programs_that_are_gone_nothing_is_kept():
    net = make_net(TEXT, device=SimDevice(64 << 20), tuning=STEPS)
    sizes = []
    for _ in range(4):
        net.forward()
        net.memory.forget_plans()
        sizes.append((len(net.memory.executor._passes), len(net.memory.executor._arrays)))
    assert len(set(sizes)) == 1


@pytest.mark.parametrize("graph", [False, True])
def test_what_a_reshape_replaces_goes_at_once(graph):
    """Nothing that was kept holds on to its keeper, so no memory waits for a garbage collection."""
    net = make_net(TEXT, device=SimDevice(64 << 20), tuning=dataclasses.replace(STEPS, graph=graph))
    for _ in range(4):
        net.forward()
        net.backward()
    before = weakref.ref(net.memory.executor)
    gc.disable()
    try:
        net.blobs["data"].reshape(2, *SHAPE[1:])
        net.blobs["label"].reshape(2)
        net.forward()
        assert before() is None
    finally:
        gc.enable()


def test_on_the_host_and_on_a_device_alike():
    plain = training(make_net(TEXT, phase=TRAIN, device=get_device("cpu")))
    assert training(make_net(TEXT, phase=TRAIN, device=SimDevice(64 << 20), tuning=STEPS)) == plain


@pytest.mark.gpu
@pytest.mark.skipif(not cuda_available(), reason="no GPU")
def test_an_array_keeps_no_memory():
    device = get_device("cuda")
    before, span = device.in_use(), device.take(1 << 20)
    array = device.array(span.at(512, 1024), (256,), np.float32)
    assert array.data.ptr == device.place(span) + 512
    assert device.in_use() == before + (1 << 20)
    device.give(span)
    del span
    assert device.in_use() == before and array.shape == (256,)
