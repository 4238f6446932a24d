"""Pooling over spatial axes, SPP (over a pyramid of bins), and Pooling's parameters.

Covers: `pooling_param`'s kernel, stride and pad per axis (one value for all, `_h`/`_w` pairs, the forks' `_shape`
fields and `ceil_mode`) and their checks; the Pooling and SPP layers.
Does not cover: the arithmetic of sizes (`ops/geometry.py`).
"""

from __future__ import annotations

from collections.abc import Sequence

from ...ops.geometry import PoolGeometry, place_dtype, pool_output_size
from ...proto import caffe_pb2
from ..base import TRAIN, AnyArray, Declaration, Layer, Lives, Needs, Ops, Pass, Reads, Rows, Shapes, between, count
from ..mixins import RandomLayer
from ..registry import register_layer
from ..spatial import Ints, check_images, per_axis


def pool_windows(layer: Layer, pool: caffe_pb2.PoolingParameter, axes: int) -> tuple[Ints | None, Ints, Ints]:
    """Return (kernel, stride, pad) of `axes` values each; kernel None: the whole input. Raises LayerParamError."""
    stride, pad = per_axis(layer, pool, "stride", axes, 1), per_axis(layer, pool, "pad", axes, 0)
    if pool.global_pooling:
        given = [f for f in ("kernel_size", "kernel_h", "kernel_w", "kernel_shape") if pool.HasField(f)]
        if given:
            raise layer.error(f"has global_pooling and {' and '.join(given)}", fix=f"remove {' and '.join(given)}")
        if any(pad) or any(s != 1 for s in stride):
            raise layer.error("global_pooling takes no pad, and stride 1 only", fix="remove pad and stride")
        return None, stride, pad
    kernel = per_axis(layer, pool, "kernel", axes, None)
    for field, values in (("kernel", kernel), ("stride", stride)):
        if 0 in values:
            raise layer.error(f"a pooling {field} is 0", fix=f"give a {field} of at least 1")
    if any(p >= k for p, k in zip(pad, kernel, strict=True)):
        raise layer.error(f"pad {pad} is not smaller than kernel {kernel}", fix="use a smaller pad or a larger kernel")
    return kernel, stride, pad


def rounds_up(layer: Layer, pool: caffe_pb2.PoolingParameter) -> bool:
    """Return whether a last partial window counts: `round_mode`, or the forks' `ceil_mode`. Raises LayerParamError."""
    up = pool.round_mode == pool.CEIL
    if not pool.HasField("ceil_mode"):
        return up
    if pool.HasField("round_mode") and pool.ceil_mode != up:
        raise layer.error(
            f"has round_mode {'CEIL' if up else 'FLOOR'} and ceil_mode {str(pool.ceil_mode).lower()}",
            fix="keep either round_mode or ceil_mode",
        )
    return pool.ceil_mode


