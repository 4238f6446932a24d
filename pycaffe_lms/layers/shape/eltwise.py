"""Eltwise, Axpy and MaskPooling: bottoms become one, element by element."""

from __future__ import annotations

from collections.abc import Sequence

from ...errors import BlobCountError
from ...ops.geometry import integer_dtype
from ...ops.records import Grid
from ...ops.sum_parts import reduction_parts, tile_parts
from ...proto import caffe_pb2
from ..base import AnyArray, Declaration, Layer, Lives, Needs, Ops, Pass, Role, Shapes, at_least, count, exactly
from ..registry import register_layer

_SUM, _PROD, _MAX = (caffe_pb2.EltwiseParameter.EltwiseOp.Value(name) for name in ("SUM", "PROD", "MAX"))


@register_layer("Eltwise")
class EltwiseLayer(Layer):
    """SUM: y = sum of coeff_i * x_i (coeff: none, or one per bottom). PROD: y = product. MAX: y = maximum.

    Bottoms: two or more of one shape; of SUM one will do (FlowNet 2). Top 0: y, of that shape.
    MAX: where bottoms 0 and 1 are equal, 1 is chosen; a later bottom only where it is strictly greater.
    Backward reads: SUM nothing; PROD the other bottoms, or, with stable_prod_grad: false, the top and the bottom itself
    (dx = y / x * dy, NaN where x is 0); MAX the choice that forward saved.
    Raises: LayerParamError for coeff with PROD, or another number of coeff than of bottoms; ShapeError.
    Source: BVLC/caffe and lmb-freiburg/flownet2, src/caffe/layers/eltwise_layer.cpp.
    """

    declares = Declaration(bottoms=at_least(1), splits_over_batch=True, layout_agnostic=True)

    def setup(self, bottom_shapes: Shapes) -> None:
        eltwise = self.param.eltwise_param
        self.operation, self.stable = eltwise.operation, eltwise.stable_prod_grad
        n, given = len(bottom_shapes), list(eltwise.coeff)
        if n < 2 and self.operation != _SUM:
            raise self.error(
                "takes at least 2 bottom blob(s), but 1 given",
                kind=BlobCountError,
                fix="give it another, or leave it out",
            )
        if given and self.operation == _PROD:
            raise self.error("coeff has no meaning for PROD", fix="drop coeff, or use operation: SUM")
        if given and len(given) != n and self.operation == _SUM:
            raise self.error(f"{len(given)} coeff for {n} bottoms", fix=f"write {n} coeff lines, or none")
        self.coeff = given or [1.0] * n

    @property
    def role(self) -> Role | None:
        plain = self.operation == _SUM and self.coeff == [1.0, 1.0]
        return Role.ADD if plain else None

    def infer_shapes(self, bottom_shapes: Shapes) -> Shapes:
        self.check_same(bottom_shapes)
        return super().infer_shapes(bottom_shapes)

    def declare(self, bottom_shapes: Shapes, top_shapes: Shapes, ops: Ops) -> None:
        if self.operation == _MAX:
            self.scratch("mask", top_shapes[0], dtype=integer_dtype(len(bottom_shapes)))

    def backward_needs(self, propagate_down: Sequence[bool], param_propagate: Sequence[bool]) -> Needs:
        wanted = {i for i, p in enumerate(propagate_down) if p}
        if self.operation != _PROD or not wanted:
            return Needs()
        if not self.stable:
            return Needs(bottoms=frozenset(wanted), tops=frozenset({0}))
        others = {j for i in wanted for j in range(len(propagate_down)) if j != i}
        return Needs(bottoms=frozenset(others))

    def in_place_reuse(self, forward: bool) -> Sequence[tuple[str, int, int]]:
        if forward or self.operation != _SUM:
            return ()
        return tuple(("top_diff", 0, i) for i, coeff in enumerate(self.coeff) if coeff == 1)  # dx is dy itself

    def _mask(self, io: Pass, like: AnyArray) -> AnyArray:
        """Return the saved choice as an array in the shape and memory order of `like`; None if none is saved."""
        mask = io.scratch.get("mask")
        return None if mask is None else mask.reshape(like.shape)

    def forward(self, io: Pass) -> None:
        if len(io.bottom) == 1:
            io.ops.eltwise_sum.backward(io.bottom[0], [io.top[0]], self.coeff)  # a multiple, in either direction
        elif self.operation == _SUM:
            io.ops.eltwise_sum.forward(list(io.bottom), self.coeff, io.top[0])
        elif self.operation == _PROD:
            io.ops.eltwise_prod.forward(list(io.bottom), io.top[0])
        else:
            io.ops.eltwise_max.forward(list(io.bottom), io.top[0], self._mask(io, io.top[0]))

    def backward(self, io: Pass) -> None:
        dy = io.top_diff[0]
        wanted = [(i, dx) for i, dx in enumerate(io.bottom_diff) if dx is not None]
        if self.operation == _SUM and wanted:
            io.ops.eltwise_sum.backward(dy, [dx for _, dx in wanted], [self.coeff[i] for i, _ in wanted])
            return
        if self.operation == _MAX and wanted:
            io.ops.eltwise_max.backward(dy, self._mask(io, dy), [i for i, _ in wanted], [dx for _, dx in wanted])
            return
        for i, dx in wanted:
            if self.stable:
                io.ops.eltwise_prod.backward([x for j, x in enumerate(io.bottom) if j != i], dy, dx)
            else:
                io.ops.eltwise_prod.backward_unstable(io.bottom[i], io.top[0], dy, dx)


