"""Plain records for what a layer declares and what it receives; most of them are frozen.

A layer type states its properties in a `Declaration`; the net states its decisions for one layer in a `BuildContext`.
A layer requests with `ParamRequest`, `Scratch` and `Needs`; `Pass` holds the arrays of one forward or backward.
`base.py` has the base class of layers, which uses them all.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from enum import Enum, Flag, auto
from math import prod
from typing import Any, Protocol

import numpy as np

from ..arrays import AnyArray, HostArray
from ..proto.caffe_pb2 import FillerParameter

Shape = tuple[int, ...]
TRAIN, TEST = 0, 1


@dataclass(frozen=True)
class Count:
    """An allowed number of bottoms or tops: `least` to `most` (None: no upper limit)."""

    least: int
    most: int | None

    def __contains__(self, n: int) -> bool:
        return self.least <= n and (self.most is None or n <= self.most)

    def __str__(self) -> str:
        if self.most is None:
            return f"at least {self.least}"
        return str(self.least) if self.least == self.most else f"{self.least} to {self.most}"


def exactly(n: int) -> Count:
    """Return a count that allows n only."""
    return Count(n, n)


def at_least(n: int) -> Count:
    """Return a count that allows n and more."""
    return Count(n, None)


def between(least: int, most: int) -> Count:
    """Return a count that allows `least` to `most`, both included."""
    return Count(least, most)


class Reads(Flag):
    """Which data a layer's backward reads."""

    NONE = 0
    BOTTOM_DATA = auto()
    TOP_DATA = auto()
    ALL = BOTTOM_DATA | TOP_DATA


class Lives(Enum):
    """How long the values in a scratch buffer are needed."""

    CALL = "call"  # within one forward or one backward
    SAVED = "saved"  # written by forward, read by backward
    STATE = "state"  # written by one forward, read by the next one
    PREPARED = "prepared"  # written by `prepare` on the device, read by forward on the host
    MADE = "made"  # written by forward on the host, read by `finish` on the device
    STEP_SCALAR = "step scalar"  # `next_step_scalars` gives the values before each forward; both passes read them


class Runs(Enum):
    """Where a layer's forward runs."""

    DEVICE = "device"  # queued operations on the net's device
    HOST = "host"  # Python on the host, with NumPy arrays
    NOWHERE = "nowhere"  # forward does nothing: tops share their bottom's memory, are constant, or are the net's inputs


class InPlace(Enum):
    """What happens when a top has its bottom's name.

    SEPARATE: the top gets memory of its own; the bottom's value stays valid for its readers.
    ALLOWED: forward works if top and bottom share memory, and backward if their diffs do. The net always shares the
    diff, and the data if no backward needs the overwritten value.
    MUST: data and diff are always shared (layers written by users, which may rely on it).
    REFUSED: an error, as in Caffe.
    """

    SEPARATE = "separate"
    ALLOWED = "allowed"
    MUST = "must"
    REFUSED = "refused"


class Role(Enum):
    """What a layer can be in a chain of layers that runs as one step, see `net/passes/fusion.py`.

    CONVOLVE: a convolution of one bottom. NORMALISE: normalises each channel (BatchNorm). NORMALISE_SLAB: likewise, a
    slab by the statistics of all. AFFINE: a learned factor, and perhaps a shift, per channel (Scale). ADD: the plain
    sum of two bottoms (Eltwise). RECTIFY: max(x, 0) (ReLU).
    """

    CONVOLVE = "convolve"
    NORMALISE = "normalise"
    NORMALISE_SLAB = "normalise_slab"
    AFFINE = "affine"
    ADD = "add"
    RECTIFY = "rectify"


class Gradients(Enum):
    """Which of the wanted gradients one backward computes: all, or in a split backward one of two kinds."""

    ALL = "all"
    PARAMS = "params"
    BOTTOMS = "bottoms"


