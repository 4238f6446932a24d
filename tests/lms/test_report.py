"""What `plan` prints: every operation of a plan is in the table, and the totals add up."""

from __future__ import annotations

import re

import pytest

from pycaffe_lms.lms.plan.plan import OpKind
from pycaffe_lms.lms.planner.lookahead import make_plan
from pycaffe_lms.lms.report.text import step_table, summary

from .programs import net_program

pytestmark = pytest.mark.pure


@pytest.mark.parametrize("seed", range(20))
def test_every_operation_is_listed(seed):
    program, buffers = net_program(seed)
    plan = make_plan(program, buffers, limit=None, ahead=1)
    text = "\n".join(step_table(plan))
    assert len(text.splitlines()) == len(program.steps) + 1
    words = re.findall(r"(?<=[:;] )(in|out|new|free|drop) (?=\w)", text)
    ops = plan.ops
    assert words.count("in") == sum(op.kind is OpKind.IN for op in ops)
    assert words.count("out") == sum(op.kind is OpKind.OUT for op in ops)
    assert words.count("new") == sum(len(op.births) for op in ops)
    assert words.count("free") == sum(len(op.frees) for op in ops)
    assert words.count("drop") == sum(len(op.drops) for op in ops)


def test_the_column_on_device_peaks_at_what_the_plan_holds():
    program, buffers = net_program(3)
    plan = make_plan(program, buffers, limit=None, ahead=1)
    column = [float(line.split()[1]) for line in list(step_table(plan))[1:]]
    units = [line.split()[2] for line in list(step_table(plan))[1:]]
    factor = {"B": 1, "KiB": 1024, "MiB": 1 << 20}
    peak = max(value * factor[unit] for value, unit in zip(column, units, strict=True))
    assert peak == pytest.approx(plan.held_bytes, rel=0.06)


def test_summary_names_the_totals():
    program, buffers = net_program(4)
    plan = make_plan(program, buffers, limit=None, ahead=0)
    text = "\n".join(summary(plan))
    assert f"managed buffers: {len(buffers)}" in text and "for gaps between them" in text and "copied per run" in text
