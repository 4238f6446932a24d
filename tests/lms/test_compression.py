"""Copies in 16 bits: what is lost, what is exact, how many bytes they take, that nothing of them is seen outside."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from pycaffe_lms.backend import cuda_available, get_device
from pycaffe_lms.backend.sim.device import SimDevice
from pycaffe_lms.cli import flags
from pycaffe_lms.errors import DiscardedRead, PlanError, UsageError
from pycaffe_lms.formats.prototxt.parser import parse_solver
from pycaffe_lms.lms.config import LMSConfig
from pycaffe_lms.lms.plan.verify import verify
from pycaffe_lms.memory.states import Ask
from pycaffe_lms.net.passes.compression import inexact
from pycaffe_lms.net.tuning import Tuning
from pycaffe_lms.pycaffe.lms import NetLMS
from pycaffe_lms.solvers import solver_class

from .nets import NETS, make_solver, train

EXACT = LMSConfig(threshold_kb=1, ahead=0)
FP16, BF16 = (dataclasses.replace(EXACT, compress=kind) for kind in ("fp16", "bf16"))

# Small whole numbers and halves, in everything that is swapped: 16 bits hold them all.
WHOLE = """
layer { name: "data" type: "Input" top: "data" input_param { shape { dim: 4 dim: 2 dim: 16 dim: 16 } } }
layer { name: "want" type: "Input" top: "want" input_param { shape { dim: 4 dim: 3 dim: 8 dim: 8 } } }
layer { name: "a" type: "Convolution" bottom: "data" top: "a" convolution_param { num_output: 4 kernel_size: 1
  weight_filler { type: "constant" value: 1 } } }
layer { name: "r" type: "ReLU" bottom: "a" top: "a" }
layer { name: "b" type: "Convolution" bottom: "a" top: "b" convolution_param { num_output: 3 kernel_size: 1
  weight_filler { type: "constant" value: -0.5 } } }
