"""`lms_param { policy: ... }` in a prototxt: KEEP and SWAP win over -lms and -lms_frac; RECOMPUTE is refused."""

from __future__ import annotations

import pytest

from pycaffe_lms.backend.sim import SimDevice
from pycaffe_lms.errors import LayerParamError
from pycaffe_lms.formats.prototxt import parse_solver
from pycaffe_lms.lms.config import LMSConfig
from pycaffe_lms.solvers import SGDSolver

from .nets import make_solver, solver_text, train


def _solver(policy: str, config: LMSConfig) -> SGDSolver:
    text = solver_text("residual").replace(
        'layer { name: "c2" ', f'layer {{ name: "c2" lms_param {{ policy: {policy} }} '
    )
    assert policy in text
    parsed = parse_solver(text, "policy.prototxt")
    return SGDSolver(parsed.message, file="policy.prototxt", lines=parsed.lines, device=SimDevice(64 << 20), lms=config)


def _managed(solver, prefix):
    memory = solver.net.memory
    return {m.name: b in memory.managed_ids for b, m in memory.memories.items() if m.name.startswith(prefix)}


def test_keep():
    solver = _solver("KEEP", LMSConfig(threshold_kb=1))
    assert not _managed(solver, "c2.data")["c2.data"] and not any(_managed(solver, "c2.param").values())
    assert all(_managed(solver, "c1.data").values())
    assert train(solver, 2) == train(make_solver("residual"), 2)


def test_swap_is_managed_below_the_threshold():
    solver = _solver("SWAP", LMSConfig(threshold_kb=100_000))
    assert _managed(solver, "c2.data")["c2.data"]
    assert not any(_managed(solver, "c1.data").values())
    assert train(solver, 2) == train(make_solver("residual"), 2)


def test_swap_needs_lms():
    assert not any(_managed(_solver("SWAP", LMSConfig()), "c2").values())


def test_recompute_is_refused_by_name():
    with pytest.raises(LayerParamError, match=r'policy.prototxt:\d+: layer "c2" \(Convolution\).*RECOMPUTE'):
        _solver("RECOMPUTE", LMSConfig(threshold_kb=1))
