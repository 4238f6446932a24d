"""Correct the assumed rates of the host link by recorded copies. Pure.

`machine_of` assumes rates by the name of the GPU, but the link may have fewer lanes, an older generation, or be shared.
`link_shares` compares each copy's bytes with those it should have moved, given for how long the other direction was
busy at the same time; `with_shares` returns a corrected machine.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import accumulate

from ..cost.machine import Machine
from .recorder import COPIES_IN, COPIES_OUT, RecordedTimes

LEAST = 1 << 20  # bytes: smaller copies are ignored, since latency hides their rate
ENOUGH = 16 << 20  # bytes that a direction must have copied for its rate to be known
CLOSE = 0.15  # relative difference up to which the assumed rates stay


def link_shares(timed: Iterable[RecordedTimes], machine: Machine) -> dict[bool, float]:
    """Return the share of `machine`'s rates that recorded copies reached, by direction (True: out, False: in).

    The share is the median by bytes. A direction with too few copied bytes is left out.
    """
    found = list(timed)
    copies = {out: _large(found, COPIES_OUT if out else COPIES_IN) for out in (False, True)}
    shares = {}
    for out, mine in copies.items():
        if sum(nbytes for _, _, nbytes in mine) >= ENOUGH:
            busy = _Busy(copies[not out])
            shares[out] = _middle([(_share(*copy, out, busy, machine), copy[2]) for copy in mine])
    return shares


def with_shares(machine: Machine, shares: Mapping[bool, float]) -> Machine:
    """Return the machine with its rates scaled by `shares`, or itself if all are close to 1.

    An unknown direction takes the other one's share.
    """
    if all(abs(share - 1) <= CLOSE for share in shares.values()):
        return machine
    into, out = (shares[way] if way in shares else shares[not way] for way in (False, True))
    return replace(
        machine,
        link_in=machine.link_in * into,
        link_out=machine.link_out * out,
        link_both=machine.link_both * (into + out) / 2,
    )


def described(now: Machine, before: Machine) -> str:
    """Return a log line that compares measured and assumed rates."""
    found, assumed = (f"{m.link_in / 1e9:.3g} GB/s in and {m.link_out / 1e9:.3g} out" for m in (now, before))
    return f"copies run at {found}; {assumed} were assumed for {before.name}"


def _large(timed: Sequence[RecordedTimes], row: str) -> list[tuple[float, float, int]]:
    """Return the large copies of a row in the order of time: (start, end, bytes), times in seconds."""
    mine = (t for t in timed if t.row == row and t.nbytes >= LEAST)
    return sorted((1e-6 * t.start_us, 1e-6 * t.end_us, t.nbytes) for t in mine)


class _Busy:
    """Sum for how long one direction, whose copies do not overlap, is busy up to a moment."""

    def __init__(self, copies: Sequence[tuple[float, float, int]]):
        self._copies = copies
        self._starts = [start for start, _, _ in copies]
        self._before = list(accumulate((end - start for start, end, _ in copies), initial=0.0))

    def until(self, moment: float) -> float:
        k = bisect_right(self._starts, moment)
        if not k:
            return 0.0
        start, end, _ = self._copies[k - 1]
        return self._before[k - 1] + min(moment, end) - start


def _share(start: float, end: float, nbytes: int, out: bool, busy: _Busy, machine: Machine) -> float:
    """Return a copy's bytes divided by those that it should have moved between `start` and `end` seconds."""
    both = busy.until(end) - busy.until(start)
    alone = end - start - both - machine.copy_s
    whole_alone, whole_both = (machine.copy_seconds(nbytes, out, kind) - machine.copy_s for kind in (False, True))
    return 1 / max(alone / whole_alone + both / whole_both, 1e-3)


def _middle(shares: Iterable[tuple[float, int]]) -> float:
    """Return the median of (share, bytes), weighted by bytes."""
    ordered = sorted(shares, reverse=True)
    seen = list(accumulate(nbytes for _, nbytes in ordered))
    return next(share for (share, _), upto in zip(ordered, seen, strict=True) if 2 * upto >= seen[-1])
