"""What a layer declares, and what it is handed: plain records, most of them frozen.

`Declaration` is what a type says about itself, `BuildContext` what the net decided for one layer. `ParamRequest`,
`Scratch` and `Needs` are what a layer asks for; `Pass` holds the arrays of one forward or backward. `base.py` has the
layer that uses them.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from enum import Enum, Flag, auto
from math import prod
from typing import Any

import numpy as np

from ..arrays import AnyArray, HostArray
from ..proto.caffe_pb2 import FillerParameter

Shape = tuple[int, ...]
TRAIN, TEST = 0, 1


@dataclass(frozen=True)
class Count:
    """How many bottoms or tops: `least` to `most` (None: no upper end)."""

    least: int
    most: int | None

    def __contains__(self, n: int) -> bool:
        return self.least <= n and (self.most is None or n <= self.most)

    def __str__(self) -> str:
        if self.most is None:
            return f"at least {self.least}"
        return str(self.least) if self.least == self.most else f"{self.least} to {self.most}"


def exactly(n: int) -> Count:
    """Return the count that allows n alone."""
    return Count(n, n)


def at_least(n: int) -> Count:
    """Return the count that allows n and more."""
    return Count(n, None)


def between(least: int, most: int) -> Count:
    """Return the count that allows `least` to `most`, both included."""
    return Count(least, most)


class Reads(Flag):
    """Which data a layer's backward reads. `ALL` is the safe default."""

    NONE = 0
    BOTTOM_DATA = auto()
    TOP_DATA = auto()
    ALL = BOTTOM_DATA | TOP_DATA


class Lives(Enum):
    """How long the content of a scratch buffer matters."""

    CALL = "call"  # only inside one forward or one backward
    SAVED = "saved"  # written by forward, read by backward
    STATE = "state"  # written by one forward, read by the next one (never dropped)
    STEP_SCALAR = "step scalar"  # written on the host before each forward from `next_step_scalars`; both passes read it


class Runs(Enum):
    """Where a layer's forward runs."""

    DEVICE = "device"  # queued operations on the net's device
    HOST = "host"  # Python on the host: its arrays are NumPy arrays
    NOWHERE = "nowhere"  # forward does nothing: tops share their bottom's memory, or are filled from outside


class InPlace(Enum):
    """What happens when a top carries its bottom's name.

    SEPARATE: the new value gets its own memory; the old one stays valid for its readers.
    ALLOWED: forward works when top and bottom are the same memory, and backward when the diffs are; the net aliases
    the data only if no backward needs the overwritten value, and always aliases the diff.
    MUST: aliased always (user layers that rely on it).
    REFUSED: an error, as in Caffe.
    """

    SEPARATE = "separate"
    ALLOWED = "allowed"
    MUST = "must"
    REFUSED = "refused"


class Role(Enum):
    """The part that a layer can play in a chain that runs as one, see `net/passes/fusion.py`.

    CONVOLVE: a convolution of one bottom. NORMALISE: per channel, over all else (BatchNorm). AFFINE: a learned
    factor, and shift, per channel (Scale). ADD: the plain sum of two bottoms (Eltwise). RECTIFY: max(x, 0) (ReLU)."""

    CONVOLVE = "convolve"
    NORMALISE = "normalise"
    AFFINE = "affine"
    ADD = "add"
    RECTIFY = "rectify"


class Gradients(Enum):
    """Which of the wanted gradients one backward computes: all, or one part of a split backward."""

    ALL = "all"
    PARAMS = "params"
    BOTTOMS = "bottoms"


