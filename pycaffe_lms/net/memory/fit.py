"""Makes nets fit their device: `fit` tries one arrangement of them after the other, until all that must run fits.

The candidates, in order: where automatic mode manages parameters, without Large Model Support, since what fits whole
needs no copies; under it or without it, as the nets are now; the other of the two; where automatic mode leaves
parameters on the device and no set of rules gives a plan beside them, the faster one of copies on demand and managed
parameters (where it leaves only the first ones, all managed); under Large Model Support with layers in more
micro-batches, slabs or blocks of outputs, if the user lets a net choose their numbers.
Without Large Model Support buffers with short live ranges share memory and nothing is copied, so what fits without it
fits with any of its settings, to the same bits.

A candidate changes graph, buffers and blobs, of which programs are made. So there are two loops, one in the other:
`fit` over arrangements of nets, and in its body, for each program, `ProgramPlanner.planned` over forms of the program.

See also: `micro_batch_choice.py` (which layers, how many parts), `../passes/micro_batch.py` (the graph that then runs).
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ...errors import OutOfDeviceMemory, PlanError, Where
from ...lms.layout.inplace_reuse import step_needs
from ...lms.layout.packing import Lifetime, max_live_bytes
from ...lms.planner.lookahead import live_ranges, refuse_impossible
from ...lms.program import Buffer, Program
from ...lms.runtime.runtime import Runtime
from ..program.programs import AnyStep, HostedStep, SplitBackward
from .micro_batch_choice import Chosen, Shortage, Splitting, describe

if TYPE_CHECKING:
    from ...lms.planfile.cache import PlanCache
    from ..arrangement import Arrangement
    from ..net import Net

_log = logging.getLogger(__name__)
ROUNDED = "sums round differently in parts: results equal those of whole layers to rounding, not to the bit"
MORE = (1.5, 2.0)  # also try these multiples of the fewest parts that fit: smaller steps leave more room for prefetch
MORE_SLABS = (3.0, 4.0)  # and of the fewest slabs these, for slabs cost little but their halos


@dataclass(frozen=True)
class Candidate:
    """Describe how all nets of a runtime may be arranged.

    Attributes:
        idle: without Large Model Support.
        keeps_params: under it, parameters, gradients and history stay on the device.
        keeps_first: where these are managed, the first of them stay on the device all the same.
        on_demand: programs for which no set of rules gives a plan may copy when a step needs a value.
        more_parts: layers may run in more parts than so far.
    """

    idle: bool
    keeps_params: bool
    keeps_first: bool
    on_demand: bool = True
    more_parts: bool = False


def fit(runtime: Runtime, needs: Sequence[Need]) -> list[Any]:
    """Return what every need asks for, planned under the first candidate that fits. All nets are of this runtime.

    A change of mode gives all nets of the runtime new buffers.

    Raises:
        OutOfDeviceMemory: no candidate fits; the error is the one raised under Large Model Support.
    """
    file = runtime.plan_cache is not None and runtime.plan_cache.programs is not None
    if file or runtime.device.is_host or not runtime.asked.enabled:
        return [need.planned(more_parts=True) for need in needs]
    nets = [net for known in runtime.nets if (net := known()) is not None]
    refused, was_idle = None, runtime.idle
    kept_params, kept_first = runtime.keeps_params(), runtime.keeps_first_params
    try:
        for candidate in _candidates(runtime, nets, needs):
            try:
                arrange(runtime, nets, candidate)
                return [need.planned(candidate.more_parts) for need in needs]
            except OutOfDeviceMemory as error:
                refused = error if refused is None or not candidate.idle else refused
        if not _keep_values(nets):
            arrange(runtime, nets, Candidate(False, kept_params, kept_first))
        assert refused is not None, "there is at least one candidate"
        raise refused
    finally:
        runtime.on_demand = True
        if runtime.idle and not was_idle:
            _log.info("LMS: nothing is managed: everything fits the device as without Large Model Support")
        elif kept_params and not runtime.keeps_params():
            _log.info("LMS: parameters are managed too: copies on demand beside them would take longer")


def _candidates(runtime: Runtime, nets: Sequence[Net], needs: Sequence[Need]) -> Iterator[Candidate]:
    """Yield the candidates in the order in which they are tried."""
    kept, idle, params, first = _keep_values(nets), runtime.idle, runtime.keeps_params(), runtime.keeps_first_params
    may_manage = not kept and (params or (first and runtime.asked.auto))
    whole_first = runtime.asked.auto and not (idle or kept or params) and _may_fit_whole(nets, needs)
    if whole_first:
        yield Candidate(True, params, first)
    yield Candidate(idle, params, first, on_demand=not may_manage)
    if not (kept or whole_first):
        yield Candidate(not idle, params, first, on_demand=not may_manage)
    if may_manage and params:
        yield from sorted(
            (Candidate(False, True, first), Candidate(False, False, False)),
            key=lambda c: _seconds(runtime, nets, needs, c),
        )
    elif may_manage:
        yield Candidate(False, False, False)
    if not (kept and idle) and any(net.splitting.chooses for net in nets):
        yield Candidate(False, params, first and not may_manage, more_parts=True)


def _may_fit_whole(nets: Sequence[Net], needs: Sequence[Need]) -> bool:
    """Return whether the needs may fit without Large Model Support. Nets that have plans were tried before."""
    return not any(net.memory.plans() for net in nets) and all(need.may_fit_whole() for need in needs)


def _seconds(runtime: Runtime, nets: Sequence[Net], needs: Sequence[Need], candidate: Candidate) -> float:
    """Return the seconds that the needs are predicted to take under a candidate; infinity if one does not fit."""
    arrange(runtime, nets, candidate)
    try:
        return sum(need.seconds() for need in needs if need.seconds is not None)
    except OutOfDeviceMemory:
        return math.inf


def _keep_values(nets: Sequence[Net]) -> bool:
    """Return whether a net has values of a forward for its backward, which new buffers would lose."""
    return any(net.ran and not net.forward_only for net in nets)


def arrange(runtime: Runtime, nets: Sequence[Net], candidate: Candidate) -> None:
    """Give all nets the memory that they have under a candidate; more parts are chosen later."""
    runtime.on_demand = candidate.on_demand
    now = runtime.idle, runtime.keeps_params(), runtime.keeps_first_params
    if (candidate.idle, candidate.keeps_params, candidate.keeps_first) != now:
        runtime.set_keeps_params(candidate.keeps_params)
        runtime.keeps_first_params = candidate.keeps_first
        runtime.set_idle(candidate.idle)
        for net in nets:
            net.rearrange()
            net.ran = False


@dataclass(frozen=True)
class Need:
    """Say what a net must be able to run.

    Args:
        plan: plans it and returns what was made; raises OutOfDeviceMemory if it does not fit.
        seconds: predicts the seconds of the program without taking memory. If given, up to twice the fewest parts, or
            four times the fewest slabs, are tried and the fastest adopted.
        updates: makes the steps of parameter updates, which must fit too.
        by_hand: every pass that a user may start must fit.
    """

    net: Net
    plan: Callable[[], Any]
    seconds: Callable[[], float] | None = None
    updates: Callable[[], Sequence[HostedStep]] | None = None
    by_hand: bool = False

    def planned(self, more_parts: bool) -> Any:
        """Return `plan()`; split layers into more parts and plan again, if allowed, while that can help.

        After the net ran a forward nothing is split: values left for the backward would be lost.

        Raises:
            OutOfDeviceMemory: no number of parts helps.
        """
        net = self.net
        logged = describe(net.arrangement.graph, net.arrangement.micro_batched)
        while True:
            try:
                with net.placed():
                    if self.by_hand and net.runtime.active:
                        _refuse_whole_layers(net.arrangement, net.memory.store.managed(), net.runtime.limit())
                    made = self.plan()
                break
            except OutOfDeviceMemory as error:
                if not more_parts or net.ran or not net.runtime.active or not self._widen(error):
                    with net.placed():
                        net.runtime.check_resident()  # raises a more specific error if resident buffers fill the device
                    if more_parts and net.splitting.obstacle is not None:
                        error.message += f"; {net.splitting.obstacle}"
                    raise
                if self.seconds is not None:
                    self._adopt(min(self._multiples(), key=self._predicted))
        log_parts(net.splitting, net.arrangement, logged)
        return made

    def may_fit_whole(self) -> bool:
        """Return False if the net is sure not to fit without Large Model Support, without trying it.

        Reuse in place saves at most half of the bytes that live at once.
        """
        program, buffers = _as_program(self._steps()), self.net.memory.store.managed()
        lives = [Lifetime(r.first, r.last, buffers[r.buffer].nbytes) for r in live_ranges(program, buffers, ())]
        return max_live_bytes(lives) / 2 <= self.net.runtime.limit()

    def _steps(self) -> list[AnyStep]:
        """Return all steps that must fit."""
        split = SplitBackward.NONE if self.by_hand else self.net.arrangement.split_backward
        passes = self.net.arrangement.all_steps(fused=not self.by_hand, split_backward=split)
        return [*passes, *(self.updates() if self.updates is not None else ())]

    def _widen(self, error: OutOfDeviceMemory) -> bool:
        """Split layers into more parts until every step fits by itself. Returns whether anything could be split."""
        net = self.net
        if error.free != net.runtime.limit() or not net.splitting.chooses:
            return False  # the error is not the planner's (the device is in use elsewhere), or the user fixed all parts
        helped = False
        while True:
            steps, managed, limit = self._steps(), net.memory.store.managed(), net.runtime.limit()
            need = step_needs(_as_program(steps), managed)
            if helped and max(need) <= limit:
                return True
            if not helped and error.where.layer is not None and max(need, default=0) < error.needed:
                return False  # the step that did not fit is not among these
            short = Shortage(net.graph, net.arrangement.micro_batched, steps, need, managed, limit)
            if not net.splitting.widen(short):
                return helped
            net.rearrange()
            helped = True

    def _multiples(self) -> list[Chosen]:
        """Return the numbers of parts now, the fewest that fit, and their multiples, each once."""
        splitting, found = self.net.splitting, [self.net.splitting.chosen]
        for factor in (*MORE, *(MORE_SLABS if splitting.chosen.slabs else ())):
            more = splitting.more(self.net.graph, factor)
            found += [more] if more not in found else []
        return found

    def _predicted(self, chosen: Chosen) -> float:
        """Return the predicted seconds with these numbers of parts; infinity if every step fits, but no packing."""
        self._adopt(chosen)
        assert self.seconds is not None
        try:
            return self.seconds()
        except OutOfDeviceMemory:
            return math.inf

    def _adopt(self, chosen: Chosen) -> None:
        self.net.splitting.chosen = chosen
        self.net.rearrange()


def log_parts(splitting: Splitting, arrangement: Arrangement, logged: Collection[str] = ()) -> None:
    """Log which layers run in parts, except for lines already in `logged`."""
    graph, micro_batched = arrangement.graph, arrangement.micro_batched
    lines = [line for line in describe(graph, micro_batched) if line not in logged]
    for line in lines:
        _log.info("%s", line)
    if lines:
        _log.info("%s", ROUNDED)
    if (splitting.asked or 0) > 1 and not micro_batched.starts:
        _log.warning("-lms_split %d: no layers of net %s can run in parts of its batch", splitting.asked, graph.name)
    if (splitting.asked_blocks or 0) > 1 and not micro_batched.cuts:
        text = "-lms_split_outputs %d: no layer of net %s can run in blocks of its outputs"
        _log.warning(text, splitting.asked_blocks, graph.name)
    if (splitting.asked_slabs or 0) > 1 and not micro_batched.slabs:
        _log.warning("-lms_split_slabs %d: no layer of net %s can run in slabs", splitting.asked_slabs, graph.name)


def refuse_chosen_parts(splitting: Splitting, arrangement: Arrangement, plans: PlanCache | None) -> None:
    """Raise PlanError if training uses a plan file and the number of parts was chosen here: the file lacks it."""
    micro_batched, chosen = arrangement.micro_batched, list[str]()
    if splitting.asked is None and micro_batched.starts:
        chosen.append("-lms_split 4")
    if splitting.asked_blocks is None and micro_batched.cuts:
        chosen.append(f"-lms_split_outputs {max(len(cuts) - 1 for cuts in micro_batched.cuts.values())}")
    if splitting.asked_slabs is None and micro_batched.slabs:
        chosen.append(f"-lms_split_slabs {splitting.chosen.slabs}")
    if plans is not None and chosen:
        raise PlanError(
            "; ".join(describe(arrangement.graph, micro_batched)) + ", and a plan file does not say so",
            where=Where(file=plans.path),
            fix=f"give a number of parts, for example {' '.join(chosen)}, both times; or -lms_split off and a larger "
            "-lms_budget or a smaller batch_size; or leave -lms_plan out",
        )


def _refuse_whole_layers(arrangement: Arrangement, managed: Mapping[int, Buffer], limit: int) -> None:
    """Raise OutOfDeviceMemory if any layer's forward or backward does not fit, also those of later programs."""
    refuse_impossible(_as_program(arrangement.all_steps(fused=False)), managed, limit)


def _as_program(steps: Sequence[AnyStep]) -> Program:
    """Return a program of these steps, no value of which outlives it."""
    return Program("all", tuple(s.step for s in steps), frozenset())
