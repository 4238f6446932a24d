"""Updates as early as they may run: a parameter whose gradient is complete need not wait for the other layers. Pure.

Under Large Model Support the parameter, its gradient and its history may then leave while backward goes on, in place of
all of them leaving together behind it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from ..lms.schedule import Mode

S = TypeVar("S")  # anything with a `step`


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
