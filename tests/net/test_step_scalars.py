"""Step scalars: they advance once for each forward, also if a shape changes during it."""

from __future__ import annotations

import numpy as np
import pytest

from pycaffe_lms.backend import get_device
from pycaffe_lms.backend.sim.device import SimDevice
from pycaffe_lms.formats.prototxt.parser import parse_net
from pycaffe_lms.lms.config import LMSConfig
from pycaffe_lms.net.net import Net

PLACES = {
    "cpu": lambda: {"device": get_device("cpu")},
    "sim": lambda: {"device": SimDevice(1 << 20)},
    "sim with LMS": lambda: {"device": SimDevice(1 << 20), "lms": LMSConfig(threshold_kb=0.001, ahead=1)},
}
TEXT = """
layer { name: "in" type: "Input" top: "x" top: "s" input_param { shape { dim: 6 dim: 50 } shape { dim: 6 } } }
layer { name: "d1" type: "Dropout" bottom: "x" top: "y" }
layer { name: "f" type: "Filter" bottom: "y" bottom: "s" top: "z" }
layer { name: "d2" type: "Dropout" bottom: "z" top: "out" }
"""


def net_at(place):
    return Net(parse_net(TEXT).message, phase=0, seed=5, **PLACES[place]())


def forward(net, items):
    net.blobs["x"].data = 1
    net.blobs["s"].data = np.arange(6) < items
    net.forward_range()
    return net.blobs["y"].read_data().tobytes(), net.blobs["out"].read_data().tobytes()


def draws(net):
    return [node.layer.draws for node in net.graph.nodes if node.layer.type == "Dropout"]


@pytest.mark.parametrize("place", PLACES)
def test_a_shape_that_changes_in_a_forward(place):
    """What comes before the change ran once; what comes behind it ran once, after the change."""
    net, truth, seen = net_at(place), net_at("cpu"), []
    for i, items in enumerate([6, 2, 2, 5, 1, 6]):
        seen.append(forward(net, items))
        assert seen[-1] == forward(truth, items)
        assert draws(net) == [i + 1, i + 1]
    assert len({y for y, _ in seen}) == 6  # another choice each time


@pytest.mark.parametrize("place", PLACES)
def test_part_of_a_net(place):
    net = net_at(place)
    forward(net, 6)
    net.forward_range(3, 3)
    assert draws(net) == [1, 2]


@pytest.mark.parametrize("seed", [0, -1, 2**63 + 5, 2**64 - 1])
def test_any_seed(seed):
    net = net_at("sim")
    for node in net.graph.nodes:
        if node.layer.type == "Dropout":
            node.layer.set_state({"seed": seed, "draws": 3})
    y, _ = forward(net, 6)
    for node in net.graph.nodes:
        if node.layer.type == "Dropout":
            node.layer.set_state({"seed": seed, "draws": 3})
    assert forward(net, 6)[0] == y
    assert forward(net, 6)[0] != y
