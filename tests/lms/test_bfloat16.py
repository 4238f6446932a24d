"""Large Model Support with activations as bfloat16: the same bits with and without it, half the bytes."""

from __future__ import annotations

import dataclasses
import functools

import numpy as np
import pytest

from pycaffe_lms.backend import cuda_available, get_device
from pycaffe_lms.backend.sim.device import SimDevice
from pycaffe_lms.formats.prototxt.parser import parse_solver
from pycaffe_lms.lms.config import LMSConfig
from pycaffe_lms.lms.cost.machine import MACHINES
from pycaffe_lms.net.passes.compression import inexact
from pycaffe_lms.net.program.costs import program_costs
from pycaffe_lms.net.tuning import Tuning
from pycaffe_lms.solvers import solver_class

from ..sampling import sample
from .nets import NETS, solver_text, train

ITERATIONS = 3


def make_solver(net, device, lms=None, *, half=True, **tuning):
    parsed = parse_solver(solver_text(net), f"{net}.prototxt")
    more = {"file": parsed.filename, "lines": parsed.lines, "device": device, "lms": lms}
    return solver_class(parsed.message)(parsed.message, tuning=Tuning(half=half, **tuning), **more)


@functools.cache
def without_lms(net, last=False):
    return train(make_solver(net, SimDevice(64 << 20), channels_last=last), ITERATIONS)


@pytest.mark.parametrize("net", NETS)
def test_the_simulated_device_equals_the_cpu(net):
    assert train(make_solver(net, get_device("cpu")), ITERATIONS)[0] == pytest.approx(without_lms(net)[0], rel=1e-4)


@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize("net", NETS)
@sample("seeds", range(6), 2)
def test_bits_are_the_same_in_every_order(net, last, seeds):
    for seed in seeds:
        config = LMSConfig(threshold_kb=(1, 2, 8)[seed % 3], ahead=(0, 1, 3, 32)[seed % 4], sync=seed % 4)
        device = SimDevice(64 << 20, order="random", seed=seed)
        assert train(make_solver(net, device, config, channels_last=last), ITERATIONS) == without_lms(net, last)
        assert device.bytes_out > 0


@pytest.mark.parametrize("net", NETS)
def test_bits_are_the_same_whatever_is_rearranged(net):
    """Chains that run as one round less often; all else changes nothing, made again or not, recorded or not."""
    expected = without_lms(net)
    budget = make_solver(net, SimDevice(64 << 20)).net.memory.runtime.resident_bytes + (300 << 10)
    auto = LMSConfig(auto=True, budget=budget, recompute=True)
    for tuning in ({"masks": False}, {"graph": False}, {"pack": True}):
        solver = make_solver(net, SimDevice(64 << 20), **tuning)
        losses, params = train(solver, ITERATIONS)
        sizes = [len(p) for p in params]  # with pack, `train` returns no gradients
        assert (losses, [p[:n] for p, n in zip(expected[1], sizes, strict=True)]) == (expected[0], params)
    assert train(make_solver(net, SimDevice(64 << 20), auto), ITERATIONS) == expected


@pytest.mark.parametrize("net", ["chain", "residual", "groups"])
def test_bits_are_the_same_in_parts_and_blocks(net):
    """Layers in parts of the batch, or in blocks of outputs, managed or not."""
    found = []
    for threshold in (0, 1):
        config = LMSConfig(threshold_kb=threshold, ahead=1, split=2, split_outputs=2)
        solver = make_solver(net, SimDevice(64 << 20, order="random", seed=threshold), config)
        found.append(train(solver, ITERATIONS))
        assert len(solver.net.run_graph.nodes) > len(solver.net.graph.nodes)
    assert found[0] == found[1]
    assert found[0][0] == pytest.approx(without_lms(net)[0], rel=0.02)


def test_about_half_the_memory():
    """Of what is managed: all but the data, the scores and what normalisation keeps of each channel."""
    sizes = []
    for half in (False, True):
        solver = make_solver("residual", SimDevice(64 << 20), LMSConfig(threshold_kb=1, ahead=0), half=half)
        solver.step(1)
        plan = solver.net.memory.plans()["train"]
        values = {v.data for v in solver.net.run_graph.values if v.name not in ("data", "label")}
        sizes.append((sum(solver.net.memory.memories[b].nbytes for b in values), plan.host_bytes))
    assert sizes[1][0] / sizes[0][0] == pytest.approx(0.5, abs=0.02)
    assert sizes[1][1] < 0.7 * sizes[0][1]


def test_compressed_copies_leave_16_bits_alone():
    config = LMSConfig(threshold_kb=1, ahead=0)
    solver = make_solver("groups", SimDevice(64 << 20), dataclasses.replace(config, compress="bf16"))
    solver.step(1)
    graph = solver.net.run_graph
    halves = {b for v in graph.values if v.half for b in (v.data, v.diff)}
    assert halves and not halves & inexact(graph)
    assert solver.net.memory.plans()["train"].compressed.isdisjoint(halves)


def test_products_count_as_twice_as_fast():
    seconds = []
    machine = dataclasses.replace(MACHINES["h200"], memory_rate=1e30, launch_s=0.0)
    for half in (False, True):
        net = make_solver("chain", SimDevice(64 << 20), half=half).net
        steps = [s for s in net.arrangement.all_steps(fused=True) if s.step.name == "forward:conv2"]
        sizes = {b: m.nbytes for b, m in net.memory.memories.items()}
        seconds.append(program_costs(net.run_graph, steps, {}, net.memory.buffers, sizes, machine, {}).steps[0])
    assert seconds[0] == pytest.approx(2 * seconds[1])


@pytest.mark.gpu
@pytest.mark.skipif(not cuda_available(), reason="no GPU")
@pytest.mark.parametrize("net", NETS)
def test_on_a_gpu(net):
    device = get_device("cuda")
    expected = train(make_solver(net, device), ITERATIONS)
    assert train(make_solver(net, device), ITERATIONS) == expected
    for config in (LMSConfig(threshold_kb=1, ahead=1), LMSConfig(threshold_kb=1, ahead=0, recompute=True)):
        assert train(make_solver(net, device, config), ITERATIONS) == expected
    np.testing.assert_allclose(expected[0], without_lms(net, True)[0], rtol=0.05)
