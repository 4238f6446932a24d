"""Plans of small nets as text, under several settings, for tests of plan files."""

from __future__ import annotations

import dataclasses
import functools

import pytest

from pycaffe_lms.backend.sim.device import SimDevice
from pycaffe_lms.lms.config import LMSConfig
from pycaffe_lms.lms.cost.machine import MACHINES
from pycaffe_lms.lms.planfile.read import parse_plan, plan_from
from pycaffe_lms.lms.planfile.write import plan_text, program_message
from pycaffe_lms.lms.runtime import runtime
from pycaffe_lms.lms.runtime.runtime import Runtime

from .nets import make_solver, train

ITERATIONS = 2


@functools.cache
def budget_of(net: str) -> int:
    """Between what on-demand fetching asks for and what all takes."""
    sizes = []
    for lms in (LMSConfig(auto=True, threshold_kb=1, pages=False), LMSConfig(threshold_kb=1, ahead=0, pages=False)):
        runtime = make_solver(net, SimDevice(64 << 20), lms).runtime
        sizes.append(runtime.resident_bytes + runtime.workspace_bytes + runtime.arena.nbytes)
    return (max(sizes) + 2 * min(sizes)) // 3 // 512 * 512


SETTINGS = {
    "auto": {"auto": True, "threshold_kb": 1},
    "recompute": {"threshold_kb": 1, "recompute": True},
    "1": {"threshold_kb": 1},
    "ahead": {"threshold_kb": 1, "ahead": 3},
    "demand": {"threshold_kb": 1, "ahead": 0},
    "slow link": {"threshold_kb": 1, "recompute": True},  # so that values are made again
    "pages": {"threshold_kb": 1, "recompute": True, "pages": True},
}
PAGE = 4096  # of the simulated device
SLOW = dataclasses.replace(MACHINES["h200"], link_in=1e3, link_out=1e3, link_both=2e3)


def lms_of(net: str, kind: str = "recompute", **more) -> LMSConfig:
    return LMSConfig(**{"budget": budget_of(net), "pages": False} | SETTINGS[kind] | more)


@functools.cache
def planned(net: str, kind: str):
    """(plan of an iteration, (program, buffers, remats, scratch) that it was asked for)."""
    asked = {}
    original = Runtime.plan

    def noting(self, request):
        plan = original(self, request)
        asked[id(plan)] = (request.program, request.buffers, request.remats, request.scratch), plan
        return plan

    with pytest.MonkeyPatch.context() as patch:
        if kind == "slow link":
            patch.setattr(runtime, "machine_of", lambda name, memory: SLOW)
        patch.setattr(Runtime, "plan", noting)
        solver = make_solver(net, SimDevice(64 << 20), lms_of(net, kind))
    plan = solver.net.memory.plans()["train"]
    return plan, asked[id(plan)][0]


@functools.cache
def text_of(net: str, kind: str) -> str:
    return plan_text(net, [program_message(planned(net, kind)[0])])


def read(text: str, net: str, kind: str):
    return plan_from(parse_plan(text, "my.plan")["train"], *planned(net, kind)[1], PAGE if kind == "pages" else None)


@functools.cache
def without(net: str, **options):
    return train(make_solver(net, SimDevice(64 << 20), **options), ITERATIONS)
