"""Building engines in several processes: what is asked at once, who does it, and what happens if they fail. No GPU."""

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

from .fake_cudnn import geometry
from .test_cudnn_choice import forget, measured

__all__ = ["measured"]

SIZES = (28, 24, 20)
LARGE = [geometry(16, 64, 64, (n, n), 3, pad=1) for n in SIZES]
LIMIT = 1 << 20
FAKE = [sys.executable, "-m", "tests.ops.fake_worker"]


@pytest.fixture
def processes(frontend, monkeypatch):
    """Let processes have the stand-in too; two engines each, of which the later one is faster."""
    frontend.engines = {"slow": 64, "fast": 128}
    cuda.require().cuda.Device = lambda device: SimpleNamespace(mem_info=(64 << 30, 80 << 30))
    monkeypatch.setattr(ahead, "COMMAND", [*FAKE, "works"])
    monkeypatch.setattr(ahead, "FEWEST", 12)
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


def test_all_convolutions_of_a_net_are_built_by_processes(processes, measured, monkeypatch, caplog):
    caplog.set_level("INFO")
    monkeypatch.setattr(ahead, "_FIRST_S", 0.0)
    plans = conv.conv_ahead_plan(ask)
    assert [set(plan.engines.values()) for plan in plans] == [{"fast"}] * 3
    assert all(set(plan.graphs) == {*convolution.DIRECTIONS, convolution.FUSED} for plan in plans)
    assert not measured.calls and not any(graph.built for graph in processes.graphs), "nothing is built here"
    assert len(processes.graphs) == 9, "what runs is loaded: fused forwards in place of plain ones"
    assert caplog.messages[0].startswith("Convolutions: 0 of 12 engines built, 0 chosen")
    assert caplog.messages[-1].startswith("Convolutions: 12 of 12 engines built, 12 chosen")
    assert conv.conv_ahead_plan(ask)[0].graphs == plans[0].graphs


def test_the_next_start_asks_once_and_starts_nothing(processes, measured, monkeypatch):
    conv.conv_ahead_plan(ask)
    forget(monkeypatch)
    monkeypatch.setattr(ahead, "COMMAND", ["no such program"])
    asked = []
    conv.conv_ahead_plan(lambda: asked.append(ask()))
    assert len(asked) == 1 and not measured.calls


def test_a_rank_waits_for_the_one_that_builds(processes, measured, monkeypatch):
    """What two ranks ask for is built by the first, and read from the store by the second."""
    with build.collecting() as wanted, contextlib.suppress(NotBuilt):
        ask()
    with build.store_of(0).alone():
        second = threading.Thread(target=ahead.build_ahead, args=(wanted,))
        second.start()
        ahead._Building(ahead._tasks(wanted)).run(2)
        assert second.is_alive() and all(build.is_stored(one) for one in wanted)
        monkeypatch.setattr(ahead, "_Building", None)
    second.join()
    assert not measured.calls


def test_nets_of_two_threads_collect_each_for_itself(processes, measured):
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
    measured.times = [2.0, 1.0]
    plan = conv.conv_ahead_plan(lambda: convolution.plan(LARGE[0], "float32", LIMIT))
    assert set(plan.engines.values()) == {"fast"} and len(measured.calls) == 3


def test_whether_cudnn_can_is_assumed_until_it_is_known(processes, measured, monkeypatch):
    answers = []

    def asked():
        answers.append([conv.conv_channels_last_plan(g, "float32") for g in LARGE])
        return answers[-1]

    monkeypatch.setattr(ahead, "FEWEST", 1 << 20)
    assert conv.conv_ahead_plan(asked) == [True] * 3
    assert answers == [[True] * 3] * 2 and not measured.calls


@pytest.mark.parametrize(
    "how, reason",
    [
        ("no module", "exit code 1, ModuleNotFoundError: No module named 'no_such_module'"),
        ("killed", "exit code -9"),
    ],
)
def test_what_processes_fail_to_build_is_built_here(processes, measured, monkeypatch, caplog, how, reason):
    monkeypatch.setattr(ahead, "COMMAND", [*FAKE, how])
    measured.times = [3.0, 2.0, 1.0]
    plans = conv.conv_ahead_plan(ask)
    assert all(set(plan.graphs) == {*convolution.DIRECTIONS, convolution.FUSED} for plan in plans)
    assert measured.calls and f"failed ({reason}" in caplog.text


