"""Values that should lie at the end of a run where the next one needs them first: see `Plan.carried_over`. Pure.

A copy in that a run begins with is hidden by nothing. Where the value is used again near the end, its memory is kept
from there to the end, and from the start to its first use, in one place: hardly anything else is alive then.
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

LONG = 2.0  # times the seconds of its copy: a value is kept for no longer, before its first use and after its last


def with_carry_over(
    program: Program,
    buffers: Mapping[int, Buffer],
    stays: Sequence[LiveRange],
    groups: Sequence[Sequence[int]],
    wished: Sequence[Stretch],
    seconds: Sequence[float],
    machine: Machine,
) -> tuple[list[Stretch], dict[int, int]]:
    """Lifetimes of groups of residences, with those of such values from the start, and to the end; and ties, by index,
    of the first and the last of a value, each to the other. seconds: of the program's steps."""
    begin, found, ties = [0.0, *accumulate(seconds)], list(wished), {}
    own = {g[0]: k for k, g in enumerate(groups) if len(g) == 1}
    mine: dict[int, list[int]] = {}
    for i, stay in enumerate(stays):
        mine.setdefault(stay.buffer, []).append(i)
    for b in unchanged(program, mine):
        first, last = min(mine[b], key=lambda i: stays[i].first), max(mine[b], key=lambda i: stays[i].last)
        copy = machine.copy_seconds(buffers[b].copied, False)
        soon = begin[stays[first].first] < copy and begin[-1] - begin[stays[last].last + 1] < LONG * copy
        if not soon or buffers[b].halved or first not in own or last not in own:
            continue
        one, other = own[first], own[last]
        found[one] = _to(found[one], 0, found[one].must.end)
        found[other] = _to(found[other], found[other].must.start, len(seconds) - 1)
        if one != other:
            ties |= {one: other, other: one}
    return found, ties


def _to(stretch: Stretch, start: int, end: int) -> Stretch:
    """Needed from `start` to `end`."""
    must = replace(stretch.must, start=min(start, stretch.must.start), end=max(end, stretch.must.end))
    return Stretch(must, min(stretch.start, start), max(stretch.end, end))
