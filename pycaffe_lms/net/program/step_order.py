"""Gradients of bottoms made as late as possible, where that keeps less memory: an order of a backward's steps. Pure.

Where layers read one value and one of them is reached long before the others, its gradient of that value, often the
largest thing in sight, would lie there until the others add theirs. What it is made from is often smaller: that waits
instead, and meanwhile the others make their gradients of parameters, after which the value itself may go. Nobody reads
anything else than before, so results are the same to the bit.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import TypeVar

from ...layers.base import Makes
from ...lms.program import Mode

S = TypeVar("S")  # anything with a `step`


def delayed(steps: Sequence[S], sizes: Mapping[int, int], scratch: Collection[int]) -> list[S]:
    """The steps of a program, those that make just gradients of bottoms as late as it pays: right before the next that
    adds to these, or uses them. sizes: bytes of buffers. scratch: those whose content never outlives a step."""
    found = list(steps)
    for at in reversed([i for i, one in enumerate(steps) if _waits(one)]):
        _delay(found, at, sizes, scratch)  # which moves nothing that is before it
    return found


def _delay(steps: list[S], start: int, sizes: Mapping[int, int], scratch: Collection[int]) -> None:
    """Move the step at `start`, with those that must come behind it, as far as it pays, in place."""
    born = {b for b, mode in _touched(steps[start], scratch).items() if mode is Mode.OVERWRITE}
    group, behind = [steps[start]], start + 1
    while born:
        end = next((i for i in range(behind, len(steps)) if born & _touched(steps[i], scratch).keys()), None)
        if end is None:
            return
        pulled, ahead = list(group), []
        for one in steps[behind:end]:
            (pulled if any(_ordered(other, one, scratch) for other in pulled) else ahead).append(one)
        kept = {b for one in pulled for b in _touched(one, scratch)} - born
        if sum(sizes.get(b, 0) for b in born) <= sum(sizes.get(b, 0) for b in kept):
            return
        steps[behind - len(group) : end] = [*ahead, *pulled]
        if not _waits(steps[end]):
            return
        group, behind = [*pulled, steps[end]], end + 1


def _waits(one: S) -> bool:
    """Whether it is a step that may be put off."""
    return getattr(one, "makes", None) is Makes.BOTTOMS and not one.step.host


def _touched(one: S, scratch: Collection[int]) -> dict[int, Mode]:
    return {a.buffer: a.mode for a in one.step.accesses if a.buffer not in scratch}


def _ordered(first: S, second: S, scratch: Collection[int]) -> bool:
    """Whether the second must stay behind the first: both touch a buffer, and not just to read it."""
    before = _touched(first, scratch)
    return any(b in before and not (mode is Mode.READ is before[b]) for b, mode in _touched(second, scratch).items())


def with_updates(forward: Sequence[S], backward: Sequence[S], updates: Sequence[S], early: bool) -> list[S]:
    """A training iteration. early: updates need not wait, unless a backward on the host, a user's layer, may fail."""
    steps = [*forward, *backward]
    if early and not any(one.step.host for one in backward):
        return placed_early(steps, updates)
    return [*steps, *updates]


def placed_early(steps: Sequence[S], tail: Sequence[S]) -> list[S]:
    """`steps` with each of `tail`, whose order may change, behind the last of them, and of the tail's before it, that
    touches what it writes or writes what it touches. Every step finds the values that it would find in a row."""
    written: dict[int, int] = {}  # buffer -> which of `steps` wrote it last
    touched: dict[int, int] = {}
    for i, one in enumerate(steps):
        _note(one, i, written, touched)
    behind: dict[int, list[S]] = {}
    for one in tail:
        at = -1
        for a in one.step.accesses:
            at = max(at, written.get(a.buffer, -1))
            if a.mode is not Mode.READ:
                at = max(at, touched.get(a.buffer, -1))
        at = max(at, 0)
        behind.setdefault(at, []).append(one)
        _note(one, at, written, touched)
    return [found for i, one in enumerate(steps) for found in (one, *behind.get(i, ()))] if steps else list(tail)


def _note(one, at: int, written: dict[int, int], touched: dict[int, int]) -> None:
    for a in one.step.accesses:
        touched[a.buffer] = max(at, touched.get(a.buffer, -1))
        if a.mode is not Mode.READ:
            written[a.buffer] = max(at, written.get(a.buffer, -1))
