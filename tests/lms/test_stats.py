"""Statistics: of plans against recounts that follow their operations, of runs against what the device saw happen."""

from __future__ import annotations

import dataclasses
import json

import pytest

from pycaffe_lms.backend.cpu import CpuDevice
from pycaffe_lms.backend.sim.device import SimDevice
from pycaffe_lms.errors import human_bytes
from pycaffe_lms.lms.config import LMSConfig
from pycaffe_lms.lms.cost.machine import MACHINES
from pycaffe_lms.lms.plan.plan import OpKind
from pycaffe_lms.lms.plan.statistics import plan_statistics
from pycaffe_lms.lms.planner.lookahead import make_plan
from pycaffe_lms.lms.runtime import runtime
from pycaffe_lms.lms.runtime.recorder import Recorder

from .nets import make_solver
from .programs import net_program

LMS = LMSConfig(threshold_kb=1)


class WatchedDevice(SimDevice):
    """Counts copies on the link's own streams, and the seconds by which waits set the compute stream back.

    It sees what is queued, not what a recording repeats."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.seen = {"in": [], "out": []}
        self.waited = 0.0

    def copy_up(self, span, host, stream=None):
        if stream is self.copy_in:
            self.seen["in"].append(host.nbytes)
        return super().copy_up(span, host, stream)

    def copy_down(self, host, span, stream=None):
        if stream is self.copy_out:
            self.seen["out"].append(host.nbytes)
        return super().copy_down(host, span, stream)

    def wait(self, stream, event):
        if stream is self.compute:
            self.waited += max(0.0, event.time - stream.time)
        super().wait(stream, event)


def auto_plan(monkeypatch):
    """A solver whose plan copies, and makes values again: the link is slow and memory is short."""
    slow = dataclasses.replace(MACHINES["h200"], link_in=1e3, link_out=1e3, link_both=2e3)
    monkeypatch.setattr(runtime, "machine_of", lambda name, memory: slow)
    roomy = make_solver("residual", SimDevice(64 << 20), LMSConfig(auto=True, threshold_kb=1))
    roomy.step(1)
    most = roomy.runtime.device.in_use()
    for less in range(4 << 10, most, 4 << 10):
        config = LMSConfig(auto=True, threshold_kb=1, budget=most - less)
        solver = make_solver("residual", SimDevice(64 << 20), config)
        plan = solver.net.memory.plans()["train"]
        if plan.rematerialized and plan.copies:
            return solver, plan
    raise AssertionError("no budget makes it rematerialize")


def _follow(plan) -> dict:
    """What a plan does to every buffer, by following its operations one by one."""
    life = {b: {"in": 0, "out": 0, "dropped": 0, "born": 0} for b in plan.buffers}
    where: dict[int, tuple[int, int]] = {}
    top = most = 0
    for op in plan.ops:
        if op.kind is OpKind.IN:
            life[op.place.buffer]["in"] += 1
            where[op.place.buffer] = (op.place.offset, plan.buffers[op.place.buffer].nbytes)
        elif op.kind is OpKind.OUT:
            life[op.place.buffer]["out"] += 1
        for place in op.births:
            life[place.buffer]["born"] += 1
            where[place.buffer] = (place.offset, plan.buffers[place.buffer].nbytes)
        top = max([top, *(offset + size for offset, size in where.values())])
        replaced = {old for old, _ in op.inplace_reuses}
        most = max(most, sum(size for b, (_, size) in where.items() if b not in replaced))
        for b in op.drops:
            life[b]["dropped"] += 1
            where.pop(b)
        for b in (*op.frees, *([op.place.buffer] if op.release else [])):
            where.pop(b)
    assert not where
    return {"life": life, "top": top, "most": most}


def _check(plan) -> None:
    found, followed = plan_statistics(plan), _follow(plan)
    life, sizes = followed["life"], {b: buffer.nbytes for b, buffer in plan.buffers.items()}
    for way in ("in", "out"):
        assert found[f"copies_{way}"] == sum(one[way] for one in life.values())
        assert found[f"bytes_{way}"] == sum(one[way] * sizes[b] for b, one in life.items())
    used = plan.paging.linear + plan.paging.count * plan.paging.page if plan.paging else followed["top"]
    assert found["used_bytes"] == used <= found["arena_bytes"]
    assert found["held_bytes"] == followed["most"]
    assert found["packing_loss"] == pytest.approx(used / plan.live_bytes - 1)
    groups = {
        "managed": list(life),
        "copied": [b for b, one in life.items() if one["in"] or one["out"]],
        "dropped": [b for b, one in life.items() if one["dropped"]],
    }
    for name, ids in groups.items():
        assert found["buffers"][name] == {"count": len(ids), "bytes": sum(sizes[b] for b in ids)}, name
    json.dumps(found)


@pytest.mark.parametrize("ahead", [0, 2])
@pytest.mark.parametrize("seed", range(12))
def test_a_plan_recounted(seed, ahead):
    program, buffers = net_program(seed)
    plan = make_plan(program, buffers, limit=None, ahead=ahead)
    _check(plan)
    counts = plan_statistics(plan)["buffers"]
    assert counts["recomputed"]["count"] == 0
    assert counts["stay"]["count"] == counts["managed"]["count"] - counts["copied"]["count"]


def test_a_plan_with_remats_recounted(monkeypatch):
    _, plan = auto_plan(monkeypatch)
    _check(plan)
    found = plan_statistics(plan)
    again = [plan.program.steps[s].name for s, (_, twice) in enumerate(plan.order) if twice]
    assert found["steps_rematerialized"] == len(again) > 0
    assert all(name.startswith("again:") for name in again)
    # what is made again is born once by each of its remats, and once before
    followed = _follow(plan)["life"]
    twice = {b for b, one in followed.items() if one["born"] > 1 and not plan.buffers[b].call_scratch}
    assert found["buffers"]["recomputed"]["count"] == len(twice) > 0
    assert found["buffers"]["recomputed"]["bytes"] == sum(plan.buffers[b].nbytes for b in twice)


@pytest.mark.parametrize("order", ["latest", "random"])
def test_runs_are_counted_as_the_device_saw_them(order):
    device = WatchedDevice(64 << 20, order=order, seed=3)
    solver = make_solver("branches", device, LMS, graph=False)
    solver.step(4)
    found = solver.statistics()
    total, train = found["total"], found["programs"]["train"]
    assert found["iterations"] == total["runs"] == train["total"]["runs"] == 4
    for way in ("in", "out"):
        assert total[f"copies_{way}"] == len(device.seen[way]) > 0
        assert total[f"bytes_{way}"] == sum(device.seen[way])
        assert 4 * train["last_run"][f"copies_{way}"] == len(device.seen[way])
    plan = solver.net.memory.plans()["train"]
    assert train["plan"] == plan_statistics(plan) and train["measured"] is None
    assert total["held_peak_bytes"] == plan.held_bytes
    assert train["total"]["stall_ms_predicted"] == pytest.approx(4e3 * plan.stall)
    assert found["host_pinned_bytes"] == solver.runtime.slab.nbytes > 0
    host_segments = [solver.net.memory.memories[b].host for b in solver.net.memory.buffers if b in plan.buffers]
    assert (
        found["buffers"]["host"]["bytes"]
        >= sum(host_slot.nbytes for host_slot in host_segments if host_slot is not None)
        > 0
    )
    assert found["in_use_bytes"] == device.in_use() and found["held_bytes"] == 0
    assert json.loads(json.dumps(found)) == found


def test_counting_from_zero_again():
    solver = make_solver("chain", SimDevice(64 << 20), LMS)
    solver.step(2)
    one = solver.statistics()["programs"]["train"]["last_run"]
    solver.reset_statistics()
    zero = solver.statistics()
    assert not any(zero["total"].values()) and zero["iterations"] == 0
    solver.step(1)
    assert solver.statistics()["total"] == one and solver.statistics()["iterations"] == 1


def test_a_run_from_a_recording_counts_too():
    device = SimDevice(64 << 20)
    solver = make_solver("residual", device, LMSConfig(auto=True, threshold_kb=1))
    solver.step(8)
    assert device.launches > 0
    assert solver.statistics()["programs"]["train"]["total"]["runs"] == 8


def test_recordings_with_copies_count_as_runs_step_by_step_do():
    found = []
    for graph in (False, True):
        device = SimDevice(64 << 20)
        solver = make_solver("branches", device, LMS, graph=graph)
        solver.step(6)
        assert (device.launches > 0) is graph
        found.append(solver.statistics()["programs"]["train"])
    assert found[0] == found[1] and found[0]["total"]["bytes_in"] > 0


@pytest.mark.parametrize("sync", [0, 1, 2, 3])
def test_stalls_that_are_measured_are_the_waits_of_the_compute_stream(sync):
    device = WatchedDevice(64 << 20)
    device.link_bytes_per_s = 2e8  # slow, so that there is something to wait for
    solver = make_solver("residual", device, LMSConfig(threshold_kb=1, ahead=1, sync=sync))
    solver.step(2)
    device.synchronize()
    recorder = Recorder(solver.runtime)
    before = device.waited
    with recorder.iteration("one"):
        solver.step(1)
    (run,) = recorder.runs()
    assert run.plan is solver.net.memory.plans()["train"] and run.iteration == "one"
    assert sum(run.times.stalls) == pytest.approx(device.waited - before, rel=1e-6)
    assert run.times.stall > 0
    for op in run.plan.ops:
        if op.place is not None:
            took = run.times.end[op.id] - run.times.start[op.id]
            nbytes = solver.net.memory.memories[op.place.buffer].nbytes
            assert took == pytest.approx(nbytes / device.link_bytes_per_s, rel=1e-6)
        for w in op.waits:  # it never starts before what it waits for is through
            if op.kind is not OpKind.HOST:
                assert run.times.start[op.id] >= run.times.end[w] - 1e-9
    solver.runtime.stats.measured([run])
    measured = solver.statistics()["programs"]["train"]["measured"]
    assert measured["stall_ms"] == pytest.approx(1e3 * (device.waited - before), rel=1e-6)


def test_a_failing_run_is_not_kept():
    solver = make_solver("chain", SimDevice(64 << 20), LMS)
    recorder = Recorder(solver.runtime)
    plan = solver.net.memory.plans()["train"]
    with pytest.raises(ZeroDivisionError), recorder.iteration("one"), recorder.run(plan):
        raise ZeroDivisionError
    assert recorder.runs() == []


def test_without_a_device_there_is_nothing_to_count():
    found = make_solver("chain", CpuDevice()).statistics()
    assert not found["enabled"] and found["programs"] == {} and found["budget_bytes"] == 0
    json.dumps(found)


def test_kinds_of_buffers():
    solver = make_solver("chain", SimDevice(64 << 20), LMS)
    memory = solver.net.memory
    found = solver.statistics()["buffers"]
    managed = [b for b in memory.buffers.values() if memory.memories[b.id].managed]
    assert found["managed"] == {"count": len(managed), "bytes": sum(b.nbytes for b in managed)}
    assert sum(one["bytes"] for one in found["by_kind"].values()) == found["managed"]["bytes"]
    histories = sum(b.nbytes for b in managed if ".history" in b.name)
    weights = sum(b.nbytes for b in managed if ".param" in b.name and b.name.endswith(".data"))
    assert found["by_kind"]["parameters"]["bytes"] == histories + weights > 0
    assert found["resident"]["bytes"] == solver.runtime.resident_bytes


def test_programs_are_told_apart(caplog):
    device = WatchedDevice(64 << 20)
    more = {"iter_size": 2, "test_iter": 3, "test_interval": 2, "display": 2}
    solver = make_solver("chain", device, LMS, graph=False, **more)
    with caplog.at_level("INFO"):
        solver.step(4)
    found = solver.statistics()
    runs = {name: program["total"]["runs"] for name, program in found["programs"].items()}
    assert runs == {"train first": 4, "train last": 4, "test": 6}
    for way in ("in", "out"):
        parts = [program["total"][f"bytes_{way}"] for program in found["programs"].values()]
        assert found["total"][f"bytes_{way}"] == sum(parts) == sum(device.seen[way])
    assert found["programs"]["test"]["total"]["bytes_in"] > 0
    each = sum(found["programs"][name]["last_run"]["bytes_in"] for name in ("train first", "train last"))
    lines = [message for message in caplog.messages if message.startswith("LMS: ")]
    assert len(lines) == 1 and lines[0].startswith(f"LMS: {human_bytes(each)} in, ")  # the next one would be equal
    caplog.clear()
    solver.reset_statistics()
    with caplog.at_level("INFO"):
        solver.step(1)
    assert [message for message in caplog.messages if message.startswith("LMS: ")] == lines[:1]
