"""How large blobs may be. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ..errors import ShapeError
from .base import Layer, count

MOST_AXIS = 2**31 - 1  # as in Caffe, and what libraries of kernels take
MOST_ELEMENTS = 2**48  # more than any machine holds; all arithmetic on bytes stays exact


def check_sizes(layer: Layer, shapes: Iterable[tuple[str, Sequence[int]]]) -> None:
    """Raise ShapeError for an axis or a number of elements that is too large. shapes: (what it is, shape)."""
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
    """Raise ShapeError for tops that are too large."""
    check_sizes(layer, ((f'top "{blob}"', shape) for blob, shape in zip(layer.param.top, shapes, strict=True)))


def check_params(layer: Layer) -> None:
    """Raise ShapeError for parameters that are too large."""
    check_sizes(layer, ((f"parameter {i}", request.shape) for i, request in enumerate(layer.params)))


def check_scratch(layer: Layer) -> None:
    """Raise ShapeError for scratch of more elements than any machine holds."""
    for scratch in layer.scratches.values():
        if count(scratch.shape) > MOST_ELEMENTS:
            raise layer.error(
                f'its scratch "{scratch.name}" of shape {scratch.shape} is more than any machine holds',
                kind=ShapeError,
                fix="make its bottoms, tops or kernel smaller",
            )
