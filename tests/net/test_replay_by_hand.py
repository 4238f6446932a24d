"""Passes that users start are recorded too, and compute the same bits as step by step."""

from __future__ import annotations

import functools

import pytest

from pycaffe_lms.backend import cuda_available, get_device
from pycaffe_lms.backend.sim.device import SimDevice
from pycaffe_lms.lms.config import LMSConfig
from pycaffe_lms.net.run.recording import FEW, WARM_RUNS
from pycaffe_lms.net.tuning import Tuning

from . import replay_runs
from .by_hand import ACTS, TEXT, pictures, training
from .nets import TRAIN, make_net

LMS = [None, LMSConfig(threshold_kb=1), LMSConfig(threshold_kb=1, ahead=2), LMSConfig(threshold_kb=1, auto=True)]


def net_on(device, graph=True, lms=None):
    return make_net(TEXT, phase=TRAIN, device=device, lms=lms, tuning=Tuning(fuse=False, masks=False, graph=graph))


@functools.cache
def on_the_cpu(act):
    return act(net_on(get_device("cpu")))


def recorded(net) -> set[str]:
    plans = net.memory.programs.bound
    return {key.split()[0] for key, bound in plans.items() if bound.replay is not None and bound.replay.ready}


@pytest.mark.parametrize("lms", LMS, ids=str)
@pytest.mark.parametrize("act", ACTS)
def test_recordings_change_no_bit(act, lms):
    for order in ("latest", "earliest", "random"):
        net = net_on(SimDevice(64 << 20, order=order), lms=lms)
        assert act(net) == on_the_cpu(act)
        backwards = act.__name__ in ("training", "chosen_gradients")
        assert recorded(net) == ({"forward", "backward"} if backwards else {"forward"})


@pytest.mark.parametrize("lms", LMS, ids=str)
@pytest.mark.parametrize("act", ACTS)
@pytest.mark.gpu
@pytest.mark.skipif(not cuda_available(), reason="no GPU")
def test_recordings_change_no_bit_on_a_gpu(act, lms):
    device = get_device("cuda")
    device.set_budget(None)
    plain, net = net_on(device, False), net_on(device, True, lms)
    assert act(net) == act(plain)
    assert "forward" in recorded(net) and not recorded(plain) and device.can_capture
    for used in (plain, net):
        used.runtime.close()


def test_from_the_third_run_on_a_pass_is_one_launch():
    device = SimDevice(64 << 20)
    pictures(net_on(device))
    assert device.launches == 7 - WARM_RUNS


def test_steps_of_a_backward_are_made_once(monkeypatch):
    net, made = net_on(SimDevice(64 << 20)), []
    inner = type(net.arrangement.builder).backward
    monkeypatch.setattr(
        type(net.arrangement.builder), "backward", lambda self, *a, **k: made.append(a) or inner(self, *a, **k)
    )
    training(net)
    assert len(made) == len({presence for *_, presence in made}) == 2  # without gradients, and with those of before


def test_few_layers_are_queued_as_they_are():
    """So passes with a function of the user's around every layer leave no recordings."""
    device = SimDevice(64 << 20)
    net = net_on(device)
    for _ in range(5):
        net.forward(start="loss", end="prob")
    assert device.launches == 0 and FEW > 2
    net.after_forward(lambda i: None)
    pictures(net)
    assert device.launches == 0


def test_updates_that_run_apart_are_not_recorded():
    """With a function of the user's around every layer they are a program of their own, a step for each parameter."""
    device = SimDevice(64 << 20)
    solver = replay_runs.make("groups", device, True, lms=LMSConfig(threshold_kb=1))
    for around in (solver.net.callbacks.after_forward, solver.net.callbacks.after_backward):
        around.append(lambda i: None)
    solver.step(5)
    assert len(solver.updates.kinds()[0][2]) >= FEW and device.launches == 0
