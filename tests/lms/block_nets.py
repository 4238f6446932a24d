"""Nets whose memory goes to InnerProduct layers, and solvers on them."""

from __future__ import annotations

from .split_nets import NETS

_DATA = """
layer { name: "data" type: "DummyData" top: "data" top: "label" dummy_data_param {
  shape { dim: 6 dim: 4 dim: 8 dim: 8 } shape { dim: 6 }
  data_filler { type: "gaussian" } data_filler { type: "uniform" min: 0 max: 3.99 } } }
"""
_LOSS = 'layer { name: "loss" type: "SoftmaxWithLoss" bottom: "fc" bottom: "label" top: "loss" }\n'


def fc(name, bottom, outputs, more="", layer=""):
    """layer: further fields of the layer; more: of inner_product_param."""
    fill = 'weight_filler { type: "xavier" } bias_filler { type: "gaussian" std: 0.1 }'
    return (
        f'layer {{ name: "{name}" type: "InnerProduct" bottom: "{bottom}" top: "{name}" {layer} '
        f"inner_product_param {{ num_output: {outputs} {fill} {more} }} }}\n"
    )


def _relu(blob):
    return f'layer {{ name: "relu_{blob}" type: "ReLU" bottom: "{blob}" top: "{blob}" }}\n'


_DROP = 'layer { name: "drop" type: "Dropout" bottom: "ip1" top: "ip1" }\n'
_MULTIPLIERS = "param { lr_mult: 2 decay_mult: 0.5 } param { lr_mult: 0.5 decay_mult: 0 }"

FAT = _DATA + fc("ip1", "data", 90) + _relu("ip1") + _DROP + fc("ip2", "ip1", 37) + _relu("ip2") + fc("fc", "ip2", 4)
VARIANTS = {
    "fat": FAT,
    "no bias": FAT.replace("num_output: 37", "num_output: 37 bias_term: false"),
    "multipliers": FAT.replace('top: "ip2" ', f'top: "ip2" {_MULTIPLIERS} ', 1),
    "frozen weight": FAT.replace('top: "ip2" ', 'top: "ip2" param { lr_mult: 0 } ', 1),
    "frozen": FAT.replace('top: "ip1" ', 'top: "ip1" param { lr_mult: 0 } param { lr_mult: 0 } ', 1),
    "loss weight": FAT.replace('top: "ip2" ', 'top: "ip2" loss_weight: 0.1 ', 1).replace(_relu("ip2"), ""),
    "axis 2": _DATA
    + fc("ip1", "data", 30, "axis: 2")
    + _relu("ip1")
    + fc("ip2", "ip1", 37, "axis: -1")
    + fc("fc", "ip2", 4),
    "readers": FAT.replace(
        '"fc" type', '"sum" type: "Eltwise" bottom: "ip2" bottom: "two" top: "sum" }\nlayer { name: "fc" type'
    )
    .replace('bottom: "ip2" top: "fc"', 'bottom: "sum" top: "fc"')
    .replace('layer { name: "sum"', fc("two", "ip1", 37) + 'layer { name: "sum"'),
}
NETS.update({name: text + _LOSS for name, text in VARIANTS.items()})
