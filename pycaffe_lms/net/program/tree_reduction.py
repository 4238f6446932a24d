"""Averages gradients over virtual ranks in one binary tree, so that bits do not depend on the number of processes.

Neighbours are added first, (0, 1), (2, 3) and so on, then pairs of pairs. A process adds those of its own virtual
ranks, then exchanges sums with one other process after the other. Both add the same two numbers, so all get the same
bits.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Protocol

from ...arrays import AnyArray
from ...errors import UsageError
from ...layers.base import count
from ...lms.program import Access, Mode, Step
from ...lms.runtime.runtime import Runtime
from ...ops import ops_of
from ..build.graph import Param
from .programs import HostedStep
from .reduction import BucketSizes, Reduction, Sums

if TYPE_CHECKING:
    from ..run.executor import Executor

EXCHANGE_BYTES = 16 << 20  # most bytes of one exchange: a larger gradient takes several
PACKED = BucketSizes(1 << 20, 4 << 20)  # those that share an exchange are copied for it
assert PACKED.alone + PACKED.together <= EXCHANGE_BYTES  # a shared bucket is one exchange


class Exchanges(Sums, Protocol):
    """Exchange arrays with other ranks: what a tree needs of a communicator (see `parallel/communicator.py`)."""

    rank: int

    def exchange(self, peer: int, send: AnyArray, receive: AnyArray) -> None:
        """Queue sending `send` to rank `peer` while `receive` is filled with what that rank sends."""


@dataclass
class TreeBuffers:
    """Hold the buffers of a tree.

    Attributes:
        total: number of virtual ranks.
        inside: how many of them this process computes.
        sums: by buffer of a gradient: those of the sums over the last 1, 2, 4, .. virtual ranks of this process.
        packed, received: for exchanges: several gradients in one piece, and what another process sends; None: there is
            one process.
    """

    total: int
    inside: int
    sums: Mapping[int, Sequence[int]]
    packed: int | None = None
    received: int | None = None


def kept_level(index: int) -> int:
    """Return how many sums the gradient of virtual rank `index` of a process is added to, before the result is kept."""
    return (~index & (index + 1)).bit_length() - 1


def keep_step(executor: Executor, param: Param, sums: Sequence[int], level: int) -> HostedStep:
    """Return the step that adds a gradient to the first `level` sums, and keeps the result as the next one."""
    buffers = param.diff, *sums[:level]
    accesses = (*(Access(b, Mode.READ) for b in buffers), Access(sums[level], Mode.OVERWRITE))

    def run() -> None:
        device = executor.device
        *parts, kept = (executor.array(b, param.shape, executor.dtype, device.is_host) for b in (*buffers, sums[level]))
        ops_of(device).sum_arrays(parts, kept)

    return HostedStep(Step(f"keep:{executor.graph.param_name(param)}", accesses), run, repeatable=True)


class TreeReduction(Reduction):
    """Make the steps that replace the gradients of a process's last virtual rank by the means over all of them.

    Args:
        exchanges: the communicator; None: this process computes all virtual ranks.
        layer_wise: as for `Reduction`.
    """

    sizes: ClassVar[BucketSizes] = PACKED

    def __init__(self, runtime: Runtime, exchanges: Exchanges | None, layer_wise: bool, buffers: TreeBuffers):
        super().__init__(runtime, exchanges or _Alone(), layer_wise)
        self._exchanges, self._buffers = exchanges, buffers

    def check_by_hand(self) -> None:
        if self._buffers.inside > 1:
            raise UsageError(
                f"net.backward() computes one of the {self._buffers.inside} virtual ranks of this process, whose mean "
                "is not made",
                fix="train with solver.step, or with as many processes as virtual ranks",
            )

    def _more(self, params: Sequence[Param]) -> Sequence[Access]:
        tree = self._buffers
        more = [Access(b, Mode.READ) for p in params for b in tree.sums.get(p.diff, ())]
        both = (tree.packed if len(params) > 1 else None, tree.received)
        return [*more, *(Access(b, Mode.OVERWRITE) for b in both if b is not None)]

    def _mean(self, executor: Executor, params: Sequence[Param], arrays: Sequence[AnyArray]) -> None:
        ops, host, dtype = ops_of(self._device), self._device.is_host, executor.dtype
        tree = self._buffers
        for param, array in zip(params, arrays, strict=True):
            sums = [executor.array(b, param.shape, dtype, host) for b in tree.sums.get(param.diff, ())]
            if sums:
                ops.sum_arrays([array, *sums], array)
        if tree.received is not None:
            received = executor.array(tree.received, (self._exchanged(executor),), dtype, host)
            if len(arrays) == 1:
                self._exchange(arrays[0].reshape(-1), received)
            else:
                self._exchange_together(executor, params, arrays, received)
        ops.scale_all(arrays, 1 / tree.total)

    def _exchanged(self, executor: Executor) -> int:
        """Return the elements of `packed` and `received`."""
        assert self._buffers.received is not None
        return executor.memories[self._buffers.received].nbytes // executor.dtype.itemsize

    def _exchange_together(
        self, executor: Executor, params: Sequence[Param], arrays: Sequence[AnyArray], received: AnyArray
    ) -> None:
        """Exchange several arrays as one."""
        ops, start = ops_of(self._device), 0
        assert self._buffers.packed is not None
        packed = executor.array(self._buffers.packed, received.shape, executor.dtype, self._device.is_host)
        places = []
        for param, array in zip(params, arrays, strict=True):
            places.append(packed[start : start + (n := count(param.shape))])
            ops.copy(array, places[-1])
            start += n
        self._exchange(packed[:start], received)
        for place, array in zip(places, arrays, strict=True):
            ops.copy(place, array)

    def _exchange(self, mine: AnyArray, received: AnyArray) -> None:
        """Add the sums of all processes to `mine`, of one axis."""
        assert self._exchanges is not None
        ops, most = ops_of(self._device), received.size
        for start in range(0, mine.size, most):
            part = mine[start : start + most]
            theirs = received[: part.size]
            distance = 1
            while distance < self._exchanges.size:
                self._exchanges.exchange(self._exchanges.rank ^ distance, part, theirs)
                ops.sum_arrays([part, theirs], part)
                distance *= 2


class _Alone:
    """Stand for the communicator of one process."""

    size, can_capture = 1, True

    def average(self, arrays: Sequence[AnyArray]) -> float:
        return 1.0
