"""Convert layers that apply one function to every element, Softmax and ArgMax."""

from __future__ import annotations

import math

import numpy as np

from .site import Precision, Site, converts

_FAMILY = "neuron"


@converts("AbsVal", family=_FAMILY, ops="Abs")
def absval(site: Site) -> str:
    return site.op("Abs", site.x)


@converts("BNLL", family=_FAMILY, ops="Softplus", precision=Precision.SINGLE)
def bnll(site: Site) -> str:
    return site.op("Softplus", site.x)


@converts("Clip", family=_FAMILY, ops="Clip Max Min", note="a NaN stays one (Caffe: `min`)")
def clip(site: Site) -> str:
    low, high = (site.number(end) for end in site.layer.ends)
    if site.layer.ends[0] <= site.layer.ends[1]:
        return site.op("Clip", site.x, low, high)
    return site.op("Max", site.op("Min", site.x, high), low)  # ends in the wrong order: all `min`, as in Caffe


@converts("DropPath", family=_FAMILY, ops="Identity", note="nothing at all where it is in place")
def drop_path(site: Site) -> str:
    if site.layer.drops:
        site.refuse("has phase TRAIN, in which it is random", "remove `phase: TRAIN`")
    return site.affine(site.x, 1, 0)


@converts("Dropout", family=_FAMILY, ops="Identity Mul", note="nothing at all where it is in place")
def dropout(site: Site) -> str:
    if site.layer.phase == 0:
        site.refuse("has phase TRAIN, in which it is random", "remove `phase: TRAIN`")
    if site.layer.drops:
        site.refuse("has sample_weights_test, with which it is random", "delete it")
    return site.affine(site.x, site.layer.test_scale, 0)


@converts(
    "GuidedDropout",
    family=_FAMILY,
    ops="Identity Reshape Greater Cast ReduceSum Max Mul Div",
    note="nothing at all where it is stochastic and in place",
)
def guided_dropout(site: Site) -> str:
    if site.layer.draws_masks:
        site.refuse("has phase TRAIN, in which it is random", "remove `phase: TRAIN`")
    if not site.layer.drops:
        return site.affine(site.x, 1, 0)
    guidance = site.reshape(site.bottoms[1], (0, site.shape[1]))
    threshold = site.number(site.param.guided_dropout_param.guidance_threshold)
    kept = site.cast(site.op("Greater", guidance, threshold), site.dtype)
    total = site.op("Max", site.reduce("ReduceSum", kept, [1], keep=True), site.number(1))
    factors = site.op("Div", site.op("Mul", kept, site.number(site.shape[1])), total)
    return site.op("Mul", site.x, site.reshape(factors, (0, site.shape[1], *[1] * (len(site.shape) - 2))))


@converts("ELU", family=_FAMILY, ops="Elu")
def elu(site: Site) -> str:
    return site.op("Elu", site.x, alpha=site.layer.alpha)


@converts("Exp", family=_FAMILY, ops="Mul Add Exp", precision=Precision.SINGLE)
def exp(site: Site) -> str:
    return site.op("Exp", site.affine(site.x, site.layer.scale, site.layer.shift))


@converts("GELU", family=_FAMILY, ops="Mul Add Erf Tanh")
def gelu(site: Site) -> str:
    return _gelu(site, site.x, site.layer.tanh)


def _gelu(site: Site, x: str, tanh: bool) -> str:
    if tanh:
        slope = math.sqrt(2 / math.pi)
        share = site.op("Tanh", site.op("Mul", x, site.affine(site.op("Mul", x, x), 0.044715 * slope, slope)))
    else:
        share = site.op("Erf", site.affine(x, math.sqrt(0.5), 0))
    return site.op("Mul", x, site.affine(share, 0.5, 0.5))


