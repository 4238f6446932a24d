"""Nets of many layers: building and planning take time in proportion to their number."""

from __future__ import annotations

import pytest

from pycaffe_lms.backend import get_device
from pycaffe_lms.formats.prototxt.parser import parse_net
from pycaffe_lms.net.net import Net
from pycaffe_lms.net.tuning import Tuning

from ..growth import lines_run

HEAD = 'layer { name: "d" type: "Input" top: "b0" input_param { shape { dim: 2 dim: 3 dim: 4 dim: 4 } } }\n'
LOSS = 'layer {{ name: "r" type: "Reduction" bottom: "b{}" top: "loss" loss_weight: 1 }}'


def _layers(text, n):
    return HEAD + "".join(text.replace("<i>", str(i)).replace("<j>", str(i + 1)) for i in range(n))


IP = 'layer { name: "l<i>" type: "InnerProduct" bottom: "b<i>" top: "b<j>" inner_product_param { num_output: 2 } }\n'
NETS = {
    "a chain": lambda n: _layers('layer { name: "l<i>" type: "ReLU" bottom: "b<i>" top: "b<j>" }\n', n),
    "in place": lambda n: _layers('layer { name: "l<i>" type: "ReLU" bottom: "b0" top: "b0" }\n', n),
    "one name": lambda n: _layers('layer { name: "l" type: "ReLU" bottom: "b<i>" top: "b<j>" }\n', n),
    "many readers": lambda n: _layers('layer { name: "l<i>" type: "ReLU" bottom: "b0" top: "b<j>" }\n', n),
    "unnamed tops": lambda n: _layers('layer { name: "l<i>" type: "EuclideanLoss" bottom: "b0" bottom: "b0" }\n', n),
    "trained": lambda n: _layers(IP, n) + LOSS.format(n),
    "one parameter": lambda n: (
        _layers(IP, 1)
        + _layers(IP.replace('top: "b<j>"', 'top: "b<j>" param { name: "w" }'), n + 1)[len(HEAD) :].split("\n", 1)[1]
        + LOSS.format(n + 1)
    ),
}


@pytest.mark.parametrize("text", NETS.values(), ids=NETS)
@pytest.mark.parametrize("plan", [False, True], ids=["cpu", "plan"])
def test_lines_run_grow_with_the_layers(text, plan):
    def build(message, lines):
        if not plan:
            Net(message, 0, lines=lines)
            return
        device = get_device("sim", capacity=1 << 40)
        Net(message, 0, lines=lines, device=device, fill=False, tuning=Tuning(pack=True)).plan_only(lambda: [])

    counts = []
    for n in (4, 4, 52, 196):  # the first one also makes what is made once
        parsed = parse_net(text(n))
        counts.append(lines_run(lambda p=parsed: build(p.message, p.lines)))
    _, few, some, many = counts
    assert many - few < 4.6 * (some - few)  # 192 layers more against 48: 4 times
