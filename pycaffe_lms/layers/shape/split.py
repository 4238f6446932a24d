"""Split: one blob for several readers. Silence: the reader of blobs that no other layer reads."""

from __future__ import annotations

from collections.abc import Sequence

from ..base import Declaration, InPlace, Layer, Pass, Reads, Runs, Shapes, at_least, exactly
from ..registry import register_layer


@register_layer("Split")
class SplitLayer(Layer):
    """Every top's data is the bottom's data; the bottom's gradient is the sum of the tops' gradients, in their order.

    Bottom 0: any shape. Tops: one or more of that shape, sharing its memory. Backward reads nothing.
    Source: BVLC/caffe, src/caffe/layers/split_layer.cpp.
    """

    declares = Declaration(
        tops=at_least(1),
        in_place=InPlace.REFUSED,
        runs_on=Runs.NOWHERE,
        backward_reads=Reads.NONE,
        splits_over_batch=True,
        layout_agnostic=True,
    )

    def infer_shapes(self, bottom_shapes: Shapes) -> Shapes:
        return [tuple(bottom_shapes[0])] * len(self.param.top)

    def shares_data(self) -> dict[int, int]:
        return dict.fromkeys(range(len(self.param.top)), 0)

    def in_place_reuse(self, forward: bool) -> Sequence[tuple[str, int, int]]:
        return () if forward else tuple(("top_diff", j, 0) for j in range(len(self.param.top)))

    def backward(self, io: Pass) -> None:
        if io.bottom_diff[0] is not None:
            io.ops.sum_arrays([dy for dy in io.top_diff if dy is not None], io.bottom_diff[0])


@register_layer("Silence")
class SilenceLayer(Layer):
    """Reads blobs that no other layer reads, so that they do not become outputs of the net.

    Bottoms: one or more. Tops: none. Backward reads nothing and writes zero gradients.
    Source: BVLC/caffe, src/caffe/layers/silence_layer.cpp.
    """

    declares = Declaration(
        bottoms=at_least(1), tops=exactly(0), runs_on=Runs.NOWHERE, backward_reads=Reads.NONE, layout_agnostic=True
    )

    def infer_shapes(self, bottom_shapes: Shapes) -> Shapes:
        return []

    def backward(self, io: Pass) -> None:
        for dx in io.bottom_diff:
            if dx is not None:
                io.ops.fill(dx, 0)
