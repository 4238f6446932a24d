"""Define a plan: a list of operations and the events that they wait for, as frozen values.

`planner/lowering.py` emits plans, `plan/verify.py` checks them, `runtime/executor.py` executes them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from functools import cached_property
from itertools import takewhile

from ..layout.paging import Paging
from ..program import Buffer, Program, Step, unchanged
from ..rules import Rules

COMPUTE, COPY_IN, COPY_OUT = 0, 1, 2  # streams
HOST = 3  # the issuing thread; not a stream


class OpKind(Enum):
    """Name the kinds of operations."""

    COMPUTE = "compute"  # run a step on the device
    HOST = "host"  # run a step on the host
    IN = "in"  # host -> device
    OUT = "out"  # device -> host, as soon as the value is final


@dataclass(frozen=True, slots=True)
class Placement:
    """Place a managed buffer at an offset in the arena, or at a paged address (see `Plan.paging`)."""

    buffer: int
    offset: int


@dataclass(frozen=True, slots=True)
class HostSlot:
    """Locate a host slot: an offset in one of the plan's host segments. last: the copy in frees the slot."""

    segment: int
    offset: int
    last: bool = False


@dataclass(frozen=True, slots=True)
class Piece:
    """Describe a piece of a split copy: its bytes, and the step before (in) or after (out) which it is issued."""

    step: int
    nbytes: int


@dataclass(frozen=True, slots=True)
class Op:
    """Describe one operation; operations are issued in order of `id`.

    The parts of a split copy follow each other in order of offset. The first one takes device memory and host slot;
    the last one frees them (`release`, `host_slot.last`) and is the one that other operations wait for.

    Attributes:
        waits: ids of operations on other streams that must finish first.
        place: the buffer that an IN or OUT copies, and where it is on the device.
        births: buffers that get memory for this step, which overwrites them.
        frees: buffers whose memory is freed after this step; their value is on the host already.
        drops: buffers whose value ends with this step.
        release: an OUT frees the device memory after the copy.
        inplace_reuses: pairs of a buffer in `drops` and one in `births` that is written over it.
        host_slot: where on the host the value is, of an IN or OUT; None: the buffer's own host memory.
        part: (offset, bytes) within the buffer, of an IN or OUT that copies only this part; None: the whole buffer.
    """

    id: int
    kind: OpKind
    stream: int
    step: int
    waits: tuple[int, ...] = ()
    place: Placement | None = None
    births: tuple[Placement, ...] = ()
    frees: tuple[int, ...] = ()
    drops: tuple[int, ...] = ()
    release: bool = False
    inplace_reuses: tuple[tuple[int, int], ...] = ()
    host_slot: HostSlot | None = None
    part: tuple[int, int] | None = None

    @property
    def begins(self) -> bool:
        """Tell whether this is a whole copy or the first part of one."""
        return self.part is None or self.part[0] == 0

    @property
    def placed(self) -> Placement:
        """Return what an IN or OUT copies and where it is on the device."""
        assert self.place is not None, f"operation {self.id} copies nothing"
        return self.place

    @property
    def slot(self) -> HostSlot:
        """Return the host slot of an IN or OUT that has one."""
        assert self.host_slot is not None, f"operation {self.id} has no host slot"
        return self.host_slot

    @property
    def comers(self) -> tuple[Placement, ...]:
        """Return the placements that take device memory with this operation."""
        return (self.placed,) if self.kind is OpKind.IN and self.begins else self.births


