"""The layer contract: a type declares what it is and needs, and queues the operations of forward and backward.

A layer knows nothing of memory, devices and programs: the net and the LMS planner decide. Its arithmetic is calls of
`io.ops`, such as `io.ops.relu.forward(x, y, slope)`: one signature per operation, one implementation per device. On the
CPU an operation runs at once; on a GPU (real or simulated) it is queued on the compute stream. So forward and backward
are host code that queues work: they must not look at values of device arrays, and never allocate.

See `declarations.py` for the records that layers declare with and are handed, `registry.py` for types by name,
`net/program/steps.py` for what becomes of declarations.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import DTypeLike

from ..arrays import HostArray
from ..errors import BlobCountError, CaffeError, LayerParamError, ShapeError, Where
from ..ops import Ops
from ..proto.caffe_pb2 import FillerParameter, LayerParameter
from .declarations import (
    TEST,
    TRAIN,
    BuildContext,
    Count,
    Declaration,
    Gradients,
    InPlace,
    Lives,
    Needs,
    ParamRequest,
    Pass,
    Reads,
    Role,
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
    "BuildContext",
    "Count",
    "Declaration",
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
ErrorClass = type[CaffeError]


class ShapesChanged(Exception):
    """Raised in `read_dynamic_shapes` or `forward` by a layer whose tops need other shapes, because of values.

    `infer_shapes` returns the new ones from then on. The net follows with memory, keeps the values computed so far, and
    goes on with this layer: both methods are called again. node: its index, set by the executor.
    """

    node: int = -1


class Layer:
    """Base of every layer type. Life: __init__ -> setup -> infer_shapes -> declare -> (forward, backward)*, where
    `infer_shapes` and `declare` run again whenever a bottom's shape changes."""

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

    def update_context(self, **decisions: Any) -> None:
        """Replace fields of `context`: what the net decides before `declare`."""
        self.context = replace(self.context, **decisions)

    @property
    def phase(self) -> int:
        """TRAIN or TEST."""
        return self.context.phase

    @property
    def dtype(self) -> np.dtype[Any]:
        """The type of the net's blobs and parameters."""
        return self.context.dtype

    # -- declarations: pure ------------------------------------------------------------------------------------
    def setup(self, bottom_shapes: Shapes) -> None:
        """Check the parameters and ask for learnable blobs with `add_param`. Runs once, allocates nothing."""

    def infer_shapes(self, bottom_shapes: Shapes) -> Shapes:
        """Return the shapes of the tops, from those of the bottoms. Raises ShapeError through `self.error`."""
        raise AssertionError(f"{type(self).__name__} has no infer_shapes")

    def declare(self, bottom_shapes: Shapes, top_shapes: Shapes, ops: Ops) -> None:
        """Ask for scratch with `self.scratch(...)` and choose operations; called after every `infer_shapes`."""

    def takes_channels_last(self, bottom_shapes: Shapes, top_shapes: Shapes, ops: Ops) -> bool:
        """Return whether the layer can run with all bottoms and tops of 4 or more axes channels-last on this device.

        With `context.channels_last` those arrays arrive C-contiguous with their channels behind the other axes:
        (N, H, W, C); parameters of `channels_last_params` too. Shapes in declarations stay (N, C, H, W).
        """
        return self.declares.layout_agnostic

    def takes_half(self, bottom_shapes: Shapes, top_shapes: Shapes, ops: Ops) -> bool:
        """Return whether the layer can run with all bottoms and tops, and their gradients, as bfloat16 arrays.

        Asked after `context.channels_last` is chosen; `context.half` says whether the net chooses so. Parameters, their
        gradients and scratch keep their types.
        """
        return self.declares.layout_agnostic

    @property
    def splits_over_batch(self) -> bool:
        """Whether image i of the tops is a function of image i of the bottoms alone. After `infer_shapes`."""
        return self.declares.splits_over_batch

    @property
    def splits_over_outputs(self) -> int:
        """The most blocks that `block_of` can cut it into (`net/passes/regions.py`); 0: none. After `setup`."""
        return 0

    def take_outputs(self, n: int) -> None:
        """Become a block of n outputs, of a layer that `splits_over_outputs`."""
        raise AssertionError(f"{type(self).__name__} cannot be cut into blocks of outputs")

    @property
    def labels(self) -> Labels | None:
        """Which bottom holds labels that must name classes; None: no bottom. After `infer_shapes`."""
        return self._class_labels

    @property
    def accumulates_into(self) -> frozenset[int]:
        """Bottoms to whose gradient backward can add. After `declare`."""
        return self._accumulates_into

    @property
    def view_offsets(self) -> Sequence[int]:
        """Where, in the one top (or bottom), the many bottoms (or tops) begin that forward only copies. In elements;
        empty where they are no contiguous views of it. After `declare`."""
        return ()

    @property
    def role(self) -> Role | None:
        """The part it can play in a chain of layers that runs as one; None: it runs alone. After `setup`."""
        return None

    def shares(self) -> dict[int, int]:
        """Return {top index: bottom index} of tops that are their bottom's memory, data and diff (Flatten)."""
        return {}

    def shares_data(self) -> dict[int, int]:
        """Return {top index: bottom index} of tops whose data, but not diff, are their bottom's memory (Split)."""
        return self.shares()

    def forward_needs(self) -> Needs:
        """Return the bottom data and parameters that forward reads. Default: all; none of a layer that runs nowhere."""
        if self.declares.runs_on is Runs.NOWHERE:
            return Needs()
        return Needs(bottoms=frozenset(range(len(self.param.bottom))), params=frozenset(range(len(self.params))))

    def rewrites(self, top: int) -> bool:
        """Return whether every forward writes this top. Others (constants) are written by `fill_once`."""
        return True

    def fill_once(self, top: int, array: HostArray) -> None:
        """Fill a top that forward does not write; called once per shape, on the host."""

    def forward_updates(self) -> frozenset[int]:
        """Return the parameters that forward itself changes (running statistics). Default: none."""
        return frozenset()

    def remat_needs(self) -> Needs | None:
        """Return the bottom data and parameters that `rematerialize` reads; None: it cannot run again.

        Default: what forward reads, if forward changes nothing but its tops and scratch. Called after `declare`.
        """
        stateful = any(s.lives is Lives.STATE for s in self.scratches.values())
        own = self.declares
        if own.runs_on is not Runs.DEVICE or own.dynamic_shape_bottoms or self.forward_updates() or stateful:
            return None
        return self.forward_needs()

    def backward_needs(self, propagate_down: Sequence[bool], param_propagate: Sequence[bool]) -> Needs:
        """Return the data and parameters that backward reads. Default: `backward_reads`, and all parameters."""
        n_bottom, n_top, reads = len(self.param.bottom), len(self.param.top), self.declares.backward_reads
        return Needs(
            bottoms=frozenset(range(n_bottom)) if Reads.BOTTOM_DATA in reads else frozenset(),
            tops=frozenset(range(n_top)) if Reads.TOP_DATA in reads else frozenset(),
            params=frozenset(range(len(self.params))),
        )

    def in_place_reuse(self, forward: bool) -> Sequence[tuple[str, int, int]]:
        """Return (kind, index, output) for each output that may overwrite an input which is read for the last time.

        Output: a top, or in backward a bottom's gradient. Kind: "bottom" or "top_diff". Default: of layers that can
        work in place.
        """
        return (("bottom" if forward else "top_diff", 0, 0),) if self.declares.in_place is InPlace.ALLOWED else ()

    def flops(self, bottom_shapes: Shapes, top_shapes: Shapes) -> int:
        """Return the operations of the forward's products: two for each multiplication with its addition."""
        return 0

    def effort(self, forward: bool, again: bool) -> tuple[float, float]:
        """Return (times that a pass goes over its bytes, times that a GPU does its operations), to predict its seconds.

        again: of `rematerialize`.
        """
        return 1.0, 1.0

    # -- on the host, between passes -----------------------------------------------------------------------------
    def read_dynamic_shapes(self, values: Sequence[HostArray]) -> None:
        """Find shapes that depend on values, before every forward. values: `dynamic_shape_bottoms` in order.

        Raises ShapesChanged where the tops' shapes are not what they must be.
        """
        raise AssertionError(f"{type(self).__name__} has no read_dynamic_shapes")

    def next_step_scalars(self) -> dict[str, Sequence[int]]:
        """Return the numbers of each `step_scalar` for the next forward; called once before every forward.

        `set_state` of what `state` returned before takes it back.
        """
        return {}

    def device_error(self) -> CaffeError | None:
        """Return an error that queued work found since the last call; asked after runs of a net.

        Only of layers that declare `reports_device_errors`.
        """
        return None

    # -- work: queues operations ---------------------------------------------------------------------------------
    def forward(self, io: Pass) -> None:
        """Queue the operations that compute the tops."""
        raise AssertionError(f"{type(self).__name__} has no forward")

    def backward(self, io: Pass) -> None:
        """Queue the operations that compute the wanted gradients."""
        raise AssertionError(f"{type(self).__name__} has no backward")

    def rematerialize(self, io: Pass) -> None:
        """Compute the tops of this iteration's forward again, to the last bit, so that they need not be stored until
        backward. `io` is a forward's; scratch with `remat_reads` holds what forward wrote, other scratch is written
        again. Default: forward itself."""
        self.forward(io)

    # -- state that a resumed run needs --------------------------------------------------------------------------
    def state(self) -> dict[str, int]:
        """Return integers (positions, random counters) that make a resumed run equal an uninterrupted one."""
        return {}

    def set_state(self, state: dict[str, int]) -> None:
        """Take back what `state` returned."""

    def close(self) -> None:
        """Release files and threads."""

    @property
    def public_object(self) -> Any:
        """What `net.layers` shows for this layer."""
        return self

    # -- helpers for subclasses ------------------------------------------------------------------------------------
    def add_param(
        self, shape: Iterable[int], filler: FillerParameter, lr_mult: float = 1.0, values: HostArray | None = None
    ) -> None:
        """Ask for a parameter blob of `shape`, first filled by the FillerParameter `filler`, or with `values`."""
        self.params.append(ParamRequest(tuple(int(d) for d in shape), filler, lr_mult, values))

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
        """Ask for a buffer; `io.scratch[name]` is the array. Arguments: as of `Scratch`; dtype None: the net's type.

        A SAVED one exists only if the layer runs backward: use `io.scratch.get(name)` in forward.
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
        """Ask for integers (uint64) that change from forward to forward, from `next_step_scalars`.

        Operations get them as `io.scratch[name]`. What forward and backward queue may be recorded once and replayed as
        a CUDA graph without a call of them, so no other number may change, unless the layer declares
        `cuda_graph_safe=False`.
        """
        dtype, backward = np.dtype(np.uint64), self.context.needs_backward
        self.scratches[name] = Scratch(name, (values,), dtype, Lives.STEP_SCALAR, backward=backward)

    def error(
        self, message: str, *, kind: ErrorClass = LayerParamError, blob: str | None = None, fix: str | None = None
    ) -> CaffeError:
        """Return an error that already names this layer: `raise self.error("...", fix="...")`."""
        return kind(message, fix=fix).at(layer=self.name, type=self.param.type, blob=blob)

    def check_counts(self, n_bottom: int, n_top: int) -> None:
        """Raise BlobCountError unless the numbers of bottoms and tops are legal."""
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
        """Return the axis counted from 0; a negative one counts from the end. Raises LayerParamError."""
        if not -ndim <= axis < ndim:
            raise self.error(
                f"{what} {axis} is out of range for a bottom of {ndim} axes", fix=f"use {-ndim} to {ndim - 1}"
            )
        return axis % ndim if ndim else 0

    def shape_error(self, message: str, *, bottom: int | None = None, fix: str | None = None) -> CaffeError:
        """Return a ShapeError that names this layer and its bottom `bottom`."""
        blob = self.param.bottom[bottom] if bottom is not None and bottom < len(self.param.bottom) else None
        return self.error(message, kind=ShapeError, blob=blob, fix=fix)


def count(shape: Sequence[int], start: int = 0, end: int | None = None) -> int:
    """Return the number of elements in axes [start, end) of a shape (1 for none)."""
    n = 1
    for d in tuple(shape)[start:end]:
        n *= d
    return n
