"""Every case of every layer in a net of its own: Large Model Support changes no bit, in any order of the streams."""

from __future__ import annotations

import dataclasses
import math
import zlib

import numpy as np
import pytest

from pycaffe_lms.backend import get_device
from pycaffe_lms.backend.sim.device import SimDevice
from pycaffe_lms.lms.config import LMSConfig
from pycaffe_lms.lms.cost.machine import MACHINES
from pycaffe_lms.lms.runtime import runtime
from tests.layers.all_cases import runnable_cases
from tests.layers.cases import Case

from ..sampling import of_each_type, sample
from .layer_nets import around, train

_MOST_ELEMENTS = 1500  # larger cases are there for kernels that work in parts


def _fits(case):
    empty = any(0 in p.shape for p in case.bench().params)  # a filler refuses it
    return not empty and sum(math.prod(s) for s in case.shapes) <= _MOST_ELEMENTS


CASES = [(n, c) for n, c in runnable_cases() if _fits(c)]
SOME = of_each_type(CASES, every=16)
FEWER = [
    param if k % 2 or param.marks else pytest.param(*param.values, id=param.id, marks=pytest.mark.thorough)
    for k, param in enumerate(SOME)
]
"""Half of them run again by default: tests/layers/test_every_remat.py has each type that runs on a device."""
_EXPECTED: dict[Case, tuple] = {}  # what a case's net computes without Large Model Support


@pytest.fixture(autouse=True)
def every_buffer_is_large_enough(monkeypatch):
    """`-lms 1` manages buffers of more than 1 KB; here also the small ones of these nets."""
    monkeypatch.setattr(LMSConfig, "min_bytes", property(lambda config: 0))


@sample("settings", range(3), 1)
@pytest.mark.parametrize("case", SOME)
def test_lms_changes_no_bit(case, settings):
    net, seed = around(case), zlib.crc32(str(case).encode())
    roomy = net.solver(SimDevice(64 << 20))
    expected = _EXPECTED[case] = train(roomy)
    assert all(np.isfinite(x) for x in expected if isinstance(x, float))
    assert train(net.solver(get_device("cpu"))) == expected

    def device(k):
        return SimDevice(64 << 20, order=("random", "earliest", "latest")[(seed + k) % 3], seed=seed % 1000 + k)

    total = sum(b.nbytes for b in roomy.net.memory.buffers.values())
    for k in ((seed + n) % 3 for n in settings):
        lms = (
            lambda: LMSConfig(threshold_kb=1, ahead=seed % 2),
            lambda: LMSConfig(threshold_kb=1, frac=0.25, budget=4 * total, ahead=1),
            lambda: LMSConfig(threshold_kb=1, budget=_least(net), ahead=(1, 32)[seed % 2]),
        )[k]()
        on = device(k)
        assert train(net.solver(on, lms)) == expected, lms
        assert on.bytes_in > 0 or lms.frac or not roomy.net.learnable_params, "nothing was managed"


@sample("settings", range(3), 1)
@pytest.mark.parametrize("case", FEWER)
def test_layers_that_run_again_change_no_bit(case, settings, monkeypatch):
    """Copies are so slow that whatever can be made again is."""
    net, seed = around(case), zlib.crc32(str(case).encode())
    slow = dataclasses.replace(MACHINES["h200"], link_in=1.0, link_out=1.0, link_both=2.0)
    monkeypatch.setattr(runtime, "machine_of", lambda name, memory: slow)
    expected = _EXPECTED.get(case) or train(net.solver(SimDevice(64 << 20)))
    for k in ((seed // 3 + n) % 3 for n in settings):
        more = (0, 1024, 4096)[k]
        device = SimDevice(64 << 20, order=("random", "earliest", "latest")[(seed + k) % 3], seed=seed % 1000 + k)
        lms = LMSConfig(threshold_kb=1, budget=_least(net) + more, recompute=True)
        assert train(net.solver(device, lms)) == expected, lms


def _least(net) -> int:
    """The bytes that fetching on demand asks for."""
    solver = net.solver(SimDevice(64 << 20), LMSConfig(threshold_kb=1, ahead=0))
    plan = solver.net.memory.plans().get("train")
    if plan is None:  # a net without a step
        return 1 << 20
    return solver.runtime.resident_bytes + solver.runtime.workspace_bytes + plan.arena_bytes
