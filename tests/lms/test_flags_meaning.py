"""Every flag of Large Model Support means what docs/lms.md says, from the command line down to what a run does."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pycaffe_lms.backend.sim.device import SimDevice
from pycaffe_lms.cli import flags
from pycaffe_lms.errors import OutOfDeviceMemory, OutOfHostMemory, UsageError
from pycaffe_lms.lms.config import LMSConfig
from pycaffe_lms.lms.cost.machine import MACHINES
from pycaffe_lms.lms.plan.plan import COPY_IN, COPY_OUT, OpKind
from pycaffe_lms.lms.program import Buffer
from pycaffe_lms.lms.runtime.runtime import RESERVE, Runtime

from .nets import make_solver, train

KB, MB = 1 << 10, 1 << 20


def config(*argv: str) -> LMSConfig:
    p = flags.parser("train", "")
    flags.add_device(p, trains=True)
    return flags.lms_config(flags.parse(p, list(argv)))


def managed(lms: LMSConfig, *sizes: int, capacity: int = 1 << 60) -> set[int]:
    buffers = [Buffer(i, f"b{i}", size) for i, size in enumerate(sizes)]
    return set(Runtime(SimDevice(capacity), lms).register(buffers).ids)


# -- -lms ------------------------------------------------------------------------------------------------------------
def test_lms_manages_what_is_larger_than_n_kb_of_1024_bytes():
    assert managed(config("-lms", "100"), 100_001, 102_400, 102_401) == {2}


def test_bare_lms_is_1000_as_in_powerai():
    assert config("-lms") == config("-lms", "1000")
    assert managed(config("-lms"), 1_024_000, 1_024_001) == {1}
    assert config("-lms", "-lms_frac", "0.4") == config("-lms", "1000", "-lms_frac", "0.4")


@pytest.mark.parametrize("value", ["0", "-1", "-10000000000", "off"])
def test_zero_or_less_is_off(value):
    lms = config("-lms", value)
    assert not lms.enabled and managed(lms, 1 << 50) == set()


def test_without_the_flag_it_is_off():
    assert config() == LMSConfig() and not config().enabled


@pytest.mark.parametrize("value", [10_000_000_000, 1 << 31, 1 << 40])
def test_integers_of_any_size(value):
    """The original overflowed above 2 GiB."""
    lms = config("-lms", str(value))
    assert lms.threshold_kb == value
    assert managed(lms, value * KB, value * KB + 1) == {1}


def test_auto_chooses_and_a_threshold_from_python_still_bounds_it():
    lms = config("-lms", "auto")
    assert lms.auto and lms.enabled and lms.recomputes
    assert managed(lms, 64 * KB, 64 * KB + 1) == {1}
    assert managed(LMSConfig(auto=True, threshold_kb=1), KB, KB + 1) == {1}


@pytest.mark.parametrize("value", ["many", "1.5", "1e3", "1000KB", ""])
def test_what_is_no_number_of_kb(value):
    with pytest.raises(UsageError, match="-lms"):
        config(f"-lms={value}")


# -- -lms_frac -------------------------------------------------------------------------------------------------------
def test_frac_leaves_the_first_share_of_memory_in_creation_order():
    """0.4 of 1000 KB: 250 + 150 are not more than 400; with the third it is more."""
    lms = config("-lms", "1", "-lms_frac", "0.4")
    assert managed(lms, 250 * KB, 150 * KB, 2 * KB, capacity=1000 * KB) == {2}
    assert managed(lms, 2 * KB, 250 * KB, 150 * KB, capacity=1000 * KB) == {2}


def test_frac_is_of_the_budget_where_one_is_set():
    lms = config("-lms", "1", "-lms_frac", "0.5", "-lms_budget", "100KB")
    assert managed(lms, 50 * KB, 2 * KB, capacity=1000 * KB) == {1}


@pytest.mark.parametrize("value", ["-0.1", "1.01", "nan", "much"])
def test_what_is_no_share(value):
    with pytest.raises(UsageError, match="lms_frac"):
        config("-lms", f"-lms_frac={value}")


# -- -lms_budget, -lms_exclude, -lms_host ----------------------------------------------------------------------------
def test_the_budget_is_hard():
    lms = config("-lms", "1", "-lms_budget", "160KB")
    device = SimDevice(64 * MB)
    solver = make_solver("residual", device, lms)
    solver.step(2)
    assert device.in_use() <= 160 * KB
    with pytest.raises(OutOfDeviceMemory):
        device.take(160 * KB - device.in_use() + 1)


def test_the_budget_holds_without_lms_too():
    with pytest.raises(OutOfDeviceMemory, match="without Large Model Support"):
        make_solver("residual", SimDevice(64 * MB), config("-lms_budget", "160KB"))


def test_exclude_leaves_that_many_mb_free():
    lms = config("-lms", "1", "-lms_exclude", "24")
    device = SimDevice(64 * MB)
    runtime = Runtime(device, lms)
    assert device.capacity() == 40 * MB
    assert runtime.limit() <= (1 - RESERVE) * 40 * MB


def test_exclude_uses_all_other_memory_before_values_of_an_iteration_are_copied():
    """What outlives an iteration comes and goes with each, under an explicit -lms N; with auto not even that."""
    for lms, less in (("1", 0), ("auto", 0), ("1", 1)):
        device = SimDevice((less == 0) * MB + 1 * MB + 160 * KB)
        plan = make_solver("residual", device, config("-lms", lms, "-lms_exclude", "1")).net.memory.plans()["train"]
        if plan is None:  # nothing is larger than 64 KB
            assert lms == "auto"
            continue
        host = {a.buffer for step in plan.program.steps if step.host for a in step.accesses}
        lasting = plan.program.live_out | host
        copied = {op.place.buffer for op in plan.ops if op.place is not None}
        assert bool(copied - lasting) == bool(less)


def test_of_budget_and_exclude_the_smaller_one_counts():
    for budget, expected in (("30MB", 30), ("50MB", 40)):
        device = SimDevice(64 * MB)
        Runtime(device, config("-lms", "1", "-lms_exclude", "24", "-lms_budget", budget))
        assert device.capacity() == expected * MB


@pytest.mark.parametrize("value", ["-1", "64", "x"])
def test_what_cannot_be_excluded(value):
    with pytest.raises(UsageError, match="lms_exclude"):
        Runtime(SimDevice(64 * MB), config("-lms", f"-lms_exclude={value}"))


def test_host_memory_is_limited_before_anything_is_taken():
    lms = config("-lms", "1", "-lms_ahead", "0", "-lms_host", "1KB")
    with pytest.raises(OutOfHostMemory, match="page-locked"):
        make_solver("residual", SimDevice(64 * MB), lms)


# -- -lms_ahead, -lms_sync, -lms_recompute ---------------------------------------------------------------------------
def _plan(*argv: str):
    return make_solver("residual", SimDevice(64 * MB), config("-lms", "1", *argv)).net.memory.plans()["train"]


def _device_uses(plan) -> dict[int, list[int]]:
    uses: dict[int, list[int]] = {}
    for s, step in enumerate(plan.program.steps):
        for a in step.accesses:
            if not step.host and a.buffer in plan.buffers:
                uses.setdefault(a.buffer, []).append(s)
    return uses


def test_ahead_0_is_on_demand():
    """Every copy in belongs to the step it is queued before, and no value outlasts its use."""
    plan = _plan("-lms_ahead", "0")
    uses = _device_uses(plan)
    copies = [op for op in plan.ops if op.kind is OpKind.IN]
    assert copies and all(op.step in uses[op.place.buffer] for op in copies)
    here: dict[int, int] = {}
    for op in plan.ops:
        for b in [op.place.buffer] if op.kind is OpKind.IN else [p.buffer for p in op.births]:
            here[b] = op.step
        gone = [op.place.buffer] if op.release else [*op.frees, *op.drops]
        for b in gone:
            assert set(range(here[b], op.step + 1)) <= set(uses[b])  # steps in a row that use it


def test_ahead_k_bounds_how_early_a_copy_comes():
    for k, *more in ((1,), (3,), (0, "-lms_recompute", "on"), (2, "-lms_recompute", "on")):
        plan = _plan("-lms_ahead", str(k), "-lms_budget", "180KB", *more)
        uses = _device_uses(plan)
        early = [
            min(s for s in uses[op.place.buffer] if s >= op.step) - op.step for op in plan.ops if op.kind is OpKind.IN
        ]
        assert early and max(early) <= k


def test_more_ahead_never_fails_where_on_demand_fits():
    demand = make_solver("residual", SimDevice(64 * MB), config("-lms", "1", "-lms_ahead", "0")).runtime
    least = demand.resident_bytes + demand.workspace_bytes + demand.arena.nbytes
    for ahead in ("1", "5", "1000"):
        solver = make_solver(
            "residual", SimDevice(64 * MB), config("-lms", "1", "-lms_ahead", ahead, "-lms_budget", f"{least}B")
        )
        assert solver.runtime.device.in_use() <= least
    make_solver("residual", SimDevice(64 * MB), config("-lms", "1", "-lms_budget", f"{least}B"))


@pytest.mark.parametrize("mode, waits", [(0, set()), (1, {"out"}), (2, {"in"}), (3, {"out", "in"})])
def test_sync_makes_copies_and_layers_wait_for_each_other(mode, waits, monkeypatch):
    """1: the layers wait for each copy out; 2: a copy in waits for the layers before it; 3: both; 0: neither."""
    device = SimDevice(64 * MB)
    solver = make_solver("residual", device, config("-lms", "1", "-lms_sync", str(mode), "-lms_budget", "160KB"))
    plan, seen = solver.net.memory.plans()["train"], {"out": 0, "in": 0}
    wait = device.wait

    def noting(stream, event):
        source = event.stream if hasattr(event, "stream") else None
        if stream is device.compute and source is device.copy_out:
            seen["out"] += 1
        if stream is device.copy_in and source is device.compute:
            seen["in"] += 1
        wait(stream, event)

    monkeypatch.setattr(device, "wait", noting)
    solver.step(1)
    ops = {op.id: op for op in plan.ops}
    for name, stream, other in (("out", 0, COPY_OUT), ("in", COPY_IN, 0)):
        planned = sum(ops[w].stream == other for op in plan.ops if op.stream == stream for w in op.waits) + 1
        copies = sum(op.stream == (COPY_OUT if name == "out" else COPY_IN) for op in plan.ops)
        assert seen[name] == planned + (copies if name in waits else 0), name


@pytest.mark.parametrize("mode", ["0", "1", "2", "3"])
def test_sync_changes_no_bit(mode):
    lms = config("-lms", "1", "-lms_sync", mode, "-lms_budget", "160KB")
    device = SimDevice(64 * MB, order="random", seed=7)
    assert train(make_solver("residual", device, lms), 2) == train(make_solver("residual", SimDevice(64 * MB)), 2)


def test_recompute_is_on_with_auto_and_off_else():
    assert config("-lms", "auto").recomputes and not config("-lms", "1000").recomputes
    assert not config("-lms", "auto", "-lms_recompute", "off").recomputes
    assert config("-lms", "1000", "-lms_recompute", "on").recomputes
    with pytest.raises(UsageError, match="-lms_recompute on has no effect without -lms"):
        config("-lms_recompute", "on")


def test_recompute_makes_again_in_place_of_copies_where_the_link_is_slow(monkeypatch):
    slow = replace(MACHINES["h200"], link_in=1e6, link_out=1e6, link_both=2e6)
    monkeypatch.setattr("pycaffe_lms.lms.runtime.runtime.machine_of", lambda name, memory: slow)
    off, on = (_plan("-lms_budget", "200KB", "-lms_pages", "off", "-lms_recompute", how) for how in ("off", "on"))
    assert off.rematerialized == 0 < on.rematerialized
    assert on.bytes_in < off.bytes_in and on.bytes_out < off.bytes_out and on.seconds < off.seconds


# -- spellings -------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    "argv",
    [
        ["-lms", "1000", "-lms_frac", "0.4", "-lms_budget", "2MB"],
        ["--lms", "1000", "--lms_frac", "0.4", "--lms_budget", "2MB"],
        ["-lms=1000", "-lms_frac=0.4", "-lms_budget=2MB"],
        ["--lms=1000", "--lms_frac=.4", "--lms_budget=2097152B"],
        ["--lms_budget=2048KB", "-lms_frac", "4e-1", "-lms"],
    ],
    ids=" ".join,
)
def test_gflags_and_gnu_spellings(argv):
    assert config(*argv) == LMSConfig(threshold_kb=1000, frac=0.4, budget=2 * MB)


def test_a_near_flag_is_named():
    with pytest.raises(UsageError, match="did you mean -lms_frac"):
        config("-lms", "-lms_frc", "0.4")