layer { name: "p" type: "Pooling" bottom: "b" top: "p" pooling_param { kernel_size: 2 stride: 2 } }
layer { name: "loss" type: "EuclideanLoss" bottom: "p" bottom: "want" top: "loss" }
"""


def make(text, device, lms, **tuning):
    parsed = parse_solver(f"base_lr: 1 lr_policy: 'fixed' random_seed: 3 net_param {{ name: 'x'\n{text} }}", "x")
    more = {"file": parsed.filename, "lines": parsed.lines, "device": device, "lms": lms}
    return solver_class(parsed.message)(parsed.message, tuning=Tuning(**tuning), **more)


def gradients(solver):
    return [p.read_diff().copy() for p in solver.net.learnable_params]


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("config", [FP16, BF16], ids=["fp16", "bf16"])
def test_numbers_that_16_bits_hold_stay_what_they_are(config, seed):
    found = []
    rng = np.random.default_rng(seed)
    data, want = rng.integers(0, 2, (4, 2, 16, 16)), rng.integers(-3, 1, (4, 3, 8, 8))
    for lms in (EXACT, config):
        solver = make(WHOLE, SimDevice(1 << 20, order="random", seed=seed), lms, masks=False)
        solver.net.blobs["data"].data, solver.net.blobs["want"].data = data, want
        solver.step(1)
        found.append([g.tobytes() for g in gradients(solver)])
        assert all(g.any() for g in gradients(solver))
    assert solver.runtime.stats.programs["train"].plan.compressed
    assert found[0] == found[1]


@pytest.mark.parametrize("graph", [True, False], ids=["replayed", "step by step"])
@pytest.mark.parametrize("net", NETS)
def test_every_order_of_the_streams_gives_the_same(net, graph):
    """Were a piece of memory overwritten before it is read, or read before it is there, numbers would differ."""
    runs = [
        train(make_solver(net, SimDevice(1 << 20, order=order, seed=seed), FP16, graph=graph), 4)
        for order, seed in (("latest", 0), ("earliest", 0), *(("random", s) for s in range(4)))
    ]
    assert all(run == runs[0] for run in runs)


@pytest.mark.parametrize("recompute", [False, True], ids=["copied", "made again"])
def test_plans_by_predicted_time(recompute):
    net = "residual"
    roomy = make_solver(net, SimDevice(64 << 20), EXACT)
    plan = roomy.net.memory.plans()["train"]
    budget = roomy.runtime.resident_bytes + roomy.runtime.workspace_bytes + int(plan.arena_bytes * 1.1) + 4096
    config = LMSConfig(threshold_kb=1, compress="fp16", budget=budget, recompute=recompute)
    solvers = [make_solver(net, SimDevice(64 << 20, order="random", seed=s), config) for s in range(4)]
    runs = [train(solver, 4) for solver in solvers]
    assert all(run == runs[0] for run in runs)
    plan = solvers[0].net.memory.plans()["train"]
    assert plan.compressed and solvers[0].net.device.in_use() <= budget
    assert runs[0][0] == pytest.approx(train(make_solver(net, SimDevice(64 << 20)), 4)[0], rel=1e-2)


@pytest.mark.parametrize(("config", "bound"), [(FP16, 2e-3), (BF16, 2e-2)], ids=["fp16", "bf16"])
@pytest.mark.parametrize("net", NETS)
def test_gradients_are_nearly_those_of_exact_copies(net, config, bound):
    options = {"base_lr": 1e-9, "random_seed": 1}  # with this seed no input of a ReLU changes its sign
    exact, lossy = (make_solver(net, SimDevice(64 << 20), lms, **options) for lms in (EXACT, config))
    for solver in (exact, lossy):
        solver.step(1)
    a, b = (np.concatenate([g.ravel() for g in gradients(solver)]) for solver in (exact, lossy))
    assert 0 < np.linalg.norm(a - b) / np.linalg.norm(a) < bound
    assert lossy.net.loss() == pytest.approx(exact.net.loss(), rel=bound)


def test_bytes_over_the_link_and_on_the_host():
    exact, lossy = (make_solver("chain", SimDevice(64 << 20), lms) for lms in (EXACT, FP16))
    plans = [s.net.memory.plans()["train"] for s in (exact, lossy)]
    assert [(o.kind, o.place, o.waits) for o in plans[0].ops] == [(o.kind, o.place, o.waits) for o in plans[1].ops]
    compressed, sizes = plans[1].compressed, plans[0].buffers
    saved = sum(
        sizes[op.place.buffer].nbytes - plans[1].buffers[op.place.buffer].compressed_bytes
        for op in plans[1].ops
        if op.kind.value == "in" and op.place.buffer in compressed
    )
    assert saved > 0 and plans[0].bytes_in - plans[1].bytes_in == saved
    before = exact.net.device.bytes_in, lossy.net.device.bytes_in
    for solver in (exact, lossy):
        solver.step(1)
    moved = exact.net.device.bytes_in - before[0], lossy.net.device.bytes_in - before[1]
    assert moved[1] < moved[0]
    counted = [s.runtime.stats.programs["train"].last.bytes_in for s in (exact, lossy)]
    assert moved[0] - counted[0] == moved[1] - counted[1]  # what plans do not copy: labels, numbers of the solver
    assert lossy.runtime.slab.nbytes < exact.runtime.slab.nbytes
    assert plans[1].host_bytes < plans[0].host_bytes


def test_who_is_copied_exactly():
    solver = make_solver("groups", SimDevice(64 << 20), FP16)
    memory = solver.net.memory
    plan = memory.plans()["train"]
    names = {memory.buffers[b].name for b in plan.compressed}
    assert names and all(n.endswith((".data", ".diff")) and ".param" not in n for n in names)
    assert not names & {"data.data", "label.data", "loss.data", "accuracy.data", "fc.data"}  # accuracy takes fc
    copied = {memory.buffers[op.place.buffer].name for op in plan.ops if op.place} - names
    assert any(".param" in n for n in copied) and any("mask" in n or "history" in n for n in copied)


def test_indices_are_exact():
    text = """
layer { name: "d" type: "DummyData" top: "d" top: "l" dummy_data_param { shape { dim: 2 dim: 2 dim: 8 dim: 8 }
  shape { dim: 2 } data_filler { type: "gaussian" } } }
