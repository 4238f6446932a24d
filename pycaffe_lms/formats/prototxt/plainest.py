"""Write what forks spell otherwise in BVLC's words, where the layer stays the same.

Covers: fields and types of forks that the schema has, because files hold them, and that equal a field or type of
BVLC's. The parser has dropped fields without effect before (dialects.py), and upgraded old generations (upgrade.py).
Values that equal defaults stay, as in Caffe's own upgrade_net_proto_text, which prints every field that is set.
Source: BVLC/caffe, tools/upgrade_net_proto_text.cpp (facts).
"""

from __future__ import annotations

from typing import TypeAlias

from ...proto.caffe_pb2 import ConvolutionParameter, LayerParameter, PoolingParameter

_Windowed: TypeAlias = "ConvolutionParameter | PoolingParameter"
_TYPES = {"NdConvolution": "Convolution", "NdPooling": "Pooling"}
_WINDOWS = ("kernel", "stride", "pad")


def write_plainly(layer: LayerParameter) -> list[str]:
    """Change a layer, in place, to the plainest form of the same meaning; return what was changed, in words."""
    changed = []
    if layer.type in _TYPES:
        changed.append(f"type {layer.type} is {_TYPES[layer.type]}")
        layer.type = _TYPES[layer.type]
    if layer.HasField("convolution_param"):
        changed += _windows(layer.convolution_param)
    if layer.HasField("pooling_param"):
        changed += _windows(layer.pooling_param) + _rounding(layer.pooling_param)
    return changed


def _windows(param: _Windowed) -> list[str]:
    """Replace kernel_shape, stride_shape and pad_shape. What contradicts itself stays, for who builds the net."""
    changed = []
    for name in _WINDOWS:
        shape, square = f"{name}_shape", "kernel_size" if name == "kernel" else name
        values = list(getattr(param, shape).dim)
        pair = (f"{name}_h", f"{name}_w")
        given = param.HasField(square) if isinstance(param, PoolingParameter) else bool(getattr(param, square))
        if not values or min(values) < 0 or given or any(map(param.HasField, pair)):
            continue
        if len(set(values)) == 1:
            _set(param, square, values[:1])
            now = f"{square}: {values[0]}"
        elif isinstance(param, ConvolutionParameter):
            _set(param, square, values)
            now = f"{square} of each axis"
        elif len(values) == 2:
            for field, value in zip(pair, values, strict=True):
                setattr(param, field, value)
            now = " and ".join(pair)
        else:
            continue  # BVLC's Pooling has no third axis
        param.ClearField(shape)  # type: ignore[arg-type]
        changed.append(f"{shape} is {now}")
    return changed


def _set(param: _Windowed, field: str, values: list[int]) -> None:
    if isinstance(param, ConvolutionParameter):
        getattr(param, field).extend(values)
    else:
        setattr(param, field, *values)


def _rounding(param: PoolingParameter) -> list[str]:
    """Replace ceil_mode by round_mode, whose default is CEIL."""
    if not param.HasField("ceil_mode"):
        return []
    mode = PoolingParameter.CEIL if param.ceil_mode else PoolingParameter.FLOOR
    if param.HasField("round_mode") and param.round_mode != mode:
        return []  # a contradiction: an error where the net is built
    said = f"ceil_mode: {str(param.ceil_mode).lower()} is round_mode: {PoolingParameter.RoundMode.Name(mode)}"
    param.ClearField("ceil_mode")
    param.round_mode = mode
    return [said]
