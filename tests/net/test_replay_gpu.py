"""Replayed CUDA graphs compute the same bits as the same programs step by step."""

from __future__ import annotations

import pytest

from pycaffe_lms.backend import cuda_available, get_device
from pycaffe_lms.lms.config import LMSConfig

from ..lms.nets import NETS, TYPES, make_solver, train, type_name
from . import replay_runs

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not cuda_available(), reason="no GPU")]

OPTIONS = [
    {},
    {"lr_policy": '"exp"', "gamma": 0.9},
    {"iter_size": 2},
    {"clip_gradients": 0.05},
    {"pack": True},
    {"test_interval": 1, "test_iter": 2},
]


@pytest.fixture
def device():
    device = get_device("cuda")
    device.set_budget(None)
    yield device
    assert device.can_capture, "a capture failed"
    device.synchronize()


def both(net, act, device, **options):
    plain, solver = replay_runs.make(net, device, False, **options), replay_runs.make(net, device, True, **options)
    expected, got = act(plain), act(solver)
    programs = replay_runs.recorded(solver)
    assert not replay_runs.recorded(plain)
    for used in (plain, solver):
        used.runtime.close()
    return expected, got, programs


@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("net", [*NETS, *replay_runs.TEXTS.values()], ids=[*NETS, *replay_runs.TEXTS])
def test_graphs_change_no_bit(net, options, device):
    plain, rematerialized, programs = both(net, replay_runs.steps, device, **options)
    assert rematerialized == plain and programs


@pytest.mark.parametrize("options", TYPES, ids=type_name)
@pytest.mark.parametrize("act", [replay_runs.steps, replay_runs.written_between])
def test_every_solver_type(options, act, device):
    options = options | {"lr_policy": '"exp"', "gamma": 0.9, "base_lr": 0.01}
    plain, rematerialized, programs = both("groups", act, device, **options)
    assert rematerialized == plain and "train" in programs


@pytest.mark.parametrize("pack", [False, True], ids=["", "pack"])
@pytest.mark.parametrize("act", [replay_runs.written_between, replay_runs.passes_by_hand, replay_runs.kept])
@pytest.mark.parametrize("net", ["branches", "groups", "residual", "shared"])
def test_what_happens_between_iterations(net, act, pack, device):
    plain, rematerialized, programs = both(net, act, device, pack=pack)
    assert rematerialized == plain and "train" in programs


@pytest.mark.parametrize("net", ["branches", replay_runs.STOCHASTIC], ids=["branches", "stochastic"])
def test_snapshot_and_resume_in_between(net, device, tmp_path):
    plain, rematerialized, programs = both(net, lambda s: replay_runs.resumed(s, tmp_path), device)
    assert rematerialized == plain and "train" in programs


@pytest.mark.parametrize("net", NETS)
def test_one_launch_updates_as_one_per_parameter_does(net, device):
    """Under Large Model Support there is a step per parameter."""
    solvers = make_solver(net, device), make_solver(net, device, LMSConfig(threshold_kb=1))
    assert train(solvers[0], 6) == train(solvers[1], 6)
    for solver in solvers:
        solver.runtime.close()