@converts("GatedUnit", family=_FAMILY, ops="Split Sigmoid Mul Add Erf Tanh")
def gated_unit(site: Site) -> str:
    layer = site.layer
    halves = [site.shape[layer.axis] // 2] * 2 if len(site.bottoms) == 1 else []
    gate, value = site.split(site.x, halves, layer.axis) if halves else site.bottoms
    if layer.activation in ("GELU", "GELU_TANH"):
        active = _gelu(site, gate, layer.activation == "GELU_TANH")
    else:
        active = site.op("Sigmoid", gate)
        active = site.op("Mul", gate, active) if layer.activation == "SILU" else active
    return site.op("Mul", active, value)


@converts("Log", family=_FAMILY, ops="Mul Add Log", precision=Precision.SINGLE)
def log(site: Site) -> str:
    scale, shift, factor = site.layer.constants
    return site.affine(site.op("Log", site.affine(site.x, scale, shift)), factor, 0)


@converts("Power", family=_FAMILY, ops="Mul Add Pow Shape Expand", precision=Precision.SINGLE)
def power(site: Site) -> str:
    if site.layer.is_constant:
        return site.op("Expand", site.number(site.layer.value), site.op("Shape", site.x))
    exponent, scale, shift = site.layer.constants
    base = site.affine(site.x, scale, shift)
    return base if exponent == 1 else site.op("Pow", base, site.number(exponent))


@converts("PReLU", family=_FAMILY, ops="PRelu")
def prelu(site: Site) -> str:
    shape = () if site.layer.shared else (site.values(0).size, *(1,) * (len(site.shape) - 2))
    return site.op("PRelu", site.x, site.weight(0, shape, "slope"))


@converts("ReLU", family=_FAMILY, ops="Relu LeakyRelu")
def relu(site: Site) -> str:
    slope = site.layer.slope
    return site.op("LeakyRelu", site.x, alpha=slope) if slope else site.op("Relu", site.x)


@converts("ReLU6", family=_FAMILY, ops="Clip Min Mul Add")
def relu6(site: Site) -> str:
    y = site.op("Clip", site.x, site.number(0), site.number(6))
    if not site.layer.slope:
        return y
    return site.op("Add", y, site.op("Mul", site.op("Min", site.x, site.number(0)), site.number(site.layer.slope)))


@converts("Sigmoid", family=_FAMILY, ops="Sigmoid")
def sigmoid(site: Site) -> str:
    return site.op("Sigmoid", site.x)


@converts("Swish", family=_FAMILY, ops="Mul Sigmoid")
def swish(site: Site) -> str:
    return site.op("Mul", site.x, site.op("Sigmoid", site.affine(site.x, site.layer.beta, 0)))


@converts("TanH", family=_FAMILY, ops="Tanh")
def tanh(site: Site) -> str:
    return site.op("Tanh", site.x)


@converts("Threshold", family=_FAMILY, ops="Greater Cast")
def threshold(site: Site) -> str:
    return site.cast(site.op("Greater", site.x, site.number(site.layer.threshold)), site.dtype)


@converts("Softmax", family="common", ops="Softmax", precision=Precision.SINGLE)
def softmax(site: Site) -> str:
    axis = site.layer.canonical_axis(site.param.softmax_param.axis, len(site.shape))
    return site.softmax(site.x, axis, len(site.shape))


@converts(
    "ArgMax",
    family="common",
    ops="ArgMax Flatten TopK Slice Sub Cast Concat Reshape",
    note="indices are numbers of the net's type, as in Caffe; of equal values the one with the larger index",
    precision=Precision.SINGLE,
)
def argmax(site: Site) -> str:
    layer, options = site.layer, site.param.argmax_param
    indices, values = layer.outputs
    by_axis = options.HasField("axis")
    axis = layer.canonical_axis(options.axis, len(site.shape)) if by_axis else 1
    if by_axis and site.follows_batch(axis):
        site.refuse("chooses among the items of a batch", "export it without dynamic_batch")
    x = site.x if by_axis else site.op("Flatten", site.x, axis=1)
    if layer.k == 1 and not values and site.opset >= 12:  # before, it could not choose the last of equal values
        found = site.cast(site.op("ArgMax", x, axis=axis, keepdims=1, select_last_index=1), site.dtype)
        return found if by_axis else site.to_top(found, first_kept=True)
    best, places = _largest(site, x, axis, layer.grid.channels, layer.k)
    if by_axis:
        return places if indices else best
    both = site.op("Concat", places, best, axis=1) if values else places
    return site.to_top(both, first_kept=True)


def _largest(site: Site, x: str, axis: int, size: int, k: int) -> tuple[str, str]:
    """Return (values, places) of the k largest of x, reversed: of equal values TopK takes the first, Caffe the last."""
    at = site.const([axis])
    reverse = site.op("Slice", x, site.const([-1]), site.const([np.iinfo(np.int64).min]), at, site.const([-1]))
    best, places = site.ops("TopK", reverse, site.const([k]), outputs=2, axis=axis)
    return best, site.cast(site.op("Sub", site.const(size - 1), places), site.dtype)
