"""A part of a layer: the same layer on some images of its batch."""

from __future__ import annotations

from copy import copy

from .base import Layer
from .draws import LANES, RandomLayer


def part_of(layer: Layer, number: int, parts: int, first_element: int) -> Layer:
    """Part `number` (from 0) of so many of a layer that `splits_over_batch`, after its `setup`; `declare` comes next.

    first_element: of its top 0 within the whole layer's, a multiple of LANES where the layer draws random numbers.
    Settings are shared, scratch is its own. A random layer's parts draw what the whole would, and count with it."""
    part = copy(layer)
    part.scratches = {}
    part.name = f"{layer.name} [{number + 1}/{parts}]"
    if isinstance(part, RandomLayer):
        part.drawn_by, part.first_block = layer, first_element // LANES
    return part
