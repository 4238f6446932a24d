"""Nets that end in every kind of loss, one behind a Deconvolution: training with LMS equals training without it."""

from __future__ import annotations

import pytest

from pycaffe_lms.backend import get_device
from pycaffe_lms.backend.sim.device import SimDevice
from pycaffe_lms.lms.config import LMSConfig

from . import nets
from .nets import conv, make_solver, train

_SHAPES = "".join(f"shape {{ {' '.join(f'dim: {d}' for d in s)} }} " for s in ((4, 3, 12, 12), (4,), (4, 2, 24, 24)))
_DATA = f"""
layer {{ name: "data" type: "DummyData" top: "data" top: "label" top: "target" dummy_data_param {{ {_SHAPES}
  data_filler {{ type: "gaussian" }} data_filler {{ type: "uniform" max: 4.99 }}
  data_filler {{ type: "uniform" max: 1.99 }} }} }}
layer {{ name: "h" type: "DummyData" top: "h" top: "same" dummy_data_param {{ shape {{ dim: 5 dim: 5 }}
  shape {{ dim: 4 }} data_filler {{ type: "uniform" }} data_filler {{ type: "uniform" max: 1.99 }} }} }}
layer {{ name: "silence" type: "Silence" bottom: "h" bottom: "same" bottom: "target" bottom: "label" }}
"""
_FILL = 'weight_filler { type: "xavier" }'
_UP = (
    conv("c", "data", 6) + 'layer { name: "up" type: "Deconvolution" bottom: "c" top: "up" convolution_param { '
    f"num_output: 2 kernel_size: 4 stride: 2 pad: 1 group: 2 {_FILL} }} }}\n"
)


def _fc(name, bottom):
    return (
        f'layer {{ name: "{name}" type: "InnerProduct" bottom: "{bottom}" top: "{name}" '
        f"inner_product_param {{ num_output: 5 {_FILL} }} }}\n"
    )


def _loss(type, *bottoms, extra=""):
    names = " ".join(f'bottom: "{b}"' for b in bottoms)
    return f'layer {{ name: "{type}" type: "{type}" {names} top: "{type}" {extra} }}\n'


LOSSES = {
    "euclidean": _loss("EuclideanLoss", "up", "target", extra="loss_weight: 0.01"),
    "sigmoid": _loss(
        *("SigmoidCrossEntropyLoss", "up", "target"), extra="loss_param { ignore_label: 0 normalization: VALID }"
    ),
    "hinge": _fc("f", "up") + _loss("HingeLoss", "f", "label", extra="hinge_loss_param { norm: L2 }"),
    "multinomial": _fc("f", "up")
    + 'layer { name: "p" type: "Softmax" bottom: "f" top: "p" }\n'
    + _loss("MultinomialLogisticLoss", "p", "label"),
    "pairs": _fc("f", "up") + _fc("g", "c") + _loss("ContrastiveLoss", "f", "g", "same", extra="loss_weight: 0.1"),
    "infogain": _fc("f", "up") + _loss("InfogainLoss", "f", "label", "h", extra='top: "prob"'),
}


@pytest.mark.parametrize("loss", LOSSES)
def test_lms_changes_nothing(loss, monkeypatch):
    monkeypatch.setitem(nets.NETS, loss, _DATA + _UP + LOSSES[loss])
    expected = train(make_solver(loss, SimDevice(64 << 20)), 3)
    assert len(set(expected[0])) == 3
    for order, ahead in (("latest", 0), ("latest", 32), ("earliest", 1)):
        device = SimDevice(64 << 20, order=order)
        assert train(make_solver(loss, device, LMSConfig(threshold_kb=1, ahead=ahead)), 3) == expected
        assert device.bytes_in > 0 and device.bytes_out > 0
    on_cpu = train(make_solver(loss, get_device("cpu")), 3)[0]
    assert on_cpu == pytest.approx(expected[0], rel=1e-4)
