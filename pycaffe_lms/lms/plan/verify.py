"""Verify a plan before it runs, sharing no code with the planner. Pure.

Order: stream order and events must order every two operations that touch the same bytes, one of them writing, on the
device and on the host; vector clocks over the three streams and the issuing thread show that.
Place: buffers that are on the device together do not overlap, nor do host slots in use; nothing lies outside.
Value: in issue order, which the first check makes sound, every read finds the newest value, no live value is lost, and
values that must survive are on the host at the end. A copy in parts is complete with its last part; until then no
operation uses, changes or drops the value. `plan/occupancy.py` says which memory an offset covers.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from ...errors import PlanError
from ..program import Mode
from .occupancy import Cells, LastOps, Occupants, Where, on_boundary
from .plan import COMPUTE, COPY_IN, COPY_OUT, HOST, Op, OpKind, Plan

_STREAM_OF = {OpKind.COMPUTE: COMPUTE, OpKind.IN: COPY_IN, OpKind.OUT: COPY_OUT, OpKind.HOST: HOST}


def verify(plan: Plan) -> None:
    """Raise PlanError, with the operation and the buffer, unless the plan is free of races and every value is right."""
    cells = Cells(plan)
    order, values = _Order(plan, cells), _Values(plan, cells)
    steps_done = 0
    for position, op in enumerate(plan.ops):
        if op.id != position:
            raise _wrong(plan, op, f"operation number {op.id} stands at position {position}")
        if op.stream != _STREAM_OF[op.kind]:
            raise _wrong(plan, op, f"runs on stream {op.stream}")
        if op.kind in (OpKind.COMPUTE, OpKind.HOST):
            if op.step != steps_done or plan.program.steps[op.step].host != (op.kind is OpKind.HOST):
                raise _wrong(plan, op, f"step {op.step} is not the next one ({steps_done})")
            steps_done += 1
        order.issue(op)
        values.run(op)
    if steps_done != len(plan.program.steps):
        raise PlanError(f"plan of {plan.program.name}: only {steps_done} of {len(plan.program.steps)} steps run")
    values.finish()


def _wrong(plan: Plan, op: Op, what: str) -> PlanError:
    """Return the error for an operation, with its step and buffer."""
    step = plan.program.steps[op.step].name if 0 <= op.step < len(plan.program.steps) else "?"
    blob = plan.buffers[op.place.buffer].name if op.place and op.place.buffer in plan.buffers else None
    return PlanError(
        f"plan of {plan.program.name}, operation {op.id} ({op.kind.value}, step {step}): {what}",
        fix="this is a bug in the planner, or an edited plan",
    ).at(blob=blob)


class _Order:
    """Detect races: the operations that touched the same bytes before must be known to be done."""

    def __init__(self, plan: Plan, cells: Cells):
        self.plan, self.cells = plan, cells
        self.clock: dict[int, dict[int, int]] = {
            s: {} for s in (COMPUTE, COPY_IN, COPY_OUT, HOST)
        }  # stream -> {stream: last op known done}
        self.after: list[dict[int, int]] = []
        # by stream and cell: the last op that wrote it, and that read it; older ones are ordered before these
        self.wrote, self.read = LastOps(cells), LastOps(cells)
        # by host segment: disjoint (first byte, end byte, last writer, readers since)
        self.slots: dict[int, list[tuple[int, int, int | None, tuple[int, ...]]]] = {}
        # buffer -> (last writer, readers since) of its own host memory
        self.host_copies: dict[int, tuple[int | None, tuple[int, ...]]] = {}
        self.place: dict[int, int] = {}  # buffer -> its offset, in issue order

    def issue(self, op: Op) -> None:
        """Check an operation against all before it, and advance its stream's clock."""
        known = dict(self.clock[op.stream])
        for stream, last in self.clock[HOST].items():  # what the issuing thread has waited for is done
            known[stream] = max(known.get(stream, -1), last)
        for w in op.waits:
            if not 0 <= w < op.id:
                raise _wrong(self.plan, op, f"waits for operation {w}, which is not issued before it")
            if self.plan.ops[w].kind is OpKind.HOST:
                raise _wrong(self.plan, op, f"waits for operation {w}, which is over when it is issued: the host's")
            for stream, last in self.after[w].items():
                known[stream] = max(known.get(stream, -1), last)
        self._check_accesses(op, known)
        known[op.stream] = op.id
        self.clock[op.stream] = known
        self.after.append(known)

    def _check_accesses(self, op: Op, known: dict[int, int]) -> None:
        """Check all device and host memory that an operation touches. known: stream -> last operation known done."""
        for b, offset, writes in self._places(op):
            where = self.cells.of(offset, self.plan.buffers[b].nbytes, op.part)
            if where is None:
                raise _wrong(self.plan, op, f'"{self.plan.buffers[b].name}" at {offset} lies outside the arena')
            self._ordered(op, b, known, self.wrote.of(where), "is not ordered after the write of those bytes by")
            if writes:
                self._ordered(op, b, known, self.read.of(where), "is not ordered after the read of those bytes by")
            (self.wrote if writes else self.read).note(where, op.stream, op.id)
        if op.host_slot is not None:
            self._check_slot(op, known)
            return
        for b, writes in self._host_sides(op):
            writer, readers = self.host_copies.get(b, (None, ()))
            self._ordered(op, b, known, (writer,), "is not ordered after the write of its host copy by")
            if writes:
                self._ordered(op, b, known, readers, "is not ordered after the read of its host copy by")
            self.host_copies[b] = (op.id, ()) if writes else (writer, (*readers, op.id))

    def _check_slot(self, op: Op, known: dict[int, int]) -> None:
        """Check a copy's access to its host slot, and split the segment's regions accordingly."""
        b, writes = op.placed.buffer, op.kind is OpKind.OUT
        start, nbytes = op.part or (0, self.plan.buffers[b].nbytes)
        lo = op.slot.offset + start
        hi = lo + nbytes
        kept: list[tuple[int, int, int | None, tuple[int, ...]]] = []
        read: list[tuple[int, int, int | None, tuple[int, ...]]] = []
        for region in self.slots.get(op.slot.segment, ()):
            start, end, writer, readers = region
            if end <= lo or start >= hi:
                kept.append(region)
                continue
            self._ordered(op, b, known, (writer,), "is not ordered after the write of those bytes of the host by")
            if writes:
                self._ordered(op, b, known, readers, "is not ordered after the read of those bytes of the host by")
            if start < lo:
                kept.append((start, lo, writer, readers))
            if end > hi:
                kept.append((hi, end, writer, readers))
            if not writes:
                read.append((max(start, lo), min(end, hi), writer, (*readers, op.id)))
        self.slots[op.slot.segment] = kept + ([(lo, hi, op.id, ())] if writes else read)

    def _ordered(self, op: Op, b: int, known: dict[int, int], others: Iterable[int | None], text: str) -> None:
        """Raise PlanError unless all `others` are known to be done when `op` runs."""
        for other in others:
            if other is None or other == op.id:
                continue
            if known.get(self.plan.ops[other].stream, -1) < other:
                raise _wrong(self.plan, op, f'"{self.plan.buffers[b].name}" {text} operation {other}')

    def _places(self, op: Op) -> Iterator[tuple[int, int, bool]]:
        """Yield (buffer, offset, whether it writes) of all device memory that an operation touches."""
        sizes = self.plan.buffers
        if op.kind in (OpKind.IN, OpKind.OUT):
            b = op.placed.buffer
            if op.kind is OpKind.IN:
                self.place[b] = op.placed.offset
            yield b, op.placed.offset, op.kind is OpKind.IN
        elif op.kind is OpKind.COMPUTE:
            for p in op.births:
                self.place[p.buffer] = p.offset
            accessed = self.plan.program.steps[op.step].accesses
            for a in accessed:
                if a.buffer in sizes and a.buffer in self.place:
                    yield a.buffer, self.place[a.buffer], a.mode is not Mode.READ
            for b in {*op.frees, *op.drops} - {a.buffer for a in accessed}:  # the next owner comes later
                if b in self.place:
                    yield b, self.place[b], False

    def _host_sides(self, op: Op) -> Iterator[tuple[int, bool]]:
        """Yield (buffer, whether it writes) of all host copies that an operation touches, host slots aside."""
        if op.kind is OpKind.IN:
            yield op.placed.buffer, False
        elif op.kind is OpKind.OUT:
            yield op.placed.buffer, True
        elif op.kind is OpKind.HOST:
            for a in self.plan.program.steps[op.step].accesses:
                if a.buffer in self.plan.buffers:
                    yield a.buffer, a.mode is not Mode.READ


