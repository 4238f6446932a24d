"""Rewrite what exporters spell with several operators, before they are converted one by one.

Covers: GELU with erf, and a Pad in front of a convolution or a pooling.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from .read import OnnxModel


def rewrite(model: OnnxModel, shapes: dict[str, tuple[int, ...]]) -> None:
    """Rewrite the nodes of a model in place; unneeded ones remain. shapes: of tensors."""
    made = {name: node for node in model.nodes for name in node.output}
    for node in model.nodes:
        if node.op_type == "Erf":
            _gelu(model, node, made)
        elif node.op_type == "Pad":
            _pad(model, node, shapes)


def _constant(model: OnnxModel, name: str, value: float) -> bool:
    """Return whether a tensor is this number, to float16's rounding."""
    values = model.constants.get(name)
    return values is not None and values.size == 1 and abs(float(values.reshape(-1)[0]) - value) < 1e-3 * value


def _other(model: OnnxModel, node: Any, op: str, value: float) -> str | None:
    """Return x where the node is x op value, or for a sum or product value op x."""
    if node is None or node.op_type != op or node.domain:
        return None
    a, b = node.input
    if _constant(model, b, value):
        return str(a)
    return str(b) if op != "Div" and _constant(model, a, value) else None


def _readers(model: OnnxModel, name: str) -> list[Any]:
    return [node for node in model.nodes if name in node.input]


def _only_reader(model: OnnxModel, name: str) -> Any:
    readers = _readers(model, name)
    return readers[0] if len(readers) == 1 and name not in model.outputs else None


def _gelu(model: OnnxModel, erf: Any, made: dict[str, Any]) -> None:
    """Turn x * (1 + erf(x / sqrt(2))) * 0.5, with its products in any order, into Gelu."""
    inner = made.get(erf.input[0])
    x = _other(model, inner, "Div", math.sqrt(2)) or _other(model, inner, "Mul", math.sqrt(0.5))
    plus = _only_reader(model, erf.output[0])
    if x is None or plus is None or _other(model, plus, "Add", 1) != erf.output[0]:
        return
    product = _only_reader(model, plus.output[0])
    if product is None or product.op_type != "Mul":
        return
    rest = [name for name in product.input if name != plus.output[0]]
    if len(rest) != 1:
        return
    if rest[0] == x:
        last = _only_reader(model, product.output[0])
        if last is None or _other(model, last, "Mul", 0.5) != product.output[0]:
            return
    elif _other(model, made.get(rest[0]), "Mul", 0.5) == x:
        last = product
    elif _constant(model, rest[0], 0.5):
        last = _only_reader(model, product.output[0])
        if last is None or last.op_type != "Mul" or sorted(last.input) != sorted([x, product.output[0]]):
            return
    else:
        return
    last.op_type = "Gelu"
    del last.input[:], last.attribute[:]
    last.input.append(x)


def _pad(model: OnnxModel, pad: Any, shapes: dict[str, tuple[int, ...]]) -> None:
    """Give zeros around spatial axes to all readers, where each is a convolution or a pooling that counts them."""
    attributes = {a.name: a for a in pad.attribute}
    mode = attributes["mode"].s if "mode" in attributes else b"constant"
    more = list(attributes["pads"].ints) if "pads" in attributes else model.constants.get((*pad.input, "", "")[1])
    value: Any = attributes["value"].f if "value" in attributes else 0.0
    if len(pad.input) > 2 and pad.input[2]:
        found = model.constants.get(pad.input[2])
        value = float(found.reshape(-1)[0]) if found is not None and found.size == 1 else None
    shape = shapes.get(pad.input[0])
    if mode != b"constant" or more is None or shape is None or (len(pad.input) > 3 and pad.input[3]):
        return
    ndim, amounts = len(shape), [int(n) for n in more]
    if len(amounts) != 2 * ndim or min(amounts) < 0 or any(amounts[:2] + amounts[ndim : ndim + 2]):
        return
    readers = _readers(model, pad.output[0])
    if pad.output[0] in model.outputs or not readers or not all(_takes(node, pad.output[0], value) for node in readers):
        return
    spatial = amounts[2:ndim] + amounts[ndim + 2 :]
    for node in readers:
        own = next((a for a in node.attribute if a.name == "pads"), None)
        sums = [a + b for a, b in zip(own.ints if own else [0] * len(spatial), spatial, strict=True)]
        if own:
            node.attribute.remove(own)
        node.attribute.append(model.onnx.helper.make_attribute("pads", sums))
        node.input[0] = pad.input[0]
        if node.op_type == "AveragePool" and not any(a.name == "count_include_pad" for a in node.attribute):
            node.attribute.append(model.onnx.helper.make_attribute("count_include_pad", 1))


def _takes(node: Any, name: str, value: float | None) -> bool:
    attributes = {a.name: a for a in node.attribute}
    if (
        "auto_pad" in attributes
        and attributes["auto_pad"].s not in (b"NOTSET", b"VALID")
        or list(node.input).count(name) > 1
    ):
        return False
    if node.input[0] != name or node.domain:
        return False
    if node.op_type == "MaxPool":
        own = attributes["pads"].ints if "pads" in attributes else ()
        return value is not None and value <= float(np.finfo(np.float32).min) and not any(own)
    if node.op_type == "AveragePool":
        own = attributes["pads"].ints if "pads" in attributes else ()
        counted = attributes["count_include_pad"].i if "count_include_pad" in attributes else not any(own)
        return value == 0 and bool(counted)
    return value == 0 and node.op_type == "Conv"
