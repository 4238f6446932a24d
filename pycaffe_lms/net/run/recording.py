"""Runs an iteration, or a pass by hand, from a recording of what it queues, where the device can record (a CUDA graph).

A run has four parts: steps at the front that run on the host (data layers); what the state machine must do before the
other steps may touch their buffers (copies up, or home); the device's work, with the copies that a plan makes on the
way; the states that follow. Only the third is recorded, at the third run, and queued as one from then on, as long as
every buffer lies where it lay, on the device and, where a plan copies it, on the host; so whoever writes a blob between
two runs, on either side, is heard. Numbers that change from run to run are read from buffers: see `dials.py`.
A recording waits for nothing in its middle. So while values that it writes are still copied to elsewhere
(`SyncedMemory.leaving`, of a snapshot), a run goes step by step: only the first step that writes one waits for it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from operator import is_

from ...lms.plan.plan import Plan
from ...lms.program import Mode
from ...lms.runtime.cuda_graph import PlanGraph
from ...lms.runtime.runtime import Runtime
from ...memory.states import Ask, State
from ...memory.synced import SyncedMemory
from ..build.graph import Graph
from ..program.programs import HostedStep, Sequenced
from ..program.steps import node_of
from .executor import GPU_ASKS
from .replay_benchmark import ReplayBenchmark

_log = logging.getLogger(__name__)
WARM_RUNS = 2  # step by step: kernels are compiled, memory is taken
FEW = 4  # steps of a pass by hand: one with fewer gains little, and there may be one for every layer


def host_front(graph: Graph, sequenced: Sequenced) -> int | None:
    """How many steps at the front run on the host, before work that a recording can repeat; None: not repeatable, or
    not worth it. By hand only passes are: updates and sums over ranks that run apart from them are few operations."""
    steps = sequenced.steps
    front = next((s for s, step in enumerate(steps) if not step.step.host), len(steps))
    if len(steps) - front < (FEW if sequenced.by_hand else 1) or any(step.step.host for step in steps[front:]):
        return None
    for step in steps:
        if isinstance(step, HostedStep):
            if sequenced.by_hand or not step.repeatable:
                return None
        elif step.look or not node_of(graph, step).layer.repeatable:
            return None
    return front


class Replay:
    """One program's recording, and the runs until there is one. Make it with `Replay.of`."""

    @classmethod
    def of(cls, graph: Graph, sequenced: Sequenced, plan: Plan | None, memories, runtime: Runtime) -> Replay | None:
        """None where the program cannot be repeated from a recording. plan: of the buffers that do not stay."""
        front = host_front(graph, sequenced)
        if front is None or not runtime.device.can_capture or (plan is not None and not PlanGraph.possible(plan)):
            return None
        return cls(sequenced, front, plan, memories, runtime)

    def __init__(self, sequenced: Sequenced, front: int, plan: Plan | None, memories: Mapping[int, SyncedMemory],
                 runtime: Runtime):  # fmt: skip
        self._front, self._plan, self._memories, self._runtime = front, plan, memories, runtime
        self._name, self._count = sequenced.program.name, len(sequenced.steps)
        self._planned = PlanGraph(runtime, plan, memories, front) if plan is not None else None
        doubtful = plan is not None and runtime.device.host_may_be_late and PlanGraph.doubtful(plan)
        self._trial = ReplayBenchmark(runtime.device) if doubtful else None
        placed = plan.buffers if plan is not None else {}
        first: dict[int, Ask] = {}
        written: dict[int, None] = {}
        for step in sequenced.program.steps[front:]:
            for a in step.accesses:
                if a.buffer not in placed:
                    first.setdefault(a.buffer, GPU_ASKS[a.mode])
                    if a.mode is not Mode.READ:
                        written[a.buffer] = None
        self._asks = [(memories[b], ask) for b, ask in first.items()]
        self._written = [memories[b] for b in written]
        self._warm = 0
        self._places: list = []
        self._settings = None
        self._launch: Callable[[], None] | None = None

    @property
    def ready(self) -> bool:
        """Whether there is a recording."""
        return self._launch is not None

    def run(self, execute: Callable[[int], None]) -> None:
        """One run; `execute(s)` does step s, asks included."""
        for s in range(self._front):
            execute(s)
        recorded = self._wants_recording() and not self._some_leave()
        if recorded:
            for memory, ask in self._asks:  # but for those without an effect
                state = memory.state
                if state is not State.HEAD_AT_GPU and not (state is State.SYNCED and ask is Ask.READ_GPU):
                    memory.ask(ask)
            if self._planned is not None:
                self._planned.bring_home()
            if not self._lies_as_before():
                self._launch, self._warm = None, 0
            elif self._launch is None:
                self._capture(execute)
        if not recorded or self._launch is None:
            with self._timed() if self._launch is None else nullcontext():
                self._step_by_step(execute)
            if self._lies_as_before():
                self._warm = min(self._warm + 1, WARM_RUNS)
            else:
                self._launch, self._warm = None, 1
            return
        with self._timed():
            self._launch()
        for memory in self._written:
            if memory.state is not State.HEAD_AT_GPU:
                memory.ask(Ask.WRITE_GPU)

    def _wants_recording(self) -> bool:
        """Whether there is to be a recording, now."""
        if self._warm < WARM_RUNS or self._trial is None:
            return self._warm >= WARM_RUNS
        if self._trial.wants(recorded=False):
            return False
        if self._trial.wants(recorded=True) or self._trial.recording_pays(self._name):
            return True
        self._launch = None
        return False

    def _some_leave(self) -> bool:
        """Whether a value that is written here is still being copied to elsewhere."""
        for memory in self._written:
            if memory.leaving is not None:
                if not memory.leaving.done:
                    return True
                memory.leaving = None
        return False

    def _timed(self):
        if self._trial is None or self._warm < WARM_RUNS:
            return nullcontext()
        return self._trial.run(recorded=self._launch is not None)

    def _lies_as_before(self) -> bool:
        """Whether addresses and settings are those of the last run."""
        places = [memory.span for memory, _ in self._asks]
        if self._planned is not None:
            places += self._planned.addresses()
        settings = self._runtime.device.settings()
        same = settings == self._settings and len(places) == len(self._places) and all(map(is_, places, self._places))
        self._places, self._settings = places, settings
        return same

    def _step_by_step(self, execute: Callable[[int], None]) -> None:
        if self._plan is None:
            for s in range(self._front, self._count):
                execute(s)
        else:
            self._runtime.run(self._plan, self._memories, lambda s: execute(s) if s >= self._front else None)

    def _capture(self, execute: Callable[[int], None]) -> None:
        device = self._runtime.device
        if self._planned is not None and not self._planned.locked:
            return  # somebody holds a view of a home, so it could not be moved to page-locked memory
        try:
            if self._planned is not None:
                self._launch = self._planned.capture(execute)
            else:
                self._launch = device.capture(lambda: [execute(s) for s in range(self._front, self._count)])
        except Exception as error:  # whatever a driver or a library refuses: the program also runs without
            device.can_capture = False
            _log.warning(
                "Program %s cannot be recorded as a graph, so programs run step by step: %s", self._name, error
            )
