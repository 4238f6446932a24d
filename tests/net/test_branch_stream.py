"""Gradients of weights on the branch stream of a recording: same bits in whatever order the streams run."""

from __future__ import annotations

import pytest

from pycaffe_lms.backend.sim.device import SimDevice
from pycaffe_lms.errors import DeviceError
from pycaffe_lms.ops.cpu.conv import conv
from pycaffe_lms.ops.geometry import ConvGeometry

from . import order_nets, replay_runs

ORDERS = [("latest", 0), ("earliest", 0), *(("random", seed) for seed in range(4))]


@pytest.fixture
def beside(monkeypatch):
    """The simulated device plans convolutions as a GPU does on small batches."""
    monkeypatch.setattr(conv, "conv_beside_plan", lambda plan: plan.workspace_bytes)


def trained(net: str, graph: bool, order: str = "latest", seed: int = 0):
    solver = replay_runs.make(net, SimDevice(64 << 20, order=order, seed=seed), graph)
    return replay_runs.steps(solver), solver


@pytest.mark.parametrize(("order", "seed"), ORDERS)
@pytest.mark.parametrize("net", ["branches", "residual", "groups"])
def test_the_same_bits(net, order, seed, beside):
    plain, _ = trained(net, False)
    recorded, solver = trained(net, True, order, seed)
    assert recorded == plain and "train" in replay_runs.recorded(solver)


@pytest.mark.parametrize(("order", "seed"), ORDERS)
def test_gradients_in_another_order_than_their_parameters(order, seed, beside):
    """They are transposed when the branch is through."""
    expected = order_nets.train(order_nets.make("groups"), 6)
    solver = order_nets.make_transposing("groups", device=SimDevice(64 << 20, order=order, seed=seed))
    assert order_nets.train(solver, 6) == expected and "train" in replay_runs.recorded(solver)


def test_a_branch_that_is_not_joined_shows(beside, monkeypatch):
    """What the test above would see: parameters are updated before their gradients are there."""
    plain, _ = trained("residual", False)
    monkeypatch.setattr("pycaffe_lms.net.run.executor.Branch.join", lambda self: None)
    try:
        late, _ = trained("residual", True)
    except DeviceError:
        return
    assert late != plain, "the bits are the same"


def test_work_is_queued_beside_only_where_it_is_recorded(beside, monkeypatch):
    branched = []
    wait = SimDevice.wait

    def watched(self, stream, event):
        if stream is self.branch:
            branched.append(self.capturing)
        wait(self, stream, event)

    monkeypatch.setattr(SimDevice, "wait", watched)
    _, solver = trained("residual", True)
    convolutions = sum(n.layer.type == "Convolution" for n in solver.net.graph.nodes)
    assert branched == [True] * convolutions > []


@pytest.mark.parametrize(("batch", "pays"), [(16, True), (64, False)])
def test_on_a_gpu_small_gradients_run_beside(batch, pays):
    """784 positions an image: 16 images leave multiprocessors idle, 64 do not."""
    plans = pytest.importorskip("pycaffe_lms.ops.cuda.conv.conv")

    class Engines:
        workspace_by_direction = {"forward": 1, "backward_data": 2, "backward_filter": 3}

    geometry = ConvGeometry(batch, 64, 64, 1, (28, 28), (28, 28), (1, 1), (1, 1), (0, 0), (1, 1), channels_last=True)
    assert plans.conv_beside_plan(plans.ConvPlan(geometry, 9, cudnn=Engines())) == (3 if pays else None)
    assert plans.conv_beside_plan(plans.ConvPlan(geometry, 9)) is None
