"""Proves a plan before it runs, sharing no code with what made it. Pure. What is behind an offset: `cells.py`.

Three arguments. Order: vector clocks over the three streams and the issuing thread; every two operations that touch the
same bytes, one of them writing, must be ordered by stream order and events alone, on the device and in shared memory of
the host. Place: no two buffers that are on the device together overlap, no two values at home in shared memory do, and
nothing lies outside. Value: followed in issue order (which order makes sound), every
read finds the newest value, nothing live is lost, and what must survive is at home in the end. A copy in parts has
arrived with the last of them, and nobody uses, changes or ends the value on its way.
"""

from __future__ import annotations

from ...errors import PlanError
from ..program import Mode
from .occupancy import Cells, LastOps, Occupants, on_boundary
from .plan import COMPUTE, COPY_IN, COPY_OUT, HOST, Op, OpKind, Plan

_STREAM_OF = {OpKind.COMPUTE: COMPUTE, OpKind.IN: COPY_IN, OpKind.OUT: COPY_OUT, OpKind.HOST: HOST}


def verify(plan: Plan) -> None:
    """Raise PlanError, naming the operation and the buffer, unless the plan is safe and computes the right values."""
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
        raise PlanError(f"plan of {plan.program.name}: only {steps_done} of {len(plan.program.steps)} steps are there")
    values.finish()


def _wrong(plan: Plan, op: Op, what: str) -> PlanError:
    step = plan.program.steps[op.step].name if 0 <= op.step < len(plan.program.steps) else "?"
    blob = plan.buffers[op.place.buffer].name if op.place and op.place.buffer in plan.buffers else None
    return PlanError(f"plan of {plan.program.name}, operation {op.id} ({op.kind.value}, step {step}): {what}",
                     fix="this is a bug in the planner, or an edited plan").at(blob=blob)  # fmt: skip


class _Order:
    """Race detection: who touched which bytes last, and is that known to be over?"""

    def __init__(self, plan: Plan, cells: Cells):
        self.plan, self.cells = plan, cells
        self.clock = {s: {} for s in (COMPUTE, COPY_IN, COPY_OUT, HOST)}  # stream -> {stream: last op known done}
        self.after: list[dict[int, int]] = []
        # by stream and cell: the last op that wrote it, that read it. Older ones are ordered before those already
        self.wrote, self.read = LastOps(cells), LastOps(cells)
        # by segment of the host's shared memory: disjoint [lo, hi, last writer, readers since]
        self.shared: dict[int, list[tuple[int, int, int | None, tuple[int, ...]]]] = {}
        # buffer -> host copy's last writer, readers since
        self.home: dict[int, tuple[int | None, tuple[int, ...]]] = {}
        self.place: dict[int, int] = {}  # where a buffer is, in issue order

    def issue(self, op: Op) -> None:
        known = dict(self.clock[op.stream])
        for stream, last in self.clock[HOST].items():  # what the issuing thread has seen finished, is finished
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
        for b, offset, writes in self._places(op):
            where = self.cells.of(offset, self.plan.buffers[b].nbytes, op.part)
            if where is None:
                raise _wrong(self.plan, op, f'"{self.plan.buffers[b].name}" at {offset} lies outside the arena')
            self._ordered(op, b, known, self.wrote.of(where), "is not ordered after the write of those bytes by")
            if writes:
                self._ordered(op, b, known, self.read.of(where), "is not ordered after the read of those bytes by")
            (self.wrote if writes else self.read).note(where, op.stream, op.id)
        if op.home is not None:
            self._touch_home(op, known)
            return
        for b, writes in self._host_sides(op):
            writer, readers = self.home.get(b, (None, ()))
            self._ordered(op, b, known, (writer,), "is not ordered after the write of its host copy by")
            if writes:
                self._ordered(op, b, known, readers, "is not ordered after the read of its host copy by")
            self.home[b] = (op.id, ()) if writes else (writer, (*readers, op.id))

    def _touch_home(self, op: Op, known: dict[int, int]) -> None:
        """The regions of shared memory after `op` read or wrote its home there."""
        b, writes = op.place.buffer, op.kind is OpKind.OUT
        start, nbytes = op.part or (0, self.plan.buffers[b].nbytes)
        lo = op.home.offset + start
        hi = lo + nbytes
        kept: list[tuple[int, int, int | None, tuple[int, ...]]] = []
        read: list[tuple[int, int, int | None, tuple[int, ...]]] = []
        for region in self.shared.get(op.home.segment, ()):
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
        self.shared[op.home.segment] = kept + ([(lo, hi, op.id, ())] if writes else read)

    def _ordered(self, op: Op, b: int, known: dict[int, int], others, text: str) -> None:
        for other in others:
            if other is None or other == op.id:
                continue
            if known.get(self.plan.ops[other].stream, -1) < other:
                raise _wrong(self.plan, op, f'"{self.plan.buffers[b].name}" {text} operation {other}')

    def _places(self, op: Op):
        sizes = self.plan.buffers
        if op.kind in (OpKind.IN, OpKind.OUT):
            b = op.place.buffer
            if op.kind is OpKind.IN:
                self.place[b] = op.place.offset
            yield b, op.place.offset, op.kind is OpKind.IN
        elif op.kind is OpKind.COMPUTE:
            for p in op.births:
                self.place[p.buffer] = p.offset
            accessed = self.plan.program.steps[op.step].accesses
            for a in accessed:
                if a.buffer in sizes and a.buffer in self.place:
                    yield a.buffer, self.place[a.buffer], a.mode is not Mode.READ
            for b in {*op.frees, *op.drops} - {a.buffer for a in accessed}:  # the next one there comes after that
                if b in self.place:
                    yield b, self.place[b], False

    def _host_sides(self, op: Op):
        if op.kind is OpKind.IN:
            yield op.place.buffer, False
        elif op.kind is OpKind.OUT:
            yield op.place.buffer, True
        elif op.kind is OpKind.HOST:
            for a in self.plan.program.steps[op.step].accesses:
                if a.buffer in self.plan.buffers:
                    yield a.buffer, a.mode is not Mode.READ


