"""Capture a plan's device work, copies included, as one CUDA graph, and replay it with one launch per run.

`PlanGraph.capture` issues the operations through `executor.PlanRun` while the device captures them. Each replay then
sets the states, counters and events that a run step by step would have left. `net/run/recording.py` decides when to
capture, and runs the host steps.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from itertools import takewhile
from operator import attrgetter
from weakref import ref

from ...memory.states import Ask, State
from ...memory.synced import SyncedMemory
from ..plan.plan import Op, OpKind, Plan
from ..program import Mode
from .counters import Counters
from .executor import PlanRun, bring_to_host, first_uses
from .runtime import Runtime

QUICK_OPERATION = 20e-6  # seconds: below what the host takes to issue one operation


class PlanGraph:
    """Capture a plan whose host steps are exactly its first `front` steps, which run before all device work."""

    @staticmethod
    def possible(plan: Plan) -> bool:
        """Return whether host steps may run before everything else: none waits for a copy."""
        return not any(op.waits for op in plan.ops if op.kind is OpKind.HOST)

    @staticmethod
    def doubtful(plan: Plan) -> bool:
        """Return whether a replay may be slower than issuing operation by operation.

        Copies in a CUDA graph overlap a little less: on an H200, iterations of 0.17 and 1 s took 5 to 7% longer with
        it; one of 0.21 s with 2558 operations took 6% less.
        """
        return plan.copies > 0 and plan.seconds > QUICK_OPERATION * len(plan.ops)

    def __init__(self, runtime: Runtime, plan: Plan, memories: Mapping[int, SyncedMemory], front: int):
        self._runtime, self._device, self._plan, self._memories = runtime, runtime.device, plan, memories
        self._first = first_uses(plan)
        early = () if runtime.config.sync else _early(plan, front)
        self._early = tuple(op.placed for op in early)
        self._work = replace(plan, ops=_without(plan, {op.id for op in early}))  # what is captured
        copied = {op.place.buffer for op in self._work.ops if op.place is not None and op.host_slot is None}
        others = {place.buffer for op in plan.ops for place in (*op.births, *self._early)} - copied
        self._copied = [memories[b] for b in sorted(copied)]
        self._own_slots = [
            memories[b] for b in sorted(copied - plan.compressed)
        ]  # slots of compressed copies never move
        self._others = [memories[b] for b in sorted(others)]

    def bring_to_host(self) -> None:
        """Move the values that the plan starts from to the host."""
        bring_to_host(self._device, self._first, self._memories)

    def addresses(self) -> list[object]:
        """Return objects that identify the plan's memory: while they are the same, so are its addresses."""
        shared = self._runtime.slab.shared[: len(self._plan.host_segments)]
        arena = ref(self._runtime.arena.of(self._plan))  # weak, so that the arena can be freed
        return [arena, *shared, *map(attrgetter("host"), self._own_slots)]

    @property
    def locked(self) -> bool:
        """Return whether every captured copy uses page-locked host memory."""
        return all(map(attrgetter("locked"), self._own_slots))

    def capture(self, execute: Callable[[int], None]) -> Callable[[], None]:
        """Capture the device work without running it; return a function that replays it once.

        The caller runs `bring_to_host` and the host steps before each replay. States and counters are unchanged
        afterwards, also after an error.

        Args:
            execute: `execute(step)` runs a layer pass.
        """
        stats, moved = self._runtime.stats, [*self._copied, *self._others]
        held, before = (stats.held, stats.held_peak), [(m.state, m.host_event) for m in moved]
        run = PlanRun(self._runtime, self._work, self._memories)
        counted = run.counted

        def issue_all() -> None:
            for op in self._work.ops:
                run.issue(op, execute)

        try:
            for place in self._early:
                self._memories[place.buffer].become(State.SYNCED, span=run.span_of(place))
                run.held_more(self._work.buffers[place.buffer].nbytes)
            launch = self._device.capture(issue_all)
            counted.finished(self._plan)
            after = [m.state for m in moved]
        finally:
            for memory, (state, event) in zip(moved, before, strict=True):
                memory.become(state, event=event)
            stats.held, stats.held_peak = held

        copied = list(zip(self._copied, after, strict=False))
        others = list(zip(self._others, after[len(copied) :], strict=True))

        def run_once() -> None:
            device, carry_over, arena = self._device, self._runtime.carry_over, self._runtime.arena.of(self._plan)
            ran = replace(counted)
            self._fetch_early(carry_over.take(self._plan, arena, self._memories), ran)
            launch()
            done = device.record(device.compute)
            for stream in (device.copy_in, device.copy_out):
                device.wait(stream, done)
            for memory, state in copied:
                memory.become(state, event=done)
            for memory, state in others:
                memory.become(state, event=memory.host_event)
            self._runtime.stats.ran(self._plan, ran)
            carry_over.note(self._plan, arena, self._memories)

        return run_once

    def _fetch_early(self, carried_over: Collection[int], counted: Counters) -> None:
        """Issue the copies in that are outside of the capture, but for buffers that are carried over."""
        device, arena = self._device, self._runtime.arena.of(self._plan)
        for place in self._early:
            memory, span = self._memories[place.buffer], arena.at(place.offset, self._plan.buffers[place.buffer].nbytes)
            if place.buffer in carried_over:
                memory.be_found(span)
                continue
            memory.ask(Ask.READ_GPU, span=span, stream=device.copy_in)
            counted.copies_in += 1
            counted.bytes_in += memory.nbytes
        if self._early:
            device.wait(device.compute, device.record(device.copy_in))


def _early(plan: Plan, front: int) -> list[Op]:
    """Return the copies in before any device work that stay outside of the capture.

    These are copies of values that host steps made, so that the host can make the next ones as soon as these are
    copied, and copies of carried-over values, which a run may skip.
    """
    made = {a.buffer for step in plan.program.steps[:front] for a in step.accesses if a.mode is not Mode.READ}
    made |= {op.placed.buffer for op in plan.carried_over}
    start = takewhile(lambda op: op.kind in (OpKind.HOST, OpKind.IN), plan.ops)
    return [op for op in start if op.kind is OpKind.IN and op.placed.buffer in made and op.part is None]


def _without(plan: Plan, early: set[int]) -> tuple[Op, ...]:
    """Return the operations to capture: all but host steps and early copies.

    A wait for an early copy becomes a wait for the captured copy in before it, if any: the plan leaves out waits that
    a later operation of the same stream implies.
    """
    instead: dict[int, tuple[int, ...]] = {}
    before: tuple[int, ...] = ()
    ops = []
    for op in plan.ops:
        if op.id in early:
            instead[op.id] = before
        elif op.kind is not OpKind.HOST:
            ops.append(replace(op, waits=tuple(v for w in op.waits for v in instead.get(w, (w,)))))
            if op.kind is OpKind.IN:
                before = (op.id,)
    return tuple(ops)
