"""BatchNorm over slabs, in two passes: moments of every slab, statistics of all together, then every slab by these.

Three layers do the work of one BatchNorm layer with the batch's statistics. Forward: `SlabMomentsLayer` of each slab,
`SlabStatisticsLayer`, `SlabApplyLayer` of each slab. Backward, in reverse: `SlabApplyLayer` adds up the two sums over
all slabs, from the last to the first, in the "gradient" of the statistics; then `SlabMomentsLayer` computes that of
each slab. Operations are those of synchronized BatchNorm, where slabs stand for ranks. The backward reads tops, not
bottoms, so it works in place. In a solver's iterations Scale and ReLU join it (`net/passes/fusion.py`): then backward
reads x, of which everything else is made again where memory is short.
"""

from __future__ import annotations

from collections.abc import Sequence

from ...arrays import AnyArray
from ...ops.axes import around_axis
from ...ops.records import Affine, BatchNorm, Moments, RunningSums
from ...ops.sum_parts import reduction_parts
from ...proto.caffe_pb2 import LayerParameter
from ..base import Declaration, InPlace, Layer, Lives, Needs, Ops, Pass, Role, Shapes, at_least, exactly
from .batch_norm import BatchNormLayer
from .scale import ScaleLayer


class _SlabNorm(Layer):
    """A part of the work of a BatchNorm layer. Bottoms and tops have the names `bottoms` and `tops`."""

    def __init__(self, norm: BatchNormLayer, name: str, bottoms: Sequence[str], tops: Sequence[str]):
        param = LayerParameter()
        param.CopyFrom(norm.param)
        del param.bottom[:], param.top[:]
        param.bottom.extend(bottoms)
        param.top.extend(tops)
        super().__init__(param, norm.context)
        self.norm, self.name, self.type = norm, name, norm.type  # type: ignore[misc]
        self.channels = norm.channels

    def _declare_work(self, shape: tuple[int, ...], *, forward: bool) -> None:
        """Set `grid`, of a slab, and request the workspace of sums over it."""
        self.grid = around_axis(tuple(shape), 1, self.context.channels_last)
        work = 2 * self.channels * (reduction_parts(*self.grid) + 1)
        self.scratch("work", (work,), lives=Lives.CALL, forward=forward, backward=not forward)

    def _declare_plain(self) -> None:
        """Request scratch for `_plain`."""
        self.scratch("plain", (2 * self.channels,), lives=Lives.CALL, forward=False)
        self.scratch("sums", (2 * self.channels,), lives=Lives.CALL, forward=False)

    def _plain(self, io: Pass) -> Moments:
        """Return mean 0 and deviation 1: with these, normalised values take the place of the bottom's."""
        c, plain = self.channels, io.scratch["plain"]
        io.ops.fill(plain[:c], 0)
        io.ops.fill(plain[c:], 1)
        return Moments(plain[:c], plain[c:])


class SlabMomentsLayer(_SlabNorm):
    """Computes the moments of a slab; its backward, the gradient of the slab.

    Bottom 0: the slab of x. Top 0: (2 C + 1): means, variances, number of values of each channel.
    Backward reads, as `io.later`: the slab of y, its gradient, the statistics, their "gradient".
    """

    declares = Declaration(gradients_without_top_diffs=True, any_precision=True, full_precision_tops=True)

    def infer_shapes(self, bottom_shapes: Shapes) -> Shapes:
        return [(2 * self.channels + 1,)]

    def declare(self, bottom_shapes: Shapes, top_shapes: Shapes, ops: Ops) -> None:
        self._declare_work(bottom_shapes[0], forward=True)
        self._declare_plain()

    def backward_needs(self, propagate_down: Sequence[bool], param_propagate: Sequence[bool]) -> Needs:
        return Needs()

    def forward(self, io: Pass) -> None:
        io.ops.sync_norm_moments(io.bottom[0], io.top[0], io.scratch["work"], self.grid)

    def backward(self, io: Pass) -> None:
        c, (y, dy, statistics, found) = self.channels, io.later
        sums, inv_std, items = io.scratch["sums"], statistics[c : 2 * c], statistics[2 * c :]
        io.ops.copy(found[: 2 * c], sums)  # the operation changes them
        moments = self._plain(io)
        io.ops.sync_norm_gradient(y, dy, io.bottom_diff[0], moments, inv_std, sums, items, self.grid)


