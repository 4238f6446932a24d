"""Planning a small net is little work, counted in steps that are followed and in values that are looked at."""

from __future__ import annotations

import pytest

from pycaffe_lms.backend.sim.device import SimDevice
from pycaffe_lms.cli.views.plan_nets import updates
from pycaffe_lms.errors import OutOfDeviceMemory
from pycaffe_lms.formats.prototxt.parser import parse_net
from pycaffe_lms.lms.config import LMSConfig
from pycaffe_lms.lms.cost.machine import MACHINES
from pycaffe_lms.lms.planner import choose, optimise
from pycaffe_lms.lms.planner.evict import EvictionPass
from pycaffe_lms.lms.rules import SEARCH
from pycaffe_lms.lms.runtime.runtime import Runtime
from pycaffe_lms.net.net import Net
from pycaffe_lms.net.tuning import Tuning
from pycaffe_lms.solvers.rules import RULES

from ..sampling import sample
from .random_nets import chain_of_sums, random_net

KB = 1024
SEEDS = (*range(6), 21, 71, 74, 79)  # the last tried more before it was bounded
LOOKS = 3_000_000  # at values, of one fit


def _net(text: str, budget: int | None) -> Net:
    parsed = parse_net(text, "net.prototxt")
    lms = LMSConfig(threshold_kb=1, auto=True, budget=budget, split="auto")
    runtime = Runtime(SimDevice(1 << 40), lms, machine=MACHINES["h200"])
    tuning = Tuning(channels_last=True, fuse=True, pack=True)
    return Net(parsed.message, 0, runtime=runtime, fill=False, tuning=tuning, lines=parsed.lines, file=parsed.filename)


def _plan(text: str, budget: int) -> bool:
    """Plan a training iteration. Returns whether it fits."""
    net = _net(text, budget)
    try:
        net.plan_only(updates(net, RULES["SGD"]))
    except OutOfDeviceMemory:
        return False
    return True


@pytest.fixture
def searches(monkeypatch):
    """Of every search: (steps of the program, seconds of its steps alone, of the first plan, steps that were
    followed)."""
    found, real, tries = [], choose.optimise, optimise._with_rules

    def search(program, buffers, **more):
        followed, first = 0, None

        def with_rules(*args):
            nonlocal followed, first
            plan, n = tries(*args)
            followed += n * len(program.steps)
            first = plan.seconds if first is None and plan is not None else first
            return plan, n

        monkeypatch.setattr(optimise, "_with_rules", with_rules)
        try:
            return real(program, buffers, **more)
        finally:
            found.append((len(program.steps), sum(more["costs"].steps), first, followed))

    monkeypatch.setattr(choose, "optimise", search)
    return found


@sample("seeds", SEEDS, 1, also=(79,))
def test_no_more_is_tried_than_a_better_plan_could_save(searches, seeds):
    """6,000 steps are followed for a millisecond, and six passes of every set of rules until there is a plan."""
    fitted = 0
    for seed in seeds:
        share = (0.1, 0.2, 0.4)[seed % 3]
        whole = _net(random_net(seed), None)
        nbytes = sum(memory.nbytes for memory in whole.memory.memories.values())
        fitted += _plan(random_net(seed), int(share * nbytes))
    assert fitted > len(seeds) / 4 and searches
    for steps, alone, first, followed in searches:
        one = SEARCH.passes * steps
        worth = 0.0 if first is None else 6e6 * (first - alone)
        assert followed <= len(SEARCH.auto) * one + worth + one


@sample("budgets", (6.2, 5.2, 8.3), 1)
def test_a_value_that_is_reached_in_many_ways_is_looked_at_once(budgets, monkeypatch):
    looks, real = 0, EvictionPass._gone

    def gone(self, b):
        nonlocal looks
        looks += 1
        assert looks < LOOKS
        return real(self, b)

    monkeypatch.setattr(EvictionPass, "_gone", gone)
    for values in budgets:  # each 64 KB
        assert _plan(chain_of_sums(50), int(values * 64 * KB))
    assert looks > 1000
