"""What a plan is: a list of operations with the events they wait for. Frozen values; made by the planner, checked by
the verifier, obeyed by the runtime."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from functools import cached_property
from itertools import takewhile

from ..layout.paging import Paging
from ..program import Buffer, Program, Step, unchanged
from .rules import Rules

COMPUTE, COPY_IN, COPY_OUT = 0, 1, 2  # streams
HOST = 3  # not a stream: the issuing thread itself


class OpKind(Enum):
    COMPUTE = "compute"  # run a step on the device
    HOST = "host"  # run a step on the host
    IN = "in"  # host -> device
    OUT = "out"  # device -> host, as soon as the value is final


@dataclass(frozen=True, slots=True)
class Placement:
    """A managed buffer at an offset of the arena, or at an address of its own: see `Plan.paging`."""

    buffer: int
    offset: int


@dataclass(frozen=True, slots=True)
class HostSlot:
    """Shared memory on the host: an offset in one of the plan's segments. last: the copy in gives it up."""

    segment: int
    offset: int
    last: bool = False


@dataclass(frozen=True, slots=True)
class Piece:
    """Of a copy that is made in several: how much, and when it is issued: in, before a step; out, after one."""

    step: int
    nbytes: int


@dataclass(frozen=True, slots=True)
class Op:
    """One operation. Operations are issued in order of `id`; `waits` are ids of operations on other streams.

    births: buffers that get memory for this step and are overwritten by it. frees: clean buffers whose memory is
    given back after it. drops: buffers whose value dies with it. For IN and OUT, `place` is what is copied; an OUT
    with `release` also gives the memory back (no later step reads it there). inplace_reuses: pairs of a buffer among
    `drops` and one among `births` that is written in its place. home: where an IN or OUT finds or puts the value on the
    host;
    None: in the buffer's own memory there. part: (offset, bytes) of the buffer as it is stored on the device, of an IN
    or OUT that copies no more; None: all of it. Parts of a copy follow each other in the order of their offsets. The
    first gets what a copy needs, memory and home; what ends with a copy ends with the last (`release`, `home.last`),
    and that is the one that others wait for.
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
    home: HostSlot | None = None
    part: tuple[int, int] | None = None

    @property
    def begins(self) -> bool:
        """Whether a copy is whole, or its first part."""
        return self.part is None or self.part[0] == 0

    @property
    def comers(self) -> tuple[Placement, ...]:
        """What gets memory with this operation."""
        return (self.place,) if self.kind is OpKind.IN and self.begins else self.births


@dataclass(frozen=True)
class Plan:
    """ops in issue order. arena_bytes: device memory that holds all managed buffers. held_bytes: most bytes of managed
    buffers on loan at any moment of the issue order. live_bytes: most bytes needed at once (packing's lower bound).
    bytes_in, bytes_out: copied by one run, but for what the run before left (`carried_over`). order: which steps of the
    program that was planned run, by index, and which of them are replays (True). seconds: predicted time of one run,
    stall: how much of it steps wait for copies. rules: how it was made, in words. homes: bytes of the segments of host
    memory that values use in turn. paging: what stands behind offsets that are no bytes of the arena; None: all are.
    how: the rules that it was made by, if it was."""

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
    homes: tuple[int, ...] = ()
    paging: Paging | None = None
    how: Rules | None = field(default=None, compare=False)

    @property
    def largest_step(self) -> Step:
        """The step that needs most of the managed buffers at once."""
        sizes = {b: buffer.nbytes for b, buffer in self.buffers.items()}
        return max(self.program.steps, key=lambda step: step.device_bytes(sizes))

    @property
    def copies(self) -> bool:
        """Whether anything is copied between host and device."""
        return bool(self.bytes_in or self.bytes_out)

    def stored(self, op: Op) -> int:
        """Bytes that an IN or OUT reads or writes on the device."""
        return self.buffers[op.place.buffer].nbytes if op.part is None else op.part[1]

    def copied(self, op: Op) -> int:
        """Bytes that an IN or OUT moves over the link."""
        return self.buffers[op.place.buffer].copied if op.part is None else op.part[1]

    @cached_property
    def carried_over(self) -> tuple[Op, ...]:
        """The copies in at the very front that need not be made if the run before was of this plan: of values that no
        step changes, whose last place is their first, and nobody else comes there after their last use. (Before the
        copy nobody does: who is copied in at the front stays beyond it.)"""
        start = takewhile(lambda op: op.kind in (OpKind.HOST, OpKind.IN), self.ops)
        front = [op for op in start if op.kind is OpKind.IN and op.part is None and op.home is None]
        if not front:
            return ()
        stay = unchanged(self.program, {op.place.buffer for op in front} - self.halved)
        return tuple(op for op in front if op.place.buffer in stay and self._is_left(op.place))

    def _is_left(self, place: Placement) -> bool:
        last, end = place, 0
        for op in self.ops:
            for other in op.comers:
                if other.buffer == place.buffer:
                    last, end = other, len(self.ops)
            if place.buffer in op.frees:
                end = op.id
            if place.buffer in op.drops:
                return False
        behind = (other for op in self.ops[end + 1 :] for other in op.comers)
        return last == place and not any(self._overlap(place, other) for other in behind)

    def _overlap(self, one: Placement, other: Placement) -> bool:
        linear = self.arena_bytes if self.paging is None else self.paging.linear
        if one.offset >= linear and other.offset >= linear:
            return not set(self.paging.pages[one.offset]).isdisjoint(self.paging.pages[other.offset])
        if one.offset >= linear or other.offset >= linear:
            return False
        ends = (p.offset + self.buffers[p.buffer].nbytes for p in (one, other))
        return max(one.offset, other.offset) < min(ends)

    @property
    def parts(self) -> int:
        """Operations that copy a part of a buffer."""
        return sum(op.part is not None for op in self.ops)

    @property
    def replayed(self) -> int:
        """Steps that run a second time."""
        return sum(again for _, again in self.order)

    @property
    def halved(self) -> frozenset[int]:
        """Managed buffers that are copied in 16 bits."""
        return frozenset(op.place.buffer for op in self.ops if op.place and self.buffers[op.place.buffer].halved)

    @property
    def host_bytes(self) -> int:
        """Of all homes on the host."""
        return sum(self.homes) + sum(self.buffers[b].copied for b in self.host_buffers | self.halved)

    @property
    def unshared_host_bytes(self) -> int:
        """The same, if every value had a home of its own."""
        shared = {op.place.buffer for op in self.ops if op.home is not None}
        return sum(self.buffers[b].copied for b in self.host_buffers | self.halved | shared)

    @property
    def host_buffers(self) -> frozenset[int]:
        """Managed buffers that need a home of their own on the host, in full: copied out or in, or written by a host
        step."""
        copied = {op.place.buffer for op in self.ops if op.place and op.home is None}
        copied -= self.halved
        for step in self.program.steps:
            if step.host:
                copied |= {a.buffer for a in step.accesses if a.buffer in self.buffers}
        return frozenset(copied)

    @property
    def waited(self) -> frozenset[int]:
        """Ids of operations that another one waits for: they need an event."""
        return frozenset(w for op in self.ops for w in op.waits)


def seconds_of(plan: Plan | None) -> float:
    """Predicted time of one run of a plan; 0 where there is none."""
    return plan.seconds if plan is not None else 0.0
