"""Scale and Bias: a factor and a shift, broadcast over the axes that their shape does not name."""

from __future__ import annotations

from collections.abc import Sequence

from ...ops.axes import around_axis
from ...ops.records import Affine, AffineGradients, Grid
from ...ops.sum_parts import reduction_parts
from ..base import Declaration, InPlace, Layer, Lives, Needs, Ops, Pass, Role, Rows, Shape, Shapes, between, count
from ..registry import register_layer


class _Broadcast(Layer):
    """A layer that broadcasts a blob, learned or bottom 1, over the axes of bottom 0 from `axis` on."""

    declares = Declaration(bottoms=between(1, 2), in_place=InPlace.ALLOWED)
    field: str  # scale_param or bias_param
    default: float  # the filler's value where the prototxt has no filler
    sums = 1  # gradients that are sums over the other axes

    def setup(self, bottom_shapes: Shapes) -> None:
        self.options = getattr(self.param, self.field)
        self.learned = len(bottom_shapes) == 1
        self.shape = self._shape(bottom_shapes)
        if self.learned:
            self.add_param(self.shape, self.filler_or(self.options, "filler", self.default))

    def _shape(self, bottom_shapes: Shapes) -> Shape:
        """Return the shape of the factor (or shift), and set `axis`, the first axis that it names."""
        shape = tuple(bottom_shapes[0])
        if not self.learned:
            other = tuple(bottom_shapes[1])
            self.axis = self.canonical_axis(self.options.axis, len(shape)) if other else 0
            return other
        wanted = self.options.num_axes
        if wanted == 0:
            self.axis = 0
            return ()
        self.axis = self.canonical_axis(self.options.axis, len(shape))
        if wanted < -1 or self.axis + wanted > len(shape):
            raise self.error(
                f"num_axes {wanted} from axis {self.axis} on does not fit a bottom of shape {shape}",
                fix=f"set num_axes to -1 (all the rest) or to 0..{len(shape) - self.axis}",
            )
        return shape[self.axis :] if wanted == -1 else shape[self.axis : self.axis + wanted]

    def infer_shapes(self, bottom_shapes: Shapes) -> Shapes:
        shape, now = tuple(bottom_shapes[0]), self._shape(bottom_shapes)
        if not self.learned:
            self.shape = now
        if shape[self.axis : self.axis + len(self.shape)] != self.shape:
            raise self.shape_error(
                f"has shape {shape}, whose axes from {self.axis} on do not match the shape {self.shape} of the "
                + ("parameter" if self.learned else f'bottom "{self.param.bottom[1]}"'),
                bottom=0,
                fix="change axis or num_axes" if not self.learned else "keep these axes, or build the net anew",
            )
        return [shape]

    @property
    def splits_over_batch(self) -> bool:
        if self.learned:
            return self.axis >= 1 or not self.shape
        return self.axis == 0 and bool(self.shape)  # a factor of its own for each image

    def rows_for(self, first: int, end: int, rows: int) -> Rows | None:
        return Rows((first, end), (first, end)) if self.learned and self.axis + len(self.shape) <= 2 else None

    def takes_channels_last(self, bottom_shapes: Shapes, top_shapes: Shapes, ops: Ops) -> bool:
        one_number_each = not self.shape or (self.axis == 1 and len(self.shape) == 1)
        return self.learned and one_number_each and len(bottom_shapes[0]) >= 4

    def takes_half(self, bottom_shapes: Shapes, top_shapes: Shapes, ops: Ops) -> bool:
        return self.learned

    def declare(self, bottom_shapes: Shapes, top_shapes: Shapes, ops: Ops) -> None:
        shape, end = tuple(bottom_shapes[0]), self.axis + len(self.shape)
        self.grid = Grid(count(shape, 0, self.axis), count(self.shape), count(shape, end))
        if self.context.channels_last and self.shape:
            self.grid = around_axis(shape, 1, True)
        sums = self.sums * self.grid.channels * reduction_parts(*self.grid)
        self.scratch("work", (sums,), lives=Lives.CALL, forward=False)


