"""Define live ranges, the spans of steps in which a buffer is on the device, and derive them from a plan. Pure.

Planners choose live ranges; `planner/lowering.py` turns them into operations, `live_ranges_of` is the way back.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..program import Mode, uses_of
from .plan import Op, OpKind, Piece, Plan


@dataclass(frozen=True, slots=True)
class LiveRange:
    """Describe one span in which a buffer is on the device: steps `first`..`last` use it, both included.

    At the end the value is copied out after `written` (live and changed), is on the host already (live and unchanged),
    or is dropped (not live).

    Attributes:
        fetched: its value is copied in before step `issue`.
        written: the last step that changes it in this span, or None.
        live: the value is read later, or must survive the program.
        earliest: no copy in may be issued before this step.
        issue, until: first and last step at which its device memory is taken.
        arrivals, departures: pieces of the copy in and of the copy out, if they are split or issued at other steps
            than `issue` and `written`; else empty.
    """

    buffer: int
    first: int
    last: int
    fetched: bool
    written: int | None
    live: bool
    earliest: int
    issue: int
    until: int
    arrivals: tuple[Piece, ...] = ()
    departures: tuple[Piece, ...] = ()

    @property
    def final(self) -> int:
        """Return the last step that changes the value of a range that is `saved`."""
        assert self.written is not None, "it is not written in this live range"
        return self.written

    @property
    def saved(self) -> bool:
        """Tell whether it is copied out."""
        return self.live and self.written is not None


def live_ranges_of(plan: Plan) -> list[tuple[LiveRange, int]]:
    """Return (live range, offset) of every live range of a plan, in order of first use: the inverse of `emit`."""
    uses = uses_of(plan.program, plan.buffers)
    began: dict[int, tuple[int, int, bool]] = {}  # buffer -> (step, offset, fetched)
    pieces: dict[tuple[OpKind, int], list[Piece]] = {}
    found: list[tuple[LiveRange, int]] = []

    def end(b: int, at: int, live: bool) -> None:
        issue, offset, fetched = began.pop(b)
        run = [(s, mode) for s, mode, host in uses[b] if issue <= s <= at and not host]
        (first, _), (last, _) = run[0], run[-1]
        written = max((s for s, mode in run if mode is not Mode.READ), default=None)
        arrivals, departures = (tuple(pieces.pop((kind, b), ())) for kind in (OpKind.IN, OpKind.OUT))
        arrivals, departures = _unless_plain(arrivals, issue), _unless_plain(departures, written)
        live_range = LiveRange(b, first, last, fetched, written, live, issue, issue, last, arrivals, departures)
        found.append((live_range, offset))

    def copied(op: Op) -> None:
        pieces.setdefault((op.kind, op.placed.buffer), []).append(Piece(op.step, plan.stored(op)))

    for op in plan.ops:
        if op.kind is OpKind.IN:
            if op.begins:
                began[op.placed.buffer] = (op.step, op.placed.offset, True)
            copied(op)
        elif op.kind is OpKind.OUT:
            copied(op)
            if op.release:
                end(op.placed.buffer, op.step, live=True)
        elif op.kind is OpKind.COMPUTE:
            for place in op.births:
                began[place.buffer] = (op.step, place.offset, False)
            for b in op.frees:
                end(b, op.step, live=True)
            for b in op.drops:
                end(b, op.step, live=False)
    return sorted(found, key=lambda f: (f[0].first, f[0].buffer))


def _unless_plain(pieces: Sequence[Piece], step: int | None) -> tuple[Piece, ...]:
    """Return `pieces`, or none if they are one whole copy at `step`, the default of a live range."""
    return () if len(pieces) == 1 and pieces[0].step == step else tuple(pieces)
