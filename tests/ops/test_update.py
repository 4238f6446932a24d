"""The solvers' updates against their formulas in float64."""

from __future__ import annotations

import numpy as np
import pytest

from pycaffe_lms.ops.cpu.update import solver_update
from pycaffe_lms.ops.update_rules import HISTORIES, UpdateNumbers

from . import updates

NUMBERS = {
    "all": UpdateNumbers(0.1, 0.25, 0.01, 0.0, 0.9, 0.99, 1e-3, 0.75),
    "L1": UpdateNumbers(0.1, 1.0, 0.02, 1.0, 0.5, 0.9, 1e-2, 0.25),
    "no decay": UpdateNumbers(0.2, 1.0, 0.0, 0.0, 0.0, 0.0, 1e-1),
}


def test_the_rules_are_those_of_the_reference():
    assert HISTORIES == updates.HISTORIES


@pytest.mark.parametrize("dtype, tolerance", [(np.float32, 3e-6), (np.float64, 1e-14)], ids=["f32", "f64"])
@pytest.mark.parametrize("numbers", NUMBERS)
@pytest.mark.parametrize("rule", HISTORIES)
@pytest.mark.parametrize("shape", [(), (0,), (3, 4), (70_001,)], ids=str)
def test_updates_are_the_formulas(rule, numbers, dtype, tolerance, shape):
    n = NUMBERS[numbers]
    param, diff, *histories = updates.start(rule, shape, dtype)
    if shape == (3, 4):
        param[0] = 0  # the sign of zero is zero
    w, u, *h = (a.astype(np.float64) for a in (param, diff, *histories))
    for _ in range(3):  # the update that lies in diff is the next one's gradient
        g = updates.gradient(w, u, scale=n.scale, decay=n.decay * 0.5, l1=n.l1, rule=rule)
        pull = updates.pull(rule, w, rate=n.pull * 2, decay=n.decay * 0.5, l1=n.l1)
        w, u, h = updates.step(rule, w, g, h, rate=n.rate * 2, keep=n.keep, keep2=n.keep2, delta=n.delta, pull=pull)
        solver_update(rule, param, diff, histories, np.array(n), 2.0, 0.5)
    for got, want in zip((param, diff, *histories), (w, u, *h), strict=True):
        assert got.dtype == dtype
        np.testing.assert_allclose(got, want, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("rule", HISTORIES)
def test_without_decay_an_infinite_weight_stays_what_it_is(rule):
    """0 * infinity would make the weight, and then its history, NaN."""
    param, diff, *histories = updates.start(rule, (5,), np.float32)
    param[1] = np.inf
    numbers = np.array(UpdateNumbers(0.1, keep=0.5, keep2=0.5, delta=0.1))
    solver_update(rule, param, diff, histories, numbers, 1.0, 1.0)
    assert np.isposinf(param[1]) and all(np.isfinite(a).all() for a in (diff, *histories))


def test_adamw_is_pytorch_s():
    """Recorded: torch 2, float64, AdamW([w], lr=0.1, betas=(0.9, 0.95), eps=1e-8, weight_decay=0.1), four steps whose
    gradients are t * (0.3, -0.2, 0.05, 1). There eps is added to the corrected root, here delta to the plain one."""
    recorded = [
        [0.3950000033333332, -1.1375000049999997, 1.880000019999996, -0.09999999900000002],
        [0.2952514183602287, -1.030326421012355, 1.7654014448814888, -0.19479858535274824],
        [0.19784792058026845, -0.9255721739241112, 1.6532964540186916, -0.2873015841011114],
        [0.1017847457010041, -0.8222317570720925, 1.5426787994118847, -0.3785132647185198],
    ]
    w, h, h2 = np.array([0.5, -1.25, 2.0, 0.0]), np.zeros(4), np.zeros(4)
    for t, expected in enumerate(recorded, 1):
        root = np.sqrt(1 - 0.95**t)
        numbers = np.array(
            UpdateNumbers(0.1 * root / (1 - 0.9**t), 1.0, 0.1, 0.0, 0.9, 0.95, delta=1e-8 * root, pull=0.1)
        )
        solver_update("adamw", w, t * np.array([0.3, -0.2, 0.05, 1.0]), [h, h2], numbers, 1.0, 1.0)
        np.testing.assert_allclose(w, expected, rtol=1e-13)
