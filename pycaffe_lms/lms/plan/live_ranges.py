"""Residences: when a buffer is on the device, and why; and a plan's residences, from its operations. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..program import Mode
from .plan import Op, OpKind, Piece, Plan


@dataclass(frozen=True, slots=True)
class LiveRange:
    """A buffer's stay on the device. Used by steps `first`..`last`; memory is held from `issue` to `until`.

    fetched: its old value is copied in (issued before step `issue`). written: the last step that changes it there, or
    None. live: read later, or must survive. So the value is copied out after `written` (live and changed), is at home
    already (live and unchanged), or is dropped. arrivals, departures: where the copy in, the copy out, is made in
    pieces, or not there; nothing: whole, at `issue`, and right after `written`.
    """

    buffer: int
    first: int
    last: int
    fetched: bool
    written: int | None
    live: bool
    earliest: int  # no copy in may be issued before this step
    issue: int
    until: int
    arrivals: tuple[Piece, ...] = ()
    departures: tuple[Piece, ...] = ()

    @property
    def saved(self) -> bool:
        """Whether it is copied out."""
        return self.live and self.written is not None


def live_ranges_of(plan: Plan) -> list[tuple[LiveRange, int]]:
    """(residence, offset) of all, in order of their first use: what `emit` makes this plan's operations of."""
    uses: dict[int, list[tuple[int, Mode]]] = {b: [] for b in plan.buffers}
    for s, step in enumerate(plan.program.steps):
        if not step.host:
            for a in step.accesses:
                if a.buffer in uses:
                    uses[a.buffer].append((s, a.mode))
    began: dict[int, tuple[int, int, bool]] = {}  # buffer -> (step, offset, fetched)
    pieces: dict[tuple[OpKind, int], list[Piece]] = {}
    found: list[tuple[LiveRange, int]] = []

    def end(b: int, at: int, live: bool) -> None:
        issue, offset, fetched = began.pop(b)
        run = [(s, mode) for s, mode in uses[b] if issue <= s <= at]
        (first, _), (last, _) = run[0], run[-1]
        written = max((s for s, mode in run if mode is not Mode.READ), default=None)
        arrivals, departures = (tuple(pieces.pop((kind, b), ())) for kind in (OpKind.IN, OpKind.OUT))
        arrivals, departures = _unless_plain(arrivals, issue), _unless_plain(departures, written)
        stay = LiveRange(b, first, last, fetched, written, live, issue, issue, last, arrivals, departures)
        found.append((stay, offset))

    def copied(op: Op) -> None:
        pieces.setdefault((op.kind, op.place.buffer), []).append(Piece(op.step, plan.stored(op)))

    for op in plan.ops:
        if op.kind is OpKind.IN:
            if op.begins:
                began[op.place.buffer] = (op.step, op.place.offset, True)
            copied(op)
        elif op.kind is OpKind.OUT:
            copied(op)
            if op.release:
                end(op.place.buffer, op.step, live=True)
        elif op.kind is OpKind.COMPUTE:
            for place in op.births:
                began[place.buffer] = (op.step, place.offset, False)
            for b in op.frees:
                end(b, op.step, live=True)
            for b in op.drops:
                end(b, op.step, live=False)
    return sorted(found, key=lambda f: (f[0].first, f[0].buffer))


def _unless_plain(pieces: Sequence[Piece], step: int | None) -> tuple[Piece, ...]:
    """Pieces as a residence has them: none where the copy is whole, and where it is without being asked."""
    return () if len(pieces) == 1 and pieces[0].step == step else tuple(pieces)
