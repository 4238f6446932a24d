"""The layer contract: what a layer type declares, and what its forward and backward are handed.

Covers: blob counts, pure shape inference, parameters and scratch requests, backward needs, sharing, errors.
Does not cover: memory, devices, schedules. A layer declares; the net and the LMS planner decide.
See also: `registry.py` (types), `lms/program.py` (turns declarations into an access list).

A layer's arithmetic is calls of `io.ops`: one signature per operation, one implementation per device. On the CPU an
operation runs at once; on a GPU (real or simulated) it is queued on the compute stream. So forward and backward are
host code that queues work: they must not look at values of device arrays, and never allocate.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum, Flag, auto
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from ..errors import BlobCountError, CaffeError, LayerParamError, ShapeError, Where
from .declarations import Count, Pass, Role, exactly
from .declarations import at_least as at_least
from .declarations import between as between

if TYPE_CHECKING:
    from .loss.base import Labels

Shape = tuple[int, ...]
TRAIN, TEST = 0, 1


class Reads(Flag):
    """Which data a layer's backward reads. `ALL` is safe for a layer nobody has thought about."""

    NONE = 0
    BOTTOM_DATA = auto()
    TOP_DATA = auto()
    ALL = BOTTOM_DATA | TOP_DATA


class Lives(Enum):
    """How long a scratch buffer's content matters."""

    CALL = "call"  # only inside one forward or one backward
    SAVED = "saved"  # written by forward, read by backward
    STATE = "state"  # written by one forward, read by the next one (never dropped)
    DIAL = "dial"  # written on the host before every forward, with what `turn` says; forward and backward read it


class Runs(Enum):
    """Where a layer's forward runs."""

    DEVICE = "device"  # queued operations on the net's device
    HOST = "host"  # Python on the host: the arrays handed over are NumPy arrays
    NOWHERE = "nowhere"  # forward does nothing at all: tops share their bottom's memory, or are filled from outside


class InPlace(Enum):
    """What happens when a top carries its bottom's name.

    SEPARATE: the new value gets its own memory (the old one stays valid for whoever needs it).
    ALLOWED: forward works when top and bottom are the same memory, and backward when the diffs are; the net aliases
    the data only if nobody's backward needs the overwritten value, and always aliases the diff.
    MUST: aliased always (user layers that rely on it).
    REFUSED: an error, as in Caffe.
    """

    SEPARATE = "separate"
    ALLOWED = "allowed"
    MUST = "must"
    REFUSED = "refused"


@dataclass(frozen=True)
class ParamRequest:
    """A learnable (or running) parameter: its shape, and the FillerParameter message that gives its first value.

    `lr_mult` is the multiplier used where the prototxt has no ParamSpec for it (BatchNorm's statistics: 0).
    """

    shape: Shape
    filler: Any
    lr_mult: float = 1.0
    values: np.ndarray | None = None  # the first values themselves, in place of a filler


class ShapesChanged(Exception):
    """Raised in `look` or `forward` by a layer whose tops need other shapes than they have, because of values.

    `infer_shapes` returns the new ones from then on. The net follows with memory, keeps the values computed so far, and
    goes on with this layer: it is looked at, and its forward called, again. node: its index, set by the executor.
    """

    node: int = -1


class Makes(Enum):
    """Which gradients a backward makes, of those that are wanted."""

    ALL = "all"
    PARAMS = "params"
    BOTTOMS = "bottoms"


@dataclass(frozen=True)
class Scratch:
    """A buffer of the layer's own. Sizes in elements of `dtype`; `forward`/`backward` say in which pass it is used,
    `serves` for which gradients backward uses it."""

    name: str
    shape: Shape
    dtype: np.dtype
    lives: Lives
    forward: bool = True
    backward: bool = True
    kept: bool = False  # `replay` reads what forward wrote
    serves: Makes = Makes.ALL

    @property
    def nbytes(self) -> int:
        return count(self.shape) * self.dtype.itemsize

    def helps(self, makes: Makes) -> bool:
        """Whether a backward that makes these gradients uses it."""
        return self.backward and (makes is self.serves or Makes.ALL in (makes, self.serves))


@dataclass(frozen=True)
class Needs:
    """Indices of the bottoms' data, tops' data and parameters that a pass reads (diffs are implied)."""

    bottoms: frozenset[int] = frozenset()
    tops: frozenset[int] = frozenset()
    params: frozenset[int] = frozenset()


