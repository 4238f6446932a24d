"""Averages gradients over ranks where each rank needs the mean of its share alone (`-shard_history`).

Gradients that share a call, as small ones do, are summed whole.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, ClassVar, Protocol

from ...arrays import AnyArray
from ...lms.runtime.runtime import Runtime
from ...ops import ops_of
from ..build.graph import Param
from .programs import AnyStep
from .reduction import BucketSizes, Reduction, Sums
from .steps import LayerStep

if TYPE_CHECKING:
    from ..run.executor import Executor


SHARES = BucketSizes(1 << 20, 4 << 20)  # whose sums by shares take less time than a call for all of them


class Scatters(Sums, Protocol):
    """Average arrays over ranks, or sum shares: what this needs of a communicator (see `parallel/communicator.py`)."""

    rank: int

    def reduce_scatter(self, parts: Sequence[AnyArray]) -> None:
        """Queue the replacement of parts[own rank] by its sum over all ranks; the other parts' values are lost."""


class ScatterReduction(Reduction):
    """Make the steps that replace this rank's share of each gradient by its mean; the rest loses its values.

    Args:
        sums: the communicator.
        parts: returns the shares of an array of one axis, as views.
        whole: whether gradients are read as a whole behind the backward; then all of each is averaged, as it is where
            a user starts the backward.
    """

    def __init__(
        self,
        runtime: Runtime,
        sums: Scatters,
        layer_wise: bool,
        parts: Callable[[AnyArray], Sequence[AnyArray]],
        whole: Callable[[], bool],
    ):
        super().__init__(runtime, sums, layer_wise)
        self._own = _OwnShares(runtime, sums, layer_wise, parts)
        self._whole = whole

    def woven(self, executor: Executor, steps: Sequence[LayerStep]) -> list[AnyStep]:
        return super().woven(executor, steps) if self._whole() else self._own.woven(executor, steps)

    def wait(self) -> None:
        super().wait()
        self._own.wait()


class _OwnShares(Reduction):
    """Average this rank's shares alone."""

    sizes: ClassVar[BucketSizes] = SHARES

    def __init__(
        self,
        runtime: Runtime,
        sums: Scatters,
        layer_wise: bool,
        parts: Callable[[AnyArray], Sequence[AnyArray]],
    ):
        super().__init__(runtime, sums, layer_wise)
        self._scatters, self._parts = sums, parts

    def _mean(self, executor: Executor, params: Sequence[Param], arrays: Sequence[AnyArray]) -> None:
        if len(arrays) > 1:
            super()._mean(executor, params, arrays)  # small ones: one call costs less than a share of the bytes
            return
        parts = self._parts(arrays[0].reshape(-1))
        self._scatters.reduce_scatter(parts)
        if parts[self._scatters.rank].size:
            ops_of(self._device).scale_by(parts[self._scatters.rank], 1 / self._scatters.size)
