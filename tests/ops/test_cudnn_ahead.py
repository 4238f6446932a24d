"""Building engines in processes: what they build, who waits for it, and what happens if they fail. No GPU."""

import contextlib
import sys
import threading
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from pycaffe_lms.backend import cuda
from pycaffe_lms.backend.bfloat16 import BFLOAT16
from pycaffe_lms.ops import NotBuilt
from pycaffe_lms.ops.cuda.conv import conv
from pycaffe_lms.ops.cuda.cudnn import ahead, build, convolution
from pycaffe_lms.ops.cuda.cudnn.graph import Fused, Types
from pycaffe_lms.ops.cuda.cudnn.store import Choice, open_store

from .fake_cudnn import array, geometry
from .test_cudnn_choice import forget, measured

__all__ = ["measured"]

SIZES = (28, 24, 20)
LARGE = [geometry(16, 64, 64, (n, n), 3, pad=1) for n in SIZES]
LIMIT = 1 << 20
FAKE = [sys.executable, "-m", "tests.ops.fake_worker"]


@pytest.fixture
def processes(frontend, measured, monkeypatch):
    """Let processes have the stand-in too; two engines each, of which the later one is faster."""
    frontend.engines, measured.times = {"slow": 64, "fast": 128}, [3.0, 2.0, 1.0]
    cuda.require().cuda.Device = lambda device: SimpleNamespace(mem_info=(64 << 30, 80 << 30))
    cuda.require().cuda.MemoryPool = lambda: SimpleNamespace(free_all_blocks=lambda: None)
    monkeypatch.setattr(ahead, "COMMAND", [*FAKE, "works"])
    monkeypatch.setattr(ahead, "FEWEST", 4)
    monkeypatch.setattr(ahead, "cores", lambda: 16)
    return frontend


def ask():
    """Plan as a net does, which asks all of its layers."""
    plans = []
    for g in LARGE:
        with contextlib.suppress(NotBuilt):
            plans.append(conv.conv_plan(g, "float32", LIMIT, bias=True).cudnn)
    if len(plans) < len(LARGE):
        raise NotBuilt
    return plans


def test_what_cudnn_compiles_is_built_by_processes_and_measured_here(processes, measured, caplog):
    plans = conv.conv_ahead_plan(ask)
    assert [plan.engines[convolution.FUSED] for plan in plans] == ["fast"] * 3
    assert all(set(plan.graphs) == {*convolution.DIRECTIONS, convolution.FUSED} for plan in plans)
    assert len(measured.calls) == 12 and not caplog.records
    compiled = [graph for graph in processes.graphs if graph.after]
    assert not any(graph.built for graph in compiled), "no engine with a bias is built here"
    assert {graph.loaded for graph in processes.graphs if not graph.built} == {"slow", "fast"}
    plans[0].forward(array(16), array(32), array(64), array(48), array(80, 1 << 20))
    runs = [graph for graph in processes.graphs if graph.runs]
    assert [graph.loaded for graph in runs] == ["fast"] and runs[0].runs == [({1: 16, 2: 32, 3: 48, 4: 64}, 80, 0)]
    assert not build.from_processes
    assert conv.conv_ahead_plan(ask)[0].graphs == plans[0].graphs


def test_within_another_no_engine_is_built_twice(processes, monkeypatch):
    """The inner call leaves to the processes of the outer one what they were asked for."""
    asked, processes_for = [], ahead._processes
    monkeypatch.setattr(ahead, "_processes", lambda tasks: asked.append(len(tasks)) or processes_for(tasks))
    plans = conv.conv_ahead_plan(lambda: conv.conv_ahead_plan(ask))
    assert [plan.engines[convolution.FUSED] for plan in plans] == ["fast"] * 3
    assert asked == [3, 0]