class SlabStatisticsLayer(_SlabNorm):
    """Computes the statistics of all slabs and updates the running sums.

    Bottoms: the moments of every slab. Top 0: (2 C + 1): means, values of 1 / sqrt(var + eps), number of values.
    Parameters: BatchNorm's.
    """

    declares = Declaration(bottoms=at_least(1), gradients_without_top_diffs=True)

    def __init__(self, norm: BatchNormLayer, name: str, bottoms: Sequence[str], tops: Sequence[str]):
        super().__init__(norm, name, bottoms, tops)
        self.params = norm.params

    def infer_shapes(self, bottom_shapes: Shapes) -> Shapes:
        return [(2 * self.channels + 1,)]

    def declare(self, bottom_shapes: Shapes, top_shapes: Shapes, ops: Ops) -> None:
        grid = around_axis((1, self.channels), 1)  # only its channels count
        self.rule = BatchNorm(grid, self.norm.eps, self.norm.fraction, False)
        self.scratch("gathered", (len(bottom_shapes) * (2 * self.channels + 1),), lives=Lives.CALL, backward=False)

    def forward_needs(self) -> Needs:
        return Needs(bottoms=frozenset(range(len(self.param.bottom))), params=frozenset({0, 1, 2}))

    def forward_updates(self) -> frozenset[int]:
        return frozenset({0, 1, 2})

    def backward_needs(self, propagate_down: Sequence[bool], param_propagate: Sequence[bool]) -> Needs:
        return Needs()

    def forward(self, io: Pass) -> None:
        c, gathered, top = self.channels, io.scratch["gathered"], io.top[0]
        each = 2 * c + 1
        for k, moments in enumerate(io.bottom):
            io.ops.copy(moments, gathered[k * each : (k + 1) * each])
        io.ops.sync_norm_statistics(gathered, _moments(top, c), top[2 * c :], RunningSums(*io.param[:3]), self.rule)

    def backward(self, io: Pass) -> None:
        # force_backward asks for every gradient: that of a statistic, which is never learned, is 0
        for diff, accumulate in zip(io.param_diff, io.accumulate, strict=True):
            if diff is not None and not accumulate:
                io.ops.fill(diff, 0)


class SlabApplyLayer(_SlabNorm):
    """Normalises a slab; its backward adds two sums over the slab to the "gradient" of the statistics.

    Bottom 0: the slab of x. Bottom 1: the statistics. Top 0: the slab of y; may be in place. Backward reads the top.
    """

    declares = Declaration(
        bottoms=exactly(2), in_place=InPlace.ALLOWED, any_precision=True, full_precision=frozenset({1})
    )

    @property
    def role(self) -> Role | None:
        return Role.NORMALISE_SLAB

    def declare(self, bottom_shapes: Shapes, top_shapes: Shapes, ops: Ops) -> None:
        self._declare_work(bottom_shapes[0], forward=False)
        self._declare_plain()

    def backward_needs(self, propagate_down: Sequence[bool], param_propagate: Sequence[bool]) -> Needs:
        return Needs(tops=frozenset({0}))

    def in_place_reuse(self, forward: bool) -> Sequence[tuple[str, int, int]]:
        return (("bottom", 0, 0),) if forward else ()

    def forward(self, io: Pass) -> None:
        io.ops.batch_norm_apply(io.bottom[0], io.top[0], _moments(io.bottom[1], self.channels), self.grid)

    def backward(self, io: Pass) -> None:
        found, sums = io.bottom_diff[1], io.scratch["sums"]
        if found is None:
            return
        io.ops.sync_norm_sums(io.top[0], io.top_diff[0], self._plain(io), sums, io.scratch["work"], self.grid)
        both: list[AnyArray] = [found[: 2 * self.channels], sums] if io.bottom_adds[1] else [sums]
        io.ops.sum_arrays(both, found[: 2 * self.channels])


