"""Random tests draw from here: one number, which a failure prints, replays all that a test drew.

`PYCAFFE_LMS_SEED=N pytest ...` draws other cases: N chooses the orders, nets and plans of tests that use `seeded`, the
faults of a sweep that tries only some, and the examples of Hypothesis. Without it the former are the same in every run,
and the latter new ones.
"""

from __future__ import annotations

import os
import random

VARIABLE = "PYCAFFE_LMS_SEED"
BASE = int(os.environ.get(VARIABLE, "0"))
EXAMPLES = BASE if VARIABLE in os.environ else random.SystemRandom().randrange(1 << 32)
"""The seed of Hypothesis's examples."""

_last: list[str] = []  # what the running test drew last


def seeded(*case) -> random.Random:
    """A generator for one case of a test (a number, or several), from which the same comes in every run."""
    _last[:] = [", ".join(map(repr, case))]
    if BASE == 0 and len(case) == 1:
        return random.Random(case[0])
    return random.Random(f"{BASE}: {case!r}")


def forget() -> None:
    """A test begins."""
    _last.clear()


def replay(test: str, hypothesis: bool) -> str | None:
    """The command that repeats a test that failed, and its last case; None for a test that draws nothing."""
    if hypothesis:
        return f"{VARIABLE}={EXAMPLES} pytest '{test}'"
    return f"{VARIABLE}={BASE} pytest '{test}'  (the last case: {_last[0]})" if _last else None