def test_what_is_not_compiled_is_measured_before_anybody_waits(processes, measured):
    with build.collecting() as wanted, contextlib.suppress(NotBuilt):
        ask()
    with ahead.building(wanted):
        assert len(measured.calls) == 9 and len(build.from_processes) == 3
        ask()
    assert len(measured.calls) == 12


def test_the_next_start_asks_once_and_starts_nothing(processes, measured, monkeypatch):
    conv.conv_ahead_plan(ask)
    forget(monkeypatch)
    monkeypatch.setattr(ahead, "COMMAND", ["no such program"])
    asked = []
    conv.conv_ahead_plan(lambda: asked.append(ask()))
    assert len(asked) == 1 and len(measured.calls) == 12


def test_a_rank_waits_for_the_one_that_builds(processes, measured, monkeypatch):
    """What two ranks ask for is chosen by the first, and read from the store by the second."""
    with build.collecting() as wanted, contextlib.suppress(NotBuilt):
        ask()
    monkeypatch.setattr(ahead, "_Building", None)
    entered = []
    other = open_store("GPU 9/x", 91900, "1.99")  # as another process has it
    with other.alone():
        first = threading.Thread(target=lambda: entered.append(conv.conv_ahead_plan(ask)))
        first.start()
        first.join(0.3)
        assert first.is_alive() and not measured.calls
        for one in wanted:
            other.put(str(one), Choice("fast", 128, b"fast"))
    first.join()
    assert not measured.calls and set(entered[0][0].engines.values()) == {"fast"}


def test_ranks_that_waited_go_on_side_by_side(processes, monkeypatch):
    """The lock is free while what is stored is loaded, and held while something is missing."""

    def within():
        store = open_store("GPU 9/x", 91900, "1.99")  # as another process has it
        entering = threading.Thread(target=lambda: store.alone().__enter__(), daemon=True)
        with ahead.building(wanted):
            entering.start()
            entering.join(0.3)
            return entering.is_alive()

    with build.collecting() as wanted, contextlib.suppress(NotBuilt):
        ask()
    monkeypatch.setattr(ahead, "FEWEST", 1 << 20)
    assert within()
    for one in wanted:
        build.store_of(0).put(str(one), Choice("fast", 128, b"fast"))
    forget(monkeypatch)
    assert not within()


def test_nets_of_two_threads_collect_each_for_itself(processes):
    def other():
        seen.append(build.is_collecting())
        with build.collecting() as mine, contextlib.suppress(NotBuilt):
            ask()
        seen.append(bool(mine))

    seen = []
    with build.collecting() as wanted:
        thread = threading.Thread(target=other)
        thread.start()
        thread.join()
    assert seen == [False, True] and not wanted


def test_few_engines_are_built_here(processes, measured, monkeypatch):
    monkeypatch.setattr(ahead, "COMMAND", ["no such program"])
    plan = conv.conv_ahead_plan(lambda: convolution.plan(LARGE[0], "float32", LIMIT))
    assert set(plan.engines.values()) == {"fast"} and len(measured.calls) == 3


def test_whether_cudnn_can_is_assumed_until_it_is_known(processes, measured):
    answers = []

    def asked():
        answers.append([conv.conv_channels_last_plan(g, "float32") for g in LARGE])
        return answers[-1]

    assert conv.conv_ahead_plan(asked) == [True] * 3
    assert answers == [[True] * 3] * 2 and not measured.calls


@pytest.mark.parametrize(
    "how, reason",
    [
        ("no module", "exit code 1, ModuleNotFoundError: No module named 'no_such_module'"),
        ("killed", "exit code -9"),
        ("no memory", "cuDNN cannot be started on device 0: no memory"),
    ],
)
def test_what_processes_fail_to_build_is_built_here(processes, monkeypatch, caplog, how, reason):
    monkeypatch.setattr(ahead, "COMMAND", [*FAKE, how])
    plans = conv.conv_ahead_plan(ask)
    assert [plan.engines[convolution.FUSED] for plan in plans] == ["fast"] * 3
    assert len([graph for graph in processes.graphs if graph.after and graph.built]) == len(plans)
    assert f"failed ({reason}" in caplog.text and not build.from_processes


