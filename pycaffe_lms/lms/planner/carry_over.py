"""Carry values over from one iteration to the next, so that copies in at the start of a run can be skipped. Pure.

Nothing hides a copy in at the very start. Where the value is used again near the end of the run, its memory is kept
from there to the end, and from the start to its first use, at one offset; little else is alive at those times. Only
wishes are made here: `optimise.py` packs them, and `Plan.carried_over` tells which values were carried over.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import accumulate
from typing import TYPE_CHECKING

from ..layout.packing import Stretch
from ..program import Buffer, Program, unchanged

if TYPE_CHECKING:
    from ..cost.machine import Machine
    from ..plan.live_ranges import LiveRange

LONGEST = 2.0  # factor on the seconds of a value's copy in: longest time that it is kept after its last use


def with_carry_over(
    program: Program,
    buffers: Mapping[int, Buffer],
    ranges: Sequence[LiveRange],
    groups: Sequence[Sequence[int]],
    wished: Sequence[Stretch],
    seconds: Sequence[float],
    machine: Machine,
) -> tuple[list[Stretch], dict[int, int]]:
    """Lengthen the lifetimes of values to carry over, to the start and to the end of the run.

    Args:
        ranges: live ranges in order of first use.
        groups: indices of live ranges that reuse memory in place, in order.
        wished: lifetime of each group.
        seconds: of each step.

    Returns:
        (lifetimes, ties): ties map the group of a value's first live range to that of its last and back; both must get
        one offset.
    """
    begin, found, ties = [0.0, *accumulate(seconds)], list(wished), dict[int, int]()
    own = {g[0]: k for k, g in enumerate(groups) if len(g) == 1}
    own_ranges: dict[int, list[int]] = {}
    for i, live_range in enumerate(ranges):
        own_ranges.setdefault(live_range.buffer, []).append(i)
    for b in unchanged(program, own_ranges):
        first = min(own_ranges[b], key=lambda i: ranges[i].first)
        last = max(own_ranges[b], key=lambda i: ranges[i].last)
        copy = machine.copy_seconds(buffers[b].copied, False)
        short = begin[ranges[first].first] < copy and begin[-1] - begin[ranges[last].last + 1] < LONGEST * copy
        if not short or buffers[b].compressed_bytes or first not in own or last not in own:
            continue
        one, other = own[first], own[last]
        found[one] = _to(found[one], 0, found[one].must.end)
        found[other] = _to(found[other], found[other].must.start, len(seconds) - 1)
        if one != other:
            ties |= {one: other, other: one}
    return found, ties


def _to(stretch: Stretch, start: int, end: int) -> Stretch:
    """Return `stretch` lengthened so that steps `start` to `end` must be covered."""
    must = replace(stretch.must, start=min(start, stretch.must.start), end=max(end, stretch.must.end))
    return Stretch(must, min(stretch.start, start), max(stretch.end, end))