@dataclass(frozen=True)
class Plan:
    """Hold the operations of one program, in issue order, and what they need.

    Attributes:
        arena_bytes: device memory for all managed buffers.
        held_bytes: most bytes of managed buffers on the device at any point of the issue order.
        live_bytes: most bytes needed at once, a lower bound of packing.
        bytes_in, bytes_out: bytes copied by one run; carried-over values are not counted (`carried_over`).
        order: (step of the original program, whether it rematerializes) for every step of `program`.
        seconds: predicted time of one run.
        stall: predicted seconds of it in which steps wait for copies.
        rules: how it was made, in words.
        host_segments: bytes of every segment of host memory that host slots share.
        paging: memory behind offsets outside the contiguous part of the arena; None: the arena is contiguous.
        how: the rules of the eviction pass that made it, if one did.
    """

    program: Program
    buffers: Mapping[int, Buffer]
    ops: tuple[Op, ...]
    arena_bytes: int
    held_bytes: int
    live_bytes: int
    bytes_in: int
    bytes_out: int
    order: tuple[tuple[int, bool], ...]
    seconds: float = 0.0
    stall: float = 0.0
    rules: str = ""
    host_segments: tuple[int, ...] = ()
    paging: Paging | None = None
    how: Rules | None = field(default=None, compare=False)

    @property
    def largest_step(self) -> Step:
        """Return the step that needs the most bytes of managed buffers at once."""
        sizes = {b: buffer.nbytes for b, buffer in self.buffers.items()}
        return max(self.program.steps, key=lambda step: step.device_bytes(sizes))

    @property
    def copies(self) -> bool:
        """Tell whether the plan copies anything between host and device."""
        return bool(self.bytes_in or self.bytes_out)

    def stored(self, op: Op) -> int:
        """Return the bytes that an IN or OUT reads or writes on the device."""
        return self.buffers[op.placed.buffer].nbytes if op.part is None else op.part[1]

    def copied(self, op: Op) -> int:
        """Return the bytes that an IN or OUT moves over the link; fewer than `stored` under compression."""
        return self.buffers[op.placed.buffer].copied if op.part is None else op.part[1]

    @cached_property
    def carried_over(self) -> tuple[Op, ...]:
        """Return the copies in at the start that can be skipped if the run before executed this plan too.

        Their values are changed by no step, end where they begin, and no other buffer is placed over them afterwards.
        (None is placed there before: values copied in at the start are used after that.)"""
        start = takewhile(lambda op: op.kind in (OpKind.HOST, OpKind.IN), self.ops)
        front = [op for op in start if op.kind is OpKind.IN and op.part is None and op.host_slot is None]
        if not front:
            return ()
        constant = unchanged(self.program, {op.placed.buffer for op in front} - self.compressed)
        return tuple(op for op in front if op.placed.buffer in constant and self._is_left_in_place(op.placed))

    def _is_left_in_place(self, place: Placement) -> bool:
        """Tell whether a buffer ends at `place` and no other buffer overlaps it from then on."""
        last, end = place, 0
        for op in self.ops:
            for other in op.comers:
                if other.buffer == place.buffer:
                    last, end = other, len(self.ops)
            if place.buffer in op.frees:
                end = op.id
            if place.buffer in op.drops:
                return False
        later = (other for op in self.ops[end + 1 :] for other in op.comers)
        return last == place and not any(self._overlap(place, other) for other in later)

    def _overlap(self, one: Placement, other: Placement) -> bool:
        """Tell whether two placements have device memory in common."""
        linear = self.arena_bytes if self.paging is None else self.paging.linear
        if one.offset >= linear and other.offset >= linear:
            assert self.paging is not None  # else no offset is beyond the arena
            return self.paging.share(one.offset, other.offset)
        if one.offset >= linear or other.offset >= linear:
            return False
        ends = (p.offset + self.buffers[p.buffer].nbytes for p in (one, other))
        return max(one.offset, other.offset) < min(ends)

    @property
    def copy_pieces(self) -> int:
        """Return the number of operations that copy a piece of a buffer."""
        return sum(op.part is not None for op in self.ops)

    @property
    def rematerialized(self) -> int:
        """Return the number of steps that rematerialize."""
        return sum(again for _, again in self.order)

    @property
    def compressed(self) -> frozenset[int]:
        """Return the managed buffers that are copied with compression, in 16 bits."""
        return frozenset(
            op.place.buffer for op in self.ops if op.place and self.buffers[op.place.buffer].compressed_bytes
        )

    @property
    def host_bytes(self) -> int:
        """Return the bytes of host memory for copies: shared segments and the buffers' own."""
        return sum(self.host_segments) + sum(self.buffers[b].copied for b in self.host_buffers | self.compressed)

    @property
    def unshared_host_bytes(self) -> int:
        """Return `host_bytes` as it would be if every buffer had its own host memory."""
        shared = {op.placed.buffer for op in self.ops if op.host_slot is not None}
        return sum(self.buffers[b].copied for b in self.host_buffers | self.compressed | shared)

    @property
    def host_buffers(self) -> frozenset[int]:
        """Return the managed buffers that need their own uncompressed host memory: copied without a host slot, or used
        by a host step."""
        copied = {op.place.buffer for op in self.ops if op.place and op.host_slot is None}
        hosted = {a.buffer for step in self.program.steps if step.host for a in step.accesses}
        return frozenset((copied - self.compressed) | (hosted & self.buffers.keys()))

    @property
    def waited(self) -> frozenset[int]:
        """Return the ids of operations that another one waits for; they need an event."""
        return frozenset(w for op in self.ops for w in op.waits)


def seconds_of(plan: Plan | None) -> float:
    """Return the predicted seconds of one run of a plan; 0 without a plan."""
    return plan.seconds if plan is not None else 0.0
