"""Run a language model a token at a time: a net of one position, whose attention keeps keys and values."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..arrays import HostArray
from ..layers.base import TEST
from ..log import only_warnings
from ..net.weights import bare_proto
from ..proto.caffe_pb2 import LayerParameter, NetParameter
from ..pycaffe.net import PycaffeNet

_POSITION = "position of the token"  # a blob, which no net of users has
_ANY = {"Embed", "GELU", "Eltwise", "Split", "Dropout", "DropPath", "ReLU", "Power", "Sigmoid", "TanH", "Swish"}
_LAST_AXES = {  # types that work on the values of a position, if their axis is one of the last
    "InnerProduct": "inner_product_param",
    "LayerNorm": "layer_norm_param",
    "RMSNorm": "rms_norm_param",
    "GatedUnit": "gated_unit_param",
    "Softmax": "softmax_param",
    "Scale": "scale_param",
    "Bias": "bias_param",
}


class Steps:
    """Feed tokens to a net of one position that shares the parameters of a net of whole windows.

    It runs on the same device, and has no Large Model Support.
    """

    def __init__(self, net: PycaffeNet, message: NetParameter):
        with only_warnings():  # the log has told of the user's net already
            self._net = PycaffeNet(message, TEST, device=net.device, dtype=net.dtype, tuning=net.tuning)
        self._net.share_with(net)
        self._input, self._output = net.inputs[0], net.outputs[0]
        self._fed: list[int] = []

    def row(self, ids: Sequence[int]) -> HostArray:
        """Return the output (vocabulary,) after these tokens, float64. Those the last call had do not run again."""
        known = 0
        while known < min(len(ids) - 1, len(self._fed)) and ids[known] == self._fed[known]:
            known += 1
        for position in range(known, len(ids)):
            given: dict[str, Any] = {self._input: [[ids[position]]], _POSITION: [[position]]}
            given = {name: np.array(values, np.float32) for name, values in given.items()}
            out = self._net.forward(**given)
        self._fed = list(ids)
        return np.array(out[self._output][0, 0], np.float64)

    def close(self) -> None:
        """Free the net."""
        self._net.close()


def step_net(net: PycaffeNet) -> NetParameter | None:
    """Return the net of one position; None: a layer may work on several positions in a way that is not known here."""
    window = net.blobs[net.inputs[0]].shape[1]
    message = NetParameter(name=net.name)
    message.layer.add(name=_POSITION, type="Input", top=[_POSITION]).input_param.shape.add(dim=[1, 1])
    for layer in bare_proto(net).layer:
        made = _of_one_position(layer, window, net)
        if made is None:
            return None
        message.layer.extend(made)
    return message


def _of_one_position(layer: LayerParameter, window: int, net: PycaffeNet) -> list[LayerParameter] | None:
    """Return the layers that do a layer's work at one position; None: that is not known."""
    own = LayerParameter()
    own.CopyFrom(layer)
    if layer.type == "Input":
        del own.input_param.shape[:]
        own.input_param.shape.add(dim=[1, 1])
        return [own] if list(layer.top) == list(net.inputs) else None
    if layer.type in _ANY:
        return [own]
    if layer.type == "RotaryEmbedding" and len(layer.bottom) == 1:
        own.bottom.append(_POSITION)
        return [own]
    if layer.type == "Attention":
        if not layer.attention_param.causal or layer.attention_param.cache:
            return None
        own.attention_param.cache = window
        own.bottom.append(_POSITION)
        return [own]
    if layer.type not in _LAST_AXES or len(layer.bottom) != 1:
        return None
    fields = getattr(layer, _LAST_AXES[layer.type])
    if layer.type == "Bias" and (fields.axis, fields.num_axes) in ((1, 2), (1, -1)):
        return _learned_positions(layer, net)
    return [own] if fields.axis in (2, -1) else None


def _learned_positions(layer: LayerParameter, net: PycaffeNet) -> list[LayerParameter]:
    """Return the layers that add one row of a table of positions; the parameter is as it was."""
    rows, values = net.params[layer.name][0].shape
    chosen = f"{layer.top[0]} of the position"
    table = LayerParameter(name=layer.name, type="Embed", bottom=[_POSITION], top=[chosen], param=layer.param)
    table.embed_param.input_dim, table.embed_param.num_output, table.embed_param.bias_term = rows, values, False
    name, bottoms = f"{layer.name} added", [layer.bottom[0], chosen]
    return [table, LayerParameter(name=name, type="Eltwise", bottom=bottoms, top=layer.top)]