@dataclass(frozen=True, kw_only=True)
class Declaration:
    """Properties of a layer type: its class attribute `declares`.

    If they depend on the prototxt's fields, `setup` sets them: `self.declares = replace(self.declares, ...)`.
    """

    bottoms: Count = exactly(1)
    tops: Count = exactly(1)
    same_count: bool = False  # as many tops as bottoms (Convolution)
    in_place: InPlace = InPlace.SEPARATE
    runs_on: Runs = Runs.DEVICE
    is_loss: bool = False  # top 0 has loss weight 1 by default; a layer without tops gets an unnamed one
    is_net_input: bool = False

    # gradients
    backward_reads: Reads = Reads.ALL
    no_backward: frozenset[int] | None = frozenset()  # bottoms that can never get a gradient; None: all
    skips_backward: frozenset[int] = frozenset()  # bottoms that get no gradient, though layers before them may learn
    ignores_force_backward: frozenset[int] = frozenset()  # bottoms to which force_backward does not apply (labels)
    overwrites_top_diffs: bool = False  # backward changes top_diff: nothing may read it later
    gradients_without_top_diffs: bool = False  # gradients may be nonzero even if those of all tops are zero
    computes_all_param_gradients: bool = False  # if backward runs at all, of frozen parameters too
    split_backward: bool = False  # backward may run for parameters first, then for bottoms, with the same results

    # batches, memory order and precision
    splits_over_batch: bool = False  # image i of the tops depends on image i of the bottoms alone
    layout_agnostic: bool = False  # works element by element, so bottoms and tops may share any memory order
    prefers_channels_last: bool = False
    channels_last_params: frozenset[int] = frozenset()  # are channels-last if the images are; others: never
    any_precision: bool = False  # bottoms and tops may all be bfloat16, as those of `layout_agnostic` layers
    prefers_half: bool = False
    full_precision: frozenset[int] = frozenset()  # bottoms that hold indices: never rounded, nor copies compressed
    full_precision_tops: bool = False  # tops are of the net's type also where bottoms are bfloat16

    # what happens between passes
    dynamic_shape_bottoms: frozenset[int] = frozenset()  # shapes depend on their values, see `read_dynamic_shapes`
    cuda_graph_safe: bool = True  # only step scalars change from forward to forward
    reports_device_errors: bool = False  # see `device_error`
    tests_alone: bool = False  # in a test one process must run every batch, in order: writes files, runs users' code


@dataclass(frozen=True, kw_only=True)
class BuildContext:
    """Decisions of the net for one layer. The first group is known before `setup`, the second before `declare`."""

    phase: int = TRAIN
    dtype: np.dtype[Any] = np.dtype(np.float32)
    seed: int = 0  # of the layer's random numbers
    solver_count: int = 1  # ranks that share the records of a data layer
    solver_rank: int = 0
    wants_half: bool = False  # layers that can are to run on bfloat16 arrays
    reads_ahead: bool = True  # data layers prepare batches ahead; False if the net will not run
    on_gpu: bool = False  # real or simulated

    needs_backward: bool = False
    channels_last: bool = False  # see `Layer.takes_channels_last`
    half: bool = False  # see `Layer.takes_half`
    saves_bits: bool = False  # see `Masked` in `mixins.py`
    by_hand: bool = False  # a solver's iterations run a fused chain in its place

    def __post_init__(self) -> None:
        object.__setattr__(self, "dtype", np.dtype(self.dtype))  # callers may give a type or its name


@dataclass(frozen=True)
class ParamRequest:
    """A learned parameter or running statistic that a layer requests.

    lr_mult: its learning rate's multiplier if the prototxt has no `param` for it (0 for BatchNorm's statistics).
    """

    shape: Shape
    filler: FillerParameter
    lr_mult: float = 1.0
    values: HostArray | None = None  # the first values; None: `filler` gives them


