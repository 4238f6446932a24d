"""Element-wise layers in a row, in place and not: the same training with Large Model Support and without."""

from __future__ import annotations

import pytest

from pycaffe_lms.backend import get_device
from pycaffe_lms.backend.sim.device import SimDevice
from pycaffe_lms.lms.config import LMSConfig

from . import nets

ROW = (
    ("PReLU", ""),
    ("Swish", ""),
    ("TanH", ""),
    ("Power", "power_param { power: 2 scale: 0.5 shift: 1 }"),
    ("Log", "log_param { shift: 1 }"),
    ("ELU", ""),
    ("BNLL", ""),
    ("Exp", "exp_param { scale: -0.5 }"),
    ("Clip", "clip_param { min: 0.1 max: 0.9 }"),
    ("Power", "power_param { scale: 4 shift: -2 }"),
    ("PReLU", "prelu_param { channel_shared: true }"),
    ("Sigmoid", ""),
)


def _net(in_place: bool) -> str:
    text, blob = nets._DATA + nets.conv("conv1", "data", 6), "conv1"
    for i, (name, options) in enumerate(ROW):
        top = blob if in_place else f"n{i}"
        text += f'layer {{ name: "n{i}" type: "{name}" bottom: "{blob}" top: "{top}" {options} }}\n'
        blob = top
    text += f'layer {{ name: "abs" type: "AbsVal" bottom: "{blob}" top: "abs" }}\n'
    text += 'layer { name: "over" type: "Threshold" bottom: "data" top: "over" }\n'
    text += 'layer { name: "cat" type: "Concat" bottom: "abs" bottom: "over" top: "cat" }\n'
    return text + nets.head("cat")


@pytest.fixture(autouse=True)
def both_nets(monkeypatch):
    monkeypatch.setitem(nets.NETS, "in place", _net(True))
    monkeypatch.setitem(nets.NETS, "apart", _net(False))


def _train(net, device=None, lms=None):
    return nets.train(nets.make_solver(net, device, lms), 3)


def test_in_place_or_apart_is_the_same_training():
    expected = _train("apart")
    assert len(set(expected[0])) == 3
    assert _train("in place") == expected
    assert _train("in place", get_device("cpu"))[0] == pytest.approx(expected[0], rel=1e-5)


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("net", ["in place", "apart"])
def test_lms_changes_no_bit(net, seed):
    device = SimDevice(64 << 20, order="random", seed=seed)
    lms = LMSConfig(threshold_kb=1, ahead=(0, 1, 32)[seed % 3])
    assert _train(net, device, lms) == _train("apart")
    assert device.bytes_in > 0