@register_layer("Axpy")
class AxpyLayer(Layer):
    """top = a * x + y, one factor for each channel of each item.

    Bottom 0: a, (N, C) or (N, C, 1, 1). Bottom 1: x, (N, C, ...). Bottom 2: y, the shape of x. Top 0: the shape of x.
    Backward reads x for the gradient of a, a for that of x, nothing for that of y.
    Raises: ShapeError for shapes other than these.
    Source: hujie-frank/SENet, src/caffe/layers/axpy_layer.cpp.
    """

    declares = Declaration(bottoms=exactly(3), splits_over_batch=True)

    def infer_shapes(self, bottom_shapes: Shapes) -> Shapes:
        a, x, y = (tuple(shape) for shape in bottom_shapes)
        if len(x) < 2 or a[:2] != x[:2] or count(a, 2) != 1:
            raise self.shape_error(
                f'has shape {a}, but "{self.param.bottom[1]}" has {x}',
                bottom=0,
                fix="give one factor per channel: (N, C) or (N, C, 1, 1) for an x of shape (N, C, ...)",
            )
        if x != y:
            raise self.shape_error(
                f'has shape {y}, but "{self.param.bottom[1]}" has {x}', bottom=2, fix="give x and y the same shape"
            )
        self.grid = Grid(1, count(x, 0, 2), count(x, 2))
        return [x]

    def declare(self, bottom_shapes: Shapes, top_shapes: Shapes, ops: Ops) -> None:
        self.scratch("work", (self.grid.channels * reduction_parts(*self.grid),), lives=Lives.CALL, forward=False)

    def backward_needs(self, propagate_down: Sequence[bool], param_propagate: Sequence[bool]) -> Needs:
        return Needs(bottoms=frozenset(1 - i for i in (0, 1) if propagate_down[i]))

    def forward(self, io: Pass) -> None:
        io.ops.axpy.forward(*io.bottom, io.top[0], self.grid)

    def backward(self, io: Pass) -> None:
        (a, x, _), (da, dx, dy), dtop = io.bottom, io.bottom_diff, io.top_diff[0]
        if da is not None or dx is not None or dy is not None:
            io.ops.axpy.backward(a, x, dtop, da, dx, dy, io.scratch["work"], self.grid)


@register_layer("MaskPooling")
class MaskPoolingLayer(Layer):
    """y = x times a mask, one number for each position of each item (MNC).

    Bottom 0: x, (N, C, H, W). Bottom 1: the mask, (N, 1, H, W). Top 0: the shape of x. Backward reads the mask for the
    gradient of x, and x for that of the mask.
    Raises: ShapeError for shapes other than these.
    Source: daijifeng001/caffe-mnc, src/caffe/layers/mask_pooling_layer.cu.
    """

    declares = Declaration(bottoms=exactly(2), splits_over_batch=True)

    def infer_shapes(self, bottom_shapes: Shapes) -> Shapes:
        x, mask = (tuple(shape) for shape in bottom_shapes)
        if len(x) != 4 or mask != (x[0], 1, *x[2:]):
            raise self.shape_error(
                f'has shape {mask}, but "{self.param.bottom[0]}" has {x}',
                bottom=1,
                fix="give (N, C, H, W) and (N, 1, H, W)",
            )
        self.size = x[0], x[1], count(x, 2)
        return [x]

    def declare(self, bottom_shapes: Shapes, top_shapes: Shapes, ops: Ops) -> None:
        self.scratch("spread", top_shapes[0], lives=Lives.CALL)
        self.parts = tile_parts(*self.size)
        self.scratch("work", (self.parts * self.size[0] * self.size[2],), lives=Lives.CALL, forward=False)

    def backward_needs(self, propagate_down: Sequence[bool], param_propagate: Sequence[bool]) -> Needs:
        return Needs(bottoms=frozenset(1 - i for i in (0, 1) if propagate_down[i]))

    def forward(self, io: Pass) -> None:
        spread = io.scratch["spread"]
        io.ops.tile.forward(io.bottom[1], spread, *self.size)
        io.ops.eltwise_prod.forward([io.bottom[0], spread], io.top[0])

    def backward(self, io: Pass) -> None:
        (dx, dmask), dy, spread = io.bottom_diff, io.top_diff[0], io.scratch["spread"]
        if dy is None:
            for gradient in (dx, dmask):
                if gradient is not None:
                    io.ops.fill(gradient, 0)
            return
        if dx is not None:
            io.ops.tile.forward(io.bottom[1], spread, *self.size)
            io.ops.eltwise_prod.backward([spread], dy, dx)
        if dmask is not None:
            io.ops.eltwise_prod.backward([io.bottom[0]], dy, spread)
            io.ops.tile.backward(spread, dmask, io.scratch["work"], self.parts, *self.size)
