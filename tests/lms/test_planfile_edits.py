"""Lines of plan files removed, moved, written twice, their numbers changed: a plan that is proved, or one error."""

from __future__ import annotations

import random
import re

import pytest

from pycaffe_lms.errors import PlanError
from pycaffe_lms.lms.planfile.read import parse_plan, plan_from

from ..sampling import sample
from .nets import NETS
from .plan_files import PAGE, planned, text_of

NUMBERS = ("0", "1", "512", "4096", "2147483648", "4294967295", "9223372036854775807", "18446744073709551615", "9" * 20)


def _edits(lines: list[str], rng: random.Random):
    """(what was done, the lines then)."""
    for i, line in enumerate(lines):
        rest = lines[:i] + lines[i + 1 :]
        yield f"without {line}", rest
        to = rng.randrange(len(lines))
        yield f"to line {to}: {line}", [*rest[:to], line, *rest[to:]]
        yield f"twice {line}", [*lines[:to], line, *lines[to:]]
        if found := list(re.finditer(r"\b\d+\b", line)):
            at, number = rng.choice(found), rng.choice(NUMBERS)
            changed = f"{line[: at.start()]}{number}{line[at.end() :]}"
            yield f"{changed} for {line}", [*lines[:i], changed, *lines[i + 1 :]]


@pytest.mark.parametrize("kind", ["auto", "recompute", "pages"])
@pytest.mark.parametrize("net", list(NETS)[:3])
@sample("quarters", range(4), 1)
def test_edited_lines(net, kind, quarters):
    lines = text_of(net, kind).splitlines()
    page = PAGE if kind == "pages" else None
    refused = 0
    for k, (what, edited) in enumerate(_edits(lines, random.Random(17))):
        if k // 4 % 4 not in quarters:
            continue
        try:
            programs = parse_plan("\n".join(edited), "my.plan")
            if "train" in programs:
                plan_from(programs["train"], *planned(net, kind)[1], page)
        except PlanError as error:
            assert error.where.file == "my.plan" and error.fix, what
            refused += 1
        except Exception as error:
            raise AssertionError(f"{what}: {error!r}") from error
    assert refused > len(lines) * len(quarters) / 4
