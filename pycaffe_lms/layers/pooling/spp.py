"""SPP: spatial pyramid pooling."""

from __future__ import annotations

from ...ops.geometry import PoolGeometry, place_dtype
from ...proto import caffe_pb2
from ..base import AnyArray, Declaration, Layer, Lives, Ops, Pass, Reads, Shapes, count
from ..registry import register_layer
from ..spatial import check_images


@register_layer("SPP")
class SPPLayer(Layer):
    """Pools the whole input into 1 x 1, 2 x 2, 4 x 4, ... bins and joins the results: as wide for any input size.

    Level i (of spp_param.pyramid_height) has b = 2^i bins along each axis: kernel and stride ceil(size / b), pad
    (kernel * b - size + 1) / 2 rounded down, MAX or AVE as in Pooling.
    Bottom 0: (N, C, H, W). Top 0: (N, C * (1 + 4 + 16 + ...)), per level (C, b, b); with one level (N, C, 1, 1).
    Backward reads no data, only the saved place of each maximum. `engine` is accepted and changes nothing.
    Raises: LayerParamError for pyramid_height 0 or STOCHASTIC; ShapeError for other than 4 axes, or an input too small
    for the finest level.
    Source: BVLC/caffe, src/caffe/layers/spp_layer.cpp.
    """

    declares = Declaration(backward_reads=Reads.NONE)

    def setup(self, bottom_shapes: Shapes) -> None:
        spp = self.param.spp_param
        if spp.pool == caffe_pb2.SPPParameter.STOCHASTIC:
            raise self.error(
                "has no stochastic pooling, which takes no padding",
                fix="use pool: MAX or pool: AVE",
            )
        if spp.pyramid_height < 1:
            raise self.error("spp_param.pyramid_height is not set", fix="set pyramid_height to 1 or more")
        self.max = spp.pool == caffe_pb2.SPPParameter.MAX
        self.height = spp.pyramid_height

    def infer_shapes(self, bottom_shapes: Shapes) -> Shapes:
        check_images(self, bottom_shapes, "pooling")
        shape = tuple(bottom_shapes[0])
        for level in range(self.height):
            kernel, pad = zip(*(_window(size, 1 << level) for size in shape[2:]), strict=True)
            if min(shape[2:]) < 1 or any(p >= k for p, k in zip(pad, kernel, strict=True)):
                raise self.shape_error(
                    f"has spatial size {shape[2:]}, too small for level {level} of {1 << level} x {1 << level} bins "
                    f"(kernel {kernel}, pad {pad})",
                    bottom=0,
                    fix=f"set pyramid_height to {max(level, 1)}, or give a larger input",
                )
        if self.height == 1:
            return [(*shape[:2], 1, 1)]
        return [(shape[0], shape[1] * sum(4**level for level in range(self.height)))]

    def declare(self, bottom_shapes: Shapes, top_shapes: Shapes, ops: Ops) -> None:
        n, channels, *sizes = bottom_shapes[0]
        self.items, self.total = n, count(top_shapes[0], 1)
        self.levels = []
        for level in range(self.height):
            bins = 1 << level
            kernel, pad = zip(*(_window(size, bins) for size in sizes), strict=True)
            self.levels.append(PoolGeometry(n * channels, tuple(sizes), (bins, bins), kernel, kernel, pad))
            if self.max:
                places = place_dtype(self.levels[level])
                self.scratch(f"mask{level}", (n, channels, bins, bins), dtype=places, lives=Lives.SAVED)
            if self.height > 1:
                self.scratch(f"part{level}", (n, channels, bins, bins), lives=Lives.CALL)
        if self.height > 1:
            self.scratch("share", bottom_shapes[0], lives=Lives.CALL, forward=False)
        widths = [channels * 4**level for level in range(self.height)]
        self.blocks = [(width, sum(widths[:i])) for i, width in enumerate(widths)]

    def forward(self, io: Pass) -> None:
        for level, geometry in enumerate(self.levels):
            y = io.scratch[f"part{level}"] if self.height > 1 else io.top[0]
            if self.max:
                io.ops.max_pool.forward(io.bottom[0], y, io.scratch.get(f"mask{level}"), None, geometry)
            else:
                io.ops.average_pool.forward(io.bottom[0], y, geometry)
            if self.height > 1:
                width, start = self.blocks[level]
                io.ops.copy_block_in(y, io.top[0], self.items, width, self.total, start)

    def gradient(self, io: Pass, dy: AnyArray, dx: AnyArray) -> None:
        for level, geometry in enumerate(self.levels):
            part = dy
            if self.height > 1:
                part = io.scratch[f"part{level}"]
                width, start = self.blocks[level]
                io.ops.copy_block_out(dy, part, self.items, width, self.total, start)
            target = io.scratch["share"] if level else dx
            if self.max:
                io.ops.max_pool.backward(part, io.scratch[f"mask{level}"], target, geometry)
            else:
                io.ops.average_pool.backward(part, target, geometry)
            if level:
                io.ops.sum_arrays([dx, target], dx)


def _window(size: int, bins: int) -> tuple[int, int]:
    """Return (kernel, pad) along one axis, with which Pooling has exactly `bins` outputs if the pad is smaller."""
    kernel = -(-size // bins)
    return kernel, (kernel * bins - size + 1) // 2
