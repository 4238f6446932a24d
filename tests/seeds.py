"""Random tests draw from here: one number, which a failure prints, replays all that a test drew.

`PYCAFFE_LMS_SEED=N pytest ...` draws other cases: N chooses the orders, nets and plans of tests that use `seeded`, the
fault that a sweep tries first (and which, where it tries some), and the examples of Hypothesis. Without it the former
are the same in every run, and the latter new ones.
"""

from __future__ import annotations

import os
import random
from collections.abc import Iterator

VARIABLE = "PYCAFFE_LMS_SEED"
BASE = int(os.environ.get(VARIABLE, "0"))
EXAMPLES = BASE if VARIABLE in os.environ else random.SystemRandom().randrange(1 << 32)
"""The seed of Hypothesis's examples."""

_last: list[tuple[int, str]] = []  # what the running test drew last, and the seed that draws it


def seeded(*case) -> random.Random:
    """A generator for one case of a test (a number, or several), from which the same comes in every run."""
    _last[:] = [(BASE, ", ".join(map(repr, case)))]
    if BASE == 0 and len(case) == 1:
        return random.Random(case[0])
    return random.Random(f"{BASE}: {case!r}")


def swept(count: int, every: int = 1) -> Iterator[int]:
    """Numbers from 1 to `count`, so many apart; all of them with every = 1. The first is 1 + N, so that what fails is
    tried at once when it is replayed; those below it come last."""
    first = BASE % count
    for n in sorted(range(1 + first % every, count + 1, every), key=lambda n: (n - 1 - first) % count):
        _last[:] = [(n - 1, f"{n} of {count}")]
        yield n


def forget() -> None:
    """A test begins."""
    _last.clear()


def replay(test: str, hypothesis: bool, thorough: bool = False) -> str | None:
    """The command that repeats a test that failed, and its last case; None for a test that draws nothing."""
    command = "pytest -m thorough" if thorough else "pytest"
    if hypothesis:
        return f"{VARIABLE}={EXAMPLES} {command} '{test}'"
    if not _last:
        return None
    seed, case = _last[0]
    return f"{VARIABLE}={seed} {command} '{test}'  (the last case: {case})"
