"""Convert functions of every element, Softmax, and operators that are parts of a function as PyTorch writes it."""

from __future__ import annotations

import numpy as np

from .site import ImportSite, converts, product

_LARGEST = float(np.finfo(np.float32).max)
_PLAIN = {
    "Sigmoid": "Sigmoid",
    "Tanh": "TanH",
    "Abs": "AbsVal",
    "Softplus": "BNLL",
    "Exp": "Exp",
    "Log": "Log",
    "Relu": "ReLU",
}


@converts(*_PLAIN)
def plain(site: ImportSite) -> str:
    return site.layer(_PLAIN[site.op], [site.blob()], site.shape())


@converts("LeakyRelu")
def leaky_relu(site: ImportSite) -> str:
    return site.layer("ReLU", [site.blob()], site.shape(), relu_param={"negative_slope": site.attr("alpha", 0.01)})


@converts("Elu")
def elu(site: ImportSite) -> str:
    return site.layer("ELU", [site.blob()], site.shape(), elu_param={"alpha": site.attr("alpha", 1.0)})


@converts("PRelu")
def prelu(site: ImportSite) -> str:
    slope, shape = site.const(1, "slope"), site.shape()
    full = slope.reshape((1,) * (len(shape) - slope.ndim) + slope.shape)
    channels = shape[1] if len(shape) > 1 else 1
    if slope.size != 1 and (slope.size != channels or full.shape[1] != channels):
        site.refuse(f"its slope has shape {slope.shape}", "export it with one slope, or one for each channel")
    fields = {"channel_shared": True} if slope.size == 1 else {}
    return site.layer("PReLU", [site.blob()], shape, [slope.reshape(-1 if slope.size > 1 else ())], prelu_param=fields)


@converts("Clip")
def clip(site: ImportSite) -> str:
    ends = []
    for i, name, default in ((1, "min", -_LARGEST), (2, "max", _LARGEST)):
        value = site.attr(name)
        if value is None:
            value = float(site.const(i, name).reshape(-1)[0]) if site.has(i) else default
        ends.append(min(max(float(value), -_LARGEST), _LARGEST))
    if ends == [0, 6]:
        return site.layer("ReLU6", [site.blob()], site.shape())
    if ends == [0, _LARGEST]:
        return site.layer("ReLU", [site.blob()], site.shape())
    return site.layer("Clip", [site.blob()], site.shape(), clip_param={"min": ends[0], "max": ends[1]})


@converts("HardSigmoid", "HardSwish")
def hard_sigmoid(site: ImportSite) -> str:
    swish = site.op == "HardSwish"
    scale, shift = (1 / 6, 0.5) if swish else (site.attr("alpha", 0.2), site.attr("beta", 0.5))
    x = site.blob()
    line = site.power(x, scale=scale, shift=shift, suffix="/line")
    share = site.layer("Clip", [line], site.shape(), clip_param={"min": 0.0, "max": 1.0}, suffix="/share" * swish)
    if not swish:
        return share
    return site.layer("Eltwise", [x, share], site.shape(), eltwise_param={"operation": 0})


@converts("Swish")
def swish(site: ImportSite) -> str:
    return site.layer("Swish", [site.blob()], site.shape(), swish_param={"beta": site.attr("alpha", 1.0)})


@converts("Gelu")
def gelu(site: ImportSite) -> str:
    fields = {"approximate": 1} if site.attr("approximate", "none") == "tanh" else {}
    return site.layer("GELU", [site.blob()], site.shape(), gelu_param=fields)


@converts("Erf")
def erf(site: ImportSite) -> str:
    """Refuse what `patterns.py` has not found to be part of GELU."""
    site.refuse("it stands alone, and there is a layer for GELU only", "write GELU in the model, and export it again")


@converts("Sqrt", "Reciprocal", "Neg")
def powers(site: ImportSite) -> str:
    if site.op == "Neg":
        return site.power(site.blob(), scale=-1)
    return site.power(site.blob(), power=0.5 if site.op == "Sqrt" else -1)


@converts("Identity", "Cast", "CastLike")
def same(site: ImportSite) -> str:
    kind = site.attr("to", 1) if site.op == "Cast" else 1
    floats = site.model.onnx.TensorProto
    if kind not in (floats.FLOAT, floats.FLOAT16, floats.DOUBLE, floats.BFLOAT16) and not site.integers(0):
        site.refuse("it rounds numbers to integers", "export the model without it")
    return site.blob()


@converts("Dropout")
def dropout(site: ImportSite) -> str:
    ratio = site.attr("ratio")
    if ratio is None:
        ratio = float(site.const(1, "ratio").reshape(-1)[0]) if site.has(1) else 0.5
    return site.layer("Dropout", [site.blob()], site.shape(), dropout_param={"dropout_ratio": ratio})


@converts("Softmax", "LogSoftmax")
def softmax(site: ImportSite) -> str:
    shape, since13 = site.shape(), site.opset >= 13
    axis = site.axis(site.attr("axis", -1 if since13 else 1), len(shape))
    x = site.blob()
    if not since13 and product(shape[axis + 1 :]) != 1:  # then it took all axes from there on
        x = site.reshape(x, (*shape[:axis], product(shape[axis:])), suffix="/flat")
    suffix = "/softmax" * (site.op == "LogSoftmax")
    fields = {} if axis == 1 else {"axis": axis}
    y = site.reshape(site.layer("Softmax", [x], site.shape_of(x), softmax_param=fields, suffix=suffix), shape, "/shape")
    return site.layer("Log", [y], shape) if site.op == "LogSoftmax" else y
