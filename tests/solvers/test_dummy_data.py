"""Training on DummyData: the same numbers wherever they are drawn, drawn again, resumed, and apart from other nets'."""

from __future__ import annotations

import numpy as np
import pytest

from pycaffe_lms.backend.sim.device import SimDevice
from pycaffe_lms.lms.config import LMSConfig
from pycaffe_lms.ops import load_ops

from .helpers import bits, inner, loss, make

DATA = """
layer { name: "data" type: "DummyData" top: "x" top: "label" top: "mask" dummy_data_param {
  shape { dim: 4 dim: 8 dim: 12 dim: 12 } shape { dim: 4 } shape { dim: 4 dim: 8 dim: 12 dim: 12 }
  data_filler { type: "gaussian" std: 2 } data_filler { type: "uniform" min: 0 max: 4.99 }
  data_filler { type: "gaussian" sparse: 2 } } }
layer { name: "sum" type: "Eltwise" bottom: "x" bottom: "mask" top: "sum" }
layer { name: "conv" type: "Convolution" bottom: "sum" top: "conv" convolution_param {
  num_output: 6 kernel_size: 3 weight_filler { type: "xavier" } } }
"""
NET = DATA + inner(bottom="conv") + loss()
OPTIONS = {"momentum": 0.9, "base_lr": 0.01, "iter_size": 2}
PLACES = {
    "sim": lambda: {"device": SimDevice(64 << 20)},
    "on demand": lambda: {"device": SimDevice(64 << 20), "lms": LMSConfig(threshold_kb=1, ahead=0)},
    "ahead": lambda: {"device": SimDevice(64 << 20, order="random", seed=3), "lms": LMSConfig(threshold_kb=1)},
    "auto": lambda: {"device": SimDevice(64 << 20), "lms": LMSConfig(threshold_kb=1, auto=True, budget=260 << 10)},
}


def trained(solver, iterations=5):
    """The losses of some iterations, then all parameters and gradients."""
    seen = []
    for _ in range(iterations):
        solver.step(1)
        seen.append(solver.net.loss())
    return seen, bits(solver)


@pytest.mark.parametrize("place", [*PLACES, "cpu"])
def test_the_numbers_are_the_operations_with_seed_forwards_and_top(place):
    solver = make(NET, PLACES.get(place, place), **OPTIONS)
    for name in ("x", "label"):
        solver.net.keep(name)
    solver.step(3)
    seed, ops = solver.net.graph.nodes[0].layer.seed, load_ops("cpu")
    x, label = np.empty((4, 8, 12, 12), np.float32), np.empty(4, np.float32)
    ops.random_gaussian(x, np.array([seed, 5, 0], np.uint64), 0.0, 2.0)  # the sixth forward: iter_size 2
    ops.random_uniform(label, np.array([seed, 5, 2 << 40], np.uint64), 0.0, 4.99)
    assert np.array_equal(solver.net.blobs["x"].read_data(), x)
    assert np.array_equal(solver.net.blobs["label"].read_data(), label)


@pytest.mark.parametrize("place", PLACES)
def test_every_plan_trains_to_the_same_bits(place):
    expected = trained(make(NET, "sim", **OPTIONS))
    assert len(set(expected[0])) == 5
    assert trained(make(NET, PLACES[place], **OPTIONS)) == expected


def test_drawing_again_in_place_of_keeping():
    """A layer with nothing to read can run again at any time: the key says which numbers it drew."""
    text = NET.replace('name: "data"', 'name: "data" lms_param { policy: RECOMPUTE }')
    solver = make(text, PLACES["ahead"], **OPTIONS)
    assert trained(solver) == trained(make(NET, "sim", **OPTIONS))
    plans = solver.net.memory.plans().values()
    assert [[p.program.steps[s].name for s, again in p.order if again] for p in plans] == [["forward:data"]] * 2


@pytest.mark.parametrize("place", PLACES)
def test_a_resumed_run_draws_what_an_unbroken_one_would(place, tmp_path):
    options = OPTIONS | {"snapshot_prefix": f'"{tmp_path}/s"'}
    unbroken = make(NET, PLACES[place], **options)
    unbroken.step(3)
    unbroken.snapshot()
    expected = trained(unbroken)
    resumed = make(NET, PLACES[place], **options | {"random_seed": 99})
    resumed.step(1)
    resumed.restore(f"{tmp_path}/s_iter_3.solverstate")
    assert trained(resumed) == expected


def test_train_and_test_nets_draw_by_themselves():
    options = OPTIONS | {"test_iter": 3, "test_interval": 1, "test_initialization": "true"}
    solver, alone = make(NET, "sim", **options), make(NET, "sim", **OPTIONS)
    assert trained(solver) == trained(alone)
    (test_net,) = solver.test_nets
    states = [net.graph.nodes[0].layer.state() for net in (solver.net, test_net)]
    assert [state["draws"] for state in states] == [10, 15]