@register_layer("Pooling")
@register_layer("NdPooling")
class PoolingLayer(RandomLayer):
    """MAX: y = the window's maximum (the first in row-major order; never a NaN or padding; -FLT_MAX if there is none).
    AVE: y = the window's sum / the number of its places inside the padded image; AVE_EXC_PAD: inside the image itself.
    STOCHASTIC, for values of at least 0 and without padding. TRAIN: y = one of the window's elements, x with
    probability x / sum (the first whose running sum reaches a random share of the sum); TEST: y = sum of x^2 / sum of
    x, 0 where the sum is not positive.

    Bottom 0: (N, C, spatial...), 1 or more spatial axes. Top 0: (N, C, out...) with out = ceil((in + 2 pad - kernel) /
    stride) + 1 (round_mode FLOOR or ceil_mode false: floor), less a last window that would start beyond in + pad.
    Top 1 (MAX only, no gradient): the row-major index of each maximum inside its plane (h * W + w), -1 for none.
    global_pooling: the kernel is the whole plane. kernel_shape, stride_shape, pad_shape: a value per spatial axis.
    Backward reads only the saved place of each chosen element; STOCHASTIC in TEST bottom 0, top 0 and saved sums.
    Choices in TRAIN are a function of `seed` (from the net) and of the number of earlier forwards.
    `engine` is accepted and changes nothing.
    Raises: LayerParamError for contradicting or impossible fields; ShapeError for fewer than 3 axes, for another number
    of axes after set-up, or for an input that no window fits.
    Source: BVLC/caffe, src/caffe/layers/pooling_layer.{cpp,cu}; the generator is Dropout's. NdPooling: chuckcho/
    video-caffe, which has the _shape fields. AVE_EXC_PAD: Synopsys Caffe, pooling_layer.cpp.
    """

    declares = Declaration(tops=between(1, 2), splits_over_batch=True)
    random = False
    _slab_rows = 0  # of a slab: rows of its top

    def setup(self, bottom_shapes: Shapes) -> None:
        pool, self.ndim = self.param.pooling_param, len(bottom_shapes[0])
        self.check_axes(bottom_shapes[0], 3)
        self.max = pool.pool == caffe_pb2.PoolingParameter.MAX
        self.inside = pool.pool == caffe_pb2.PoolingParameter.AVE_EXC_PAD
        self.random = pool.pool == caffe_pb2.PoolingParameter.STOCHASTIC
        if len(self.param.top) > 1 and not self.max:
            raise self.error("only MAX pooling has a second top", fix="remove the second top, or use pool: MAX")
        self.ceil = rounds_up(self, pool)
        self.kernel, self.stride, self.pad = pool_windows(self, pool, self.ndim - 2)
        if self.random and any(self.pad):
            raise self.error("stochastic pooling takes no pad", fix="remove pad, or use pool: MAX or pool: AVE")

    def infer_shapes(self, bottom_shapes: Shapes) -> Shapes:
        shape = tuple(bottom_shapes[0])
        self.check_kept("axes", len(shape), self.ndim)
        window, out = self.kernel or shape[2:], []
        for size, kernel, stride, pad in zip(shape[2:], window, self.stride, self.pad, strict=True):
            n = pool_output_size(size, kernel, stride, pad, self.ceil)
            if any(self.pad) and (n - 1) * stride >= size + pad:
                n -= 1  # as in Caffe, where there is padding a last window wholly inside it is left out
            out.append(n)
        if self._slab_rows:
            out[0] = self._slab_rows
        if min(out) < 1 or min(shape[2:]) < 1:
            raise self.shape_error(
                f"has spatial size {shape[2:]}, which no window of {window} with pad {self.pad} fits",
                bottom=0,
                fix="use a smaller kernel, more pad, or a larger input",
            )
        return [(*shape[:2], *out)] * len(self.param.top)

    def rows_for(self, first: int, end: int, rows: int) -> Rows | None:
        if self.random or self.kernel is None or len(self.param.top) > 1 or self.stride[0] > self.kernel[0]:
            return None
        kernel, stride, pad = self.kernel[0], self.stride[0], self.pad[0]
        low, high = first * stride - pad, (end - 1) * stride - pad + kernel
        if self.max or self.inside:  # padding does not count
            low, high = max(0, low), min(rows, high)
        return Rows((low, min(rows + pad, high)), (first, end))

    def take_rows(self, first: int, end: int, rows: int) -> None:
        near = max(0, self.pad[0] - first * self.stride[0]) if self.max or self.inside else 0
        self.pad, self._slab_rows = (near, *self.pad[1:]), end - first

    def takes_channels_last(self, bottom_shapes: Shapes, top_shapes: Shapes, ops: Ops) -> bool:
        return self.ndim == 4 and not self.random

    def takes_half(self, bottom_shapes: Shapes, top_shapes: Shapes, ops: Ops) -> bool:
        return not self.random and len(top_shapes) == 1  # bfloat16 has too few digits for the indices of top 1

    def declare(self, bottom_shapes: Shapes, top_shapes: Shapes, ops: Ops) -> None:
        bottom, top = tuple(bottom_shapes[0]), tuple(top_shapes[0])
        window = self.kernel or bottom[2:]
        geometry = PoolGeometry(bottom[0] * bottom[1], bottom[2:], top[2:], window, self.stride, self.pad, self.inside)
        if self.ndim != 4:
            geometry = geometry.simpler(keep_planes=len(top_shapes) > 1)
        self.geometry = geometry
        places = self.max or self.random  # backward follows the saved places of the chosen elements
        if self.context.channels_last:
            self.operation = ops.max_pool_last if places else ops.average_pool_last
        elif len(geometry.kernel) == 2:
            self.operation = ops.max_pool if places else ops.average_pool
        else:
            self.operation = ops.max_pool_nd if places else ops.average_pool_nd
        self.numbers = (bottom[1], geometry) if self.context.channels_last else (geometry,)
        if self.max or (self.random and self.phase == TRAIN):
            self.scratch("mask", top, dtype=place_dtype(geometry), lives=Lives.SAVED)
            if self.random:
                self.step_scalar("key", 3)
        elif self.random:
            self.scratch("sum", top, lives=Lives.SAVED)

    def next_step_scalars(self) -> dict[str, Sequence[int]]:
        return self.next_key() if self.random and self.phase == TRAIN else {}

    def backward_needs(self, propagate_down: Sequence[bool], param_propagate: Sequence[bool]) -> Needs:
        if self.random and self.phase != TRAIN:
            return Needs(bottoms=frozenset({0}), tops=frozenset({0}))
        return Needs()

    def forward(self, io: Pass) -> None:
        x, y, g = io.bottom[0], io.top[0], self.geometry
        if self.max:
            top_mask = io.top[1] if len(io.top) > 1 else None
            self.operation.forward(x, y, io.scratch.get("mask"), top_mask, *self.numbers)
        elif not self.random:
            self.operation.forward(x, y, *self.numbers)
        elif self.phase == TRAIN:
            io.ops.stochastic_pool.forward(x, y, io.scratch.get("mask"), io.scratch["key"], g)
        else:
            io.ops.stochastic_pool_mean.forward(x, y, io.scratch.get("sum"), g)

    def gradient(self, io: Pass, dy: AnyArray, dx: AnyArray) -> None:
        if "mask" in io.scratch:
            self.operation.backward(dy, io.scratch["mask"], dx, *self.numbers)
        elif self.random:
            sums = io.scratch["sum"]
            io.ops.stochastic_pool_mean.backward(dy, io.bottom[0], io.top[0], sums, dx, self.geometry)
        else:
            self.operation.backward(dy, dx, *self.numbers)


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
