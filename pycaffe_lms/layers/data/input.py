"""Input: tops that the program fills."""

from __future__ import annotations

from ..base import Declaration, Layer, Reads, Runs, Shapes, at_least, exactly
from ..registry import register_layer


@register_layer("Input")
class InputLayer(Layer):
    """The net's inputs: the tops, in order.

    Tops: one or more. input_param.shape: one for all tops, or one per top; without it they have shape (0) until they
    are reshaped.
    Raises: LayerParamError for another number of shapes, or a negative dim.
    Source: BVLC/caffe, src/caffe/layers/input_layer.cpp.
    """

    declares = Declaration(
        bottoms=exactly(0),
        tops=at_least(1),
        runs_on=Runs.NOWHERE,
        is_net_input=True,
        no_backward=None,
        backward_reads=Reads.NONE,
    )

    def setup(self, bottom_shapes: Shapes) -> None:
        shapes, n = [tuple(s.dim) for s in self.param.input_param.shape], len(self.param.top)
        if len(shapes) not in (0, 1, n):
            raise self.error(f"{len(shapes)} shapes for {n} tops", fix=f"write one shape for all tops, or {n}")
        if any(d < 0 for shape in shapes for d in shape):
            raise self.error("input_param.shape has a negative dim", fix="use sizes of 0 or more")
        self.shapes = shapes if len(shapes) == n else (shapes or [(0,)]) * n

    def infer_shapes(self, bottom_shapes: Shapes) -> Shapes:
        return list(self.shapes)
