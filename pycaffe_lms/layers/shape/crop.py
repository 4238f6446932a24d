"""Pad, Crop and Tile: a part of a blob, and copies of it side by side."""

from __future__ import annotations

from ...ops.axes import memory_shape
from ...ops.sum_parts import tile_parts
from ..base import AnyArray, Declaration, Layer, Lives, Needs, Ops, Pass, Reads, Rows, Shapes, count, exactly
from ..registry import register_layer


@register_layer("Crop")
class CropLayer(Layer):
    """y = x cut to the size of bottom 1 in the axes from crop_param.axis (default 2) on, starting at crop_param.offset.

    Offsets: none (0), one for all these axes, or one for each.
    Bottom 0: x. Bottom 1: only its shape is used, and its gradient is zeros. Top 0: y, x's shape before `axis`, that
    of bottom 1 from there on. Backward reads nothing.
    Raises: LayerParamError for a bad axis or number of offsets; ShapeError where bottom 1 does not fit.
    Source: BVLC/caffe, src/caffe/layers/crop_layer.cpp (there bottom 1's gradient is left as it is).
    """

    declares = Declaration(bottoms=exactly(2), backward_reads=Reads.NONE, any_precision=True)
    _is_slab = False

    def infer_shapes(self, bottom_shapes: Shapes) -> Shapes:
        (x, like), offsets = (tuple(s) for s in bottom_shapes), list(self.param.crop_param.offset)
        self.axis = axis = self.canonical_axis(self.param.crop_param.axis, len(x))
        cropped = len(x) - axis
        if len(offsets) not in (0, 1, cropped):
            raise self.error(
                f"has {len(offsets)} offsets for {cropped} cropped axes", fix=f"give none, one, or {cropped} offsets"
            )
        if len(like) < len(x):
            raise self.shape_error(
                f"has shape {like}, fewer axes than bottom 0, {x}",
                bottom=1,
                fix="give bottoms of as many axes",
            )
        if len(offsets) != cropped:
            offsets = (offsets or [0]) * cropped
        if self._is_slab and axis <= 2:
            offsets[2 - axis] = 0  # its rows begin there
        self.shapes = x, (*x[:axis], *like[axis : len(x)]), (*(0,) * axis, *offsets)
        for i, (full, size, start) in enumerate(zip(*self.shapes, strict=True)):
            if start + size > full:
                raise self.shape_error(
                    f"has shape {like}: {size} values from offset {start} on do not fit axis {i} of bottom 0, whose "
                    f"size is {full}",
                    bottom=1,
                    fix="lower crop_param.offset, or give a larger bottom 0",
                )
        return [self.shapes[1]]

    @property
    def splits_over_batch(self) -> bool:
        return self.axis >= 1

    def rows_for(self, first: int, end: int, rows: int) -> Rows | None:
        start = self.shapes[2][2]
        return Rows((first + start, end + start), (first, end))

    def take_rows(self, first: int, end: int, rows: int) -> None:
        self._is_slab = True

    def takes_channels_last(self, bottom_shapes: Shapes, top_shapes: Shapes, ops: Ops) -> bool:
        return len(bottom_shapes[0]) >= 4

    def declare(self, bottom_shapes: Shapes, top_shapes: Shapes, ops: Ops) -> None:
        full, size, start = (memory_shape(shape, self.context.channels_last) for shape in self.shapes)
        self.window = full, size, start

    def forward_needs(self) -> Needs:
        return Needs(bottoms=frozenset({0}))

    def forward(self, io: Pass) -> None:
        io.ops.crop.forward(io.bottom[0], io.top[0], *self.window)

    def gradient(self, io: Pass, dy: AnyArray, dx: AnyArray) -> None:
        io.ops.crop.backward(dy, dx, *self.window)


@register_layer("Pad")
class PadLayer(Layer):
    """y = x with zeros around it.

    pad_param.paddings: two numbers for each axis of x, how many zeros before and after. Bottom 0: x. Top 0: y, each
    axis longer by its two numbers. Backward (the window's gradient) reads nothing.
    Raises: LayerParamError for another number of paddings, or constant_values other than 0.
    Source: Synopsys Caffe, src/caffe/layers/pad_layer.cpp.
    """

    declares = Declaration(backward_reads=Reads.NONE)

    def setup(self, bottom_shapes: Shapes) -> None:
        p, axes = self.param.pad_param, len(bottom_shapes[0])
        if len(p.paddings) != 2 * axes:
            raise self.error(f"has {len(p.paddings)} paddings for {axes} axes", fix=f"give {2 * axes}")
        if p.constant_values:
            raise self.error(f"constant_values is {p.constant_values:g}", fix="pad with 0, or use a Python layer")
        self.starts, self.ends = list(p.paddings[::2]), list(p.paddings[1::2])

    def infer_shapes(self, bottom_shapes: Shapes) -> Shapes:
        shape = tuple(bottom_shapes[0])
        if len(shape) != len(self.starts):
            raise self.shape_error(
                f"has {len(shape)} axes, paddings are for {len(self.starts)}", bottom=0, fix="build the net anew"
            )
        return [tuple(sum(sizes) for sizes in zip(self.starts, shape, self.ends, strict=True))]

    @property
    def splits_over_batch(self) -> bool:
        return self.starts[:1] + self.ends[:1] == [0, 0]

    def takes_channels_last(self, bottom_shapes: Shapes, top_shapes: Shapes, ops: Ops) -> bool:
        return len(bottom_shapes[0]) >= 4

    def declare(self, bottom_shapes: Shapes, top_shapes: Shapes, ops: Ops) -> None:
        shapes = top_shapes[0], bottom_shapes[0], tuple(self.starts)
        full, size, start = (memory_shape(shape, self.context.channels_last) for shape in shapes)
        self.window = full, size, start

    def forward(self, io: Pass) -> None:
        io.ops.crop.backward(io.bottom[0], io.top[0], *self.window)  # the transpose of cropping

    def gradient(self, io: Pass, dy: AnyArray, dx: AnyArray) -> None:
        io.ops.crop.forward(dy, dx, *self.window)


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
        outer, _, inner = self.size
        self.parts = tile_parts(*self.size)
        self.scratch("work", (self.parts * outer * inner,), lives=Lives.CALL, forward=False)

    def forward(self, io: Pass) -> None:
        io.ops.tile.forward(io.bottom[0], io.top[0], *self.size)

    def gradient(self, io: Pass, dy: AnyArray, dx: AnyArray) -> None:
        io.ops.tile.backward(dy, dx, io.scratch["work"], self.parts, *self.size)
