"""Plans the programs of a net: one request for each, and the form of it that is predicted to be fastest.

A program that trains has two forms with equal results: whole backwards, or split ones, which make a layer's gradients
of parameters and of bottoms in two steps, so that a bottom's value may be freed before its gradient is allocated; but
the tops' gradients are then read twice. `ProgramPlanner.planned` tries the forms in turn.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

from ...errors import OutOfDeviceMemory
from ...lms.cost.machine import Costs
from ...lms.cost.timing import time_plan
from ...lms.plan.plan import Plan, seconds_of
from ...lms.planner.optimise import NotFaster
from ...lms.program import Buffer, Mode, first_modes
from ...lms.remat.candidates import RematCandidates
from ...lms.remat.requested import CannotRemat, remat_order
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


def _seconds_to_beat(tried: Sequence[PlannedForm]) -> float:
    """Return the seconds below which a further form is of use: with copies on demand it is not known before."""
    if any(form.plan is not None and form.plan.how is None for form in tried):
        return math.inf
    return min((seconds_of(form.plan) for form in tried), default=math.inf)


@dataclass(frozen=True)
class PlannedForm:
    """Hold a form of a program, its plan (None: it touches no managed buffer) and what that was asked for under LMS."""

    sequenced: Sequenced
    plan: Plan | None
    request: PlanRequest | None = None


class ProgramPlanner:
    """Make plans of programs of one net, at its current shapes."""

    def __init__(self, graph: Graph, store: BufferStore, runtime: Runtime, itemsize: int):
        self._graph, self._store, self._itemsize, self.runtime = graph, store, itemsize, runtime
        self.requests: dict[str, PlanRequest] = {}  # by program: the request of the plan that was chosen last

    def planned(self, sequenced: Sequenced) -> tuple[Sequenced, Plan | None]:
        """Return the program to run and its plan, None where nothing is managed.

        Forms of a program are tried until one fits and is not much slower than its steps; the fastest is taken. A plan
        file says which form it is of.

        Raises:
            OutOfDeviceMemory: no form fits.
            CaffeError: as `Runtime.plan` and `Runtime.pack`.
        """
        tried: list[PlannedForm] = []
        refused: OutOfDeviceMemory | None = None
        for form in self._forms(sequenced):
            try:
                tried.append(self._planned(form, _seconds_to_beat(tried)))
            except NotFaster:
                continue
            except OutOfDeviceMemory as error:
                refused = error
                continue
            if not self._is_slow(tried[-1]):
                break
        if not tried:
            assert refused is not None, "there is at least one form"
            raise refused
        best = min(tried, key=lambda form: seconds_of(form.plan))
        if best.request is not None:
            self.requests[best.request.program.name] = best.request
        return best.sequenced, best.plan

    def _forms(self, sequenced: Sequenced) -> list[Sequenced]:
        """Return the forms of a program in the order in which they are tried."""
        whole, split = replace(sequenced, split_backward=None), with_least_memory(sequenced)
        if len(split.steps) == len(whole.steps):  # no backward can be split
            return [whole]
        cache = self.runtime.plan_cache
        cached = cache.separates(sequenced.program.name) if cache is not None else None
        return [whole, split] if cached is None else [split if cached else whole]

    def _is_slow(self, form: PlannedForm) -> bool:
        """Return whether a plan is so much slower than its steps alone that another form may be faster."""
        if form.plan is None or form.request is None:
            return False
        return form.plan.seconds > self.runtime.search.split_slow * sum(form.request.costs.steps)

    def _planned(self, sequenced: Sequenced, below: float) -> PlannedForm:
        """Plan one form of a program. Raises NotFaster where its plan takes no less than `below` seconds.

        Without LMS, packed buffers get memory of their own in a program by hand, because all values survive, and where
        a program reads what an earlier one made, because a layer's tops got other shapes between the two.
        """
        active, buffers = self.runtime.active, self._managed(sequenced)
        if not buffers or (sequenced.by_hand and not active):
            return PlannedForm(sequenced, None)
        if not active:
            first = first_modes(sequenced.program.steps)
            made_here = {b: buffer for b, buffer in buffers.items() if first[b] is Mode.OVERWRITE}
            return PlannedForm(sequenced, self.runtime.pack(sequenced.program, made_here) if made_here else None)
        request = self.request_of(sequenced)
        return PlannedForm(sequenced, self._plan(sequenced, replace(request, below=below)), request)

    def replanned(self, sequenced: Sequenced, old: Plan, ran: Sequenced) -> tuple[Sequenced, Plan, float]:
        """Plan a program again with the step times known now, in the form that ran.

        Returns:
            The program, the plan to use, and the seconds that the old plan is predicted to take now. The plan to use is
            the old one unless the new one takes less than `SearchBudget.replan` of its time.
        """
        sequenced = in_same_form(sequenced, ran)
        request = replace(self.request_of(sequenced), first=old.how)
        self.requests[sequenced.program.name] = request
        before = time_plan(old, request.costs).seconds
        plan = self._plan(sequenced, request)
        return sequenced, plan if plan.seconds < self.runtime.search.replan * before else old, before

    def _plan(self, sequenced: Sequenced, request: PlanRequest) -> Plan:
        with self._placed(sequenced):
            return self.runtime.plan(request)

    @contextmanager
    def _placed(self, sequenced: Sequenced) -> Iterator[None]:
        """Name the layer whose request for rematerialization cannot be met."""
        try:
            yield
        except CannotRemat as failure:
            raise cannot_remat(self._graph, sequenced.steps, failure) from None

    def as_requested(self, sequenced: Sequenced) -> PlanRequest:
        """Return the request of a program with the rematerialization that layers ask for in it, and no other."""
        request = self.request_of(sequenced)
        if not request.requested.steps:
            return request
        remats = RematCandidates(request.program, request.remats, request.scratch)
        with self._placed(sequenced):
            return replace(request, program=remat_order(request.program, remats, request.requested).program)

    def request_of(self, sequenced: Sequenced) -> PlanRequest:
        """Return what is known of a program, for a plan of it."""
        store, remats = self._store, self.remat_steps_of(sequenced)
        return PlanRequest(
            sequenced.program,
            self._compressed(sequenced, self._managed(sequenced)),
            self.costs_of(sequenced, remats, self.runtime.measured),
            {s: step.step for s, step in remats.items()},
            store.call_scratch,
            remat_requests_of(self._graph, sequenced, remats, store.call_scratch),
        )

    def costs_of(self, sequenced: Sequenced, remats: Mapping[int, LayerStep], measured: Mapping[str, float]) -> Costs:
        """Return the seconds of the steps of a program and of `remats`. measured: seconds by step name."""
        store, machine = self._store, self.runtime.machine
        assert machine is not None, "only programs of a device with memory of its own are planned"
        sizes = {b: memory.nbytes for b, memory in store.memories.items()}
        return program_costs(self._graph, sequenced.steps, remats, store.buffers, sizes, machine, measured)

    def remat_steps_of(self, sequenced: Sequenced) -> dict[int, LayerStep]:
        """Return the steps that rematerialize forward steps of a program, by the index of the forward step."""
        if sequenced.by_hand:
            return {}
        return wanted_remats(self._graph, program_remats(self._graph, sequenced.steps), self.runtime.config)

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
        if not self.runtime.config.compress:
            return managed
        sizes = {b: compressed_bytes(self._store.memories[b].nbytes, self._itemsize) for b in managed}
        return with_compression(sequenced.program, managed, inexact(self._graph), sizes)
