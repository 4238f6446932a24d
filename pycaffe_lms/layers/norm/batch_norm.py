"""BatchNorm, and BN: batch normalisation with a scale and a shift in one layer, as two forks of Caffe write it."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import replace

from ...ops.axes import around_axis
from ...ops.records import Affine, AffineGradients, BatchNorm, Grid, Moments, RunningSums
from ...ops.sum_parts import reduction_parts
from ...proto import caffe_pb2
from ..base import (
    TEST,
    TRAIN,
    AnyArray,
    Declaration,
    Exchange,
    InPlace,
    Layer,
    Lives,
    Needs,
    Ops,
    Pass,
    Role,
    Rows,
    Shape,
    Shapes,
    count,
)
from ..registry import register_layer

_log = logging.getLogger(__name__)
_SEGNET = ("scale_filler", "shift_filler", "bn_mode")
_YJXIONG = ("slope_filler", "bias_filler", "momentum", "eps", "frozen", "engine")
_SEGNET_EPS = 1e-9
_ALL = slice(None)


class _BatchNormed(Layer):
    """A layer that normalises each channel (axis 1), whose top has the bottom's shape."""

    declares = Declaration(in_place=InPlace.ALLOWED)
    channels: int

    def _channels(self, shape: Shape) -> int:
        """Return the number of channels of a bottom. Raises ShapeError."""
        self.check_axes(shape, 2)
        return shape[1]

    def infer_shapes(self, bottom_shapes: Shapes) -> Shapes:
        shape = tuple(bottom_shapes[0])
        self.check_kept("channels", self._channels(shape), self.channels)
        return [shape]

    def takes_channels_last(self, bottom_shapes: Shapes, top_shapes: Shapes, ops: Ops) -> bool:
        return len(bottom_shapes[0]) >= 4