@dataclass(frozen=True)
class Scratch:
    """A buffer that only the layer itself uses, of `shape` in elements of `dtype`.

    forward, backward: the passes that use it. gradients: the part of a split backward that uses it. remat_reads:
    `rematerialize` reads what forward wrote there.
    """

    name: str
    shape: Shape
    dtype: np.dtype[Any]
    lives: Lives
    forward: bool = True
    backward: bool = True
    remat_reads: bool = False
    gradients: Gradients = Gradients.ALL

    @property
    def nbytes(self) -> int:
        """Return the size in bytes."""
        return prod(self.shape) * self.dtype.itemsize

    def used_in_forward(self, prepares: bool, host: bool) -> bool:
        """Return whether a forward uses the buffer. prepares: the layer has two: `prepare`, and forward on the host."""
        return self.forward and (not prepares or not host or self.lives is Lives.PREPARED)

    def used_for(self, gradients: Gradients) -> bool:
        """Return whether a backward that computes these gradients uses the buffer."""
        return self.backward and (gradients is self.gradients or Gradients.ALL in (gradients, self.gradients))


@dataclass(frozen=True)
class Needs:
    """Which bottoms' data, tops' data and parameters a pass reads, by index. The tops' diffs are not listed."""

    bottoms: frozenset[int] = frozenset()
    tops: frozenset[int] = frozenset()
    params: frozenset[int] = frozenset()


@dataclass(frozen=True)
class Rows:
    """Say which rows a layer needs for a slab: rows of axis 2, each [first, end).

    bottom: what it reads of each bottom that forward reads; before row 0 and behind the last one lie zeros. Of bottoms
    that it does not read, as of the shape that Crop takes, they are the slab's. top: what it makes of each top from
    that, at least the slab.
    """

    bottom: tuple[int, int]
    top: tuple[int, int]


class Exchange(Protocol):
    """Exchange a layer's arrays with the same layer on the other ranks of a training, see `Layer.exchanges`.

    Operations are queued on the compute stream, by all ranks in the same order.
    """

    rank: int
    size: int
    can_capture: bool  # whether what is queued can be recorded as a CUDA graph

    def sum(self, arrays: Sequence[AnyArray]) -> None:
        """Queue the replacement of every array by its sum over all ranks, the same to the bit on each."""

    def all_gather(self, parts: Sequence[AnyArray]) -> None:
        """Queue the filling of every parts[r] by that of rank r."""


@dataclass
class Pass:
    """The arrays of one forward or backward: C-contiguous, on the device (or host) where the layer runs.

    Forward reads `bottom` and `param` (None: not in `forward_needs`), and writes every element of `top`, whose memory
    is uninitialised. A layer with `view_offsets` gets None for a blob that is already a view, and for its gradient.

    Backward reads `bottom`, `top` and `param` (None: not in `backward_needs`) and `top_diff` (None: all zeros). It
    writes every element of `bottom_diff` and `param_diff` (None: not wanted), but adds to bottom_diff[i] if
    `bottom_adds[i]` (only for bottoms in `accumulates_into`), and to param_diff[i] if `accumulate[i]`. In place,
    top_diff[i] and bottom_diff[i] may be the same array.

    later: what a backward reads of values that other layers make, see `Node.later` (of `net/build/graph.py`).
    Work that is queued in `with io.beside():` may run in parallel with the rest of the pass; once per pass.
    """

    ops: Any
    bottom: list[AnyArray] = field(default_factory=list)
    top: list[AnyArray] = field(default_factory=list)
    param: list[AnyArray] = field(default_factory=list)
    scratch: dict[str, AnyArray] = field(default_factory=dict)
    bottom_diff: list[AnyArray] = field(default_factory=list)
    top_diff: list[AnyArray] = field(default_factory=list)
    param_diff: list[AnyArray] = field(default_factory=list)
    accumulate: list[bool] = field(default_factory=list)
    bottom_adds: list[bool] = field(default_factory=list)
    later: list[AnyArray] = field(default_factory=list)
    beside: Callable[[], AbstractContextManager[None]] = nullcontext
