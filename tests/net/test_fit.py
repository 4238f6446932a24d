"""Which arrangements of nets are tried, in which order, and which refusal is told."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from pycaffe_lms.errors import OutOfDeviceMemory
from pycaffe_lms.net.memory.fit import fit

WITH, WITHOUT, PARTS = ("with", False), ("without", False), ("with", True)


class Runtime(SimpleNamespace):
    def __init__(self, nets, idle, auto):
        super().__init__(idle=idle, plan_cache=None, device=SimpleNamespace(is_host=False))
        self.asked, self.keeps_first_params = SimpleNamespace(enabled=True, auto=auto), True
        self.nets = [lambda net=net: net for net in nets]

    def set_idle(self, on):
        self.idle = on

    def keeps_params(self):
        return False

    def set_keeps_params(self, on):
        assert not on


def net(ran=False, forward_only=False, chooses=False, plans=()):
    splitting, memory = SimpleNamespace(chooses=chooses), SimpleNamespace(plans=lambda: dict.fromkeys(plans))
    return SimpleNamespace(
        ran=ran, forward_only=forward_only, splitting=splitting, rearrange=lambda: None, memory=memory
    )


def tried(nets, idle=False, fitting=None, auto=False, may_fit=True):
    """What was tried, what came of it, and the runtime's mode afterwards. fitting: what fits; None: nothing. may_fit:
    without Large Model Support, before it is tried."""
    runtime, seen = Runtime(nets, idle, auto), []

    def planned(more_parts):
        seen.append(("without" if runtime.idle else "with", more_parts))
        if seen[-1] != fitting:
            raise OutOfDeviceMemory(f"{seen[-1]}", needed=2, free=1)
        return "a plan"

    try:
        [result] = fit(runtime, [SimpleNamespace(planned=planned, may_fit_whole=lambda: may_fit, seconds=None)])
    except OutOfDeviceMemory as error:
        result = str(error)
    return seen, result, runtime.idle


@pytest.mark.parametrize(
    "fitting, order", [(WITH, [WITH]), (WITHOUT, [WITH, WITHOUT]), (PARTS, [WITH, WITHOUT, PARTS])]
)
def test_the_first_that_fits_is_taken(fitting, order):
    assert tried([net(), net(chooses=True)], fitting=fitting) == (order, "a plan", fitting is WITHOUT)


@pytest.mark.parametrize(
    "nets, idle, order",
    [
        ([net()], False, [WITH, WITHOUT]),
        ([net()], True, [WITHOUT, WITH]),
        ([net(chooses=True)], True, [WITHOUT, WITH, PARTS]),
        ([net(ran=True, forward_only=True)], False, [WITH, WITHOUT]),  # no backward needs its values
        ([net(ran=True)], False, [WITH]),
        ([net(ran=True), net(chooses=True)], False, [WITH, PARTS]),
        ([net(ran=True, chooses=True)], True, [WITHOUT]),
    ],
)
def test_where_nothing_fits_the_refusal_under_lms_is_told(nets, idle, order):
    """Nets whose values a backward needs keep their memory; all others are under Large Model Support again."""
    last = [t for t in order if t != WITHOUT] or [WITHOUT]
    assert tried(nets, idle) == (order, str(last[-1]), order == [WITHOUT])


def test_automatic_mode_that_manages_parameters_tries_first_whether_all_fits():
    assert tried([net()], fitting=WITHOUT, auto=True) == ([WITHOUT], "a plan", True)
    assert tried([net()], fitting=WITH, auto=True) == ([WITHOUT, WITH], "a plan", False)
    assert tried([net()], fitting=WITH, auto=True, may_fit=False) == ([WITH], "a plan", False)
    assert tried([net(plans=["train"])], fitting=WITH, auto=True) == ([WITH], "a plan", False)  # tried already
    assert tried([net(ran=True)], fitting=WITH, auto=True) == ([WITH], "a plan", False)  # it has values to keep
