"""How much of a long sweep runs: an even sample by default, all the rest with `pytest -m thorough`.

tools/mutants.py says what a sample finds: run it with the sample, then with `-m thorough` for what survived."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Any

import pytest


def sample(name: str, cases: Sequence, few: int, also: Collection = ()) -> pytest.MarkDecorator:
    """Parametrise with a tuple of `few` of the cases and those in `also`, and with one of all others, which is
    thorough."""
    chosen = sorted({len(cases) * k // few for k in range(few)} | {cases.index(case) for case in also})
    others = sorted(set(range(len(cases))) - set(chosen))
    some, rest = (tuple(cases[i] for i in indices) for indices in (chosen, others))
    return pytest.mark.parametrize(
        name, [pytest.param(some, id="sample"), pytest.param(rest, id="rest", marks=pytest.mark.thorough)]
    )


def of_each_type(cases: Iterable[tuple[str, Any]], every: int) -> list:
    """Return (name, case) pairs of layers as parameters: the first of every type and each `every`-th run by default.

    The others are thorough."""
    seen, params = set(), []
    for k, (name, case) in enumerate(cases):
        chosen = case.type not in seen or k % every == 0
        seen.add(case.type)
        params.append(pytest.param(case, id=name, marks=() if chosen else pytest.mark.thorough))
    return params
