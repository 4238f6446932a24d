"""Averages parameter gradients over the ranks of a data-parallel training, in steps of a net's programs.

`buckets` decides which gradients are summed together, and in which order, from the backward steps and the parameters'
sizes alone, never from where a buffer lies. So ranks agree whatever their devices manage, and results with Large Model
Support equal those without. `Reduction` makes the steps. A managed gradient is summed right after the backward that
completes it, while it is on the device; one that is always on the device may be summed on the side stream while the
backward goes on.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, NamedTuple, Protocol

from ...arrays import AnyArray
from ...layers.base import count
from ...lms.program import Access, Mode, Step
from ...lms.runtime.runtime import Runtime
from ...ops import ops_of
from ..build.graph import Graph, Param
from .programs import AnyStep, HostedStep
from .steps import LayerStep

if TYPE_CHECKING:
    from ..run.executor import Executor

REDUCE, REDUCED = "reduce:", "reduced"  # how names of sums begin, and the name of the step that waits for them


class Sums(Protocol):
    """Average arrays over ranks: what a reduction needs of a communicator (see `parallel/communicator.py`)."""

    size: int
    can_capture: bool

    def average(self, arrays: Sequence[AnyArray]) -> float:
        """Queue the replacement of arrays by their means over all ranks, or by their sums; return the factor that is
        missing: 1 or 1 / size."""


class BucketSizes(NamedTuple):
    """Say which gradients share a call.

    Attributes:
        alone: bytes of a gradient from which on it has a call of its own.
        together: least bytes of a shared call, except for the first and the last one.
        last: least bytes of the last shared call, for which the updates wait.
    """

    alone: int
    together: int
    last: int = 1 << 20


WHOLE = BucketSizes(16 << 20, 16 << 20)  # few calls, since each takes multiprocessors from the backward beside it


@dataclass(frozen=True)
class Bucket:
    """Hold the gradients that one call sums. after: index of the backward step that completes the last of them."""

    after: int
    params: tuple[Param, ...]


def buckets(graph: Graph, steps: Sequence[LayerStep], itemsize: int, sizes: BucketSizes) -> list[Bucket]:
    """Return the gradients that backward steps write, by call, in the order in which they are summed."""
    owners = {p.diff: p for p in graph.learnable}
    last: dict[int, int] = {}
    for s, step in enumerate(steps):
        for a in step.step.accesses:
            if a.mode is not Mode.READ and a.buffer in owners:
                last[a.buffer] = s
    found, waiting, nbytes, least = list[Bucket](), list[Param](), 0, sizes.last
    in_order = sorted(((s, owners[b]) for b, s in last.items()), key=lambda pair: (pair[0], pair[1].index))
    for s, param in reversed(in_order):
        size = itemsize * count(param.shape)
        if size >= sizes.alone:
            found.append(Bucket(s, (param,)))
            continue
        waiting.insert(0, param)
        nbytes += size
        if nbytes >= least:
            found.append(Bucket(last[waiting[-1].diff], tuple(waiting)))
            waiting, nbytes, least = [], 0, sizes.together
    if waiting:
        found.append(Bucket(last[waiting[-1].diff], tuple(waiting)))
    return sorted(found, key=lambda bucket: bucket.after)


def digest(graph: Graph, steps: Sequence[LayerStep], itemsize: int, *more: object) -> int:
    """Return a checksum of 32 bits that is equal on ranks which sum the same gradients in the same order.

    more: what else must be equal on all ranks."""
    found = buckets(graph, steps, itemsize, WHOLE)
    described = [[(graph.param_name(p), p.position, p.shape, p.channels_last) for p in b.params] for b in found]
    return zlib.crc32(repr((itemsize, described, *more)).encode())


class Reduction:
    """Make the steps that replace a net's gradients by their means over the ranks.

    Methods take the executor of the net's current memory, which gives the arrays when a step runs.

    Args:
        sums: the communicator.
        layer_wise: sum every bucket as soon as it is complete, concurrently with the backward of lower layers if its
            gradients are not managed; else sum all of them after the backward.

    exposed: what sums cost the compute stream; None where its device has no such clock, or one process is alone.
    """

    sizes: ClassVar[BucketSizes] = WHOLE

    def __init__(self, runtime: Runtime, sums: Sums, layer_wise: bool):
        self._runtime, self._device, self._sums, self.layer_wise = runtime, runtime.device, sums, layer_wise
        self.exposed = self._device.stream_clock() if sums.size > 1 else None
        self._beside = False  # whether the side stream has work that the compute stream did not wait for

    def woven(self, executor: Executor, steps: Sequence[LayerStep]) -> list[AnyStep]:
        """Return backward steps with the sums among them, and a last step that waits for all sums.

        Where layers exchange arrays too, sums have their place among theirs, the same on ranks with LMS and without."""
        if not self.layer_wise and not self._runtime.active and not executor.graph.exchanging:
            return [*steps, *self.alone(executor, steps)]
        at: dict[int, list[HostedStep]] = {}
        for bucket in buckets(executor.graph, steps, executor.dtype.itemsize, self.sizes):
            at.setdefault(bucket.after, []).append(self._step(executor, bucket))
        woven: list[AnyStep] = []
        for s, step in enumerate(steps):
            woven += [step, *at.get(s, ())]
        return [*woven, self._join_step()]

    def alone(self, executor: Executor, steps: Sequence[LayerStep]) -> list[HostedStep]:
        """Return the sums for backward steps that have already run."""
        found = buckets(executor.graph, steps, executor.dtype.itemsize, self.sizes)
        return [*(self._step(executor, b) for b in found), self._join_step()]

    def check_by_hand(self) -> None:
        """Raise UsageError where a backward that a user starts has no mean over the ranks. Here it has one."""

    def _step(self, executor: Executor, bucket: Bucket) -> HostedStep:
        name = f"{REDUCE}{executor.graph.param_name(bucket.params[0])}"
        step = Step(name, (*(Access(p.diff, Mode.UPDATE) for p in bucket.params), *self._more(bucket.params)))
        return HostedStep(step, lambda: self._run(executor, step, bucket.params), repeatable=self._repeatable)

    @property
    def _repeatable(self) -> bool:
        return self._sums.can_capture

    def _more(self, params: Sequence[Param]) -> Sequence[Access]:
        """Return what the sum of these gradients accesses besides them."""
        return ()

    def _join_step(self) -> HostedStep:
        return HostedStep(Step(REDUCED, ()), self.wait, repeatable=True)

    def _run(self, executor: Executor, step: Step, params: Sequence[Param]) -> None:
        device = self._device
        arrays = [executor.array(p.diff, p.shape, executor.dtype, device.is_host) for p in params]
        managed = any(executor.memories[a.buffer].managed for a in step.accesses)
        if managed or not self.layer_wise or device.is_host:
            self.wait()
            with self.timed():
                self._mean(executor, params, arrays)
            return
        device.wait(device.side, device.record(device.compute))
        self._beside = True
        with device.on(device.side):
            self._mean(executor, params, arrays)

    def _mean(self, executor: Executor, params: Sequence[Param], arrays: Sequence[AnyArray]) -> None:
        missing = self._sums.average(arrays)
        if missing != 1:
            ops_of(self._device).scale_all(arrays, missing)

    def wait(self) -> None:
        """Let the compute stream wait for the sums on the side stream."""
        if self._beside:
            with self.timed():
                self._device.wait(self._device.compute, self._device.record(self._device.side))
            self._beside = False

    @contextmanager
    def timed(self) -> Iterator[None]:
        """Within: what is queued on the compute stream counts as exchange, see `exposed`."""
        if self.exposed is not None:
            self.exposed.start()
        yield
        if self.exposed is not None:
            self.exposed.stop()
