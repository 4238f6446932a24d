"""Order of the steps of backwards and updates, chosen so that less memory is needed. Pure.

`delayed` moves later the steps of split backwards that make gradients of bottoms. When several layers read one value
and one of them runs its backward long before the others, its gradient of that value, often a large buffer, would wait
for theirs. If what that gradient is computed from is smaller, that waits instead; meanwhile the other layers make their
gradients of parameters, after which the value itself may be freed. `with_updates` may place updates early. Every step
reads the same values as before, so results are bit-identical.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from ...layers.base import Gradients
from ...lms.program import Mode
from .programs import AnyStep


def delayed(steps: Sequence[AnyStep], sizes: Mapping[int, int], scratch: Collection[int]) -> list[AnyStep]:
    """Return the steps of a program with steps that make only gradients of bottoms moved later, where that saves
    memory: right before the next step that adds to these gradients or uses them.

    Args:
        sizes: bytes by buffer.
        scratch: buffers whose content never outlives a step.
    """
    found = list(steps)
    for at in reversed([i for i, one in enumerate(steps) if _may_wait(one)]):
        _delay(found, at, sizes, scratch)  # moves no step before `at`
    return found


def _delay(steps: list[AnyStep], start: int, sizes: Mapping[int, int], scratch: Collection[int]) -> None:
    """Move the step at `start`, with the steps that must follow it, later in `steps` as long as that saves memory."""
    born = {b for b, mode in _touched(steps[start], scratch).items() if mode is Mode.OVERWRITE}
    group, behind = [steps[start]], start + 1
    while born:
        end = next((i for i in range(behind, len(steps)) if born & _touched(steps[i], scratch).keys()), None)
        if end is None:
            return
        pulled, ahead = list(group), list[AnyStep]()
        for one in steps[behind:end]:
            (pulled if any(_ordered(other, one, scratch) for other in pulled) else ahead).append(one)
        kept = {b for one in pulled for b in _touched(one, scratch)} - born
        if sum(sizes.get(b, 0) for b in born) <= sum(sizes.get(b, 0) for b in kept):
            return
        steps[behind - len(group) : end] = [*ahead, *pulled]
        if not _may_wait(steps[end]):
            return
        group, behind = [*pulled, steps[end]], end + 1


def _may_wait(one: AnyStep) -> bool:
    """Return whether a step may be delayed: it makes only gradients of bottoms, on the device."""
    return getattr(one, "makes", None) is Gradients.BOTTOMS and not one.step.host


def _touched(one: AnyStep, scratch: Collection[int]) -> dict[int, Mode]:
    """Return how a step accesses its buffers, without scratch."""
    return {a.buffer: a.mode for a in one.step.accesses if a.buffer not in scratch}


def _ordered(first: AnyStep, second: AnyStep, scratch: Collection[int]) -> bool:
    """Return whether the second step must follow the first: both access a buffer that one of them writes."""
    before = _touched(first, scratch)
    return any(b in before and not (mode is Mode.READ is before[b]) for b, mode in _touched(second, scratch).items())


def with_updates(
    forward: Sequence[AnyStep], backward: Sequence[AnyStep], updates: Sequence[AnyStep], early: bool
) -> list[AnyStep]:
    """Return the steps of a training iteration.

    Args:
        early: run updates as soon as their gradients are complete. Not done if a backward runs on the host: a user's
            layer may fail there, and then no parameter may have changed.
    """
    steps = [*forward, *backward]
    if early and not any(one.step.host for one in backward):
        return placed_early(steps, updates)
    return [*steps, *updates]


def placed_early(steps: Sequence[AnyStep], tail: Sequence[AnyStep]) -> list[AnyStep]:
    """Return `steps` with every step of `tail` as early as possible: right after the last step that accesses what it
    writes or writes what it accesses. Every step reads the same values as in [*steps, *tail]."""
    written: dict[int, int] = {}  # buffer -> index of the last of `steps` after which it is written
    touched: dict[int, int] = {}  # the same for any access
    for i, one in enumerate(steps):
        _note(one, i, written, touched)
    behind: dict[int, list[AnyStep]] = {}
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


def _note(one: AnyStep, at: int, written: dict[int, int], touched: dict[int, int]) -> None:
    """Record the accesses of a step at index `at`."""
    for a in one.step.accesses:
        touched[a.buffer] = max(at, touched.get(a.buffer, -1))
        if a.mode is not Mode.READ:
            written[a.buffer] = max(at, written.get(a.buffer, -1))
