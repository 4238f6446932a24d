"""Run a plan: issue its operations on three streams (compute, copy in, copy out), ordered by events.

`bring_to_host` first moves values to the host, then `PlanRun` issues the operations one by one. `runtime.py` owns the
arena and the host slots that are used here; `cuda_graph.py` captures the same operations as one launch.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from ...backend.device import Device, Span
from ...errors import CaffeError, PlanError
from ...memory.states import Ask, State
from ...memory.synced import SyncedMemory
from ..plan.plan import Op, OpKind, Placement, Plan
from ..program import Mode, first_modes
from .counters import Counters
from .recorder import COPIES_IN, COPIES_OUT

if TYPE_CHECKING:
    from .runtime import Runtime

_log = logging.getLogger(__name__)


def first_uses(plan: Plan) -> dict[int, Mode]:
    """Return, for each buffer that a plan places, the mode of its first access."""
    return {b: mode for b, mode in first_modes(plan.program.steps).items() if b in plan.buffers}


def bring_to_host(device: Device, first: Mapping[int, Mode], memories: Mapping[int, SyncedMemory]) -> None:
    """Move the values that a plan starts from to the host; fill those never written with zeros.

    Args:
        first: mode of each buffer's first access, see `first_uses`.

    Raises:
        DiscardedRead: the program reads a value that was dropped.
    """
    moved = False
    for b, mode in first.items():
        memory = memories[b]
        if memory.span is not None:
            moved = moved or (mode is not Mode.OVERWRITE and memory.state is State.HEAD_AT_GPU)
            memory.ask(Ask.DISCARD if mode is Mode.OVERWRITE else Ask.EVICT)
        if mode is not Mode.OVERWRITE and memory.state in (State.UNINITIALIZED, State.DISCARDED):
            memory.ask(Ask.READ_CPU)
    if moved:  # the run prefetches it on another stream
        device.wait(device.copy_in, device.record(device.compute))


class PlanRun:
    """Issue the operations of a plan, whose values are on the host, in order; then join the streams."""

    def __init__(self, runtime: Runtime, plan: Plan, memories: Mapping[int, SyncedMemory]):
        self.runtime, self.plan, self.memories = runtime, plan, memories
        self.device = runtime.device
        self.arena = runtime.arena.of(plan)
        self._events: dict[int, object] = {}
        self._waited, self._compressed = plan.waited, plan.compressed
        self._held_before = runtime.stats.held
        self._carried_over: frozenset[int] = frozenset()  # buffers that are already in their first place
        self.counted = Counters()

    def issue(self, op: Op, execute: Callable[[int], None]) -> None:
        """Queue one operation, or run it if it is a host step; `execute(step)` runs a layer pass."""
        device, config, recorder = self.device, self.runtime.config, self.runtime.recorder
        if recorder:
            recorder.operation(op.id)
            if op.kind in (OpKind.HOST, OpKind.COMPUTE):
                recorder.waits(op.step, op.waits)
        if op.kind is OpKind.HOST:
            for w in op.waits:
                device.wait_host(self._events[w])
            execute(op.step)
            return
        stream = (device.compute, device.copy_in, device.copy_out)[op.stream]
        for w in op.waits:
            device.wait(stream, self._events[w])
        if op.kind is OpKind.IN:
            if config.sync & 2:
                device.wait(stream, device.record(device.compute))
            self._copy_in(op, stream)
        elif op.kind is OpKind.OUT:
            memory, start = self.memories[op.placed.buffer], recorder and recorder.begin(stream)
            if op.host_slot is not None:
                segment, offset = self.runtime.slab.shared[op.host_slot.segment], op.host_slot.offset
                memory.lend_host_slot(segment[offset : offset + memory.nbytes])
            with self._copying(op.placed.buffer):
                memory.ask(Ask.SAVE, stream=stream, part=op.part)
            nbytes = self._copied(op, memory)
            self.counted.copies_out += op.begins
            self.counted.bytes_out += nbytes
            if recorder:
                recorder.end(COPIES_OUT, memory.name, start, stream, nbytes)
            if op.release:
                self._take_back(op.placed.buffer, Ask.EVICT)
            if config.sync & 1:
                if recorder:
                    recorder.waits(op.step, [op.id])
                device.wait(device.compute, device.record(stream))
        else:
            reused = dict(op.inplace_reuses)
            for old in reused:
                self.runtime.stats.held -= self.plan.buffers[old].nbytes
            written_in_place = set(reused.values())
            for place in op.births:
                self.memories[place.buffer].ask(Ask.OVERWRITE_GPU, span=self.span_of(place), stream=stream)
                self.held_more(self.plan.buffers[place.buffer].nbytes)
                if place.buffer not in written_in_place:
                    device.spoil(self.span_of(place), stream)
            execute(op.step)
            for b in op.frees:
                self._take_back(b, Ask.EVICT)
            for b in op.drops:
                if b in reused:
                    self.memories[b].hand_over()
                else:
                    self._take_back(b, Ask.DISCARD)
        if op.id in self._waited:
            self._events[op.id] = device.record(stream)

    def _copy_in(self, op: Op, stream: Any) -> None:
        memory, recorder = self.memories[op.placed.buffer], self.runtime.recorder
        if op.begins:
            self.held_more(self.plan.buffers[op.placed.buffer].nbytes)
            if op.placed.buffer in self._carried_over:
                self._carried_over -= {op.placed.buffer}
                memory.be_found(self.span_of(op.placed))
                if recorder:
                    recorder.idle(stream)
                return
        start = recorder and recorder.begin(stream)
        with self._copying(op.placed.buffer):
            memory.ask(Ask.READ_GPU, span=self.span_of(op.placed), stream=stream, part=op.part)
        if op.host_slot is not None and op.host_slot.last:
            memory.end_home()
        nbytes = self._copied(op, memory)
        self.counted.copies_in += op.begins
        self.counted.bytes_in += nbytes
        if recorder:
            recorder.end(COPIES_IN, memory.name, start, stream, nbytes)

    @contextmanager
    def _copying(self, buffer: int) -> Iterator[None]:
        """Compress copies of the buffer inside the context if the plan says so."""
        memory = self.memories[buffer]
        memory.through = self.runtime.compression if buffer in self._compressed else None
        try:
            yield
        finally:
            memory.through = None

    def _copied(self, op: Op, memory: SyncedMemory) -> int:
        """Return the bytes that an IN or OUT operation moves over the link."""
        if op.part is not None:
            return min(op.part[1], memory.nbytes - op.part[0])
        return self.plan.buffers[op.placed.buffer].compressed_bytes or memory.nbytes

    def held_more(self, nbytes: int) -> None:
        """Count bytes of managed buffers that came onto the device."""
        stats = self.runtime.stats
        stats.held_more(nbytes)
        self.counted.held_peak = max(self.counted.held_peak, stats.held)

    def span_of(self, place: Placement) -> Span:
        """Return the part of the arena where a buffer is placed."""
        return self.arena.at(place.offset, self.plan.buffers[place.buffer].nbytes)

    def _take_back(self, buffer: int, ask: Ask) -> None:
        memory = self.memories[buffer]
        if ask is Ask.EVICT and memory.state is not State.SYNCED:
            raise PlanError(
                f'"{memory.name}" is given back in state "{memory.state.value}"',
                fix="this is a bug: a layer changed what it declared to read only",
            )
        memory.ask(ask)
        self.runtime.stats.held -= self.plan.buffers[buffer].nbytes

    def _recover(self) -> None:
        """Evict every value to the host after a failed run, so that a later run can start.

        Values of compressed copies are dropped: they never outlive an iteration.
        """
        try:
            self.device.synchronize()
            for b in self.plan.buffers:
                memory = self.memories[b]
                memory.settle()
                if b in self._compressed:
                    memory.ask(Ask.DISCARD)
                elif memory.span is not None:
                    memory.ask(Ask.EVICT)
                    memory.give_back()  # device memory of a value whose copy in was not complete
            self.runtime.stats.held = self._held_before
            self.device.synchronize()
        except CaffeError as error:  # the device is lost; the caller raises the first failure
            _log.warning("Large Model Support could not evict the net's values after a failure: %s", error.message)
        except Exception:
            _log.exception("Large Model Support could not evict the net's values after a failure")

    def run(self, execute: Callable[[int], None]) -> Counters:
        """Issue all operations, then let every stream wait for the others. Return what was counted."""
        stats, plan, carry_over = self.runtime.stats, self.plan, self.runtime.carry_over
        self._carried_over = carry_over.take(plan, self.arena, self.memories)
        try:
            for op in plan.ops:
                self.issue(op, execute)
        except BaseException:
            stats.ran(plan, self.counted)
            self._recover()
            raise
        if self.runtime.recorder:
            self.runtime.recorder.waits(len(plan.program.steps) - 1, range(len(plan.ops)))
        device = self.device
        streams = (device.compute, device.copy_in, device.copy_out)
        events = [device.record(s) for s in streams]
        for stream in streams:
            for other, event in zip(streams, events, strict=True):
                if other is not stream:
                    device.wait(stream, event)
        self.counted.finished(plan)
        stats.ran(plan, self.counted)
        carry_over.note(plan, self.arena, self.memories)
        return self.counted
