"""Means of parameter gradients over the ranks of a data-parallel training, as steps of a net's programs.

Which sums are formed, and in which order, depends on the backward steps and the parameters' sizes alone: never on where
a buffer lies. So ranks agree whatever their devices manage, and results with Large Model Support equal those without.
A gradient that is managed is summed where it is on the device anyway, behind the backward that completes it; one that
stays may be summed on the side stream, while the backward goes on.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from ...lms.program import Access, Mode, Step
from ...ops import ops_of
from ..build.graph import Graph, Param
from .programs import HostedStep
from .steps import LayerStep

if TYPE_CHECKING:
    from ..net import Net

ALONE_BYTES = 1 << 20  # a gradient of so many bytes is summed by itself; smaller ones together, to save launches
TOGETHER_BYTES = 4 << 20  # at least, but for the last


class Sums(Protocol):
    """What a reduction needs of a communicator (see `parallel/communicator.py`)."""

    size: int
    can_capture: bool

    def sum(self, arrays: Sequence) -> None:
        """Queue arrays = their sums over all ranks."""


@dataclass(frozen=True)
class Bucket:
    """Gradients that are summed by one call. after: the index of the backward step that completes the last of them."""

    after: int
    params: tuple[Param, ...]


def buckets(graph: Graph, steps: Sequence[LayerStep], itemsize: int) -> list[Bucket]:
    """The gradients that these backward steps write, in the order in which they are summed."""
    owners = {p.diff: p for p in graph.learnable}
    last: dict[int, int] = {}
    for s, step in enumerate(steps):
        for a in step.step.accesses:
            if a.mode is not Mode.READ and a.buffer in owners:
                last[a.buffer] = s
    found, waiting, nbytes = [], [], 0
    for s, param in sorted(((s, owners[b]) for b, s in last.items()), key=lambda pair: (pair[0], pair[1].index)):
        size = itemsize
        for d in param.shape:
            size *= d
        if size >= ALONE_BYTES:
            found.append(Bucket(s, (param,)))
            continue
        waiting.append(param)
        nbytes += size
        if nbytes >= TOGETHER_BYTES:
            found.append(Bucket(s, tuple(waiting)))
            waiting, nbytes = [], 0
    if waiting:
        found.append(Bucket(max(last[p.diff] for p in waiting), tuple(waiting)))
    return found


def digest(graph: Graph, steps: Sequence[LayerStep], itemsize: int) -> int:
    """32 bits that are equal where the same gradients would be summed in the same order."""
    found = buckets(graph, steps, itemsize)
    said = [[(graph.param_name(p), p.position, p.shape, p.channels_last) for p in b.params] for b in found]
    return zlib.crc32(repr((itemsize, said)).encode())


class Reduction:
    """net: whose gradients. sums: the communicator. layer_wise: sum every bucket as soon as it is complete, beside the
    backward of the layers below where the gradients stay on the device; else all of them after the backward."""

    def __init__(self, net: Net, sums: Sums, layer_wise: bool):
        self._net, self._sums, self.layer_wise = net, sums, layer_wise
        self._beside = False  # whether the side stream has work that the compute stream did not wait for

    def woven(self, steps: Sequence[LayerStep]) -> list[LayerStep | HostedStep]:
        """Backward steps with the sums among them. They are joined at the end: whoever follows finds the means."""
        found = buckets(self._net.run_graph, steps, self._net.dtype.itemsize)
        if not self.layer_wise and not self._net.runtime.active:
            return [*steps, *(self._step(b) for b in found), self._join_step()]
        at: dict[int, list[HostedStep]] = {}
        for bucket in found:
            at.setdefault(bucket.after, []).append(self._step(bucket))
        woven: list[LayerStep | HostedStep] = []
        for s, step in enumerate(steps):
            woven += [step, *at.get(s, ())]
        return [*woven, self._join_step()]

    def alone(self, steps: Sequence[LayerStep]) -> list[HostedStep]:
        """The sums for backward steps that have run."""
        found = buckets(self._net.run_graph, steps, self._net.dtype.itemsize)
        return [*(self._step(b) for b in found), self._join_step()]

    def _step(self, bucket: Bucket) -> HostedStep:
        first = bucket.params[0]
        name = f"reduce:{self._net.run_graph.param_name(first)}"
        step = Step(name, tuple(Access(p.diff, Mode.UPDATE) for p in bucket.params))
        return HostedStep(step, lambda: self._run(bucket.params), repeatable=self._sums.can_capture)

    def _join_step(self) -> HostedStep:
        return HostedStep(Step("reduced", ()), self._join, repeatable=True)

    def _run(self, params: Sequence[Param]) -> None:
        net, device = self._net, self._net.device
        memory = net.memory
        arrays = [memory.executor.array(p.diff, p.shape, net.dtype, device.is_host) for p in params]
        stay = not any(memory.memories[p.diff].managed for p in params)
        if not (self.layer_wise and stay) or device.is_host:
            self._join()
            self._mean(arrays)
            return
        device.wait(device.side, device.record(device.compute))
        self._beside = True
        with device.on(device.side):
            self._mean(arrays)

    def _mean(self, arrays: Sequence) -> None:
        self._sums.sum(arrays)
        ops = ops_of(self._net.device)
        for array in arrays:
            ops.scale_by(array, 1 / self._sums.size)

    def _join(self) -> None:
        if self._beside:
            device = self._net.device
            device.wait(device.compute, device.record(device.side))
            self._beside = False
