"""Urgent copies pass large ones: by hand, on random programs, as text, spoiled, and in training on a simulated device."""

from __future__ import annotations

import dataclasses
import random

import pytest

from pycaffe_lms.errors import PlanError
from pycaffe_lms.lms.homes import with_homes
from pycaffe_lms.lms.machine import MACHINES, Costs
from pycaffe_lms.lms.optimise import optimise
from pycaffe_lms.lms.passing import with_passes
from pycaffe_lms.lms.plan import Kind, Piece
from pycaffe_lms.lms.planner import make_plan
from pycaffe_lms.lms.rules import Rules
from pycaffe_lms.lms.schedule import Access, Buffer, Mode, Program, Step
from pycaffe_lms.lms.stays import residences_of
from pycaffe_lms.lms.timing import time_plan
from pycaffe_lms.lms.verify import verify

from .programs import net_program, random_program

READ, WRITE = Mode.READ, Mode.OVERWRITE
RATE = 1e6  # bytes per second of the link here, each way whatever the other does
LINK = dataclasses.replace(
    MACHINES["h200"], link_in=RATE, link_out=RATE, link_both=2 * RATE, copy_s=1e-12, launch_s=0.0
)
SMALL = {"least": 512, "unit": 512}


def random_plans(seeds=range(150)):
    """(plan, costs) of random programs on a slow link, with look-ahead and by predicted time, with little memory."""
    for seed in seeds:
        rng = random.Random(seed)
        for make in (random_program, net_program):
            program, buffers = make(seed)
            costs = Costs([rng.choice((1e-4, 1e-3, 4e-3)) for _ in program.steps], {}, LINK)
            for page in (None, 1024):
                least = make_plan(program, buffers, limit=None, ahead=0, page=page).arena_bytes
                yield make_plan(program, buffers, limit=None, ahead=rng.randint(1, 6), page=page), costs
                limit = least + rng.choice((0, 2048, 8192))
                yield optimise(program, buffers, limit=limit, costs=costs, replays={}, scratch=frozenset(),
                               rules=(Rules(replays=False),), page=page), costs  # fmt: skip


@pytest.mark.pure
def test_passes_gain_and_are_proved():
    passed = parts = 0
    for before, costs in random_plans():
        plan = with_passes(before, costs, **SMALL)
        verify(plan)
        verify(with_homes(plan, 4096))
        assert plan.seconds == time_plan(plan, costs).seconds <= time_plan(before, costs).seconds
        same = ("arena_bytes", "bytes_in", "bytes_out", "order", "program")
        assert [getattr(plan, n) for n in same] == [getattr(before, n) for n in same]
        for stream, nbytes in ((Kind.IN, plan.bytes_in), (Kind.OUT, plan.bytes_out)):
            assert sum(plan.copied(op) for op in plan.ops if op.kind is stream) == nbytes
        passed += plan.ops != before.ops
        parts += plan.parts
    assert passed > 50 and parts > 50, (passed, parts)