class FusedSlabApplyLayer(_SlabNorm):
    """y = act(xhat * scale + bias) for a slab, as `SlabApplyLayer`, Scale and ReLU; act: max(., 0), or none.

    Bottom 0: the slab of x. Bottom 1: the statistics. Top 0: the slab of y. Parameters: those of the Scale.
    Backward reads x, with a ReLU y, and overwrites y's gradient with that of the ReLU's input.
    """

    declares = Declaration(
        bottoms=exactly(2), overwrites_top_diffs=True, any_precision=True, full_precision=frozenset({1})
    )

    def __init__(self, param: LayerParameter, apply: SlabApplyLayer, affine: ScaleLayer | None, *, relu: bool):
        super().__init__(apply.norm, param.name, param.bottom, param.top)
        self.affine, self.relu = affine, relu
        self.params = list(affine.params) if affine is not None else []

    def declare(self, bottom_shapes: Shapes, top_shapes: Shapes, ops: Ops) -> None:
        self._declare_work(bottom_shapes[0], forward=False)
        self.scratch("sums", (2 * self.channels,), lives=Lives.CALL, forward=False)

    def backward_needs(self, propagate_down: Sequence[bool], param_propagate: Sequence[bool]) -> Needs:
        return Needs(bottoms=frozenset({0, 1}), tops=frozenset({0} if self.relu else ()))

    def in_place_reuse(self, forward: bool) -> Sequence[tuple[str, int, int]]:
        return (("bottom", 0, 0),) if forward else ()

    def forward(self, io: Pass) -> None:
        affine = Affine(*io.param, *[None] * (2 - len(io.param)))
        moments = _moments(io.bottom[1], self.channels)
        io.ops.fused_norm.forward(io.bottom[0], None, io.top[0], moments, affine, self.relu, self.grid, None)

    def backward(self, io: Pass) -> None:
        c, dy, sums = self.channels, io.top_diff[0], io.scratch["sums"]
        if self.relu:
            io.ops.relu.backward(io.top[0], dy, dy, 0.0)
        moments = _moments(io.bottom[1], c)
        io.ops.sync_norm_sums(io.bottom[0], dy, moments, sums, io.scratch["work"], self.grid)
        for total, diff, add in zip((sums[c:], sums[:c]), io.param_diff, io.accumulate, strict=False):
            if diff is not None:
                io.ops.sum_arrays([diff, total] if add else [total], diff)
        found = io.bottom_diff[1]
        if found is not None:
            io.ops.sum_arrays([found[: 2 * c], sums] if io.bottom_adds[1] else [sums], found[: 2 * c])


class FusedSlabMomentsLayer(SlabMomentsLayer):
    """Does as `SlabMomentsLayer` where `FusedSlabApplyLayer` runs; its backward reads x and the scale.

    Parameters: the scale, if there is one. `io.later`: the gradient that `FusedSlabApplyLayer` left, the statistics,
    their "gradient".
    """

    def __init__(self, moments: SlabMomentsLayer, affine: ScaleLayer | None):
        super().__init__(moments.norm, moments.name, moments.param.bottom, moments.param.top)
        self.params = list(affine.params[:1]) if affine is not None else []

    def declare(self, bottom_shapes: Shapes, top_shapes: Shapes, ops: Ops) -> None:
        self._declare_work(bottom_shapes[0], forward=True)
        self.scratch("sums", (2 * self.channels,), lives=Lives.CALL, forward=False)

    def forward_needs(self) -> Needs:
        return Needs(bottoms=frozenset({0}))

    def backward_needs(self, propagate_down: Sequence[bool], param_propagate: Sequence[bool]) -> Needs:
        return Needs(bottoms=frozenset({0}), params=frozenset(range(len(self.params))))

    def backward(self, io: Pass) -> None:
        c, (dy, statistics, found) = self.channels, io.later
        sums, scale = io.scratch["sums"], io.param[0] if self.params else None
        io.ops.copy(found[: 2 * c], sums)  # the operation changes them
        moments, items = _moments(statistics, c), statistics[2 * c :]
        io.ops.sync_norm_gradient(io.bottom[0], dy, io.bottom_diff[0], moments, scale, sums, items, self.grid)


def _moments(statistics: AnyArray, channels: int) -> Moments:
    return Moments(statistics[:channels], statistics[channels : 2 * channels])
