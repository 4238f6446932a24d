"""Parts of a layer: the same layer for some images of its batch (micro-batches), or for some of its outputs (blocks).

A layer can be cut into blocks if its outputs lie along the last axis of top 0, and each depends only on the bottom and
on one row of every parameter. `Layer.splits_over_outputs` is their number; `take_outputs(n)` turns a copy of the layer
into a block of n outputs. A gather layer joins the blocks' tops; spread layers pass the bottom to each block, and add
up its gradients.
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


def part_of(layer: Layer, number: int, parts: int, first_draw: int) -> Layer:
    """Return part `number` (from 0) of a layer that `splits_over_batch`. After the layer's `setup`, before `declare`.

    The part has the layer's settings, but its own scratch. A random layer's parts draw the numbers that the whole layer
    would draw, and count its forwards.

    Args:
        first_draw: of a random layer: how many random numbers the parts before draw, a multiple of LANES.
    """
    part = _copy_of(layer, f"{layer.name} [{number + 1}/{parts}]")
    if isinstance(part, RandomLayer) and isinstance(layer, RandomLayer):
        part.whole, part.first_block = layer, first_draw // LANES
    return part


def block_of(layer: Layer, number: int, blocks: int, outputs: int) -> Layer:
    """Return block `number` (from 0) of a layer, with `outputs` of its outputs. After the layer's `setup`."""
    block = _copy_of(layer, f"{layer.name} [outputs {number + 1}/{blocks}]")
    block.params = [replace(request, shape=(outputs, *request.shape[1:])) for request in layer.params]
    block.take_outputs(outputs)
    return block


def gather_of(layer: Layer, names: Sequence[str], top: str, axis: int) -> Layer:
    """Return the layer that joins the blocks' tops `names` to the layer's `top`. After the layer's `setup`."""
    return join_along(layer, f"{layer.name} [gather]", names, top, axis)


def join_along(layer: Layer, name: str, names: Sequence[str], top: str, axis: int) -> Layer:
    """Return the layer called `name` that joins values `names` along an axis to the layer's `top`."""
    gather = _like(layer, ConcatLayer, name, names, [top])
    gather.param.concat_param.axis = gather.axis = axis
    gather.param.lms_param.CopyFrom(layer.param.lms_param)  # its top is the layer's
    return gather


def spread_of(layer: Layer, number: int, blocks: int, bottom: str, tops: Sequence[str]) -> Layer:
    """Return the layer that passes a bottom to block `number` and to later blocks, and adds up their gradients."""
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