layer { name: "c" type: "Convolution" bottom: "d" top: "c" convolution_param { num_output: 2 kernel_size: 1 } }
layer { name: "p" type: "Pooling" bottom: "c" top: "p" top: "where" pooling_param { kernel_size: 2 stride: 2 } }
layer { name: "u" type: "Upsample" bottom: "p" bottom: "where" top: "u" upsample_param { scale: 2 } }
layer { name: "f" type: "InnerProduct" bottom: "u" top: "f" inner_product_param { num_output: 3 } }
layer { name: "loss" type: "SoftmaxWithLoss" bottom: "f" bottom: "l" top: "loss" }
"""
    graph = make(text, SimDevice(1 << 20), EXACT).net.graph
    able = inexact(graph)
    by_name = {v.name: v for v in graph.values}
    assert by_name["where"].data not in able and by_name["l"].data not in able and by_name["d"].data not in able
    assert {by_name[n].data for n in ("c", "p", "u", "f")} <= able


def test_memory_between_is_counted_and_kept_within_the_budget():
    device = SimDevice(1 << 20)
    solver = make_solver("residual", device, FP16)
    halves = solver.runtime.compression
    assert 512 < halves.nbytes < (1 << 20) // 32
    plain = make_solver("residual", SimDevice(1 << 20), EXACT)
    assert solver.runtime.resident_bytes - plain.runtime.resident_bytes == halves.nbytes
    plan = solver.net.memory.plans()["train"]
    need = solver.runtime.resident_bytes + solver.runtime.workspace_bytes + plan.arena_bytes
    train(solver, 2)
    assert device.in_use() <= need
    largest = max(plan.buffers[b].compressed_bytes for b in plan.compressed)
    assert largest > halves._piece  # so values went through in several pieces


def test_what_people_read_says_lossy(caplog):
    solver = make_solver("chain", SimDevice(64 << 20), FP16, display=1)
    with caplog.at_level("INFO"):
        solver.step(2)
    assert any("lossy fp16" in message for message in caplog.messages)
    statistics = solver.net.statistics()
    assert statistics["lossy"] == "fp16" and statistics["saturated"] == 0
    assert statistics["programs"]["train"]["plan"]["buffers"]["lossy"]["count"] > 0
    assert "lossy" in make_face(solver).report()
    exact = make_solver("chain", SimDevice(64 << 20), EXACT)
    assert exact.net.statistics()["lossy"] == "" and "lossy" not in make_face(exact).report()


def make_face(solver):
    if solver.iter == 0:
        solver.step(1)
    return NetLMS(solver.net)


def test_values_too_large_are_counted():
    large = WHOLE.replace("value: 1 }", "value: 100000 }")
    solver = make(large, SimDevice(1 << 20), FP16, masks=False)
    solver.net.blobs["data"].data = np.ones((4, 2, 16, 16))
    solver.step(1)
    a = solver.net.blobs["a"]
    assert solver.net.statistics()["saturated"] >= np.prod(a.shape)  # all of a is 200000


def test_nothing_of_it_is_seen_after_a_failure():
    expected = train(make_solver("residual", SimDevice(64 << 20), FP16), 3)
    solver = make_solver("residual", SimDevice(64 << 20), FP16)
    plan = solver.net.memory.plans()["train"]
    losses, _ = train(solver, 1)
    seen, executor = [], solver.net.memory.executor
    run = executor.run

    def fail(step):
        seen.append(step)
        if len(seen) == len(solver.net.memory.steps("train")) // 2:
            raise RuntimeError("in the middle")
        run(step)

    executor.run = fail
    with pytest.raises(RuntimeError, match="in the middle"):
        solver.step(1)
    executor.run = run
    assert solver.runtime.stats.held == 0
    for b in plan.compressed:
        with pytest.raises(DiscardedRead):
            solver.net.memory.memories[b].ask(Ask.READ_CPU)
    solver.step(1)
    assert np.isfinite(solver.net.loss()) and losses[0] == expected[0][0]


def test_passes_by_hand_are_exact():
    lossy, exact = (make_solver("residual", SimDevice(64 << 20), lms) for lms in (FP16, EXACT))
    for solver in (lossy, exact):
        solver.net.forward_range()
        solver.net.backward_range()
    assert [g.tobytes() for g in gradients(lossy)] == [g.tobytes() for g in gradients(exact)]


def test_the_verifier_refuses_what_would_be_seen():
    solver = make_solver("chain", SimDevice(64 << 20), EXACT)
    plan = solver.net.memory.plans()["train"]
    out = next(b for b in plan.program.live_out if b in plan.buffers)
    wrong = dict(plan.buffers) | {out: dataclasses.replace(plan.buffers[out], compressed_bytes=2)}
    with pytest.raises(PlanError, match="must survive is copied in 16 bits"):
        verify(dataclasses.replace(plan, buffers=wrong))


def test_the_flag():
    parser = flags.parser("train", "")
    flags.add_device(parser)

    def config(*words):
        return flags.lms_config(flags.parse(parser, ["-lms", "1000", *words]))

    assert config().compress is None and config("-lms_compress", "off").compress is None
    assert config("-lms_compress=bf16").compress == "bf16"


def test_impossible_settings():
    with pytest.raises(UsageError, match="fp16 or bf16"):
        LMSConfig(threshold_kb=1, compress="int8")
    with pytest.raises(UsageError, match="no effect without -lms"):
        LMSConfig(compress="fp16")


@pytest.mark.gpu
@pytest.mark.skipif(not cuda_available(), reason="no GPU")
@pytest.mark.parametrize("config", [FP16, BF16], ids=["fp16", "bf16"])
@pytest.mark.parametrize("net", NETS)
def test_on_a_gpu_replayed_iterations_give_what_single_steps_give(net, config):
    device = get_device("cuda")
    runs = []
    for graph in (False, True):
        solver = make_solver(net, device, dataclasses.replace(config, budget=4 << 20), graph=graph)
        runs.append(train(solver, 6))
        assert solver.net.memory.plans()["train"].compressed
        solver.runtime.close()
    device.set_budget(None)
    assert runs[0] == runs[1]
