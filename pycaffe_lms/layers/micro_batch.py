"""A part of a layer: the same layer on some images of its batch, or of it some outputs.

Of outputs: the layer says by `splits_over_outputs` how many there are along the last axis of its top 0 and the first
axis of all its parameters, each a function of the bottom and of its own row of them; `take_outputs(n)` makes it one of
n outputs.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from dataclasses import replace
from typing import TypeVar

from ..proto.caffe_pb2 import LayerParameter
from .base import BuildContext, Layer
from .mixins import LANES, RandomLayer
from .shape.concat import ConcatLayer
from .shape.split import SplitLayer

_L = TypeVar("_L", bound=Layer)


def part_of(layer: Layer, number: int, parts: int, first_element: int) -> Layer:
    """Return part `number` (from 0) of a layer that `splits_over_batch`. After its `setup`; `declare` comes next.

    first_element: of its top 0 within the whole layer's, a multiple of LANES where the layer draws random numbers.
    Settings are shared, scratch is its own. A random layer's parts draw what the whole would, and count with it."""
    part = _copy_of(layer, f"{layer.name} [{number + 1}/{parts}]")
    if isinstance(part, RandomLayer) and isinstance(layer, RandomLayer):
        part.whole, part.first_block = layer, first_element // LANES
    return part


def block_of(layer: Layer, number: int, blocks: int, outputs: int) -> Layer:
    """Return block `number` (from 0) of a layer: `outputs` of its outputs. After its `setup`."""
    block = _copy_of(layer, f"{layer.name} [outputs {number + 1}/{blocks}]")
    block.params = [replace(request, shape=(outputs, *request.shape[1:])) for request in layer.params]
    block.take_outputs(outputs)
    return block


def gather_of(layer: Layer, names: Sequence[str], top: str, axis: int) -> Layer:
    """Return the layer that joins the tops `names` of all blocks to `top`. After the layer's `setup`."""
    gather = _like(layer, ConcatLayer, f"{layer.name} [gather]", names, [top])
    gather.param.concat_param.axis = gather.axis = axis
    gather.param.lms_param.CopyFrom(layer.param.lms_param)  # it makes the layer's value
    return gather


def spread_of(layer: Layer, number: int, blocks: int, bottom: str, tops: Sequence[str]) -> Layer:
    """Return the layer that passes a bottom to block `number` and to later ones, and adds up their gradients."""
    return _like(layer, SplitLayer, f"{layer.name} [spread {number + 1}/{blocks}]", [bottom], tops)


def _copy_of(layer: Layer, name: str) -> Layer:
    part = copy(layer)
    part.scratches, part.name = {}, name
    return part


def _like(layer: Layer, cls: type[_L], name: str, bottoms: Sequence[str], tops: Sequence[str]) -> _L:
    param = LayerParameter(name=layer.param.name, type=cls.type, bottom=bottoms, top=tops, phase=layer.param.phase)
    made = cls(param, BuildContext(phase=layer.phase, dtype=layer.dtype))
    made.name = name
    return made
