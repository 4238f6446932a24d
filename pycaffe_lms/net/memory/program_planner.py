"""Plans the programs of a net: one request for each, and the form of it that is predicted to be fastest.

A program that trains has two forms with equal results: whole backwards, or split ones, which make a layer's gradients
of parameters and of bottoms in two steps, so that a bottom's value may be freed before its gradient is allocated; but
the tops' gradients are then read twice. `ProgramPlanner.planned` tries the forms in turn.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from ...errors import OutOfDeviceMemory
from ...lms.cost.machine import Costs
from ...lms.cost.timing import time_plan
from ...lms.plan.plan import Plan
from ...lms.program import Buffer
from ...lms.remat.requested import CannotRemat
from ...lms.request import PlanRequest
from ...lms.runtime.compression import compressed_bytes
from ...lms.runtime.runtime import Runtime
from ..build.graph import Graph
from ..passes.compression import inexact, with_compression
from ..program.costs import program_costs, program_remats
from ..program.lms_requests import cannot_remat, remat_requests_of, wanted_remats
from ..program.programs import Sequenced
from ..program.split_backward import in_same_form, with_least_memory
from ..program.steps import LayerStep
from .buffer_store import BufferStore


class ProgramPlanner:
    """Make plans of programs of one net, at its current shapes."""

    def __init__(self, graph: Graph, store: BufferStore, runtime: Runtime, itemsize: int):
        self._graph, self._store, self._runtime, self._itemsize = graph, store, runtime, itemsize
        self.requests: dict[str, PlanRequest] = {}  # by program: the request of the plan that was chosen last

    def planned(self, sequenced: Sequenced) -> tuple[Sequenced, Plan | None]:
        """Return the program to run and its plan, None where nothing is managed.

        Forms of a program are tried until one fits and rarely waits for copies; the fastest is taken. A plan file says
        which form it is of.

        Raises:
            OutOfDeviceMemory: no form fits.
            CaffeError: as `plan_of`.
        """
        name, forms = sequenced.program.name, self._forms(sequenced)
        best: tuple[Sequenced, Plan, PlanRequest | None] | None = None
        refused: OutOfDeviceMemory | None = None
        for form in forms:
            try:
                plan = self.plan_of(form)
            except OutOfDeviceMemory as error:
                refused = error
                continue
            if plan is None:
                return form, None
            if best is None or plan.seconds < best[1].seconds:
                best = form, plan, self.requests.get(name)
            if form is forms[-1] or not self._waits(plan):
                break
        if best is None:
            assert refused is not None, "there is at least one form"
            raise refused
        form, plan, request = best
        if request is not None:
            self.requests[name] = request
        return form, plan

    def _forms(self, sequenced: Sequenced) -> list[Sequenced]:
        """Return the forms of a program in the order in which they are tried."""
        whole, split = replace(sequenced, split_backward=None), with_least_memory(sequenced)
        if len(split.steps) == len(whole.steps):  # no backward can be split
            return [whole]
        cache = self._runtime.plan_cache
        cached = cache.separates(sequenced.program.name) if cache is not None else None
        return [whole, split] if cached is None else [split if cached else whole]

    def _waits(self, plan: Plan) -> bool:
        """Return whether a plan waits for copies so much that another form may be faster."""
        search, steps = self._runtime.search, sum(self.requests[plan.program.name].costs.steps)
        return plan.seconds > search.split_slow * steps and plan.stall > search.split_waits * plan.seconds

    def plan_of(self, sequenced: Sequenced) -> Plan | None:
        """Return a verified plan, or None if the program touches no managed buffer.

        In a program by hand without LMS, packed buffers get memory of their own, because all values survive.
        """
        if sequenced.by_hand and not self._runtime.active:
            return None
        buffers = self._managed(sequenced)
        if not buffers:
            return None
        if not self._runtime.active:
            return self._runtime.pack(sequenced.program, buffers)
        return self._plan(sequenced, self.request_of(sequenced))

    def replanned(self, sequenced: Sequenced, old: Plan, ran: Sequenced) -> tuple[Sequenced, Plan, float]:
        """Plan a program again with the step times known now, in the form that ran.

        Returns:
            The program, the plan to use, and the seconds that the old plan is predicted to take now. The plan to use is
            the old one unless the new one takes less than `SearchBudget.replan` of its time.
        """
        sequenced = in_same_form(sequenced, ran)
        request = replace(self.request_of(sequenced), first=old.how)
        before = time_plan(old, request.costs).seconds
        plan = self._plan(sequenced, request)
        return sequenced, plan if plan.seconds < self._runtime.search.replan * before else old, before

    def _plan(self, sequenced: Sequenced, request: PlanRequest) -> Plan:
        self.requests[sequenced.program.name] = request
        try:
            return self._runtime.plan(request)
        except CannotRemat as failure:
            raise cannot_remat(self._graph, sequenced.steps, failure) from None

    def request_of(self, sequenced: Sequenced) -> PlanRequest:
        """Return what is known of a program, for a plan of it."""
        store, remats = self._store, self.remat_steps_of(sequenced)
        return PlanRequest(
            sequenced.program,
            self._compressed(sequenced, self._managed(sequenced)),
            self.costs_of(sequenced, remats, self._runtime.measured),
            {s: step.step for s, step in remats.items()},
            store.call_scratch,
            remat_requests_of(self._graph, sequenced, remats, store.call_scratch),
        )

    def costs_of(self, sequenced: Sequenced, remats: Mapping[int, LayerStep], measured: Mapping[str, float]) -> Costs:
        """Return the seconds of the steps of a program and of `remats`. measured: seconds by step name."""
        store, machine = self._store, self._runtime.machine
        assert machine is not None, "only programs of a device with memory of its own are planned"
        sizes = {b: memory.nbytes for b, memory in store.memories.items()}
        return program_costs(self._graph, sequenced.steps, remats, store.buffers, sizes, machine, measured)

    def remat_steps_of(self, sequenced: Sequenced) -> dict[int, LayerStep]:
        """Return the steps that rematerialize forward steps of a program, by the index of the forward step."""
        if sequenced.by_hand:
            return {}
        return wanted_remats(self._graph, program_remats(self._graph, sequenced.steps), self._runtime.config)

    def as_planned(self, sequenced: Sequenced, plan: Plan) -> Sequenced:
        """Return the program in the order of the plan, rematerialization steps included."""
        if not plan.rematerialized:
            return sequenced
        remats = program_remats(self._graph, sequenced.steps)
        steps = tuple(remats[s] if again else sequenced.steps[s] for s, again in plan.order)
        return replace(sequenced, program=plan.program, steps=steps)

    def _managed(self, sequenced: Sequenced) -> dict[int, Buffer]:
        """Return the buffers of a program that plans place and copy."""
        ids = {a.buffer for step in sequenced.program.steps for a in step.accesses}
        return {b: self._store.buffers[b] for b in sorted(ids) if self._store.memories[b].managed}

    def _compressed(self, sequenced: Sequenced, managed: dict[int, Buffer]) -> dict[int, Buffer]:
        """Return the managed buffers of a program, with the sizes of their copies (smaller under compression)."""
        if not self._runtime.config.compress:
            return managed
        sizes = {b: compressed_bytes(self._store.memories[b].nbytes, self._itemsize) for b in managed}
        return with_compression(sequenced.program, managed, inexact(self._graph), sizes)
