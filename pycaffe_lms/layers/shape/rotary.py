"""RotaryEmbedding: positions as angles by which pairs of values are turned."""

from __future__ import annotations

from collections.abc import Sequence

from ...ops.records import Rotation
from ..base import AnyArray, Declaration, InPlace, Layer, Needs, Pass, Shapes, between
from ..registry import register_layer


@register_layer("RotaryEmbedding")
class RotaryEmbeddingLayer(Layer):
    """y: in each head, pair i of the values at position p is turned by the angle p / base ^ (2 i / rotary_dim).

    Bottom 0: x (N, T, heads * D). Bottom 1, optional: positions (N, T), cut to whole numbers, no gradient; default:
    0..T-1. Top 0: y, the shape of x; may be in place.
    rotary_embedding_param: heads; rotary_dim (default D), an even number: the first values of each head are turned, the
    others stay; interleaved: a pair are neighbours, else values i and i + rotary_dim / 2, as in LLaMA's public weights;
    base (default 10000).
    Backward reads the positions alone: gradients are turned back.
    Raises: ShapeError for other than 3 axes, values that heads does not divide, or other than N x T positions;
    LayerParamError for a rotary_dim that is odd or above D, or a base that is not positive.
    Source: Su et al., RoFormer (2021); ONNX's operator RotaryEmbedding.
    """

    declares = Declaration(
        bottoms=between(1, 2),
        in_place=InPlace.ALLOWED,
        no_backward=frozenset({1}),
        ignores_force_backward=frozenset({1}),
        splits_over_batch=True,
        any_precision=True,
        full_precision=frozenset({1}),
    )

    def infer_shapes(self, bottom_shapes: Shapes) -> Shapes:
        shape, options = tuple(bottom_shapes[0]), self.param.rotary_embedding_param
        if len(shape) != 3:
            raise self.shape_error(f"has shape {shape}, not 3 axes", bottom=0, fix="reshape it to (N, T, heads * D)")
        if not options.heads or shape[2] % options.heads:
            raise self.shape_error(
                f"has {shape[2]} values per position, not a multiple of heads {options.heads}",
                bottom=0,
                fix="change heads, or num_output of the layer before",
            )
        if len(bottom_shapes) == 2 and tuple(bottom_shapes[1]) != shape[:2]:
            message = f"has shape {tuple(bottom_shapes[1])}, but there are {shape[:2]} positions"
            raise self.shape_error(message, bottom=1, fix=f"give it the shape {shape[:2]}")
        dim = shape[2] // options.heads
        turned = options.rotary_dim or dim
        if turned % 2 or turned > dim:
            raise self.error(
                f"rotary_dim {turned} is not an even number up to {dim}", fix="turn an even number of values"
            )
        if options.base <= 0:
            raise self.error(f"base {options.base:g} is not positive", fix="use a number such as 10000")
        rows = shape[0] * shape[1]
        self.rotation = Rotation(rows, shape[1], options.heads, dim, turned, options.base, options.interleaved)
        return [shape]

    def effort(self, forward: bool, again: bool) -> tuple[float, float]:
        return 1.1, 1.0  # measured

    def backward_needs(self, propagate_down: Sequence[bool], param_propagate: Sequence[bool]) -> Needs:
        return Needs(bottoms=frozenset({1} if propagate_down[0] and len(propagate_down) == 2 else ()))

    def forward(self, io: Pass) -> None:
        io.ops.rotary.forward(io.bottom[0], io.top[0], self._places(io), self.rotation, False)

    def gradient(self, io: Pass, dy: AnyArray, dx: AnyArray) -> None:
        io.ops.rotary.forward(dy, dx, self._places(io), self.rotation, True)

    def _places(self, io: Pass) -> AnyArray | None:
        return io.bottom[1] if len(io.bottom) == 2 else None
