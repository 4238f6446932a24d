"""The same equality on a real GPU: every small net, with Large Model Support off and on, to the bit."""

from __future__ import annotations

import pytest

from pycaffe_lms.backend import cuda_available, get_device
from pycaffe_lms.errors import OutOfDeviceMemory
from pycaffe_lms.lms.config import LMSConfig

from .nets import NETS, TYPES, make_solver, train, type_name

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not cuda_available(), reason="no GPU")]

CONFIGS = [
    LMSConfig(threshold_kb=1, ahead=0),
    LMSConfig(threshold_kb=1),
    LMSConfig(threshold_kb=2, frac=0.01, budget=1 << 20),
    LMSConfig(threshold_kb=1, ahead=2, sync=3),
]


@pytest.fixture
def device():
    device = get_device("cuda")
    device.set_budget(None)
    yield device
    device.synchronize()
    device.set_budget(None)


@pytest.mark.parametrize("options", [{}, {"iter_size": 2}, {"clip_gradients": 0.5}], ids=str)
@pytest.mark.parametrize("net", NETS)
def test_on_equals_off(net, options, device):
    expected = train(make_solver(net, device, **options), 4)
    for config in CONFIGS:
        solver = make_solver(net, device, config, **options)
        assert train(solver, 4) == expected, config
        plans = [p for p in solver.net.memory.plans().values() if p is not None]
        assert plans and solver.runtime.stats.held == 0
        assert solver.runtime.stats.held_peak <= max(p.held_bytes for p in plans)
        solver.runtime.close()


@pytest.mark.parametrize("options", TYPES, ids=type_name)
def test_every_solver_type(options, device):
    """Six iterations: the later ones are replayed."""
    options = options | {"base_lr": 0.01}
    expected = train(make_solver("residual", device, **options), 6)
    for config in (*CONFIGS[:2], LMSConfig(auto=True, threshold_kb=1)):
        solver = make_solver("residual", device, config, **options)
        assert train(solver, 6) == expected, config
        solver.runtime.close()


def test_a_budget_is_kept(device):
    with pytest.raises(OutOfDeviceMemory, match="use Large Model Support"):
        make_solver("residual", device, LMSConfig(budget=200 << 10))
    solver = make_solver("residual", device, LMSConfig(threshold_kb=1, budget=600 << 10))
    train(solver, 2)
    assert device.in_use() <= 600 << 10
    solver.runtime.close()
