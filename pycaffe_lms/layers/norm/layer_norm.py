"""LayerNorm and RMSNorm: each item's values of the last axes are normalised by themselves."""

from __future__ import annotations

from collections.abc import Sequence

from ...ops.records import Affine, AffineGradients, RowMoments, RowNorm, RowNormGradients
from ...ops.sum_parts import reduction_parts
from ..base import Layer, Lives, Needs, Ops, Pass, Shape, Shapes, count
from ..registry import register_layer


class _NormOfRows(Layer):
    """A layer that sees its bottom as rows, the values from `axis` on, and normalises each row."""

    _accumulates_into = frozenset({0})
    field: str  # layer_norm_param or rms_norm_param
    centres = False  # whether it subtracts the mean

    def setup(self, bottom_shapes: Shapes) -> None:
        self.options = getattr(self.param, self.field)
        if self.options.eps < 0:
            raise self.error(f"eps {self.options.eps:g} is negative", fix="use 0 or more, such as 1e-5")
        self.shape = self._normalised(bottom_shapes[0])
        if self.options.affine:
            self.add_param(self.shape, 1.0)

    def _normalised(self, shape: Shape) -> Shape:
        """Return the sizes of the axes that are normalised together, and set `axis`, the first of them."""
        self.check_axes(shape, 1)
        self.axis = self.canonical_axis(self.options.axis, len(shape))
        return tuple(shape[self.axis :])

    def infer_shapes(self, bottom_shapes: Shapes) -> Shapes:
        now = self._normalised(bottom_shapes[0])
        if self.params and now != self.shape:
            raise self.shape_error(
                f"has shape {tuple(bottom_shapes[0])}, but the parameters were set up for {self.shape} from axis "
                f"{self.axis} on",
                bottom=0,
                fix="keep these axes, or build the net anew",
            )
        return [tuple(bottom_shapes[0])]

    @property
    def splits_over_batch(self) -> bool:
        return self.axis >= 1

    def takes_half(self, bottom_shapes: Shapes, top_shapes: Shapes, ops: Ops) -> bool:
        return True

    def declare(self, bottom_shapes: Shapes, top_shapes: Shapes, ops: Ops) -> None:
        shape = bottom_shapes[0]
        self.norm = RowNorm(count(shape, 0, self.axis), count(shape, self.axis), self.options.eps)
        if self.centres:
            self.scratch("mean", (self.norm.rows,), lives=self.saved_if_needed)
        self.scratch("inv_std", (self.norm.rows,), lives=self.saved_if_needed)
        if self.params:
            sums = len(self.params) * self.norm.dim * reduction_parts(self.norm.rows, self.norm.dim, 1)
            self.scratch("work", (sums,), lives=Lives.CALL, forward=False)

    def backward_needs(self, propagate_down: Sequence[bool], param_propagate: Sequence[bool]) -> Needs:
        reads_x = propagate_down[0] or any(param_propagate[:1])
        reads_scale = propagate_down[0] and bool(self.params)
        return Needs(bottoms=frozenset({0} if reads_x else ()), params=frozenset({0} if reads_scale else ()))

    def _moments(self, io: Pass) -> RowMoments:
        return RowMoments(io.scratch.get("mean"), io.scratch["inv_std"])

    def effort(self, forward: bool, again: bool) -> tuple[float, float]:
        return 1.3 if forward or again else 1.8, 1.0  # measured

    def forward(self, io: Pass) -> None:
        affine = Affine(*(io.param[i] if i < len(self.params) else None for i in range(2)))
        io.ops.layer_norm.forward(io.bottom[0], affine, io.top[0], self._moments(io), self.norm)

    def backward(self, io: Pass) -> None:
        known = range(len(self.params))
        ds, db = (io.param_diff[i] if i in known else None for i in range(2))
        add_scale, add_bias = (bool(io.accumulate[i]) if i in known else False for i in range(2))
        adds = bool(io.bottom_adds) and io.bottom_adds[0]
        gradients = RowNormGradients(io.bottom_diff[0], AffineGradients(ds, db, add_scale, add_bias), adds)
        scale = io.param[0] if self.params else None
        arrays = io.bottom[0], scale, io.top_diff[0], gradients
        io.ops.layer_norm.backward(*arrays, self._moments(io), io.scratch.get("work"), self.norm)


@register_layer("LayerNorm")
class LayerNormLayer(_NormOfRows):
    """y = (x - mean) / sqrt(variance + eps) * s + b; mean and variance (the biased one) of each item's values from
    layer_norm_param.axis (default -1) on.

    Bottom 0: x, one axis or more. Top 0: y, the shape of x.
    Parameters: s of shape x.shape[axis:], first 1, unless affine is false; then b, likewise, first 0, unless bias_term
    is false.
    Backward reads x for the gradients of x and s, s for that of x, nothing for that of b. Forward saves the mean and
    1 / sqrt(variance + eps) of every row.
    Raises: LayerParamError for a bad axis or a negative eps; ShapeError if the normalised axes change.
    Source: Ba, Kiros and Hinton, Layer Normalization (2016); ONNX's operator LayerNormalization.
    """

    field, centres = "layer_norm_param", True

    def setup(self, bottom_shapes: Shapes) -> None:
        super().setup(bottom_shapes)
        if self.options.affine and self.options.bias_term:
            self.add_param(self.shape, 0.0)


@register_layer("RMSNorm")
class RMSNormLayer(_NormOfRows):
    """y = x / sqrt(mean of x^2 + eps) * s, the mean over each item's values from rms_norm_param.axis (default -1) on.

    Bottom 0: x, one axis or more. Top 0: y, the shape of x.
    Parameters: s of shape x.shape[axis:], first 1, unless affine is false.
    Backward reads x for the gradients of x and s, s for that of x. Forward saves 1 / sqrt(mean of x^2 + eps) of
    every row.
    Raises: LayerParamError for a bad axis or a negative eps; ShapeError if the normalised axes change.
    Source: Zhang and Sennrich, Root Mean Square Layer Normalization (2019); ONNX's operator RMSNormalization.
    """

    field = "rms_norm_param"
