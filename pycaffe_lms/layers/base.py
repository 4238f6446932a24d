"""The base class of every layer type: it declares what the layer is and needs, and queues its operations.

A layer does not know where memory is, on which device it runs, or when: the net and the LMS planner decide that. It
computes by calls such as `io.ops.relu.forward(x, y, slope)`: each operation has one signature, and one implementation
per device. On the CPU an operation runs at once; on a GPU (real or simulated) it is queued on the compute stream. So
forward and backward must not read the values of device arrays, and never allocate memory.

See `declarations.py` for the records that a layer declares with and receives, `registry.py` for layer types by name,
`net/program/steps.py` for how declarations become steps.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from math import prod
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from google.protobuf.message import Message
from numpy.typing import DTypeLike

from ..arrays import AnyArray, HostArray
from ..errors import BlobCountError, CaffeError, LayerParamError, ShapeError, Where
from ..ops import Ops
from ..proto.caffe_pb2 import FillerParameter, LayerParameter
from .declarations import (
    TEST,
    TRAIN,
    BuildContext,
    Count,
    Declaration,
    Exchange,
    Gradients,
    InPlace,
    Lives,
    Needs,
    ParamRequest,
    Pass,
    Reads,
    Role,
    Rows,
    Runs,
    Scratch,
    Shape,
    at_least,
    between,
    exactly,
)

if TYPE_CHECKING:
    from .loss.base import Labels

__all__ = [
    "TEST",
    "TRAIN",
    "AnyArray",
    "BuildContext",
    "Count",
    "Declaration",
    "Exchange",
    "Gradients",
    "InPlace",
    "Layer",
    "Lives",
    "Needs",
    "Ops",
    "ParamRequest",
    "Pass",
    "Reads",
    "Role",
    "Rows",
    "Runs",
    "Scratch",
    "Shape",
    "Shapes",
    "ShapesChanged",
    "at_least",
    "between",
    "count",
    "exactly",
]

Shapes = Sequence[Shape]
ErrorClass = type[CaffeError]  # within Layer, `type` is the layer's type


class ShapesChanged(Exception):
    """Raised by `read_dynamic_shapes` or `forward` of a layer if values give its tops other shapes.

    From then on the layer's `infer_shapes` returns the new shapes. The net changes its memory, keeps the values
    computed so far, and continues with this layer: it calls both methods again. node: the layer's index in the net, set
    by the executor.
    """

    node: int = -1


class Layer:
    """Base of every layer type.

    Order of calls: __init__, setup, infer_shapes, declare, then forward and backward many times. `infer_shapes` and
    `declare` run again whenever a bottom's shape changes.
    """

    type: ClassVar[str] = ""  # set by register_layer
    declares: Declaration = Declaration()
    blobs: Any = ()  # the net's parameter blobs, once it has memory
    _class_labels: Labels | None = None
    _accumulates_into: frozenset[int] = frozenset()

    def __init__(self, param: LayerParameter, context: BuildContext):
        self.param = param
        self.context = context
        self.name: str = param.name
        self.params: list[ParamRequest] = []
        self.scratches: dict[str, Scratch] = {}
        self.where = Where(layer=param.name, type=param.type)
        self._elsewhere: dict[int, dict[str, int]] = {}  # by rank: where other virtual ranks of this process stand

    def update_context(self, **decisions: Any) -> None:
        """Replace fields of `context` that the net decides before `declare`."""
        self.context = replace(self.context, **decisions)

    @property
    def phase(self) -> int:
        """Return TRAIN or TEST."""
        return self.context.phase

    @property
    def dtype(self) -> np.dtype[Any]:
        """Return the type of the net's blobs and parameters."""
        return self.context.dtype

    # -- declarations: no arrays are read or written ---------------------------------------------------------------
    def setup(self, bottom_shapes: Shapes) -> None:
        """Check the prototxt's fields and request parameters with `add_param`. Runs once, allocates nothing."""

    def infer_shapes(self, bottom_shapes: Shapes) -> Shapes:
        """Return the shapes of the tops, given those of the bottoms. Raises ShapeError. Default: that of bottom 0."""
        return [tuple(bottom_shapes[0])]

    def declare(self, bottom_shapes: Shapes, top_shapes: Shapes, ops: Ops) -> None:
        """Request buffers with `scratch` and choose operations. Runs after every `infer_shapes`."""

    def takes_channels_last(self, bottom_shapes: Shapes, top_shapes: Shapes, ops: Ops) -> bool:
        """Return whether the layer can run on this device if bottoms and tops of 4 or more axes are channels-last.

        With `context.channels_last` these arrays, and parameters in `channels_last_params`, are C-contiguous with their
        channels on the last axis: (N, H, W, C). Shapes in declarations stay (N, C, H, W).
        """
        return self.declares.layout_agnostic

    def prefers_channels_last(self, bottom_shapes: Shapes, top_shapes: Shapes) -> bool:
        """Return whether a layer that takes channels-last runs so even if its bottoms are stored otherwise."""
        return self.declares.prefers_channels_last

    def takes_half(self, bottom_shapes: Shapes, top_shapes: Shapes, ops: Ops) -> bool:
        """Return whether the layer can run if all bottoms and tops, and their gradients, are bfloat16 arrays.

        All but those of `full_precision`, which keep the net's type, as do parameters, their gradients and scratch.
        Called once `context.channels_last` is known; the net's choice is `context.half`.
        """
        return self.declares.layout_agnostic or self.declares.any_precision

    @property
    def splits_over_batch(self) -> bool:
        """Return whether image i of the tops depends on image i of the bottoms alone. After `infer_shapes`."""
        return self.declares.splits_over_batch

    @property
    def splits_over_outputs(self) -> int:
        """Return the outputs that `micro_batch.block_of` can share out among blocks; 0: it cannot. After `setup`."""
        return 0

    def take_outputs(self, n: int) -> None:
        """Become a block of n outputs. Called on a copy of a layer that `splits_over_outputs`."""
        raise AssertionError(f"{type(self).__name__} cannot be cut into blocks of outputs")

    def rows_for(self, first: int, end: int, rows: int) -> Rows | None:
        """Return what the layer needs to make rows first..end - 1 of its tops (axis 2), where its bottoms have `rows`;
        None: it cannot run in slabs. After `infer_shapes`.

        Default: the same rows, of a layer that works element by element.
        """
        own = self.declares
        return Rows((first, end), (first, end)) if own.layout_agnostic and len(self.param.top) > 0 else None

    def take_rows(self, first: int, end: int, rows: int) -> None:
        """Become the layer of one slab, whose bottoms are the rows that `rows_for` returned. Called on a copy."""

    @property
    def labels(self) -> Labels | None:
        """Return which bottom holds labels, and of how many classes; None: no bottom does. After `infer_shapes`."""
        return self._class_labels

    @property
    def accumulates_into(self) -> frozenset[int]:
        """Return the bottoms to whose gradients backward can add, instead of overwriting them. After `declare`."""
        return self._accumulates_into

    @property
    def view_offsets(self) -> Sequence[int]:
        """Return where the bottoms (tops) begin in the one top (bottom) of a layer that only joins (cuts) blobs.

        In elements. Empty: they are not contiguous views of that blob. After `declare`.
        """
        return ()

    @property
    def role(self) -> Role | None:
        """Return the layer's role in a chain of layers that runs as one step; None: it runs alone. After `setup`."""
        return None

    @property
    def exchanges(self) -> bool:
        """Return whether passes exchange arrays with the other ranks of a training, which then run them together.

        Such a layer's `rematerialize` exchanges nothing. After `setup`.
        """
        return False

    def exchanged(self) -> tuple[int, int]:
        """Return how many numbers each rank gives to the others: to be gathered in forward, to be summed in backward.
        For predictions."""
        return 0, 0

    def shares(self) -> dict[int, int]:
        """Return {top index: bottom index} of tops whose data and diff are their bottom's memory (Flatten)."""
        return {}

    def shares_data(self) -> dict[int, int]:
        """Return {top index: bottom index} of tops whose data, but not diff, are their bottom's memory (Split)."""
        return self.shares()

    def forward_needs(self) -> Needs:
        """Return the bottoms and parameters that forward reads. Default: all; none of a layer that runs nowhere."""
        if self.declares.runs_on is Runs.NOWHERE:
            return Needs()
        return Needs(bottoms=frozenset(range(len(self.param.bottom))), params=frozenset(range(len(self.params))))

    def prepare_needs(self) -> Needs | None:
        """Return the bottoms and parameters that `prepare` reads; None: nothing is to prepare. After `declare`.

        Only a layer that runs on the host can have something to prepare on the device.
        """
        return None

    def finished_tops(self) -> frozenset[int]:
        """Return the tops that `finish` writes on the device. After `declare`.

        Only a layer that runs on the host can have some; its forward writes the others.
        """
        return frozenset()

    def rewrites(self, top: int) -> bool:
        """Return whether every forward writes this top; if not, it is constant and `fill_once` writes it."""
        return True

    def fill_once(self, top: int, array: HostArray) -> None:
        """Fill a top that forward does not write. Called on the host, once per shape."""

    def forward_updates(self) -> frozenset[int]:
        """Return the parameters that forward itself changes (running statistics). Default: none."""
        return frozenset()

    def remat_needs(self) -> Needs | None:
        """Return the bottoms and parameters that `rematerialize` reads; None: the layer cannot rematerialize its tops.

        Default: what forward reads, if forward changes nothing but its tops and scratch. After `declare`.
        """
        stateful = any(s.lives is Lives.STATE for s in self.scratches.values())
        own = self.declares
        if own.runs_on is not Runs.DEVICE or own.dynamic_shape_bottoms or self.forward_updates() or stateful:
            return None
        return self.forward_needs()

    def backward_needs(self, propagate_down: Sequence[bool], param_propagate: Sequence[bool]) -> Needs:
        """Return what backward reads. Default: the data named by `declares.backward_reads`, and all parameters; nothing
        if no gradient is wanted.

        Args:
            propagate_down: whether each bottom's gradient is wanted.
            param_propagate: whether each parameter's gradient is wanted.
        """
        if not any(propagate_down) and not any(param_propagate):
            return Needs()
        n_bottom, n_top, reads = len(self.param.bottom), len(self.param.top), self.declares.backward_reads
        return Needs(
            bottoms=frozenset(range(n_bottom)) if Reads.BOTTOM_DATA in reads else frozenset(),
            tops=frozenset(range(n_top)) if Reads.TOP_DATA in reads else frozenset(),
            params=frozenset(range(len(self.params))),
        )

    def in_place_reuse(self, forward: bool) -> Sequence[tuple[str, int, int]]:
        """Return (kind, index, output) for each output that may overwrite an input whose last reader is this pass.

        The input is "bottom" `index`, or in backward "top_diff" `index`; the output is top `output`, or in backward the
        gradient of bottom `output`. Default: the first of each, if the layer can work in place.
        """
        return (("bottom" if forward else "top_diff", 0, 0),) if self.declares.in_place is InPlace.ALLOWED else ()

    def flops(self, bottom_shapes: Shapes, top_shapes: Shapes) -> int:
        """Return the number of operations in forward's products; a multiplication with its addition counts as two."""
        return 0

    def effort(self, forward: bool, again: bool) -> tuple[float, float]:
        """Return how often a pass goes over its bytes and how often a GPU does its operations, to predict its time.

        Args:
            forward: whether the pass is a forward.
            again: whether it is `rematerialize`.
        """
        return 1.0, 1.0

    # -- on the host, between passes -------------------------------------------------------------------------------
    def read_dynamic_shapes(self, values: Sequence[HostArray]) -> None:
        """Find the tops' shapes that depend on values, before every forward.

        Args:
            values: the bottoms in `dynamic_shape_bottoms`, in order.

        Raises:
            ShapesChanged: the tops need other shapes than they have.
        """
        raise AssertionError(f"{type(self).__name__} has no read_dynamic_shapes")

    def next_step_scalars(self) -> dict[str, Sequence[int]]:
        """Return the values of each `step_scalar` for the next forward. Called once before every forward.

        `set_state` with the `state` from before undoes the call.
        """
        return {}

    def device_error(self) -> CaffeError | None:
        """Return an error that queued work found since the last call, or None.

        Called after a net has run, for layers that declare `reports_device_errors`.
        """
        return None

    def join(self, ranks: Exchange | None) -> None:
        """Exchange arrays through `ranks` from now on; None: with no other rank. Called where `exchanges` is true."""
        raise AssertionError(f"{type(self).__name__} has no join")

    # -- the passes: they queue operations --------------------------------------------------------------------------
    def prepare(self, io: Pass) -> None:
        """Queue the operations on the device that come before a forward on the host.

        They write the scratch that lives PREPARED, which alone forward finds in its `io.scratch`, and reads. Tops are
        None. Called again where forward raised ShapesChanged.
        """
        raise AssertionError(f"{type(self).__name__} has no prepare")

    def forward(self, io: Pass) -> None:
        """Queue the operations that compute the tops."""
        raise AssertionError(f"{type(self).__name__} has no forward")

    def finish(self, io: Pass) -> None:
        """Queue the operations on the device that come after a forward on the host.

        They write the `finished_tops` from the scratch that lives MADE, which forward wrote; other tops are None. They
        may run again in one iteration, to rematerialize these tops.
        """
        raise AssertionError(f"{type(self).__name__} has no finish")

    def backward(self, io: Pass) -> None:
        """Queue the operations that compute the wanted gradients.

        Default: `gradient` computes that of bottom 0, unless top 0 has none. All others are zeros.
        """
        for i, dx in enumerate(io.bottom_diff):
            if dx is None:
                continue
            if i == 0 and io.top_diff[0] is not None:
                self.gradient(io, io.top_diff[0], dx)
            else:
                io.ops.fill(dx, 0)

    def gradient(self, io: Pass, dy: AnyArray, dx: AnyArray) -> None:
        """Queue the operation that computes dx, of bottom 0, from dy, of top 0. In place they are the same memory."""
        raise AssertionError(f"{type(self).__name__} has no gradient")

    def rematerialize(self, io: Pass) -> None:
        """Compute the tops of this iteration's forward again, bit-identical, so they need not be stored until then.

        `io` is as in forward. Scratch with `remat_reads` holds what forward wrote; other scratch is written again.
        Default: run forward.
        """
        self.forward(io)

    # -- state that a resumed run needs ----------------------------------------------------------------------------
    def state(self) -> dict[str, int]:
        """Return the integers (positions, random counters) with which a resumed run equals an uninterrupted one."""
        return {}

    def set_state(self, state: dict[str, int]) -> None:
        """Continue from what `state` returned; "records" may be missing, in snapshots of before there was one."""

    def turn_to(self, rank: int, seed: int) -> None:
        """Go on as this layer of another virtual rank, from where that one stood. seed: of its random numbers."""
        state = self.state()
        self._elsewhere[self.context.solver_rank] = state
        first = {key: seed if key == "seed" else 0 for key in state}
        self.update_context(solver_rank=rank, seed=seed)
        if state:
            self.set_state(self._elsewhere.get(rank, first))

    @property
    def seed_of_root(self) -> bool:
        """Return whether the ranks of a training must all have the seed of rank 0, to divide one order of records."""
        return False

    def after(self, state: dict[str, int], forwards: int) -> dict[str, int] | None:
        """Return what `state` will be after some more forwards; None: that cannot be told."""
        return None if state else state

    def jump(self, state: dict[str, int], every: int) -> None:
        """Continue from `state`; of the forwards from there on only every `every`-th will run here, beginning with the
        next. Called before each of them."""
        self.set_state(state)

    def close(self) -> None:
        """Release files and threads."""

    @property
    def public_object(self) -> Any:
        """Return the object that `net.layers` shows for this layer."""
        return self

    # -- helpers for subclasses ------------------------------------------------------------------------------------
    def add_param(
        self,
        shape: Iterable[int],
        filler: FillerParameter | float,
        lr_mult: float = 1.0,
        values: HostArray | None = None,
    ) -> None:
        """Request a parameter of this shape. Its first values are `values`, or else come from `filler`; a number is a
        constant filler of that value."""
        if not isinstance(filler, FillerParameter):
            filler = FillerParameter(type="constant", value=filler)
        self.params.append(ParamRequest(tuple(int(d) for d in shape), filler, lr_mult, values))

    @staticmethod
    def filler_or(options: Message, field: str, constant: float) -> FillerParameter | float:
        """Return the filler in a field of a layer's message, or the number where the prototxt has none."""
        return getattr(options, field) if options.HasField(field) else constant

    def scratch(
        self,
        name: str,
        shape: Iterable[int],
        *,
        dtype: DTypeLike | None = None,
        lives: Lives = Lives.SAVED,
        forward: bool = True,
        backward: bool = True,
        remat_reads: bool = False,
        gradients: Gradients = Gradients.ALL,
    ) -> None:
        """Request a buffer, which passes find as `io.scratch[name]`. The arguments are the fields of `Scratch`.

        dtype None is the net's type. A SAVED buffer exists only if the layer runs backward: forward must use
        `io.scratch.get(name)`.
        """
        if lives is Lives.SAVED and not self.context.needs_backward:
            return
        if lives is Lives.CALL and not forward and not self.context.needs_backward:
            return
        own = self.dtype if dtype is None else np.dtype(dtype)
        size = tuple(int(d) for d in shape)
        backward = backward and self.context.needs_backward
        self.scratches[name] = Scratch(name, size, own, lives, forward, backward, remat_reads, gradients)

    @property
    def saved_if_needed(self) -> Lives:
        """How long scratch lives that forward always writes: SAVED where a backward reads it, else CALL."""
        return Lives.SAVED if self.context.needs_backward else Lives.CALL

    def step_scalar(self, name: str, values: int = 1) -> None:
        """Request uint64 integers that change from forward to forward, with values from `next_step_scalars`.

        Operations get the array `io.scratch[name]`. The net may record what forward and backward queue as a CUDA graph
        and replay it without calling them. So no other number may change between iterations, unless the layer declares
        `cuda_graph_safe=False`.
        """
        dtype, backward = np.dtype(np.uint64), self.context.needs_backward
        self.scratches[name] = Scratch(name, (values,), dtype, Lives.STEP_SCALAR, backward=backward)

    def error(
        self, message: str, *, kind: ErrorClass = LayerParamError, blob: str | None = None, fix: str | None = None
    ) -> CaffeError:
        """Return an error that names this layer, for `raise self.error("...", fix="...")`."""
        return kind(message, fix=fix).at(layer=self.name, type=self.param.type, blob=blob)

    def check_counts(self, n_bottom: int, n_top: int) -> None:
        """Raise BlobCountError unless the layer accepts these numbers of bottoms and tops."""
        for what, n, count in (("bottom", n_bottom, self.declares.bottoms), ("top", n_top, self.declares.tops)):
            if n not in count:
                raise self.error(
                    f"takes {count} {what} blob(s), but {n} given",
                    kind=BlobCountError,
                    fix=f"give the layer {count} `{what}:` line(s)",
                )
        if self.declares.same_count and n_bottom != n_top:
            raise self.error(
                f"needs as many tops as bottoms, but has {n_bottom} bottoms and {n_top} tops",
                kind=BlobCountError,
                fix="give one `top:` line per `bottom:` line",
            )

    def canonical_axis(self, axis: int, ndim: int, *, what: str = "axis") -> int:
        """Return the axis counted from 0; a negative `axis` counts from the end. Raises LayerParamError."""
        if not -ndim <= axis < ndim:
            raise self.error(
                f"{what} {axis} is out of range for a bottom of {ndim} axes", fix=f"use {-ndim} to {ndim - 1}"
            )
        return axis % ndim if ndim else 0

    def check_axes(self, shape: Shape, least: int, *, bottom: int = 0) -> None:
        """Raise ShapeError unless the shape, of bottom number `bottom`, has at least `least` axes."""
        if len(shape) < least:
            found = f"has shape {tuple(shape)}, fewer than {least} axes" if shape else "has no axes"
            fix = f"give a bottom of {least} or more axes, such as ({', '.join('NCHW'[:least])}, ...)"
            raise self.shape_error(found, bottom=bottom, fix=fix)

    def check_same(self, bottom_shapes: Shapes) -> None:
        """Raise ShapeError unless all bottoms have one shape."""
        for i, shape in enumerate(bottom_shapes):
            if tuple(shape) != tuple(bottom_shapes[0]):
                raise self.shape_error(
                    f'has shape {tuple(shape)}, but the first bottom, "{self.param.bottom[0]}", has '
                    f"{tuple(bottom_shapes[0])}",
                    bottom=i,
                    fix="give this layer bottoms of one shape",
                )

    def check_kept(self, what: str, now: int, before: int, *, bottom: int = 0) -> None:
        """Raise ShapeError unless a bottom's number of axes, channels, ... (`what`) is as at `setup`."""
        if now != before:
            raise self.shape_error(
                f"has {now} {what}, but the layer was set up for {before} {what}",
                bottom=bottom,
                fix=f"keep the number of {what}, or build the net anew",
            )

    def shape_error(self, message: str, *, bottom: int | None = None, fix: str | None = None) -> CaffeError:
        """Return a ShapeError that names this layer and bottom number `bottom`."""
        blob = self.param.bottom[bottom] if bottom is not None and bottom < len(self.param.bottom) else None
        return self.error(message, kind=ShapeError, blob=blob, fix=fix)


def count(shape: Sequence[int], start: int = 0, end: int | None = None) -> int:
    """Return the number of elements in axes [start, end) of a shape; without axes, 1."""
    return prod(tuple(shape)[start:end])