@register_layer("Scale")
class ScaleLayer(_Broadcast):
    """y = x * s + b, where s (and b, with bias_term) is broadcast over the axes of x that its shape does not name.

    Bottom 0: x. Bottom 1, if given: s, which matches the axes of x from scale_param.axis on; else s is learned, of
    shape x.shape[axis : axis + num_axes] (-1: to the end; 0: a single number), first 1. Top 0: y; may be in place.
    Parameters: s (one bottom), then b (bias_term, first 0); their gradients are added up in every case.
    Backward reads: x for the gradient of s, s for the gradient of x, nothing for that of b.
    Raises: LayerParamError for a bad axis or num_axes; ShapeError where shapes do not match.
    Source: BVLC/caffe, src/caffe/layers/scale_layer.cpp.
    """

    field, default = "scale_param", 1.0

    @property
    def role(self) -> Role | None:
        return Role.AFFINE if self.learned and self.axis == 1 and len(self.shape) == 1 else None

    def setup(self, bottom_shapes: Shapes) -> None:
        super().setup(bottom_shapes)
        self.bias = self.options.bias_term
        if self.bias:
            self.add_param(self.shape, self.options.bias_filler)
            self.sums = 2

    def infer_shapes(self, bottom_shapes: Shapes) -> Shapes:
        tops = super().infer_shapes(bottom_shapes)
        if self.bias and self.params[-1].shape != self.shape:
            raise self.shape_error(
                f"has shape {self.shape}, but the bias was set up for {self.params[-1].shape}",
                bottom=1,
                fix="keep the shape, or build the net anew",
            )
        return tops

    def backward_needs(self, propagate_down: Sequence[bool], param_propagate: Sequence[bool]) -> Needs:
        wants_s = param_propagate[0] if self.learned else propagate_down[1]
        reads = {0} if wants_s else set()
        if propagate_down[0] and not self.learned:
            reads.add(1)
        params = {0} if propagate_down[0] and self.learned else set()
        return Needs(bottoms=frozenset(reads), params=frozenset(params))

    def forward(self, io: Pass) -> None:
        s = io.param[0] if self.learned else io.bottom[1]
        io.ops.scale.forward(io.bottom[0], Affine(s, io.param[-1] if self.bias else None), io.top[0], self.grid)

    def backward(self, io: Pass) -> None:
        s = io.param[0] if self.learned else io.bottom[1]
        ds, add_s = (io.param_diff[0], io.accumulate[0]) if self.learned else (io.bottom_diff[1], False)
        db, add_b = (io.param_diff[-1], io.accumulate[-1]) if self.bias else (None, False)
        gradients = AffineGradients(ds, db, bool(add_s), bool(add_b))
        io.ops.scale.backward(
            io.bottom[0], s, io.top_diff[0], io.bottom_diff[0], gradients, io.scratch["work"], self.grid
        )


@register_layer("Bias")
class BiasLayer(_Broadcast):
    """y = x + b, where b is broadcast over the axes of x that its shape does not name.

    Bottom 0: x. Bottom 1, if given: b, which matches the axes of x from bias_param.axis on; else b is learned, of shape
    x.shape[axis : axis + num_axes] (-1: to the end; 0: a single number), first 0. Top 0: y; may be in place.
    Backward reads nothing.
    Raises: LayerParamError for a bad axis or num_axes; ShapeError where shapes do not match.
    Source: BVLC/caffe, src/caffe/layers/bias_layer.cpp.
    """

    field, default = "bias_param", 0.0

    def backward_needs(self, propagate_down: Sequence[bool], param_propagate: Sequence[bool]) -> Needs:
        return Needs()

    def forward(self, io: Pass) -> None:
        b = io.param[0] if self.learned else io.bottom[1]
        io.ops.scale.forward(io.bottom[0], Affine(None, b), io.top[0], self.grid)

    def backward(self, io: Pass) -> None:
        db, add = (io.param_diff[0], io.accumulate[0]) if self.learned else (io.bottom_diff[1], False)
        gradients = AffineGradients(None, db, add_bias=bool(add))
        io.ops.scale.backward(None, None, io.top_diff[0], io.bottom_diff[0], gradients, io.scratch["work"], self.grid)