class _Values:
    """Which version of every buffer is where, in issue order."""

    def __init__(self, plan: Plan, cells: Cells):
        self.plan, self.cells = plan, cells
        self.memory_owners = Occupants(cells)
        self.newest = dict.fromkeys(plan.buffers, 0)
        self.host = dict.fromkeys(plan.buffers, 0)
        self.device: dict[int, tuple[int, int]] = {}  # buffer -> (offset, version)
        self.lent: dict[int, tuple[int, int]] = {}  # buffer -> its home in shared memory of the host
        self.under_way: dict[int, tuple[OpKind, int]] = {}  # buffer -> which copy, how many bytes of it
        self.held = self.peak = 0

    def run(self, op: Op) -> None:
        if op.kind is OpKind.IN:
            b, ended = op.place.buffer, self._under_way(op)
            if self.host[b] != self.newest[b]:
                raise _wrong(self.plan, op, "the host copy is not the newest value")
            if self.lent.get(b) != ((op.home.segment, op.home.offset) if op.home is not None else None):
                raise _wrong(self.plan, op, "the value has another home")
            if op.begins:
                self._place(op, b, op.place.offset, self.host[b])
            elif self.device[b][0] != op.place.offset:
                raise _wrong(self.plan, op, "another part of the buffer is elsewhere")
            if op.home is not None and op.home.last:
                if not ended:
                    raise _wrong(self.plan, op, "the home is given up before the last part")
                del self.lent[b]
                self.host[b] = -2
        elif op.kind is OpKind.OUT:
            b, ended = op.place.buffer, self._under_way(op)
            if b not in self.device or self.device[b][0] != op.place.offset:
                raise _wrong(self.plan, op, "the buffer is not at that offset")
            self._move_in(op, b)
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
        """Whether a copy ends with this operation, which must be whole or the next part of it."""
        b, nbytes = op.place.buffer, self.plan.buffers[op.place.buffer].nbytes
        start, size = op.part or (0, nbytes)
        before = self.under_way.pop(b, None)
        if before != ((op.kind, start) if start else None):
            raise _wrong(self.plan, op, "is not the next part of the copy that is under way")
        possible = on_boundary(start) and 0 < size <= nbytes - start and not self.plan.buffers[b].halved
        if op.part is not None and not possible:
            raise _wrong(self.plan, op, f"bytes {start}..{start + size} are no part of the buffer's {nbytes}")
        if start + size < nbytes:
            self.under_way[b] = op.kind, start + size
        return start + size == nbytes

    def _move_in(self, op: Op, b: int) -> None:
        """The value gets its home; whoever else has some of that memory loses it."""
        if op.home is None:
            if b in self.lent:
                raise _wrong(self.plan, op, "the value has another home")
            return
        home, size = (op.home.segment, op.home.offset), self.plan.buffers[b].nbytes
        if not op.begins and b not in self.lent:
            raise _wrong(self.plan, op, "the part before it went to the buffer's own memory on the host")
        there = self.plan.homes[home[0]] if 0 <= home[0] < len(self.plan.homes) else 0
        if home[1] < 0 or home[1] + size > there:
            raise _wrong(self.plan, op, f"bytes {home[1]}..{home[1] + size} lie outside segment {home[0]} of the host")
        if self.lent.setdefault(b, home) != home:
            raise _wrong(self.plan, op, "the value has another home")
        for other, (segment, offset) in self.lent.items():
            end = offset + self.plan.buffers[other].nbytes
            if other != b and segment == home[0] and offset < home[1] + size and home[1] < end:
                raise _wrong(self.plan, op, f'the home is still that of "{self.plan.buffers[other].name}"')

    def _compute(self, op: Op) -> None:
        accesses = {
            a.buffer: a.mode for a in self.plan.program.steps[op.step].accesses if a.buffer in self.plan.buffers
        }
        given = self._hand_over(op, accesses)
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
                raise _wrong(self.plan, op, f'"{self.plan.buffers[b].name}" is given back but not on the device')
            if b in op.frees and self.host[b] != self.newest[b]:
                raise _wrong(self.plan, op, f'"{self.plan.buffers[b].name}" is given back with a newer value')
            if b in op.drops:
                self._ends(op, b)
                self.host[b] = -2  # nowhere: whoever reads it now is wrong
            self._leave(op, b)

    def _ends(self, op: Op, b: int) -> None:
        if b in self.lent:
            raise _wrong(self.plan, op, f'"{self.plan.buffers[b].name}" ends, and its home was not given up')

    def _hand_over(self, op: Op, accesses: dict[int, Mode]) -> set[int]:
        """Buffers whose newest value is read here for the last time, in whose place another is written."""
        step, given = self.plan.program.steps[op.step], set()
        places = {p.buffer: p.offset for p in op.births}
        for old, new in op.inplace_reuses:
            name = self.plan.buffers[old].name
            if (old, new) not in step.reuses or old in given or old not in op.drops or new not in places:
                raise _wrong(self.plan, op, f'"{name}" hands over its place, which the step does not allow')
            if old not in self.device or self.device[old] != (places[new], self.newest[old]):
                raise _wrong(self.plan, op, f'"{name}" hands over its place, but is not there, or not the newest value')
            if accesses.get(old, Mode.OVERWRITE) is Mode.OVERWRITE:
                raise _wrong(self.plan, op, f'"{name}" hands over its place without being read')
            if self.plan.buffers[old].nbytes != self.plan.buffers[new].nbytes:
                raise _wrong(self.plan, op, f'"{name}" hands over a place of another size')
            if accesses[old] is not Mode.READ:
                self.newest[old] += 1
            self._ends(op, old)
            self.host[old] = -2
            self._leave(op, old)
            given.add(old)
        return given

    def _on_host(self, op: Op) -> None:
        for a in self.plan.program.steps[op.step].accesses:
            if a.buffer not in self.plan.buffers:
                continue
            name = self.plan.buffers[a.buffer].name
            if a.buffer in self.device:
                raise _wrong(self.plan, op, f'"{name}" is on the device while the host uses it')
            if a.buffer in self.lent:
                raise _wrong(self.plan, op, f'"{name}" has no home of its own while the host uses it')
            if self.plan.buffers[a.buffer].halved:
                raise _wrong(self.plan, op, f'"{name}", which is copied in 16 bits, is used by the host')
            if a.mode is not Mode.OVERWRITE and self.host[a.buffer] != self.newest[a.buffer]:
                raise _wrong(self.plan, op, f'the host copy of "{name}" is not the newest value')
            if a.mode is not Mode.READ:
                self.newest[a.buffer] += 1
                self.host[a.buffer] = self.newest[a.buffer]

    def _place(self, op: Op, b: int, offset: int, version: int) -> None:
        size = self.plan.buffers[b].nbytes
        if b in self.device:
            raise _wrong(self.plan, op, f'"{self.plan.buffers[b].name}" is on the device already')
        where = self.cells.of(offset, size)
        other = self.memory_owners.enter(where, b)
        if other is not None:
            raise _wrong(self.plan, op, f'overlaps "{self.plan.buffers[other].name}"')
        self.device[b] = (offset, version)
        self.held += size
        self.peak = max(self.peak, self.held)

    def _leave(self, op: Op, b: int) -> None:
        if b in self.under_way:
            raise _wrong(self.plan, op, f'only a part of "{self.plan.buffers[b].name}" is copied')
        offset, _ = self.device.pop(b)
        self.memory_owners.leave(self.cells.of(offset, self.plan.buffers[b].nbytes))
        self.held -= self.plan.buffers[b].nbytes

    def finish(self) -> None:
        plan = self.plan
        for b in plan.program.live_out & plan.buffers.keys():
            if plan.buffers[b].halved:
                raise PlanError(f"plan of {plan.program.name}: a value that must survive is copied in 16 bits").at(
                    blob=plan.buffers[b].name
                )
        if self.device:
            names = ", ".join(plan.buffers[b].name for b in self.device)
            raise PlanError(f"plan of {plan.program.name}: still on the device in the end: {names}")
        for place in (
            op.place for op in plan.carried_over
        ):  # what a run leaves there is what the next one would copy in
            size, same = plan.buffers[place.buffer].nbytes, self.newest[place.buffer] == 0 == self.host[place.buffer]
            if not same or not self.memory_owners.framed(self.cells.of(place.offset, size), place.buffer):
                raise PlanError(f"plan of {plan.program.name}: the value is not left where the next run begins").at(
                    blob=plan.buffers[place.buffer].name
                )
        if self.lent:
            names = ", ".join(plan.buffers[b].name for b in self.lent)
            raise PlanError(f"plan of {plan.program.name}: still in shared memory of the host in the end: {names}")
        for b in plan.program.live_out & plan.buffers.keys():
            if self.host[b] != self.newest[b]:
                raise PlanError(f"plan of {plan.program.name}: the value must survive but is lost").at(
                    blob=plan.buffers[b].name
                )
        if self.peak != plan.held_bytes:
            raise PlanError(f"plan of {plan.program.name}: says {plan.held_bytes} bytes at most, needs {self.peak}")
