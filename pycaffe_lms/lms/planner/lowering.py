"""Lower live ranges with offsets to operations with waits. Pure.

Waits are minimal: an operation waits for another only if stream order and earlier waits (vector clocks) do not imply it
already. Removing any wait is therefore a race, which `../plan/verify.py` reports. `lookahead.py` calls `emit`.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..plan.plan import COMPUTE, COPY_IN, COPY_OUT, HOST, Op, OpKind, Piece, Placement
from ..program import Buffer, Mode, Program

if TYPE_CHECKING:
    from ..layout.paging import Paging
    from ..plan.live_ranges import LiveRange

_Clock = tuple[int, int, int]


class _Regions:
    """Remember which live range held each byte last."""

    def __init__(self, paging: Paging | None) -> None:
        self._starts: list[int] = []  # of `_regions`, in order
        self._regions: list[tuple[int, int, int]] = []
        self._paging = paging
        self._pages: dict[int, int] = {}

    def claim(self, lo: int, hi: int, owner: int) -> set[int]:
        """Give bytes `lo` to `hi` to live range `owner` and return the live ranges that held any of them before."""
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
        return {previous for _, _, previous in taken}


class _Emitter:
    """Collect operations in issue order, and reduce what each must come after to minimal waits."""

    def __init__(self) -> None:
        self.ops: list[Op] = []
        self.after: list[frozenset[int]] = []
        self.clocks: list[_Clock] = []  # per op: the last op of each stream known to be done after it
        self._streams: list[_Clock] = [(-1, -1, -1)] * 3
        self.host: _Clock = (-1, -1, -1)

    def add(self, kind: OpKind, stream: int, step: int, after: set[int], **parts: Any) -> int:
        """Append an op that must come after the ops `after`, waiting only where that is not implied; return its id."""
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
    """Hold operations in issue order.

    held: most bytes of managed buffers on the device at any moment of the issue order. after: for each op, all ops
    that it must come after, whether or not stream order implies it.
    """

    ops: tuple[Op, ...]
    held: int
    after: tuple[frozenset[int], ...]


def emit(
    program: Program,
    buffers: Mapping[int, Buffer],
    ranges: Sequence[LiveRange],
    offsets: Sequence[int],
    before: Mapping[int, int],
    paging: Paging | None,
) -> Emitted:
    """Return the operations of these live ranges.

    Copies in that are issued before the same step are in order of first use. Copies out after a step: first values that
    it wrote, then copies that copy reordering moved there.

    Args:
        offsets: bytes, one for each live range.
        before: in-place reuse: live range -> the one whose memory it reuses (indices).
        paging: pages behind the offsets; None: the arena is contiguous.
    """
    copies_in: dict[int, list[tuple[int, _Part]]] = {}  # by step: (live range, part); so is `copies_out`
    starting: dict[int, list[int]] = {}
    ending: dict[int, list[int]] = {}
    copies_out: dict[int, list[tuple[int, _Part]]] = {}
    out_at: dict[int, int] = {}  # live range -> the step after which the last piece of its copy out is issued
    for i, r in enumerate(ranges):
        for s, part in _parts(r.arrivals, r.issue) if r.fetched else ():
            copies_in.setdefault(s, []).append((i, part))
        starting.setdefault(r.first, []).append(i)
        ending.setdefault(r.last, []).append(i)
        for s, part in _parts(r.departures, r.final) if r.saved else ():
            copies_out.setdefault(s, []).append((i, part))
            out_at[i] = s
    out, regions = _Emitter(), _Regions(paging)
    released: dict[int, set[int]] = {}  # live range -> the ops after which its memory is free
    copied_in: dict[int, int] = {}
    copied_out: dict[int, int] = {}  # buffer -> its last copy out
    host_users: dict[int, set[int]] = {}  # buffer -> copies of its host value since the last host step
    made: list[int] = []  # by step
    held = peak = 0

    def copy_out(s: int) -> int:
        """Issue copies out after step `s` and return the bytes that they free."""
        freed = 0
        for i, part in sorted(
            copies_out.get(s, ()), key=lambda w: (ranges[w[0]].written != s, *_age(ranges[w[0]]), w[0])
        ):
            b, release = ranges[i].buffer, out_at[i] == s >= ranges[i].last
            place = Placement(b, offsets[i])
            copy = out.add(OpKind.OUT, COPY_OUT, s, {made[ranges[i].final]}, place=place, release=release, part=part)
            host_users.setdefault(b, set()).add(copy)
            if out_at[i] == s:
                released.setdefault(i, set()).add(copy)
                copied_out[b] = copy
            freed += buffers[b].nbytes if release else 0
        return freed

    for s, step in enumerate(program.steps):
        for i, part in sorted(copies_in.get(s, ()), key=lambda a: (ranges[a[0]].first, a[0])):
            b, size = ranges[i].buffer, buffers[ranges[i].buffer].nbytes
            first, after = part is None or part[0] == 0, set[int]()
            if first:
                after = after.union(*(released[j] for j in regions.claim(offsets[i], offsets[i] + size, i)))
            if b in copied_out:
                after.add(copied_out[b])
            copied_in[i] = out.add(OpKind.IN, COPY_IN, s, after, place=Placement(b, offsets[i]), part=part)
            host_users.setdefault(b, set()).add(copied_in[i])
            held += size if first else 0
            peak = max(peak, held)
        if step.host:
            after = set()
            for a in step.accesses:
                if a.mode is not Mode.READ:
                    after |= host_users.pop(a.buffer, set())
                elif a.buffer in copied_out:
                    after.add(copied_out[a.buffer])
            made.append(out.add(OpKind.HOST, HOST, s, after))
            held -= copy_out(s)
            continue
        births, after, reuses = list[Placement](), set[int](), list[tuple[int, int]]()
        for i in starting.get(s, ()):
            if ranges[i].fetched:
                after.add(copied_in[i])
                continue
            b, size = ranges[i].buffer, buffers[ranges[i].buffer].nbytes
            owners = regions.claim(offsets[i], offsets[i] + size, i)
            births.append(Placement(b, offsets[i]))
            if i in before:
                reuses.append((ranges[before[i]].buffer, b))
                continue
            after = after.union(*(released[j] for j in owners))
            held += size
        peak = max(peak, held)
        done = ending.get(s, [])
        frees = tuple(ranges[i].buffer for i in done if ranges[i].live and out_at.get(i, -1) < s)
        drops = tuple(ranges[i].buffer for i in done if not ranges[i].live)
        parts = {"births": tuple(births), "frees": frees, "drops": drops, "inplace_reuses": tuple(reuses)}
        made.append(out.add(OpKind.COMPUTE, COMPUTE, s, after, **parts))
        for i in done:
            released.setdefault(i, set()).add(made[s])
        reused = {old for old, _ in reuses}
        held -= sum(buffers[b].nbytes for b in (*frees, *drops) if b not in reused)
        held -= copy_out(s)
    return Emitted(tuple(out.ops), peak, tuple(out.after))


_Part = tuple[int, int] | None  # (offset, bytes) within the buffer; None: all of it


def _parts(pieces: Sequence[Piece], whole: int) -> list[tuple[int, _Part]]:
    """Return (step, (offset, bytes)) of each piece of a copy; a copy in one piece is (`whole` or its step, None)."""
    if len(pieces) < 2:
        return [(pieces[0].step if pieces else whole, None)]
    found, offset = list[tuple[int, _Part]](), 0
    for piece in pieces:
        found.append((piece.step, (offset, piece.nbytes)))
        offset += piece.nbytes
    return found


def _age(live_range: LiveRange) -> tuple[int, int]:
    return live_range.final, live_range.last


def _join(a: _Clock, b: _Clock) -> _Clock:
    return (max(a[0], b[0]), max(a[1], b[1]), max(a[2], b[2]))


def _with(clock: _Clock, stream: int, op: int) -> _Clock:
    return (op if stream == 0 else clock[0], op if stream == 1 else clock[1], op if stream == 2 else clock[2])