@dataclass(frozen=True, kw_only=True)
class Declaration:
    """What a layer type says about itself: its class attribute `declares`.

    Where parameters decide, `setup` gives the layer its own: `self.declares = replace(self.declares, ...)`.
    """

    bottoms: Count = exactly(1)
    tops: Count = exactly(1)
    same_count: bool = False  # as many tops as bottoms (Convolution)
    in_place: InPlace = InPlace.SEPARATE
    runs_on: Runs = Runs.DEVICE
    is_loss: bool = False  # loss weight 1 for top 0 by default; without a top it gets an unnamed one
    is_net_input: bool = False

    # gradients
    backward_reads: Reads = Reads.ALL
    no_backward: frozenset[int] | None = frozenset()  # bottoms that can never get a gradient; None: all
    ignores_force_backward: frozenset[int] = frozenset()  # bottoms to which force_backward does not apply (labels)
    overwrites_top_diffs: bool = False  # backward changes top_diff, which nothing may read later
    gradients_without_top_diffs: bool = False  # backward may give gradients where those of all tops are zero
    computes_all_param_gradients: bool = False  # of frozen parameters too, wherever it runs backward
    split_backward: bool = False  # backward may run for parameters, then for bottoms, with the same results

    # batches, memory order and precision
    splits_over_batch: bool = False  # image i of the tops is a function of image i of the bottoms
    layout_agnostic: bool = False  # element by element: bottoms and tops may have any one memory order
    prefers_channels_last: bool = False
    channels_last_params: frozenset[int] = frozenset()  # have the memory order of the images; others: channels-first
    prefers_half: bool = False
    full_precision: frozenset[int] = frozenset()  # bottoms that hold indices: never copied with fewer digits

    # what happens between passes
    dynamic_shape_bottoms: frozenset[int] = frozenset()  # their values decide shapes, see `read_dynamic_shapes`
    cuda_graph_safe: bool = True  # all numbers that change from forward to forward are step scalars
    reports_device_errors: bool = False  # queued work may find an error, see `device_error`


@dataclass(frozen=True, kw_only=True)
class BuildContext:
    """What the net decided for one layer. The first group is known before `setup`, the second before `declare`."""

    phase: int = TRAIN
    dtype: np.dtype[Any] = np.dtype(np.float32)
    seed: int = 0  # of the layer's own random numbers
    solver_count: int = 1  # ranks that share the records of a data layer
    solver_rank: int = 0
    reads_ahead: bool = True  # data layers make batches before they are asked for; not where nothing will run

    needs_backward: bool = False
    channels_last: bool = False  # see `Layer.takes_channels_last`
    half: bool = False  # see `Layer.takes_half`
    saves_bits: bool = False  # see `Masked` in `mixins.py`

    def __post_init__(self) -> None:
        object.__setattr__(self, "dtype", np.dtype(self.dtype))  # a type or its name is given, too


@dataclass(frozen=True)
class ParamRequest:
    """A learnable (or running) parameter: its shape, and the FillerParameter message that gives its first value.

    `lr_mult` is the multiplier used where the prototxt has no ParamSpec for it (BatchNorm's statistics: 0).
    """

    shape: Shape
    filler: FillerParameter
    lr_mult: float = 1.0
    values: HostArray | None = None  # the first values themselves, in place of a filler


@dataclass(frozen=True)
class Scratch:
    """A buffer of the layer's own, in elements of `dtype`.

    forward, backward: the passes that use it. gradients: of a split backward, the part that uses it. remat_reads:
    `rematerialize` reads what forward wrote.
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
        """Size in bytes."""
        return prod(self.shape) * self.dtype.itemsize

    def used_for(self, gradients: Gradients) -> bool:
        """Return whether a backward that computes these gradients uses it."""
        return self.backward and (gradients is self.gradients or Gradients.ALL in (gradients, self.gradients))


@dataclass(frozen=True)
class Needs:
    """Indices of the bottoms' data, tops' data and parameters that a pass reads (diffs are implied)."""

    bottoms: frozenset[int] = frozenset()
    tops: frozenset[int] = frozenset()
    params: frozenset[int] = frozenset()


@dataclass
class Pass:
    """The arrays of one forward or backward, C-contiguous, where the layer runs.

    forward: `bottom`, `top` (uninitialised memory: write every element), `param`, `scratch`. A layer with
    `view_offsets` gets None for a blob that is a view already, and in backward for its gradient.
    backward: `bottom`/`top` data (None where `backward_needs` did not ask for it), `top_diff` (None: all zeros),
    `bottom_diff` (None: not wanted; else write every element), `param`, `param_diff` (None: not wanted),
    `accumulate[i]`: add to param_diff[i] instead of overwriting it. In place, top_diff[i] may be bottom_diff[i].
    `bottom_adds[i]`: add to bottom_diff[i]; only for bottoms in `accumulates_into`.
    `beside()`: work queued within may run beside what follows until the pass ends; once per pass.
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
    beside: Callable[[], AbstractContextManager[None]] = nullcontext
