"""Tile."""

from __future__ import annotations

from ..base import AnyArray, Declaration, Layer, Lives, Ops, Pass, Reads, Shapes, count
from ..registry import register_layer

_SHARE = 64  # tiles that one thread of a GPU adds up where the bottom has fewer than `_THREADS` elements
_THREADS = 1 << 16


@register_layer("Tile")
class TileLayer(Layer):
    """y = x repeated tile_param.tiles times along tile_param.axis (default 1), block after block as in numpy.tile.

    Bottom 0: x. Top 0: y, that axis `tiles` times as long. Backward (the sum of the blocks' gradients) reads nothing.
    Raises: LayerParamError for an axis out of range, or tiles below 1.
    Source: BVLC/caffe, src/caffe/layers/tile_layer.cpp.
    """

    declares = Declaration(backward_reads=Reads.NONE)

    def setup(self, bottom_shapes: Shapes) -> None:
        self.tiles = self.param.tile_param.tiles
        if self.tiles < 1:
            raise self.error(f"tiles is {self.tiles}", fix="add tile_param { tiles: ... } of at least 1")

    def infer_shapes(self, bottom_shapes: Shapes) -> Shapes:
        shape = tuple(bottom_shapes[0])
        axis = self.canonical_axis(self.param.tile_param.axis, len(shape))
        self.size = count(shape, 0, axis), self.tiles, count(shape, axis)
        return [(*shape[:axis], shape[axis] * self.tiles, *shape[axis + 1 :])]

    def declare(self, bottom_shapes: Shapes, top_shapes: Shapes, ops: Ops) -> None:
        outer, tiles, inner = self.size
        self.parts = 1 if outer * inner >= _THREADS else (tiles + _SHARE - 1) // _SHARE
        self.scratch("work", (self.parts * outer * inner,), lives=Lives.CALL, forward=False)

    def forward(self, io: Pass) -> None:
        io.ops.tile.forward(io.bottom[0], io.top[0], *self.size)

    def gradient(self, io: Pass, dy: AnyArray, dx: AnyArray) -> None:
        io.ops.tile.backward(dy, dx, io.scratch["work"], self.parts, *self.size)