class _Values:
    """Follow which version of every buffer is where, in issue order."""

    def __init__(self, plan: Plan, cells: Cells):
        self.plan, self.cells = plan, cells
        self.occupants = Occupants(cells)
        self.newest = dict.fromkeys(plan.buffers, 0)
        self.host = dict.fromkeys(plan.buffers, 0)
        self.device: dict[int, tuple[int, int]] = {}  # buffer -> (offset, version)
        self.host_slots: dict[int, tuple[int, int]] = {}  # buffer -> (segment, offset) of its host slot
        self.under_way: dict[int, tuple[OpKind, int]] = {}  # buffer -> (direction, bytes so far) of a copy in parts
        self.held = self.peak = 0

    def run(self, op: Op) -> None:
        """Apply an operation; raise PlanError if it would use a wrong value or place."""
        if op.kind is OpKind.IN:
            b, ended = op.placed.buffer, self._under_way(op)
            if self.host[b] != self.newest[b]:
                raise _wrong(self.plan, op, "the host copy is not the newest value")
            if self.host_slots.get(b) != (
                (op.host_slot.segment, op.host_slot.offset) if op.host_slot is not None else None
            ):
                raise _wrong(self.plan, op, "the value is elsewhere on the host")
            if op.begins:
                self._place(op, b, op.placed.offset, self.host[b])
            elif self.device[b][0] != op.placed.offset:
                raise _wrong(self.plan, op, "another part of the buffer is elsewhere")
            if op.host_slot is not None and op.host_slot.last:
                if not ended:
                    raise _wrong(self.plan, op, "the host slot is freed before the last part")
                del self.host_slots[b]
                self.host[b] = -2
        elif op.kind is OpKind.OUT:
            b, ended = op.placed.buffer, self._under_way(op)
            if b not in self.device or self.device[b][0] != op.placed.offset:
                raise _wrong(self.plan, op, "the buffer is not at that offset")
            self._take_slot(op, b)
            self.host[b] = self.device[b][1] if ended else -2
            if op.release:
                self._leave(op, b)
        elif op.part is not None:
            raise _wrong(self.plan, op, "a step has no parts")
        elif op.kind is OpKind.COMPUTE:
            self._compute(op)
        else:
            self._on_host(op)

    def _under_way(self, op: Op) -> bool:
        """Tell whether a copy ends with this operation, which must be a whole copy or the next part of one."""
        b, nbytes = op.placed.buffer, self.plan.buffers[op.placed.buffer].nbytes
        start, size = op.part or (0, nbytes)
        before = self.under_way.pop(b, None)
        if before != ((op.kind, start) if start else None):
            raise _wrong(self.plan, op, "is not the next part of the copy that is under way")
        possible = on_boundary(start) and 0 < size <= nbytes - start and not self.plan.buffers[b].compressed_bytes
        if op.part is not None and not possible:
            raise _wrong(self.plan, op, f"bytes {start}..{start + size} are no part of the buffer's {nbytes}")
        if start + size < nbytes:
            self.under_way[b] = op.kind, start + size
        return start + size == nbytes

    def _take_slot(self, op: Op, b: int) -> None:
        """Assign the host slot of a copy out, which must lie within its segment and be free."""
        if op.host_slot is None:
            if b in self.host_slots:
                raise _wrong(self.plan, op, "the value is elsewhere on the host")
            return
        slot, size = (op.host_slot.segment, op.host_slot.offset), self.plan.buffers[b].nbytes
        if not op.begins and b not in self.host_slots:
            raise _wrong(self.plan, op, "the part before it went to the buffer's own memory on the host")
        segment_bytes = self.plan.host_segments[slot[0]] if 0 <= slot[0] < len(self.plan.host_segments) else 0
        if slot[1] < 0 or slot[1] + size > segment_bytes:
            raise _wrong(self.plan, op, f"bytes {slot[1]}..{slot[1] + size} lie outside segment {slot[0]} of the host")
        if self.host_slots.setdefault(b, slot) != slot:
            raise _wrong(self.plan, op, "the value is elsewhere on the host")
        for other, (segment, offset) in self.host_slots.items():
            end = offset + self.plan.buffers[other].nbytes
            if other != b and segment == slot[0] and offset < slot[1] + size and slot[1] < end:
                raise _wrong(self.plan, op, f'the host slot is still that of "{self.plan.buffers[other].name}"')

    def _compute(self, op: Op) -> None:
        """Apply a step on the device."""
        accesses = {
            a.buffer: a.mode for a in self.plan.program.steps[op.step].accesses if a.buffer in self.plan.buffers
        }
        given = self._reuse_in_place(op, accesses)
        for p in op.births:
            if accesses.get(p.buffer) is not Mode.OVERWRITE:
                raise _wrong(self.plan, op, f'"{self.plan.buffers[p.buffer].name}" is placed without its value')
            self._place(op, p.buffer, p.offset, -1)
        accesses = {b: mode for b, mode in accesses.items() if b not in given}
        for b, mode in accesses.items():
            if b not in self.device:
                raise _wrong(self.plan, op, f'"{self.plan.buffers[b].name}" is not on the device')
            offset, version = self.device[b]
            if self.under_way.get(b, (None,))[0] is OpKind.IN or (b in self.under_way and mode is not Mode.READ):
                raise _wrong(self.plan, op, f'only a part of "{self.plan.buffers[b].name}" is copied')
            if mode is not Mode.OVERWRITE and version != self.newest[b]:
                raise _wrong(self.plan, op, f'"{self.plan.buffers[b].name}" on the device is not the newest value')
            if mode is not Mode.READ:
                self.newest[b] += 1
                self.device[b] = (offset, self.newest[b])
        for b in op.frees + op.drops:
            if b in given:
                continue
            if b not in self.device:
                raise _wrong(self.plan, op, f'"{self.plan.buffers[b].name}" is freed but not on the device')
            if b in op.frees and self.host[b] != self.newest[b]:
                raise _wrong(self.plan, op, f'"{self.plan.buffers[b].name}" is freed with a newer value')
            if b in op.drops:
                self._ends(op, b)
                self.host[b] = -2  # no valid copy is left
            self._leave(op, b)

    def _ends(self, op: Op, b: int) -> None:
        """Raise PlanError if a value that ends still has a host slot."""
        if b in self.host_slots:
            raise _wrong(self.plan, op, f'"{self.plan.buffers[b].name}" ends, and its host slot was not freed')

    def _reuse_in_place(self, op: Op, accesses: dict[int, Mode]) -> set[int]:
        """Apply in-place reuse; return the buffers that are read here for the last time and written over."""
        step, given = self.plan.program.steps[op.step], set()
        places = {p.buffer: p.offset for p in op.births}
        for old, new in op.inplace_reuses:
            name = self.plan.buffers[old].name
            if (old, new) not in step.reuses or old in given or old not in op.drops or new not in places:
                raise _wrong(self.plan, op, f'"{name}" is reused in place, which the step does not allow')
            if old not in self.device or self.device[old] != (places[new], self.newest[old]):
                raise _wrong(self.plan, op, f'"{name}" is reused in place, but is not there or not the newest value')
            if accesses.get(old, Mode.OVERWRITE) is Mode.OVERWRITE:
                raise _wrong(self.plan, op, f'"{name}" is reused in place without being read')
            if self.plan.buffers[old].nbytes != self.plan.buffers[new].nbytes:
                raise _wrong(self.plan, op, f'"{name}" is reused in place by a buffer of another size')
            if accesses[old] is not Mode.READ:
                self.newest[old] += 1
            self._ends(op, old)
            self.host[old] = -2
            self._leave(op, old)
            given.add(old)
        return given

    def _on_host(self, op: Op) -> None:
        """Apply a step on the host."""
        for a in self.plan.program.steps[op.step].accesses:
            if a.buffer not in self.plan.buffers:
                continue
            name = self.plan.buffers[a.buffer].name
            if a.buffer in self.device:
                raise _wrong(self.plan, op, f'"{name}" is on the device while the host uses it')
            if a.buffer in self.host_slots:
                raise _wrong(self.plan, op, f'"{name}" is in a host slot while the host uses it')
            if self.plan.buffers[a.buffer].compressed_bytes:
                raise _wrong(self.plan, op, f'"{name}", which is copied in 16 bits, is used by the host')
            if a.mode is not Mode.OVERWRITE and self.host[a.buffer] != self.newest[a.buffer]:
                raise _wrong(self.plan, op, f'the host copy of "{name}" is not the newest value')
            if a.mode is not Mode.READ:
                self.newest[a.buffer] += 1
                self.host[a.buffer] = self.newest[a.buffer]

    def _where(self, offset: int, nbytes: int) -> Where:
        """Return the cells of a place, which `_Order` has found to be within the arena."""
        where = self.cells.of(offset, nbytes)
        assert where is not None
        return where

    def _place(self, op: Op, b: int, offset: int, version: int) -> None:
        """Put a version of a buffer at an offset, which must be free."""
        size = self.plan.buffers[b].nbytes
        if b in self.device:
            raise _wrong(self.plan, op, f'"{self.plan.buffers[b].name}" is on the device already')
        other = self.occupants.enter(self._where(offset, size), b)
        if other is not None:
            raise _wrong(self.plan, op, f'overlaps "{self.plan.buffers[other].name}"')
        self.device[b] = (offset, version)
        self.held += size
        self.peak = max(self.peak, self.held)

    def _leave(self, op: Op, b: int) -> None:
        """Free the device memory of a buffer."""
        if b in self.under_way:
            raise _wrong(self.plan, op, f'only a part of "{self.plan.buffers[b].name}" is copied')
        offset, _ = self.device.pop(b)
        self.occupants.leave(self._where(offset, self.plan.buffers[b].nbytes))
        self.held -= self.plan.buffers[b].nbytes

    def finish(self) -> None:
        """Check the state after the last operation."""
        plan = self.plan
        for b in plan.program.live_out & plan.buffers.keys():
            if plan.buffers[b].compressed_bytes:
                raise PlanError(f"plan of {plan.program.name}: a value that must survive is copied in 16 bits").at(
                    blob=plan.buffers[b].name
                )
        if self.under_way:
            names = ", ".join(plan.buffers[b].name for b in self.under_way)
            raise PlanError(f"plan of {plan.program.name}: parts of copies are missing at the end: {names}")
        if self.device:
            names = ", ".join(plan.buffers[b].name for b in self.device)
            raise PlanError(f"plan of {plan.program.name}: still on the device at the end: {names}")
        for place in (op.placed for op in plan.carried_over):  # the next run skips these copies
            size, same = plan.buffers[place.buffer].nbytes, self.newest[place.buffer] == 0 == self.host[place.buffer]
            if not same or not self.occupants.framed(self._where(place.offset, size), place.buffer):
                raise PlanError(f"plan of {plan.program.name}: the value is not left where the next run begins").at(
                    blob=plan.buffers[place.buffer].name
                )
        if self.host_slots:
            names = ", ".join(plan.buffers[b].name for b in self.host_slots)
            raise PlanError(f"plan of {plan.program.name}: still in host slots at the end: {names}")
        for b in plan.program.live_out & plan.buffers.keys():
            if self.host[b] != self.newest[b]:
                raise PlanError(f"plan of {plan.program.name}: the value must survive but is lost").at(
                    blob=plan.buffers[b].name
                )
        if self.peak != plan.held_bytes:
            raise PlanError(f"plan of {plan.program.name}: says {plan.held_bytes} bytes at most, needs {self.peak}")
