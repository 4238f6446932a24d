"""Owns the memory of a net and runs its programs.

`NetMemory` is put together from `buffer_store.py` (the memory of every buffer), `workspace.py` (call scratch),
`program_planner.py` (plans) and `bound_programs.py` (programs that are ready to run); `choice.py` says beforehand which
memory each buffer gets. `../run/` executes steps and records CUDA graphs.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np

from ...errors import OutOfDeviceMemory
from ...layers.base import ShapesChanged
from ...lms.plan.plan import Plan
from ...lms.program import Buffer, Program, Step
from ...lms.remat.requested import CannotRemat
from ...lms.rules import Rules
from ...lms.runtime.compression import compressed_bytes
from ...lms.runtime.memory_owners import prepare, refuse_oom
from ...lms.runtime.runtime import Runtime
from ...memory import exported_views
from ...memory.states import Ask, State
from ..build.graph import Graph
from ..program.buffers import makers
from ..program.programs import HostedStep
from ..program.steps import LayerStep
from ..run.executor import Executor
from .bound_programs import Bound, BoundPrograms, Build
from .buffer_store import BufferStore, hand_on
from .choice import MemoryChoice
from .first_run import needed_at_first_run
from .residency import residency_estimate
from .split_memory import hand_on, make_split_memories
from .step_scalars import StepScalars


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
        self.graph, self.runtime, self.device, self.file = graph, runtime, runtime.device, file
        self.store = store = BufferStore(graph, choice, runtime, old.store if old is not None else None)
        self.buffers, self.memories = store.buffers, store.memories
        self.workspace = Workspace(graph, store.unmanaged_call_scratch, self.buffers, self.memories, runtime)
        self.executor = Executor(graph, self.memories, self.device, dtype)
        store.take_over(old.store if old is not None else None)
        self.planner = ProgramPlanner(graph, store, runtime, dtype.itemsize)
        self.programs = BoundPrograms(
            self, graph, store, self.workspace, self.planner, self.executor, runtime, graph_runs
        )
        self._last = ""  # the program that ran last
        self.timer: Callable[[], None] | None = None  # called before the first step and after each
        runtime.make_room()
        runtime.memory_owners.join(self)

    @property
    def name(self) -> str:
        """Return the name of the net."""
        return self.graph.name

    def place(self, error: OutOfDeviceMemory, layer: str) -> OutOfDeviceMemory:
        """Return the error with the layer's place in this net's prototxt."""
        return self.graph.place(error.at(layer=layer), self.file)

    def resident_listing(self, *, own: bool = False) -> list[tuple[str, int]]:
        """Return (layer, bytes) of every resident buffer, in creation order. own: leave out those of another net."""
        return self.store.resident_listing(own=own)

    def release(self) -> None:
        """Release call scratch, which a reshaped net does not reuse, and unregister from the runtime."""
        self.store.release()
        self.runtime.memory_owners.leave(self)

    # -- programs ---------------------------------------------------------------------------------------------------
    def steps(self, key: str) -> tuple[LayerStep | HostedStep, ...]:
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
        missing, released = needed_at_first_run(program, plan, self.buffers, self.memories, offsets)
        layers = makers(self.graph)
        wanted = [("", lacks)] if offsets and (lacks := self.runtime.workspace_lacks) else []
        wanted += [(layers.get(b.id, b.name.split(".")[0]), b.nbytes) for b in missing]
        refuse_oom(self.runtime, self, wanted, released)

    def _bind(self, key: str, sequenced: Sequenced, plan: Plan | None) -> None:
        """Store a planned program under `key`, with all that each run of it needs."""
        if plan is not None:
            prepare(self.runtime, self, plan)
            sequenced = self._as_planned(sequenced, plan)
        replay = Replay.of(self.graph, sequenced, plan, self.memories, self.runtime) if self._graph_runs else None
        step_scalars = StepScalars(
            self.graph, self.memories, [s for s in sequenced.steps if not getattr(s, "again", False)]
        )
        touched = {a.buffer for s in sequenced.program.steps for a in s.accesses}
        layers = [s for s in sequenced.steps if isinstance(s, LayerStep)]
        grouped = any(s.group is not None or s.without_views is not None for s in layers)
        unmade = self._unmade - touched if grouped else set()
        touched -= self._workspace_offsets.keys()
        changing = {id(self.memories[b]) for b in touched | unmade} if self.split_memories else ()
        split = tuple(m for m in self.split_memories if any(id(part) in changing for part in m.parts))
        groups = touched, plan.buffers if plan is not None else (), unmade
        touched, moved, unmade = (tuple(self.memories[b] for b in ids) for ids in groups)
        self.executor.forget()
        self._plans[key] = Bound(sequenced, plan, step_scalars, replay, touched, moved, split, unmade)

    def plan_of(self, sequenced: Sequenced) -> Plan | None:
        """Return a verified plan, or None if the program touches no managed buffer.

        In a program by hand without LMS, packed buffers get memory of their own, because all values survive.
        """
        if sequenced.by_hand and not self.runtime.active:
            return None
        ids = {a.buffer for s in sequenced.program.steps for a in s.accesses}
        if not (managed := {b: self.buffers[b] for b in sorted(ids) if self.memories[b].managed}):
            return None
        if self.runtime.active:
            return self._optimised(sequenced, self.compressed_sizes(sequenced, managed))
        return self.runtime.pack(sequenced.program, managed)

    def replan(self, key: str, build: Callable[[], Sequenced]) -> tuple[float, float] | None:
        """Plan a bound program again with the step times known now; adopt the new plan if it is predicted to be faster.

        Returns:
            (seconds of the old plan, seconds of the adopted plan), both as predicted now; None if there is no plan.
        """
        if (old := self._plans.get(key)) is None or old.plan is None or not self.runtime.active:
            return None
        sequenced = in_same_form(build(), old.sequenced)
        before = time_plan(old.plan, self._costs(sequenced, self.remat_steps_of(sequenced))).seconds
        managed = self.compressed_sizes(sequenced, {b: self.buffers[b] for b in old.plan.buffers})
        plan = self._optimised(sequenced, managed, old.plan.how)
        if plan.seconds >= self.runtime.search.replan * before:
            return before, before
        del self._plans[key]
        self._bind(key, sequenced, plan)
        return before, plan.seconds

    def compressed_sizes(self, sequenced: Sequenced, managed: dict[int, Buffer]) -> dict[int, Buffer]:
        """Return the managed buffers of a program, with the sizes of their copies (smaller under compression)."""
        if not self.runtime.config.compress:
            return managed
        sizes = {b: compressed_bytes(self.memories[b].nbytes, self.dtype.itemsize) for b in managed}
        return with_compression(sequenced.program, managed, inexact(self.graph), sizes)

    def remat_steps_of(self, sequenced: Sequenced) -> dict[int, LayerStep]:
        """Return the steps that rematerialize forward steps of a program, by the index of the forward step."""
        if sequenced.by_hand:
            return {}
        return wanted_remats(self.graph, program_remats(self.graph, sequenced.steps), self.runtime.config)

    @property
    def call_scratch(self) -> frozenset[int]:
        """Return the ids of buffers whose content never outlives a step."""
        return frozenset(b for b, buffer in self.buffers.items() if buffer.call_scratch)

    def _costs(self, sequenced: Sequenced, remats) -> Costs:
        sizes = {b: memory.nbytes for b, memory in self.memories.items()}
        machine, measured = self.runtime.machine, self.runtime.measured
        return program_costs(self.graph, sequenced.steps, remats, self.buffers, sizes, machine, measured)

    def _optimised(self, sequenced: Sequenced, managed: dict[int, Buffer], first: Rules | None = None) -> Plan:
        """Return the best plan that the search finds. first: rules to try first."""
        remats = self.remat_steps_of(sequenced)
        remat_steps = {s: step.step for s, step in remats.items()}
        scratch = self.call_scratch
        self.planned_with[sequenced.program.name] = costs = self._costs(sequenced, remats)
        remat_requests = remat_requests_of(self.graph, sequenced, remats, scratch)
        try:
            return self.runtime.plan(sequenced.program, managed, costs, remat_steps, scratch, remat_requests, first)
        except CannotRemat as failure:
            raise cannot_remat(self.graph, sequenced.steps, failure) from None

    def _as_planned(self, sequenced: Sequenced, plan: Plan) -> Sequenced:
        """Return the program in the order of the plan, rematerialization steps included."""
        if not plan.rematerialized:
            return sequenced
        remats = program_remats(self.graph, sequenced.steps)
        steps = tuple(remats[s] if again else sequenced.steps[s] for s, again in plan.order)
        return replace(sequenced, program=plan.program, steps=steps)

    def steps(self, key: str) -> tuple:
        """Return the steps of a bound program."""
        return self._plans[key].sequenced.steps

    def forget_plans(self) -> None:
        """Drop all bound programs, so that each is planned again at its next run."""
        self._plans.clear()

    @property
    def last_plan(self) -> Plan | None:
        """Return the plan of the program that ran last, or None."""
        bound = self._plans.get(self._last)
        return bound.plan if bound is not None else None

    def managed(self) -> dict[int, Buffer]:
        """Return the buffers whose device memory plans control, by id."""
        return {b: buffer for b, buffer in self.buffers.items() if self.memories[b].managed}

    @property
    def managed_ids(self) -> frozenset[int]:
        """Return the ids of the buffers that Large Model Support manages."""
        return self._managed.ids

    def release(self) -> None:
        """Release call scratch, which a reshaped net does not reuse, and unregister from the runtime."""
        self.runtime.unregister(self._managed)
        self.runtime.memory_owners.leave(self)
        for b, buffer in self.buffers.items():
            if buffer.call_scratch and b not in self._workspace_offsets:
                self.memories[b].give_back()

    def plans(self) -> dict[str, Plan | None]:
        """Return the plans made so far, by program name."""
        return {key: bound.plan for key, bound in self._plans.items()}

    @property
    def _workspace_bytes(self) -> int:
        """Return the bytes of shared workspace that this net's unmanaged call scratch needs."""
        return max((o + self.buffers[b].nbytes for b, o in self._workspace_offsets.items()), default=0)

    def _place_workspace(self) -> None:
        """Point unmanaged call scratch at the shared workspace, which may have grown for another net."""
        ids = self._workspace_offsets
        if not ids:
            return
        if self.device.is_host:
            if self._workspace is None:
                self._workspace = self.device.host_take(self._workspace_bytes)
                for b in ids:
                    offset = self._workspace_offsets[b]
                    self.memories[b].host = self._workspace[offset : offset + self.buffers[b].nbytes]
            return
        whole = self.runtime.workspace()
        if self._workspace is not whole:
            self._workspace = whole
            for b in ids:
                self.memories[b].span = whole.at(self._workspace_offsets[b], self.buffers[b].nbytes)

    def run(self, key: str, build: Callable[[], Sequenced]) -> None:
        """Run the program `key`, which `build` makes the first time. Nets of other threads on this device wait.

        Raises:
            UsageError: the user keeps an exported GPU view of memory that the plan moves.
        """
        with self.device.lock, self.device.active():
            bound = self.programs.bind(key, build)
            if not bound.room_checked and not self.device.is_host:
                self.refuse_oom(bound.sequenced.program, bound.plan)
                bound.room_checked = True
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

    def _execute(self, step: LayerStep | HostedStep) -> None:
        if isinstance(step, HostedStep):
            self.executor.ask(step.step)
            step.run()
        else:
            self.executor.run(step)
