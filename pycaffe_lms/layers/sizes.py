"""Limits on the sizes of blobs, parameters and scratch. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ..blob import MOST_AXIS, MOST_ELEMENTS
from ..errors import ShapeError
from .base import Layer, count


def _check(layer: Layer, shapes: Iterable[tuple[str, Sequence[int]]]) -> None:
    """Raise ShapeError if one of these (name, shape) has an axis that is too long, or too many elements."""
    for what, shape in shapes:
        if max(shape, default=0) > MOST_AXIS:
            axis = next(a for a, d in enumerate(shape) if d > MOST_AXIS)
            raise layer.error(
                f"axis {axis} of {what} has {shape[axis]} elements, the most is {MOST_AXIS}",
                kind=ShapeError,
                fix="lower the number in the layer's parameters (or the bottom's shape) that makes it so large",
            )
        if count(shape) > MOST_ELEMENTS:
            raise layer.error(
                f"{what} of shape {tuple(shape)} has {count(shape)} elements, more than any machine holds",
                kind=ShapeError,
                fix="make the shape smaller",
            )


def check_tops(layer: Layer, shapes: Sequence[Sequence[int]]) -> None:
    """Raise ShapeError if a top is too large."""
    _check(layer, ((f'top "{blob}"', shape) for blob, shape in zip(layer.param.top, shapes, strict=True)))


def check_params(layer: Layer) -> None:
    """Raise ShapeError if a parameter is too large."""
    _check(layer, ((f"parameter {i}", request.shape) for i, request in enumerate(layer.params)))


def check_scratch(layer: Layer) -> None:
    """Raise ShapeError if scratch has too many elements. Its axes may be of any length."""
    for scratch in layer.scratches.values():
        if count(scratch.shape) > MOST_ELEMENTS:
            raise layer.error(
                f'its scratch "{scratch.name}" of shape {scratch.shape} is more than any machine holds',
                kind=ShapeError,
                fix="make its bottoms, tops or kernel smaller",
            )