def test_what_cannot_be_written_is_built_here(processes, monkeypatch, caplog):
    monkeypatch.setattr(ahead, "COMMAND", [*FAKE, "writes nothing"])
    assert conv.conv_ahead_plan(ask)[0].engines[convolution.FUSED] == "fast" and not caplog.records


def test_a_program_that_cannot_be_started(processes, measured, monkeypatch, caplog):
    monkeypatch.setattr(ahead, "COMMAND", ["/no/such/program"])
    conv.conv_ahead_plan(ask)
    assert "No such file or directory" in caplog.text and len(measured.calls) == 12


def test_an_interrupt_ends_the_processes(processes, monkeypatch, caplog):
    """Those that are asked never answer."""
    monkeypatch.setattr(ahead, "COMMAND", [*FAKE, "sleeps"])

    def interrupted():
        if build.is_collecting():
            return ask()
        started.append(len({*threading.enumerate()} - before))
        raise KeyboardInterrupt

    before, started = {*threading.enumerate()}, []
    with pytest.raises(KeyboardInterrupt):
        conv.conv_ahead_plan(interrupted)
    for thread in {*threading.enumerate()} - before:
        thread.join(20)
        assert not thread.is_alive()
    assert started == [3]
    assert not build.from_processes and not caplog.records


@pytest.mark.parametrize("tasks, free, count", [(100, 80 << 30, 12), (5, 80 << 30, 5), (100, 7 << 30, 3), (9, 1, 0)])
def test_free_memory_limits_the_number_of_processes(monkeypatch, processes, tasks, free, count):
    cuda.require().cuda.Device = lambda device: SimpleNamespace(mem_info=(free, 80 << 30))
    wanted = build.Wanted(LARGE[0], "forward", Fused(True, True), LIMIT, 0, "measure")
    assert ahead._processes([wanted] * tasks) == count


@pytest.mark.gpu
@pytest.mark.parametrize("half", [False, True])
def test_engines_that_processes_built_give_the_bits_of_those_built_here(gpu, half, tmp_path, monkeypatch, caplog):
    cupy = cuda.require()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    forget(monkeypatch)
    shapes = [replace(geometry(16, 64, 64, (n, n), 3, pad=1), channels_last=True) for n in SIZES[:2]]
    wanted = [build.Wanted(g, "forward", Fused(True, True), 1 << 28, 0, "measure", Types(half)) for g in shapes]
    monkeypatch.setattr(ahead, "FEWEST", 1)
    with ahead.building(wanted):
        built = [build.from_processes[one].result() for one in wanted]
    assert not caplog.records and len(built[0]) > 1 < len(built[1])
    bits = np.random.default_rng(1).normal(size=(3, 16 * 64 * 28 * 28)).astype(np.float32)
    x, w, y = (cupy.array(cuda_bits(row, half)) for row in bits)
    b = cupy.array(bits[0, :64])
    for one, engines in zip(wanted, built, strict=True):
        here = build._described(one)
        for written in engines:
            engine, found = here.named(written.name), []
            assert engine.workspace_bytes == written.workspace_bytes
            work = cupy.zeros(max(1, written.workspace_bytes), np.uint8)
            for run, index in ((build._loaded(0, written.plan), 0), (here.run(engine), engine.index)):
                y[...] = 0
                build.handle(0)
                run({1: x.data.ptr, 2: w.data.ptr, 3: y.data.ptr, 4: b.data.ptr}, work.data.ptr, index, None)
                found.append(cupy.asnumpy(y))
            assert np.array_equal(*found) and np.any(found[0])


def cuda_bits(values, half):
    """Values as float32, or as the upper halves of their bits, which are bfloat16."""
    return (values.view(np.uint32) >> 16).astype(np.uint16).view(BFLOAT16) if half else values
