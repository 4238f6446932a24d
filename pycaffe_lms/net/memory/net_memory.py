"""Owns the memory of a net and runs its programs.

`NetMemory` is put together from `buffer_store.py` (the memory of every buffer), `workspace.py` (call scratch),
`program_planner.py` (plans) and `bound_programs.py` (programs that are ready to run); `choice.py` says beforehand which
memory each buffer gets. `../run/` executes steps and records CUDA graphs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

import numpy as np

from ...layers.base import ShapesChanged
from ...lms.plan.plan import Plan
from ...lms.program import Buffer, Program
from ...lms.runtime.memory_owners import refuse_oom
from ...lms.runtime.runtime import Runtime
from ...memory import exported_views
from ...memory.states import Ask, State
from ...memory.synced import SyncedMemory
from ...ops import ops_of
from ..build.graph import Graph
from ..program.buffers import makers
from ..program.programs import AnyStep, HostedStep
from ..run.executor import Executor
from ..run.rehearsal import Rehearsal
from .bound_programs import Bound, BoundPrograms, Build
from .buffer_store import BufferStore, hand_on
from .choice import MemoryChoice
from .program_planner import ProgramPlanner
from .workspace import Workspace


class NetMemory:
    """Own the memory of a net and run its programs.

    Args:
        graph: the graph that runs, with buffers assigned.
        choice: which memory its buffers get.
        old: the memory that this one replaces after a reshape.
        graph_runs: replay programs as CUDA graphs where possible.
        file: the prototxt, for errors.
    """

    def __init__(
        self,
        graph: Graph,
        choice: MemoryChoice,
        runtime: Runtime,
        dtype: np.dtype,
        *,
        old: NetMemory | None = None,
        graph_runs: bool = False,
        file: str | None = None,
    ):
        self.graph, self.runtime, self.device = graph, runtime, runtime.device
        before: BufferStore | None = old.store if old is not None else None
        self.store: BufferStore = BufferStore(graph, choice, runtime, before, file)
        store = self.store
        self.buffers: Mapping[int, Buffer] = store.buffers
        self.memories: Mapping[int, SyncedMemory] = store.memories
        self.workspace = Workspace(graph, store.unmanaged_call_scratch, self.buffers, self.memories, runtime)
        self.executor = Executor(graph, self.memories, self.device, dtype)
        store.take_over(before)
        self.planner = ProgramPlanner(graph, store, runtime, dtype.itemsize)
        self.programs = BoundPrograms(graph, store, self.workspace, self.planner, self.executor, runtime, graph_runs)
        self._last = ""  # the program that ran last
        self.timer: Callable[[], None] | None = None  # called before the first step and after each
        runtime.make_room()
        runtime.memory_owners.join(store)

    # -- programs ---------------------------------------------------------------------------------------------------
    def steps(self, key: str) -> tuple[AnyStep, ...]:
        """Return the steps of a bound program."""
        return self.programs.bound[key].sequenced.steps

    def plans(self) -> dict[str, Plan | None]:
        """Return the plans made so far, by program name."""
        return {key: bound.plan for key, bound in self.programs.bound.items()}

    @property
    def last_plan(self) -> Plan | None:
        """Return the plan of the program that ran last, or None."""
        bound = self.programs.bound.get(self._last)
        return bound.plan if bound is not None else None

    def forget_plans(self) -> None:
        """Drop all bound programs, so that each is planned again at its next run."""
        self.programs.bound.clear()

    def refuse_oom(self, program: Program, plan: Plan | None) -> None:
        """Raise OutOfDeviceMemory if the device has too little free memory for the first run of a program."""
        offsets = self.workspace.offsets
        missing, released = self._needed_at_first_run(program, plan)
        layers = makers(self.graph)
        wanted = [("", lacks)] if offsets and (lacks := self.runtime.workspace_lacks) else []
        wanted += [(layers.get(b.id, b.name.split(".")[0]), b.nbytes) for b in missing]
        refuse_oom(self.runtime, self.store, wanted, released)

    def _needed_at_first_run(self, program: Program, plan: Plan | None) -> tuple[list[Buffer], int]:
        """Find the buffers for which the first run of a program must take device memory outside the arena.

        A lower bound: buffers that host steps access are left out, because their device memory may be released in
        between.

        Returns:
            The buffers, in creation order, and the bytes that planned buffers release first.
        """
        planned = plan.buffers if plan is not None else {}
        on_device = {a.buffer for step in program.steps if not step.host for a in step.accesses}
        on_host = {a.buffer for step in program.steps if step.host for a in step.accesses}
        own, memories = on_device - on_host - planned.keys() - self.workspace.offsets.keys(), self.memories
        missing = {id(memories[b]): self.buffers[b] for b in sorted(own) if memories[b].span is None}
        released = {id(memories[b]): memories[b].own_bytes for b in planned}
        return list(missing.values()), sum(released.values())

    def run(self, key: str, build: Build) -> None:
        """Run the program `key`, which `build` makes the first time. Nets of other threads on this device wait.

        Raises:
            UsageError: the user keeps an exported GPU view of memory that the plan moves.
        """
        with self.device.lock, self.device.active():
            bound = self.programs.bind(key, build)
            if not bound.room_checked and not self.device.is_host:
                self.refuse_oom(bound.sequenced.program, bound.plan)
                bound.room_checked = True
                ops_of(self.device).kernels_plan(partial(self._rehearse, bound))
            self._last = key
            self.workspace.place()
            if not self.device.is_host:
                exported_views.before_run(bound.touched, bound.moved)
            hand_on(bound.split)
            bound.step_scalars.turn()
            try:
                self._run(bound)
            except ShapesChanged as change:
                bound.step_scalars.take_back(change.node)
                raise
            finally:
                for memory in bound.unmade:
                    if memory.state is not State.DISCARDED:
                        memory.ask(Ask.DISCARD)
                for memory in bound.split:
                    memory.follow()
            exported_views.after_run(bound.split)
            if not self.device.is_host or bound.unmade:
                exported_views.after_run((*bound.touched, *bound.unmade))

    def _rehearse(self, bound: Bound) -> None:
        Rehearsal(self.graph, self.device, self.executor.dtype).rehearse(bound.sequenced.steps)

    def _run(self, bound: Bound) -> None:
        sequenced, plan = bound.sequenced, bound.plan
        watched = self.timer is not None or self.runtime.recorder is not None
        if bound.replay is not None and self.device.can_capture and not watched:
            bound.replay.run(lambda s: self._execute(sequenced.steps[s]))
            return
        if self.timer is not None:
            self.timer()

        def execute(s: int) -> None:
            step = sequenced.steps[s]
            if self.runtime.recorder is None:
                self._execute(step)
            else:
                self.runtime.recorder.step(step.step.name, step.step.host, partial(self._execute, step))
            if self.timer is not None:
                self.timer()

        if plan is None:
            for s in range(len(sequenced.steps)):
                execute(s)
        else:
            self.runtime.run(plan, self.memories, execute)

    def _execute(self, step: AnyStep) -> None:
        if isinstance(step, HostedStep):
            self.executor.ask(step.step)
            step.run()
        else:
            self.executor.run(step)
