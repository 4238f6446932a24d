"""From residences with offsets to operations with waits. Pure.

The waits are minimal: one is written only if stream order and earlier waits do not imply it already (vector clocks), so
taking any of them away is a race, and the verifier says so.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..plan.plan import COMPUTE, COPY_IN, COPY_OUT, HOST, Op, OpKind, Piece, Placement
from ..program import Buffer, Mode, Program

if TYPE_CHECKING:
    from ..layout.paging import Paging
    from ..plan.live_ranges import LiveRange

_Clock = tuple[int, int, int]


class _Regions:
    """Who held which bytes last. `claim` returns the residences whose memory is taken over."""

    def __init__(self, paging: Paging | None) -> None:
        self._starts: list[int] = []  # of `_regions`, in order
        self._regions: list[tuple[int, int, int]] = []
        self._paging = paging
        self._pages: dict[int, int] = {}

    def claim(self, lo: int, hi: int, owner: int) -> set[int]:
        if self._paging is not None and lo >= self._paging.linear:
            pages = self._paging.pages[lo]
            found = {self._pages.get(p, owner) for p in pages} - {owner}
            self._pages.update(dict.fromkeys(pages, owner))
            return found
        first, last = bisect_right(self._starts, lo), bisect_left(self._starts, hi)
        first -= first > 0 and self._regions[first - 1][1] > lo
        taken, now = self._regions[first:last], [(lo, hi, owner)]
        if taken and taken[0][0] < lo:
            now.insert(0, (taken[0][0], lo, taken[0][2]))
        if taken and taken[-1][1] > hi:
            now.append((hi, taken[-1][1], taken[-1][2]))
        self._regions[first:last] = now
        self._starts[first:last] = [start for start, _, _ in now]
        return {who for _, _, who in taken}


class _Emitter:
    def __init__(self) -> None:
        self.ops: list[Op] = []
        self.after: list[frozenset[int]] = []
        self.clocks: list[_Clock] = []  # after each op: the last op of every stream that is known to be done
        self._streams: list[_Clock] = [(-1, -1, -1)] * 3
        self.host: _Clock = (-1, -1, -1)

    def add(self, kind: OpKind, stream: int, step: int, after: set[int], **parts) -> int:
        """Append an op that must come after the ops `after`; keeps only the waits that are not implied."""
        op = len(self.ops)
        clock = self.host if stream == HOST else _join(self._streams[stream], self.host)
        waits: list[int] = []
        for a in sorted(after, reverse=True):  # later ops first: they may imply earlier ones
            source = self.ops[a].stream
            if source in (HOST, stream) or clock[source] >= a:
                continue
            waits.append(a)
            clock = _join(clock, self.clocks[a])
        waits = [w for w in waits if not any(w != v and self.clocks[v][self.ops[w].stream] >= w for v in waits)]
        if stream == HOST:
            self.host = clock
        else:
            clock = self._streams[stream] = _with(clock, stream, op)
        self.clocks.append(clock)
        self.after.append(frozenset(after))
        self.ops.append(Op(op, kind, stream, step, tuple(sorted(waits)), **parts))
        return op


@dataclass(frozen=True)
class Emitted:
    """ops in issue order. held: most bytes on loan at any moment of it. after: of every op all those that it must come
    after, whether stream order implies it or not."""

    ops: tuple[Op, ...]
    held: int
    after: tuple[frozenset[int], ...]


def emit(
    program: Program,
    buffers: Mapping[int, Buffer],
    stays: Sequence[LiveRange],
    offsets: Sequence[int],
    before: Mapping[int, int],
    paging: Paging | None = None,
) -> Emitted:
    """The operations of these residences. before: residence -> the one in whose place it is born.

    Copies in that are issued before the same step are in the order of their first uses. Copies out after a step: first
    of what it made, then those that were put off until there."""
    arriving: dict[int, list[tuple[int, _Part]]] = {}
    starting: dict[int, list[int]] = {}
    ending: dict[int, list[int]] = {}
    writing: dict[int, list[tuple[int, _Part]]] = {}
    gone: dict[int, int] = {}  # residence -> the step after which its copy out is issued to the end
    for i, r in enumerate(stays):
        for step, part in _parts(r.arrivals, r.issue) if r.fetched else ():
            arriving.setdefault(step, []).append((i, part))
        starting.setdefault(r.first, []).append(i)
        ending.setdefault(r.last, []).append(i)
        for step, part in _parts(r.departures, r.written) if r.saved else ():
            writing.setdefault(step, []).append((i, part))
            gone[i] = step
    out, regions = _Emitter(), _Regions(paging)
    released: dict[int, set[int]] = {}  # residence -> the ops after which its memory is free
    arrived: dict[int, int] = {}
    copied_out: dict[int, int] = {}  # buffer -> its last copy out
    slot_users: dict[int, set[int]] = {}  # buffer -> copies that touched its host side since the last host step
    made: list[int] = []  # by step
    held = peak = 0

    def copy_out(s: int) -> int:
        """Those that are issued after step `s`; returns what they give back."""
        given_back = 0
        for i, part in sorted(writing.get(s, ()), key=lambda w: (stays[w[0]].written != s, *_age(stays[w[0]]), w[0])):
            b, release = stays[i].buffer, gone[i] == s >= stays[i].last
            place = Placement(b, offsets[i])
            copy = out.add(OpKind.OUT, COPY_OUT, s, {made[stays[i].written]}, place=place, release=release, part=part)
            slot_users.setdefault(b, set()).add(copy)
            if gone[i] == s:
                released.setdefault(i, set()).add(copy)
                copied_out[b] = copy
            given_back += buffers[b].nbytes if release else 0
        return given_back

    for s, step in enumerate(program.steps):
        for i, part in sorted(arriving.get(s, ()), key=lambda a: (stays[a[0]].first, a[0])):
            b, size = stays[i].buffer, buffers[stays[i].buffer].nbytes
            first, after = part is None or part[0] == 0, set()
            if first:
                after = after.union(*(released[j] for j in regions.claim(offsets[i], offsets[i] + size, i)))
            if b in copied_out:
                after.add(copied_out[b])
            arrived[i] = out.add(OpKind.IN, COPY_IN, s, after, place=Placement(b, offsets[i]), part=part)
            slot_users.setdefault(b, set()).add(arrived[i])
            held += size if first else 0
            peak = max(peak, held)
        if step.host:
            after = set()
            for a in step.accesses:
                if a.mode is not Mode.READ:
                    after |= slot_users.pop(a.buffer, set())
                elif a.buffer in copied_out:
                    after.add(copied_out[a.buffer])
            made.append(out.add(OpKind.HOST, HOST, s, after))
            held -= copy_out(s)
            continue
        births, after, given = [], set(), []
        for i in starting.get(s, ()):
            if stays[i].fetched:
                after.add(arrived[i])
                continue
            b, size = stays[i].buffer, buffers[stays[i].buffer].nbytes
            owners = regions.claim(offsets[i], offsets[i] + size, i)
            births.append(Placement(b, offsets[i]))
            if i in before:
                given.append((stays[before[i]].buffer, b))
                continue
            after = after.union(*(released[j] for j in owners))
            held += size
        peak = max(peak, held)
        done = ending.get(s, [])
        frees = tuple(stays[i].buffer for i in done if stays[i].live and gone.get(i, -1) < s)
        drops = tuple(stays[i].buffer for i in done if not stays[i].live)
        parts = {"births": tuple(births), "frees": frees, "drops": drops, "inplace_reuses": tuple(given)}
        made.append(out.add(OpKind.COMPUTE, COMPUTE, s, after, **parts))
        for i in done:
            released.setdefault(i, set()).add(made[s])
        handed = {old for old, _ in given}
        held -= sum(buffers[b].nbytes for b in (*frees, *drops) if b not in handed)
        held -= copy_out(s)
    return Emitted(tuple(out.ops), peak, tuple(out.after))


_Part = tuple[int, int] | None


def _parts(pieces: Sequence[Piece], whole: int) -> list[tuple[int, _Part]]:
    """(step, part) of the pieces of a copy; without any, it is made whole at step `whole`."""
    if len(pieces) < 2:
        return [(pieces[0].step if pieces else whole, None)]
    found, offset = [], 0
    for piece in pieces:
        found.append((piece.step, (offset, piece.nbytes)))
        offset += piece.nbytes
    return found


def _age(stay: LiveRange) -> tuple[int, int]:
    return stay.written, stay.last


def _join(a: _Clock, b: _Clock) -> _Clock:
    return (max(a[0], b[0]), max(a[1], b[1]), max(a[2], b[2]))


def _with(clock: _Clock, stream: int, op: int) -> _Clock:
    return tuple(op if i == stream else c for i, c in enumerate(clock))  # type: ignore[return-value]
