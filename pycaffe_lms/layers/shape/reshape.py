"""Flatten and Reshape: another shape for the same memory."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from ..base import Declaration, InPlace, Layer, Reads, Runs, Shape, Shapes, count
from ..registry import register_layer


class _SameMemory(Layer):
    """A layer whose top is its bottom's memory, data and gradient, so that nothing runs."""

    declares = Declaration(in_place=InPlace.REFUSED, runs_on=Runs.NOWHERE, backward_reads=Reads.NONE)

    def shares(self) -> dict[int, int]:
        return {0: 0}


@register_layer("Flatten")
class FlattenLayer(_SameMemory):
    """Axes flatten_param.axis (default 1) to end_axis (default -1), both included, become one.

    Bottom 0: any shape of one axis or more. Top 0: the same memory. Backward reads nothing.
    Raises: LayerParamError for axes out of range or in the wrong order.
    Source: BVLC/caffe, src/caffe/layers/flatten_layer.cpp.
    """

    declares = replace(_SameMemory.declares, splits_over_batch=True)

    def infer_shapes(self, bottom_shapes: Shapes) -> Shapes:
        shape, flatten = tuple(bottom_shapes[0]), self.param.flatten_param
        start = self.canonical_axis(flatten.axis, len(shape))
        end = self.canonical_axis(flatten.end_axis, len(shape), what="end_axis")
        if end < start:
            raise self.error(f"end_axis {end} comes before axis {start}", fix="set end_axis to axis or a later one")
        return [(*shape[:start], count(shape, start, end + 1), *shape[end + 1 :])]


@register_layer("Squeeze")
class SqueezeLayer(_SameMemory):
    """Axes squeeze_param.axis, which are of size 1, are left out; without it all of size 1.

    Bottom 0: any shape. Top 0: the same memory. Backward reads nothing.
    Raises: LayerParamError for an axis out of range; ShapeError for one of another size.
    Source: Synopsys Caffe, src/caffe/proto/caffe.proto (SqueezeParameter).
    """

    def infer_shapes(self, bottom_shapes: Shapes) -> Shapes:
        shape = tuple(bottom_shapes[0])
        axes = {self.canonical_axis(axis, len(shape)) for axis in self.param.squeeze_param.axis}
        for axis in axes:
            if shape[axis] != 1:
                raise self.shape_error(
                    f"has shape {shape}: axis {axis} is not of size 1", bottom=0, fix="leave that axis out"
                )
        axes = axes or {axis for axis, size in enumerate(shape) if size == 1}
        return [tuple(size for axis, size in enumerate(shape) if axis not in axes)]


@register_layer("Reshape")
class ReshapeLayer(_SameMemory):
    """Axes [axis, axis + num_axes) of the bottom are replaced by reshape_param.shape (num_axes -1: to the end).

    A dim of 0 takes the bottom's size at the same position; one dim of -1 takes what is left. A negative axis counts
    from behind the last one (-1 adds axes at the end).
    Bottom 0: any shape. Top 0: the same memory. Backward reads nothing.
    Raises: LayerParamError for a bad axis or dim; ShapeError where the numbers of elements differ.
    Source: BVLC/caffe, src/caffe/layers/reshape_layer.cpp.
    """

    def setup(self, bottom_shapes: Shapes) -> None:
        self.dims = list(self.param.reshape_param.shape.dim)
        if self.dims.count(-1) > 1:
            raise self.error("shape has more than one dim of -1", fix="leave one dim open at most")
        if any(d < -1 for d in self.dims):
            raise self.error(f"shape has a dim of {min(self.dims)}", fix="use sizes, 0 (copy) or -1 (what is left)")

    @property
    def splits_over_batch(self) -> bool:
        return self.param.reshape_param.axis > 0 or (bool(self.dims) and self.dims[0] in (0, -1))

    def _range(self, ndim: int) -> tuple[int, int]:
        """Return (start, end) of the axes that are replaced."""
        reshape = self.param.reshape_param
        start = reshape.axis if reshape.axis >= 0 else ndim + reshape.axis + 1
        if not 0 <= start <= ndim:
            raise self.error(
                f"axis {reshape.axis} is out of range for a bottom of {ndim} axes", fix=f"use {-ndim - 1} to {ndim}"
            )
        end = ndim if reshape.num_axes == -1 else start + reshape.num_axes
        if reshape.num_axes < -1 or end > ndim:
            raise self.error(
                f"num_axes {reshape.num_axes} from axis {start} on does not fit a bottom of {ndim} axes",
                fix=f"set num_axes to -1 (to the end) or to 0..{ndim - start}",
            )
        return start, end

    def infer_shapes(self, bottom_shapes: Shapes) -> Shapes:
        shape = tuple(bottom_shapes[0])
        start, end = self._range(len(shape))
        top = [*shape[:start], *self.dims, *shape[end:]]
        for i, dim in enumerate(self.dims, start=start):
            if dim == 0:
                if i >= len(shape):
                    raise self.error(
                        f"dim 0 at position {i} copies an axis that a bottom of shape {shape} does not have",
                        fix="give the size instead of 0",
                    )
                top[i] = shape[i]
        if -1 in top:
            top[top.index(-1)] = self._open_dim(shape, [d for d in top if d != -1])
        if math.prod(top) != math.prod(shape):
            raise self.shape_error(
                f"has shape {shape}, {math.prod(shape)} elements, which do not fit into {tuple(top)}",
                bottom=0,
                fix="set one dim to -1 to take what is left",
            )
        return [tuple(top)]

    def _open_dim(self, shape: Shape, known: Sequence[int]) -> int:
        """Return the size of the dim of -1, of a top whose other dims are `known`."""
        size, taken = math.prod(shape), math.prod(known)
        if taken == 0:  # an empty batch: ignore the axes of size 0 of both shapes
            size, taken = math.prod(d for d in shape if d), math.prod(d for d in known if d)
        if size % taken:
            raise self.shape_error(
                f"has shape {shape}: {size} elements cannot be divided by {taken}, the product of the other dims",
                bottom=0,
                fix="change the dims of reshape_param.shape",
            )
        return size // taken