@register_layer("BatchNorm")
class BatchNormLayer(_BatchNormed):
    """y = (x - mean) / sqrt(var + eps), statistics per channel (axis 1) over all other axes.
    With batch_norm_param.scale_bias (or a scale_filler or bias_filler): y = that * scale + bias, both learned.

    With the batch's statistics (TRAIN, or use_global_stats: false) every forward also updates the running sums:
    factor = f * factor + 1, mean = f * mean + batch mean, var = f * var + m / (m - 1) * batch var, where
    f = moving_average_fraction and m = values per channel. With global statistics mean and var are the running sums
    over factor; a factor of 0 makes both 0.
    With stats_batch_size S the batch's statistics are those of S items at a time, one group after the other, each of
    which updates the running sums; N must be a multiple of S. bn_stats_batch_size of the net sets it in every layer.
    With batch_norm_param.sync, where several ranks train together: the batch's statistics, and the two sums over it in
    backward, are those of the batches of all ranks together (synchronized BatchNorm); backward reads the bottom.
    With add_eps_before_sqrt: false, and global statistics only: y = (x - mean) / (sqrt(var) + eps).
    Bottom 0: x, (N, C, ...), or (N) as one channel. Top 0: y, the shape of x; may be in place.
    Parameters: mean (C), var (C), factor (1), never learned; with scale_bias scale (C), first 1, and bias (C), first 0.
    Backward reads, for x's gradient: the top (batch statistics) or nothing; with scale_bias the scale, and the bottom
    (batch statistics). For that of the scale: the bottom.
    An lr_mult of a statistic is taken as 0, with a warning.
    Raises: LayerParamError for scale_bias: false with a filler, sync with stats_batch_size, or add_eps_before_sqrt:
    false with the batch's statistics; ShapeError for no axes, a batch that is no multiple of S, or when C changes.
    Source: BVLC/caffe, src/caffe/layers/batch_norm_layer.cpp (there (N) is refused); scale_bias: NVIDIA/caffe, same
    file (there the running values are averages and the factor is always 1: its weights can be loaded unchanged);
    stats_batch_size: intel/caffe, same file; add_eps_before_sqrt: foss-for-synopsys-dwc-arc-processors/synopsys-caffe,
    same file.
    """

    declares = replace(_BatchNormed.declares, any_precision=True)
    _ranks: Exchange | None = None
    groups = 1  # of items with statistics of their own
    _group = 0  # items of each; 0: all

    def setup(self, bottom_shapes: Shapes) -> None:
        bn = self.param.batch_norm_param
        self.use_global = bn.use_global_stats if bn.HasField("use_global_stats") else self.phase == TEST
        self.fraction, self.eps, self.outside = bn.moving_average_fraction, bn.eps, not bn.add_eps_before_sqrt
        if self.outside and not self.use_global:
            raise self.error(
                "has add_eps_before_sqrt: false, which only global statistics can have here",
                fix="write use_global_stats: true, or delete add_eps_before_sqrt",
            )
        fillers = [f for f in ("scale_filler", "bias_filler") if bn.HasField(f)]
        if fillers and bn.HasField("scale_bias") and not bn.scale_bias:
            raise self.error(
                f"has scale_bias: false and {fillers[0]}", fix=f"write scale_bias: true or no {fillers[0]}"
            )
        self.scaled = bn.scale_bias or bool(fillers)
        self._sync = bn.sync and self.phase == TRAIN and not self.use_global and self.context.solver_count > 1
        self._group = 0 if self.use_global else bn.stats_batch_size
        if bn.sync and bn.stats_batch_size:
            raise self.error(
                "sync and stats_batch_size are both set: statistics of all ranks, or of a part of one's batch",
                fix="keep one of them",
            )
        for i, spec in enumerate(self.param.param[:3]):
            if spec.lr_mult != 0:
                _log.warning(
                    "%s: lr_mult %g of param %d is taken as 0: running statistics are not learned",
                    self.where,
                    spec.lr_mult,
                    i,
                )
                spec.lr_mult = 0
        self.channels = self._channels(bottom_shapes[0])
        for shape in ((self.channels,), (self.channels,), (1,)):
            self.add_param(shape, 0, lr_mult=0)
        if self.scaled:
            self.add_param((self.channels,), self.filler_or(bn, "scale_filler", 1))
            self.add_param((self.channels,), self.filler_or(bn, "bias_filler", 0))

    @property
    def role(self) -> Role | None:
        return None if self.scaled or self._sync or self._group else Role.NORMALISE

    def rows_for(self, first: int, end: int, rows: int) -> Rows | None:
        return Rows((first, end), (first, end)) if self.use_global else None

    @property
    def splits_over_slabs(self) -> bool:
        """Return whether the layers of `slab_norm.py` can do its work, two passes over slabs. After `setup`."""
        return not (self.use_global or self._sync or self._group or self.scaled)

    @property
    def exchanges(self) -> bool:
        return self._sync

    def exchanged(self) -> tuple[int, int]:
        return (2 * self.channels + 1, 2 * self.channels) if self._sync else (0, 0)

    def join(self, ranks: Exchange | None) -> None:
        self._ranks = ranks
        self.declares = replace(self.declares, cuda_graph_safe=ranks is None or ranks.can_capture)

    def _channels(self, shape: Shape) -> int:
        self.check_axes(shape, 1)
        return shape[1] if len(shape) > 1 else 1

    def infer_shapes(self, bottom_shapes: Shapes) -> Shapes:
        items = bottom_shapes[0][0] if bottom_shapes[0] else 0
        if self._group and items % self._group:
            raise self.shape_error(
                f"has {items} items, no multiple of stats_batch_size {self._group}",
                bottom=0,
                fix="use a batch_size that is a multiple, or delete stats_batch_size (bn_stats_batch_size of the net)",
            )
        self.groups = max(1, items // self._group) if self._group else 1
        return super().infer_shapes(bottom_shapes)

    def declare(self, bottom_shapes: Shapes, top_shapes: Shapes, ops: Ops) -> None:
        shape, c = tuple(bottom_shapes[0]), self.channels
        shape = (shape[0] // self.groups, *shape[1:])  # of one group
        grid = around_axis(shape, 1, self.context.channels_last) if len(shape) > 1 else Grid(count(shape), c, 1)
        self.rule = BatchNorm(grid, self.eps, self.fraction, self.use_global, self.outside)
        if self.use_global:
            self.operation = ops.batch_norm_scaled_global if self.scaled else ops.batch_norm_global
        else:
            self.operation = ops.batch_norm_scaled_train if self.scaled else ops.batch_norm_train
        kept = self.saved_if_needed
        moments = (self.groups * c,)
        self.scratch("inv_std", moments, lives=kept, remat_reads=not self.use_global)
        self.scratch("mean", moments, lives=kept, backward=self.scaled or self._sync, remat_reads=not self.use_global)
        if self.scaled or not self.use_global:
            work = 2 * c * (reduction_parts(*grid) + 1)
            self.scratch("work", (work,), lives=Lives.CALL, forward=not self.use_global)
        if self._sync:
            self.scratch("gathered", (self.context.solver_count * (2 * c + 1),), lives=Lives.CALL, backward=False)
            self.scratch("items", (1,), lives=kept, remat_reads=True)
            self.scratch("sums", (2 * c,), lives=Lives.CALL, forward=False)

    def forward_needs(self) -> Needs:
        statistics = {0, 1, 2} if self.use_global else set()
        return Needs(bottoms=frozenset({0}), params=frozenset(statistics | set(range(3, len(self.params)))))

    def forward_updates(self) -> frozenset[int]:
        return frozenset() if self.use_global else frozenset({0, 1, 2})

    def remat_needs(self) -> Needs | None:
        return Needs(bottoms=frozenset({0}), params=frozenset(range(0 if self.use_global else 3, len(self.params))))

    def backward_needs(self, propagate_down: Sequence[bool], param_propagate: Sequence[bool]) -> Needs:
        values = frozenset({0}) if propagate_down[0] and not self.use_global else frozenset()
        if self._sync:
            scale = frozenset({3}) if self.scaled and propagate_down[0] else frozenset()
            return Needs(bottoms=values | ({0} if any(param_propagate[3:]) else set()), params=scale)
        if not self.scaled:
            return Needs(tops=values)
        scale = frozenset({3}) if propagate_down[0] else frozenset()
        return Needs(bottoms=frozenset({0}) if param_propagate[3] else values, params=scale)

    def forward(self, io: Pass) -> None:
        if self._sync:
            self._sync_forward(io)
            return
        affine = (Affine(*io.param[3:]),) if self.scaled else ()
        work = () if self.use_global else (io.scratch["work"],)
        for group, part in self._groups():
            arrays = io.bottom[0][group], io.top[0][group], self._moments(io, part), RunningSums(*io.param[:3]), *affine
            self.operation.forward(*arrays, *work, self.rule)

    def _sync_forward(self, io: Pass) -> None:
        """Normalise by the statistics of all ranks; by this one's alone before they are joined."""
        gathered, each = io.scratch["gathered"], 2 * self.channels + 1
        size, rank = (self._ranks.size, self._ranks.rank) if self._ranks is not None else (1, 0)
        parts = [gathered[r * each : (r + 1) * each] for r in range(size)]
        io.ops.sync_norm_moments(io.bottom[0], parts[rank], io.scratch["work"], self.rule.grid)
        if self._ranks is not None:
            self._ranks.all_gather(parts)
        sums = RunningSums(*io.param[:3])
        io.ops.sync_norm_statistics(gathered[: size * each], self._moments(io), io.scratch["items"], sums, self.rule)
        self.rematerialize(io)

    def _sync_backward(self, io: Pass) -> None:
        """Compute the gradients; those of scale and bias are of this rank's batch, as of every other parameter."""
        x, dy, dx = io.bottom[0], io.top_diff[0], io.bottom_diff[0]
        c, sums, moments, grid = self.channels, io.scratch["sums"], self._moments(io), self.rule.grid
        if x is None:  # no gradient is wanted
            return
        io.ops.sync_norm_sums(x, dy, moments, sums, io.scratch["work"], grid)
        for total, diff, add in zip((sums[c:], sums[:c]), io.param_diff[3:], io.accumulate[3:], strict=False):
            if diff is not None:
                io.ops.sum_arrays([diff, total] if add else [total], diff)
        if dx is None:
            return
        if self._ranks is not None:
            self._ranks.sum([sums])
        scale = io.param[3] if self.scaled else None
        io.ops.sync_norm_gradient(x, dy, dx, moments, scale, sums, io.scratch["items"], grid)

    def _moments(self, io: Pass, part: slice = _ALL) -> Moments:
        return Moments(io.scratch["mean"][part], io.scratch["inv_std"][part])

    def _groups(self) -> Iterator[tuple[slice, slice]]:
        """Yield, of items that share statistics, the items and the place of these among all statistics."""
        if self.groups == 1:
            yield _ALL, _ALL
            return
        items, c = self._group, self.channels
        for k in range(self.groups):
            yield slice(k * items, (k + 1) * items), slice(k * c, (k + 1) * c)

    def effort(self, forward: bool, again: bool) -> tuple[float, float]:
        if again or self.use_global:
            return 1.0, 1.0
        return (1.4 if forward else 1.6), 1.0  # statistics first, then the values

    def rematerialize(self, io: Pass) -> None:
        if self.use_global:
            self.forward(io)
            return
        for group, part in self._groups():
            arrays = io.bottom[0][group], io.top[0][group], self._moments(io, part)
            if self.scaled:
                io.ops.batch_norm_scaled_apply(*arrays, Affine(*io.param[3:]), self.rule.grid)
            else:
                io.ops.batch_norm_apply(*arrays, self.rule.grid)

    def backward(self, io: Pass) -> None:
        # force_backward asks for every gradient: that of a statistic, which is never learned, is 0
        for diff, accumulate in zip(io.param_diff[:3], io.accumulate[:3], strict=True):
            if diff is not None and not accumulate:
                io.ops.fill(diff, 0)
        if self._sync:
            self._sync_backward(io)
            return
        dy, dx = io.top_diff[0], io.bottom_diff[0]
        if not self.scaled and dx is None:
            return
        for k, (group, part) in enumerate(self._groups()):
            dy_part, dx_part = dy[group], _part(dx, group)
            if self.scaled:
                gradients = AffineGradients(*io.param_diff[3:], *(k > 0 or bool(add) for add in io.accumulate[3:]))
                values = _part(io.bottom[0], group), dy_part, dx_part, self._moments(io, part), io.param[3], gradients
                io.ops.batch_norm_scaled.backward(*values, io.scratch["work"], self.rule)
            elif self.use_global:
                io.ops.batch_norm_global.backward(dy_part, dx_part, io.scratch["inv_std"][part], self.rule.grid)
            else:
                y, inv_std = io.top[0][group], io.scratch["inv_std"][part]
                io.ops.batch_norm.backward(y, dy_part, dx_part, inv_std, io.scratch["work"], self.rule.grid)


def _part(values: AnyArray | None, items: slice) -> AnyArray | None:
    return None if values is None else values[items]


@register_layer("BN")
class BNLayer(_BatchNormed):
    """y = scale * (x - mean) / sqrt(var + eps) + shift, per channel (axis 1); var is the biased variance.

    The fields of bn_param tell the dialect. With scale_filler, shift_filler or bn_mode it is SegNet's: always the
    batch's statistics, eps 1e-9; bn_mode INFERENCE: y = scale * x + shift. Else it is yjxiong's: in TRAIN the batch's
    statistics, with mean = momentum * mean + (1 - momentum) * batch mean (var likewise); in TEST the running ones, and
    with `frozen` in both, which also makes the lr_mult of every blob 0, whatever the prototxt says.
    Bottom 0: x, (N, C, ...). Top 0: the shape of x; may be in place.
    Parameters, all (1, C, 1, 1): scale, shift, and in yjxiong's running mean and var, never learned. Without a filler
    scale starts at 1, shift at 0 (in the forks scale starts at 0).
    Backward reads the scale, and x in INFERENCE; the normalised x is saved.
    Raises: LayerParamError for fields of both dialects; ShapeError for fewer than 2 axes, or when C changes.
    Source: alexgkendall/caffe-segnet, and yjxiong/caffe as hszhao/PSPNet has it, src/caffe/layers/bn_layer.cpp.
    """

    def setup(self, bottom_shapes: Shapes) -> None:
        bn = self.param.bn_param
        given = [[name for name in names if bn.HasField(name)] for names in (_SEGNET, _YJXIONG)]
        if all(given):
            raise self.error(
                f"bn_param mixes {given[0][0]} of SegNet's BN with {given[1][0]} of yjxiong's",
                fix="keep the fields of the fork that the model comes from",
            )
        segnet = bool(given[0])
        self.channels = c = self._channels(bottom_shapes[0])
        self.affine = segnet and bn.bn_mode == caffe_pb2.BNParameter.INFERENCE
        self.frozen = bn.frozen and not segnet
        self.use_global = not segnet and (self.frozen or self.phase == TEST)
        self.moves = not segnet and not self.use_global
        self.momentum, self.eps = bn.momentum, _SEGNET_EPS if segnet else bn.eps
        shape = (1, c, 1, 1)
        for name, first in zip(_SEGNET if segnet else _YJXIONG, (1, 0), strict=False):
            self.add_param(shape, self.filler_or(bn, name, first), lr_mult=0 if self.frozen else 1)
        if not segnet:
            self.add_param(shape, 0, lr_mult=0)
            self.add_param(shape, 1 if self.frozen else 0, lr_mult=0)
        for spec in self.param.param[0 if self.frozen else 2 :]:
            spec.lr_mult = spec.decay_mult = 0

    def declare(self, bottom_shapes: Shapes, top_shapes: Shapes, ops: Ops) -> None:
        shape, c = tuple(bottom_shapes[0]), self.channels
        self.grid = around_axis(shape, 1, self.context.channels_last)
        self.rule = BatchNorm(self.grid, self.eps, use_global=self.use_global)
        self.scratch("work", (2 * c * (reduction_parts(*self.grid) + 1),), lives=Lives.CALL)
        if self.affine:
            return
        self.scratch("inv_std", (c,), lives=self.saved_if_needed)
        self.scratch("mean", (c,), lives=Lives.CALL, backward=False)
        self.scratch("running", (2 * c + 1,), lives=Lives.CALL, backward=False)
        if not self.frozen:
            self.scratch("normal", shape)

    def forward_needs(self) -> Needs:
        return Needs(bottoms=frozenset({0}), params=frozenset(range(4 if self.use_global else 2)))

    def forward_updates(self) -> frozenset[int]:
        return frozenset({2, 3}) if self.moves else frozenset()

    def backward_needs(self, propagate_down: Sequence[bool], param_propagate: Sequence[bool]) -> Needs:
        return Needs(
            bottoms=frozenset({0}) if self.affine and param_propagate[0] else frozenset(),
            params=frozenset({0}) if propagate_down[0] else frozenset(),
        )

    def forward(self, io: Pass) -> None:
        x, y = io.bottom[0], io.top[0]
        if not self.affine:
            x = self._normalise(io, x, io.scratch.get("normal", y))
        io.ops.scale.forward(x, Affine(io.param[0], io.param[1]), y, self.grid)

    def _normalise(self, io: Pass, x: AnyArray, out: AnyArray) -> AnyArray:
        """Write the normalised x into `out`, move the running statistics, and return `out`."""
        c, running = self.channels, io.scratch["running"]
        arrays = x, out, Moments(io.scratch["mean"], io.scratch["inv_std"])
        if self.use_global:
            one = running[2 * c :]
            io.ops.fill(one, 1)
            sums = RunningSums(io.param[2].reshape(-1), io.param[3].reshape(-1), one)
            io.ops.batch_norm_global.forward(*arrays, sums, self.rule)
            return out
        # running sums of BatchNorm that start at 0 become this batch's mean, and its variance times m / (m - 1)
        io.ops.fill(running, 0)
        batch = RunningSums(running[:c], running[c : 2 * c], running[2 * c :])
        io.ops.batch_norm_train.forward(*arrays, batch, io.scratch["work"], self.rule)
        items = self.grid.outer * self.grid.inner
        if self.moves and items:
            for i, unbias in ((0, 1.0), (1, (items - 1) / items if items > 1 else 1.0)):
                io.ops.moving_average(batch[i], io.param[2 + i], self.momentum, (1 - self.momentum) * unbias)
        return out

    def backward(self, io: Pass) -> None:
        dy, dx, work = io.top_diff[0], io.bottom_diff[0], io.scratch["work"]
        normal = io.bottom[0] if self.affine else io.scratch.get("normal")
        learned = 0 if self.frozen else 2
        for diff, accumulate in zip(io.param_diff[learned:], io.accumulate[learned:], strict=True):
            if diff is not None and not accumulate:
                io.ops.fill(diff, 0)
        ds, db = (None, None) if self.frozen else io.param_diff[:2]
        if dx is not None or ds is not None or db is not None:
            gradients = AffineGradients(ds, db, bool(io.accumulate[0]), bool(io.accumulate[1]))
            io.ops.scale.backward(normal, io.param[0], dy, dx, gradients, work, self.grid)
        if dx is None:
            return
        if self.use_global:
            io.ops.batch_norm_global.backward(dx, dx, io.scratch["inv_std"], self.grid)
        elif not self.affine:
            io.ops.batch_norm.backward(normal, dx, dx, io.scratch["inv_std"], work, self.grid)
