"""Records the device work of an iteration, or of a pass by hand, as a CUDA graph and replays it.

A run has four stages: (1) the leading steps on the host (data layers); (2) the copies that the state machine demands
before the other steps may touch their buffers; (3) the device work, with the copies of the plan; (4) the new states of
the buffers. Only stage 3 is recorded, at the third run, and then replayed while every buffer keeps its address, on the
device and, if the plan copies it, on the host. Stages 2 and 4 run every time, so writes to blobs between runs take
effect. Numbers that change from run to run are read from buffers: see `../memory/step_scalars.py`.

A graph cannot wait in its middle. So while a value that it writes is still being copied to a snapshot
(`SyncedMemory.leaving`), the program runs step by step, and only the first step that writes the value waits.
See also: `replay_benchmark.py` (whether replaying pays).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
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
WARM_RUNS = 2  # runs step by step before recording, which compile kernels and take memory
FEW = 4  # fewest steps of a recorded pass by hand: shorter ones gain little, and there may be one for every layer


def host_front(graph: Graph, sequenced: Sequenced) -> int | None:
    """Return the number of leading host steps, if all later steps can be recorded and are worth it; else None.

    Of programs by hand only forwards and backwards are: separate updates and sums over ranks are few operations.
    """
    steps = sequenced.steps
    front = next((s for s, step in enumerate(steps) if not step.step.host), len(steps))
    if len(steps) - front < (FEW if sequenced.by_hand else 1) or any(step.step.host for step in steps[front:]):
        return None
    for step in steps:
        if isinstance(step, HostedStep):
            if sequenced.by_hand or not step.repeatable:
                return None
        elif step.look or not node_of(graph, step).layer.declares.cuda_graph_safe:
            return None
    return front


class Replay:
    """Run one program: step by step at first, then as a CUDA graph. Make it with `Replay.of`."""

    @classmethod
    def of(
        cls,
        graph: Graph,
        sequenced: Sequenced,
        plan: Plan | None,
        memories: Mapping[int, SyncedMemory],
        runtime: Runtime,
    ) -> Replay | None:
        """Return a Replay of the program, or None if it cannot be recorded. plan: of its managed buffers, if any."""
        front = host_front(graph, sequenced)
        if front is None or not runtime.device.can_capture or (plan is not None and not PlanGraph.possible(plan)):
            return None
        return cls(sequenced, front, plan, memories, runtime)

    def __init__(
        self,
        sequenced: Sequenced,
        front: int,
        plan: Plan | None,
        memories: Mapping[int, SyncedMemory],
        runtime: Runtime,
    ):
        self._front, self._plan, self._memories, self._runtime = front, plan, memories, runtime
        self._name, self._count = sequenced.program.name, len(sequenced.steps)
        self._planned = PlanGraph(runtime, plan, memories, front) if plan is not None else None
        doubtful = plan is not None and runtime.device.host_may_be_late and PlanGraph.doubtful(plan)
        self._benchmark = ReplayBenchmark(runtime.device) if doubtful else None
        planned = plan.buffers if plan is not None else {}
        first: dict[int, Ask] = {}
        written: dict[int, None] = {}
        for step in sequenced.program.steps[front:]:
            for a in step.accesses:
                if a.buffer not in planned:
                    first.setdefault(a.buffer, GPU_ASKS[a.mode])
                    if a.mode is not Mode.READ:
                        written[a.buffer] = None
        self._asks = [(memories[b], ask) for b, ask in first.items()]
        self._written = [memories[b] for b in written]
        self._warm = 0
        self._addresses: list[object] = []
        self._settings: object = None
        self._launch: Callable[[], None] | None = None

    @property
    def ready(self) -> bool:
        """Return whether there is a recording."""
        return self._launch is not None

    def run(self, execute: Callable[[int], None]) -> None:
        """Run the program once; `execute(s)` runs step s and the state changes that it demands."""
        for s in range(self._front):
            execute(s)
        recorded = self._wants_recording() and not self._copies_in_flight()
        if recorded:
            for memory, ask in self._asks:  # skip those without an effect
                state = memory.state
                if state is not State.HEAD_AT_GPU and not (state is State.SYNCED and ask is Ask.READ_GPU):
                    memory.ask(ask)
            if self._planned is not None:
                self._planned.bring_to_host()
            if not self._same_addresses():
                self._launch, self._warm = None, 0
            elif self._launch is None:
                self._capture(execute)
        if not recorded or self._launch is None:
            with self._timed() if self._launch is None else nullcontext():
                self._step_by_step(execute)
            if self._same_addresses():
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
        """Return whether this run is to be recorded or replayed."""
        if self._warm < WARM_RUNS or self._benchmark is None:
            return self._warm >= WARM_RUNS
        if self._benchmark.wants(recorded=False):
            return False
        if self._benchmark.wants(recorded=True) or self._benchmark.recording_pays(self._name):
            return True
        self._launch = None
        return False

    def _copies_in_flight(self) -> bool:
        """Return whether a value that this program writes is still being copied to a snapshot."""
        for memory in self._written:
            if memory.leaving is not None:
                if not memory.leaving.done:
                    return True
                memory.leaving = None
        return False

    def _timed(self) -> AbstractContextManager[None]:
        if self._benchmark is None or self._warm < WARM_RUNS:
            return nullcontext()
        return self._benchmark.run(recorded=self._launch is not None)

    def _same_addresses(self) -> bool:
        """Return whether addresses and device settings are those of the last run; remember the current ones."""
        addresses: list[object] = [memory.span for memory, _ in self._asks]
        if self._planned is not None:
            addresses += self._planned.addresses()
        settings = self._runtime.device.settings()
        same = settings == self._settings and len(addresses) == len(self._addresses)
        same = same and all(map(is_, addresses, self._addresses))
        self._addresses, self._settings = addresses, settings
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
            return  # the user keeps a view of a host copy, so it could not move to page-locked memory
        try:
            if self._planned is not None:
                self._launch = self._planned.capture(execute)
            else:
                self._launch = device.capture(lambda: self._step_by_step(execute))
        except Exception as error:  # drivers and libraries may refuse for any reason; step by step always works
            device.can_capture = False
            _log.warning(
                "Program %s cannot be recorded as a graph, so programs run step by step: %s", self._name, error
            )
