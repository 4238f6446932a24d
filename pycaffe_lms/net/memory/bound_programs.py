"""Keeps each program of a net with its plan, its CUDA graph and the memory that it touches."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ...lms.plan.plan import Plan
from ...lms.runtime.memory_owners import prepare
from ...lms.runtime.runtime import Runtime
from ...memory.split_memory import SplitMemory
from ...memory.synced import SyncedMemory
from ..build.graph import Graph
from ..program.programs import Sequenced
from ..program.steps import LayerStep
from ..run.executor import Executor
from ..run.recording import Replay
from .buffer_store import BufferStore
from .program_planner import ProgramPlanner
from .step_scalars import StepScalars
from .workspace import Workspace

Build = Callable[[], Sequenced]


@dataclass(eq=False)
class Bound:
    """Hold a program with its plan (None: it touches no managed buffer) and its replay (None: run step by step)."""

    sequenced: Sequenced
    plan: Plan | None
    step_scalars: StepScalars
    replay: Replay | None
    touched: tuple[SyncedMemory, ...]  # without call scratch
    moved: tuple[SyncedMemory, ...]  # buffers that the plan places and copies
    split: tuple[SplitMemory, ...]  # those of which this program touches a part
    unmade: tuple[SyncedMemory, ...]  # of values inside fused chains or stored as buffer views: discarded after a run
    room_checked: bool = False  # whether device memory for the first run was checked


class BoundPrograms:
    """Bind programs to plans. A change of the store's buffers drops all of them.

    Args:
        graph_runs: replay programs as CUDA graphs where possible.
    """

    def __init__(
        self,
        graph: Graph,
        store: BufferStore,
        workspace: Workspace,
        planner: ProgramPlanner,
        executor: Executor,
        runtime: Runtime,
        graph_runs: bool,
    ):
        self._graph, self._store, self._workspace = graph, store, workspace
        self._planner, self._executor, self._runtime, self._graph_runs = planner, executor, runtime, graph_runs
        self._bound: dict[str, Bound] = {}
        self._version = store.version

    @property
    def bound(self) -> dict[str, Bound]:
        """Return the bound programs by name."""
        if self._version != self._store.version:
            self._bound.clear()
            self._version = self._store.version
        return self._bound

    def keeps(self, key: str) -> bool:
        """Return whether the program `key` is unbound, or bound to a plan that still fits."""
        return key not in self.bound or self._runtime.keeps(self.bound[key].plan)

    def bind(self, key: str, build: Build) -> Bound:
        """Return the program `key`, built and planned at the first call or when its plan no longer fits."""
        if not self.keeps(key):
            del self.bound[key]
        bound = self.bound.get(key)
        if bound is None:
            sequenced = build()
            if not sequenced.by_hand:
                self._runtime.check_resident()
            self._bind(key, *self._planner.planned(sequenced))
        elif bound.plan is not None:
            self._runtime.arena.prepare(bound.plan)  # the arena may have been released since
        return self.bound[key]

    def replan(self, key: str, build: Build) -> tuple[float, float] | None:
        """Plan a bound program again with the step times known now; adopt the new plan if it is predicted to be faster.

        Returns:
            (seconds of the old plan, seconds of the adopted plan), both as predicted now; None if there is no plan.
        """
        old = self.bound.get(key)
        if old is None or old.plan is None or not self._runtime.active:
            return None
        sequenced, plan, before = self._planner.replanned(build(), old.plan, old.sequenced)
        if plan is old.plan:
            return before, before
        del self.bound[key]
        self._bind(key, sequenced, plan)
        return before, plan.seconds

    def _bind(self, key: str, sequenced: Sequenced, plan: Plan | None) -> None:
        """Store a planned program under `key`, with all that each run of it needs."""
        graph, store = self._graph, self._store
        memories = store.memories
        if plan is not None:
            prepare(self._runtime, store, plan)
            sequenced = self._planner.as_planned(sequenced, plan)
        replay = Replay.of(graph, sequenced, plan, memories, self._runtime) if self._graph_runs else None
        step_scalars = StepScalars(graph, memories, [s for s in sequenced.steps if not getattr(s, "again", False)])
        touched = {a.buffer for s in sequenced.program.steps for a in s.accesses}
        layers = [s for s in sequenced.steps if isinstance(s, LayerStep)]
        grouped = any(s.group is not None or s.without_views is not None for s in layers)
        unmade = store.dropped - touched if grouped else frozenset()
        touched -= self._workspace.offsets.keys()
        changing = {id(memories[b]) for b in touched | unmade} if store.split else set()
        self._executor.forget()
        self.bound[key] = Bound(
            sequenced,
            plan,
            step_scalars,
            replay,
            tuple(memories[b] for b in touched),
            tuple(memories[b] for b in (plan.buffers if plan is not None else ())),
            tuple(m for m in store.split if any(id(part) in changing for part in m.parts)),
            tuple(memories[b] for b in unmade),
        )
