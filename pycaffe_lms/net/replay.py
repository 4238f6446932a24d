"""Runs a solver's program from a recording of what it queues, where the device can record (a CUDA graph).

A run has four parts: steps at the front that run on the host (data layers); what the state machine must do before the
other steps may touch their buffers (copies up); the device's work; the states that follow. Only the third is recorded,
at the third run, and queued as one from then on, as long as every buffer lies where it lay; so whoever writes a blob
between two runs, on either side, is heard. Numbers that change from run to run are read from buffers: see `dials.py`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from operator import is_

from ..lms.counters import Counters
from ..lms.plan import Kind, Plan
from ..lms.runtime import Runtime
from ..lms.schedule import Mode
from ..memory.states import Ask, State
from ..memory.synced import SyncedMemory
from .access import node_of
from .executor import GPU_ASKS
from .graph import Graph
from .programs import HostedStep, Sequenced

_log = logging.getLogger(__name__)
WARM_RUNS = 2  # step by step: kernels are compiled, memory is taken


def host_front(graph: Graph, sequenced: Sequenced) -> int | None:
    """How many steps at the front run on the host, before work that a recording can repeat; None: not repeatable."""
    steps = sequenced.steps
    front = next((s for s, step in enumerate(steps) if not step.step.host), len(steps))
    if sequenced.by_hand or front == len(steps) or any(step.step.host for step in steps[front:]):
        return None
    for step in steps:
        if isinstance(step, HostedStep):
            if not step.repeatable:
                return None
        elif step.look or not node_of(graph, step).layer.repeatable:
            return None
    return front


class Replay:
    """One program's recording, and the runs until there is one. Make it with `Replay.of`."""

    @classmethod
    def of(cls, graph: Graph, sequenced: Sequenced, plan: Plan | None, memories, runtime: Runtime) -> Replay | None:
        """None where the program cannot be repeated from a recording. plan: of packed buffers, without copies."""
        front = host_front(graph, sequenced)
        if front is None or not runtime.device.can_capture:
            return None
        return cls(sequenced, front, plan, memories, runtime)

    def __init__(self, sequenced: Sequenced, front: int, plan: Plan | None, memories: Mapping[int, SyncedMemory],
                 runtime: Runtime):  # fmt: skip
        self._front, self._plan, self._memories, self._runtime = front, plan, memories, runtime
        self._name, self._count = sequenced.program.name, len(sequenced.steps)
        packed = plan.buffers if plan is not None else {}
        first: dict[int, Ask] = {}
        written: dict[int, None] = {}
        for step in sequenced.program.steps[front:]:
            for a in step.accesses:
                if a.buffer not in packed:
                    first.setdefault(a.buffer, GPU_ASKS[a.mode])
                    if a.mode is not Mode.READ:
                        written[a.buffer] = None
        self._asks = [(memories[b], ask) for b, ask in first.items()]
        self._written = [memories[b] for b in written]
        self._packed = [memories[b] for b in packed]
        self._warm = 0
        self._spans: list = []
        self._settings = None
        self._launch: Callable[[], None] | None = None
        self._counted = Counters()  # by the last run step by step

    @property
    def ready(self) -> bool:
        """Whether there is a recording."""
        return self._launch is not None

    def run(self, execute: Callable[[int], None]) -> None:
        """One run; `execute(s)` does step s, asks included."""
        for s in range(self._front):
            execute(s)
        if self._launch is not None or self._warm >= WARM_RUNS:
            for memory, ask in self._asks:
                if memory.state is not State.HEAD_AT_GPU:  # where nothing that a device asks has an effect
                    memory.ask(ask)
            if not self._lies_as_before():
                self._launch = None
            elif self._launch is None:
                self._capture(execute)
        if self._launch is None:
            self._step_by_step(execute)
            self._warm = self._warm + 1 if self._lies_as_before() and self._warm < WARM_RUNS else 1
            return
        self._drop_packed()
        self._launch()
        for memory in self._written:
            if memory.state is not State.HEAD_AT_GPU:
                memory.ask(Ask.WRITE_GPU)
        if self._plan is not None:
            self._runtime.stats.ran(self._plan, self._counted)

    def _lies_as_before(self) -> bool:
        """Whether addresses and settings are those of the last run."""
        spans = [memory.span for memory, _ in self._asks]
        if self._packed:
            spans.append(self._runtime.arena)
        settings = self._runtime.device.settings()
        same = settings == self._settings and len(spans) == len(self._spans) and all(map(is_, spans, self._spans))
        self._spans, self._settings = spans, settings
        return same

    def _step_by_step(self, execute: Callable[[int], None]) -> None:
        if self._plan is None:
            for s in range(self._front, self._count):
                execute(s)
        else:
            self._counted = self._runtime.run(
                self._plan, self._memories, lambda s: execute(s) if s >= self._front else None
            )

    def _capture(self, execute: Callable[[int], None]) -> None:
        device = self._runtime.device
        self._drop_packed()
        try:
            self._launch = device.capture(lambda: self._queue(execute))
        except Exception as error:  # whatever a driver or a library refuses: the program also runs without
            device.can_capture = False
            self._drop_packed()
            _log.warning(
                "Program %s cannot be recorded as a graph, so programs run step by step: %s", self._name, error
            )

    def _queue(self, execute: Callable[[int], None]) -> None:
        """The device's steps, with packed buffers where the plan says."""
        if self._plan is None:
            for s in range(self._front, self._count):
                execute(s)
            return
        device, arena = self._runtime.device, self._runtime.arena
        for op in self._plan.ops:
            if op.kind is not Kind.COMPUTE:
                continue  # the front's
            given = dict(op.handovers)
            taken = set(given.values())
            for place in op.births:
                memory = self._memories[place.buffer]
                span = arena.at(place.offset, self._plan.buffers[place.buffer].nbytes)
                memory.ask(Ask.OVERWRITE_GPU, span=span)
                if place.buffer not in taken:
                    device.spoil(span)
            execute(op.step)
            for b in (*op.frees, *op.drops):
                if b in given:
                    self._memories[b].hand_over()
                else:
                    self._memories[b].ask(Ask.DISCARD)

    def _drop_packed(self) -> None:
        """Packed buffers hold no memory and no value between two runs' work."""
        for memory in self._packed:
            if memory.state is not State.DISCARDED:
                memory.ask(Ask.DISCARD)