def test_a_program_that_cannot_be_started(processes, measured, monkeypatch, caplog):
    monkeypatch.setattr(ahead, "COMMAND", ["/no/such/program"])
    conv.conv_ahead_plan(ask)
    assert "No such file or directory" in caplog.text and measured.calls


def test_each_is_built_once_and_beside_what_it_competes_with():
    def wanted(g, direction, fused=Fused(), mode="measure"):  # noqa: B008  (a tuple)
        return build.Wanted(g, direction, fused, LIMIT, 0, mode)

    one, other = LARGE[:2]
    both = Fused(True, True)
    known = wanted(one, "backward_data", mode=build.KNOWN)
    given = [wanted(one, "forward", both), known, wanted(other, "forward"), wanted(one, "forward"), known]
    given += [replace(known, mode="measure"), known]
    assert ahead._tasks(given) == [
        [wanted(one, "forward"), wanted(one, "forward", both)],  # the slowest to build comes first
        [replace(known, mode="measure")],
        [wanted(other, "forward")],
    ]


def test_a_process_goes_on_building_while_another_one_measures(processes, measured, monkeypatch):
    with build.collecting() as wanted, contextlib.suppress(NotBuilt):
        ask()
    asked, building = [], ahead._Building(ahead._tasks(wanted))

    class Worker:
        def ask(self, what, task):
            asked.append(what)
            if len(asked) == 4:
                building._turn.release()  # the other one has measured

        def end(self):
            asked.append("end")

    monkeypatch.setattr(ahead, "_Worker", Worker)
    building._turn.acquire()
    building._serve()
    assert len(building._tasks) == 0 and not building._failures
    assert asked == ["prepare"] * 4 + ["find"] * 4 + (["prepare", "find"] * (len(ahead._tasks(wanted)) - 4)) + ["end"]
    assert building._built == building._measured == building._total


@pytest.mark.parametrize("tasks, free, count", [(100, 80 << 30, 12), (5, 80 << 30, 5), (100, 7 << 30, 3), (9, 1, 0)])
def test_free_memory_limits_the_number_of_processes(monkeypatch, tasks, free, count):
    monkeypatch.setattr(ahead, "cores", lambda: 16)
    assert ahead._processes(tasks, free) == count


@pytest.mark.gpu
@pytest.mark.parametrize("half", [False, True])
def test_engines_that_processes_built_give_the_bits_of_those_built_here(gpu, half, tmp_path, monkeypatch, caplog):
    cupy, kind = cuda.require(), BFLOAT16 if half else np.dtype(np.float32)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    forget(monkeypatch)

    def plans():
        return [convolution.plan(g, kind, 1 << 28, fused=Fused(True, True)) for g in shapes]

    shapes = [replace(geometry(16, 64, 64, (n, n), 3, pad=1), channels_last=True) for n in SIZES[:1]]
    monkeypatch.setattr(ahead, "FEWEST", 1)
    (plan,) = conv.conv_ahead_plan(plans)
    assert not caplog.records and all(isinstance(g.run, build._Stored) for g in plan.graphs.values())
    bits = np.random.default_rng(1).normal(size=(3, 16 * 64 * 28 * 28)).astype(np.float32)
    x, y, z = (cupy.array(cuda_bits(row, half)) for row in bits)
    work = cupy.zeros(max(1, plan.workspace_bytes), np.uint8)
    for direction, loaded in plan.graphs.items():
        fused = plan.fused if direction == convolution.FUSED else Fused()
        its = "forward" if direction == convolution.FUSED else direction
        limit = 1 << 28
        if its == "backward_filter":
            limit = ((1 << 28) - 64 * 64 * 9 * 4) // 512 * 512
        wanted = build.Wanted(
            shapes[0], its, fused, limit, 0, "measure", Types(half, half and its == "backward_filter")
        )
        candidates = build._described(wanted)
        engine = candidates.named(loaded.name)
        assert engine.workspace_bytes == loaded.workspace_bytes
        found = []
        for run, index in ((loaded.run, loaded.index), (build.runner(candidates.graph), engine.index)):
            z[...] = 0
            build.handle(0)
            run({1: x.data.ptr, 2: y.data.ptr, 3: z.data.ptr, 4: y.data.ptr}, work.data.ptr, index, None)
            found.append(cupy.asnumpy(z))
        assert np.array_equal(*found) and np.any(found[0])


def cuda_bits(values, half):
    """Values as float32, or as the upper halves of their bits, which are bfloat16."""
    return (values.view(np.uint32) >> 16).astype(np.uint16).view(BFLOAT16) if half else values