class Layer:
    """Base of every layer type. Life: __init__ -> setup -> infer_shapes -> declare -> (forward, backward)*, where
    `infer_shapes` and `declare` run again whenever a bottom's shape changes."""

    type: ClassVar[str] = ""  # set by register_layer
    bottoms: ClassVar[Count] = exactly(1)
    tops: ClassVar[Count] = exactly(1)
    same_count: ClassVar[bool] = False  # as many tops as bottoms (Convolution)
    backward_reads: ClassVar[Reads] = Reads.ALL
    in_place: ClassVar[InPlace] = InPlace.SEPARATE
    runs_on: ClassVar[Runs] = Runs.DEVICE
    is_loss: ClassVar[bool] = False  # default loss weight 1 for top 0; an unnamed top is made when none is given
    no_backward: ClassVar[frozenset[int] | None] = frozenset()  # bottoms that can never get a gradient; None: all
    not_forced: ClassVar[frozenset[int]] = frozenset()  # bottoms that force_backward leaves alone (labels)
    exact: ClassVar[frozenset[int]] = frozenset()  # bottoms that hold indices: never copied with fewer digits
    is_net_input: ClassVar[bool] = False
    labels: Labels | None = None  # of a layer whose labels must name classes; after `infer_shapes`
    looks_at: frozenset[int] = frozenset()  # bottoms whose values `look` is handed before every forward
    repeatable: ClassVar[bool] = True  # see `dial`
    splits_over_batch: bool = False  # image i of the tops is a function of image i of the bottoms; after `infer_shapes`
    splits_over_outputs: int = 0  # after `setup`: most blocks that `block_of` can cut it into (`net/passes/blocks.py`)
    order_free: ClassVar[bool] = False  # element by element: bottoms and tops may lie in memory in any one order
    prefers_channels_last: ClassVar[bool] = False
    channels_last: bool = False  # set by the net before `declare`: see `takes_channels_last`
    ordered_params: ClassVar[frozenset[int]] = frozenset()  # which lie as the images do; others are channels-first
    prefers_half: ClassVar[bool] = False
    half: bool = False  # set by the net before `declare`: see `takes_half`
    finds: ClassVar[bool] = False  # work that it queues may find a value wrong: see `finding`
    makes_gradients: ClassVar[bool] = False  # backward may give gradients where those of all tops are zero
    learns_whole: ClassVar[bool] = False  # its backward makes the gradients of all parameters, of frozen ones too
    separable: ClassVar[bool] = False  # backward may run twice, for parameters, then for bottoms, with the same results
    spoils_top_diffs: ClassVar[bool] = False  # backward overwrites top_diff, which nobody reads later
    adds_to: frozenset[int] = frozenset()  # bottoms to whose gradient backward can add; known after `declare`
    stretches: Sequence[int] = ()  # after `declare`: where, in the one top or bottom, the many lie that it only copies
    seed: int = 0  # of the layer's own random numbers; set by the net before `setup`
    reads_ahead: bool = True  # before it is asked to; set by the net before `setup`: not where nothing will run

    def __init__(self, param, *, phase: int = TRAIN, dtype=np.float32):
        self.param = param
        self.name: str = param.name
        self.phase = phase
        self.dtype = np.dtype(dtype)
        self.params: list[ParamRequest] = []
        self.scratches: dict[str, Scratch] = {}
        self.needs_backward = False  # set by the net before `declare`
        self.where = Where(layer=param.name, type=param.type)

    # -- declarations: pure ------------------------------------------------------------------------------------
    def setup(self, bottom_shapes: Sequence[Shape]) -> None:
        """Check the parameters and ask for learnable blobs with `add_param`. Runs once, allocates nothing."""

    def infer_shapes(self, bottom_shapes: Sequence[Shape]) -> list[Shape]:
        """Shapes of the tops, from those of the bottoms. Pure. Raises ShapeError through `self.error`."""
        raise AssertionError(f"{type(self).__name__} has no infer_shapes")

    def declare(self, bottom_shapes: Sequence[Shape], top_shapes: Sequence[Shape], ops) -> None:
        """Ask for scratch with `self.scratch(...)` and choose operation plans; called after every `infer_shapes`."""

    def takes_channels_last(self, bottom_shapes: Sequence[Shape], top_shapes: Sequence[Shape], ops) -> bool:
        """Whether the layer can run with all bottoms and tops of 4 or more axes channels-last on this device.

        If the net chooses so, it sets `channels_last`, and those arrays arrive C-contiguous with their channels behind
        the other axes: (N, H, W, C); parameters of `ordered_params` too. Shapes in declarations stay (N, C, H, W).
        """
        return self.order_free

    def takes_half(self, bottom_shapes: Sequence[Shape], top_shapes: Sequence[Shape], ops) -> bool:
        """Whether the layer can run with all bottoms and tops, and their gradients, as bfloat16 arrays on this device.
        Asked after `channels_last` is chosen.

        If the net chooses so, it sets `half`. Parameters, their gradients and scratch stay what they are.
        """
        return self.order_free

    def shares(self) -> dict[int, int]:
        """{top index: bottom index} of tops that ARE their bottom's memory, data and diff (Flatten, Reshape)."""
        return {}

    def shares_data(self) -> dict[int, int]:
        """{top index: bottom index} of tops whose data, but not diff, is their bottom's memory (Split)."""
        return self.shares()

    def forward_needs(self) -> Needs:
        """Bottom data and parameters that forward reads. Default: all of them."""
        return Needs(bottoms=frozenset(range(len(self.param.bottom))), params=frozenset(range(len(self.params))))

    def rewrites(self, top: int) -> bool:
        """Whether every forward writes this top. A top that is filled once (a constant) is written by `fill_once`."""
        return True

    def fill_once(self, top: int, array: np.ndarray) -> None:
        """Fill a top that forward does not write; called once per shape, on the host."""

    def forward_updates(self) -> frozenset[int]:
        """Parameters that forward itself changes (running statistics). Default: none."""
        return frozenset()

    def replay_needs(self) -> Needs | None:
        """Bottom data and parameters that `replay` reads; None: it cannot be replayed. Default: what forward reads, if
        forward changes nothing but its tops and scratch. Called after `declare`."""
        stateful = any(s.lives is Lives.STATE for s in self.scratches.values())
        if self.runs_on is not Runs.DEVICE or self.looks_at or self.forward_updates() or stateful:
            return None
        return self.forward_needs()

    def backward_needs(self, propagate_down: Sequence[bool], param_propagate: Sequence[bool]) -> Needs:
        """Data and parameters that backward reads. Default: `backward_reads`, and all parameters."""
        n_bottom, n_top = len(self.param.bottom), len(self.param.top)
        return Needs(
            bottoms=frozenset(range(n_bottom)) if Reads.BOTTOM_DATA in self.backward_reads else frozenset(),
            tops=frozenset(range(n_top)) if Reads.TOP_DATA in self.backward_reads else frozenset(),
            params=frozenset(range(len(self.params))),
        )

    def reuses(self, forward: bool) -> Sequence[tuple[str, int, int]]:
        """(kind, index, output): that output (a top, or in backward a bottom's gradient) may be written where that
        input ("bottom", "top_diff") is read for the last time. Default: for layers that can work in place."""
        return (("bottom" if forward else "top_diff", 0, 0),) if self.in_place is InPlace.ALLOWED else ()

    def flops(self, bottom_shapes: Sequence[Shape], top_shapes: Sequence[Shape]) -> int:
        """Operations of the forward's products, from shapes alone: two for each multiplication with its addition."""
        return 0

    def effort(self, forward: bool, again: bool) -> tuple[float, float]:
        """(times that a pass goes over its bytes, times that a GPU does its operations), to predict how long it takes;
        again: of `replay`."""
        return 1.0, 1.0

    def look(self, values: Sequence[np.ndarray]) -> None:
        """Find shapes that depend on values: on the host, before every forward, with the bottoms of `looks_at` in
        order. Raises ShapesChanged where the tops' shapes are not what they must be."""
        raise AssertionError(f"{type(self).__name__} has no look")

    def turn(self) -> dict[str, Sequence[int]]:
        """On the host, once before every forward of a layer with dials: go on to the next one, and return its numbers
        for each `dial`. `set_state` of what `state` returned before takes it back."""
        return {}

    # -- work: queues operations ---------------------------------------------------------------------------------
    def forward(self, io: Pass) -> None:
        raise AssertionError(f"{type(self).__name__} has no forward")

    def backward(self, io: Pass) -> None:
        raise AssertionError(f"{type(self).__name__} has no backward")

    def replay(self, io: Pass) -> None:
        """Make the tops of this iteration's forward again, to the last bit, so that they need not be kept until
        backward. `io` is a forward's; scratch that is `kept` holds what forward wrote, other scratch is written again.
        Default: forward itself."""
        self.forward(io)

    def finding(self) -> CaffeError | None:
        """What queued work found wrong since the last call, to be said; asked on the host after runs of a net. Only of
        layers with `finds`."""
        return None

    # -- state that a resumed run needs --------------------------------------------------------------------------
    def state(self) -> dict[str, int]:
        """Integers (positions, random counters) that make a resumed run equal an uninterrupted one."""
        return {}

    def set_state(self, state: dict[str, int]) -> None:
        """Take back what `state` returned."""

    def close(self) -> None:
        """Release files and threads."""

    @property
    def role(self) -> Role | None:
        """The part it can play in a chain of layers that runs as one; None: it runs alone. After `setup`."""
        return None

    @property
    def face(self):
        """What `net.layers` shows for this layer."""
        return self

    # -- helpers for subclasses ------------------------------------------------------------------------------------
    def add_param(self, shape: Shape, filler, lr_mult: float = 1.0, values: np.ndarray | None = None) -> None:
        """Ask for a parameter blob of `shape`, first filled by the FillerParameter `filler`, or with `values`."""
        self.params.append(ParamRequest(tuple(int(d) for d in shape), filler, lr_mult, values))

    def scratch(
        self,
        name: str,
        shape: Shape,
        *,
        dtype=None,
        lives: Lives = Lives.SAVED,
        forward: bool = True,
        backward: bool = True,
        kept: bool = False,
        serves: Makes = Makes.ALL,
    ) -> None:
        """Ask for a buffer; `io.scratch[name]` is the array. A SAVED one exists only if the layer runs backward:
        use `io.scratch.get(name)` in forward. kept: `replay` reads it. serves: of a `separable` layer, for which
        gradients backward uses it."""
        if lives is Lives.SAVED and not self.needs_backward:
            return
        if lives is Lives.CALL and not forward and not self.needs_backward:
            return
        dtype = self.dtype if dtype is None else np.dtype(dtype)
        shape = tuple(int(d) for d in shape)
        backward = backward and self.needs_backward
        self.scratches[name] = Scratch(name, shape, dtype, lives, forward, backward, kept, serves)

    def dial(self, name: str, values: int = 1) -> None:
        """Ask for integers (uint64) that change from forward to forward: `turn` says them, `io.scratch[name]` hands
        them to operations. What forward and backward queue may be recorded once and repeated without a call of them, so
        no other number may change; a layer that cannot keep to that says `repeatable = False`."""
        dtype = np.dtype(np.uint64)
        self.scratches[name] = Scratch(name, (values,), dtype, Lives.DIAL, backward=self.needs_backward)

    def error(
        self, message: str, *, kind: type[CaffeError] = LayerParamError, blob: str | None = None, fix: str | None = None
    ) -> CaffeError:
        """An error that already names this layer: `raise self.error("...", fix="...")`."""
        return kind(message, fix=fix).at(layer=self.name, type=self.param.type, blob=blob)

    def check_counts(self, n_bottom: int, n_top: int) -> None:
        """Raise BlobCountError unless the numbers of bottoms and tops are legal."""
        for what, n, count in (("bottom", n_bottom, self.bottoms), ("top", n_top, self.tops)):
            if n not in count:
                raise self.error(
                    f"takes {count} {what} blob(s), but {n} given",
                    kind=BlobCountError,
                    fix=f"give the layer {count} `{what}:` line(s)",
                )
        if self.same_count and n_bottom != n_top:
            raise self.error(
                f"needs as many tops as bottoms, but has {n_bottom} bottoms and {n_top} tops",
                kind=BlobCountError,
                fix="give one `top:` line per `bottom:` line",
            )

    def canonical_axis(self, axis: int, ndim: int, *, what: str = "axis") -> int:
        """A negative axis counts from the end; out of range raises LayerParamError."""
        if not -ndim <= axis < ndim:
            raise self.error(
                f"{what} {axis} is out of range for a bottom of {ndim} axes", fix=f"use {-ndim} to {ndim - 1}"
            )
        return axis % ndim if ndim else 0

    def shape_error(self, message: str, *, bottom: int | None = None, fix: str | None = None) -> CaffeError:
        blob = self.param.bottom[bottom] if bottom is not None and bottom < len(self.param.bottom) else None
        return self.error(message, kind=ShapeError, blob=blob, fix=fix)


def count(shape: Sequence[int], start: int = 0, end: int | None = None) -> int:
    """Number of elements in axes [start, end) of a shape (1 for none)."""
    n = 1
    for d in tuple(shape)[start:end]:
        n *= d
    return n
