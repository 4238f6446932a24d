"""Check the simulated device: poison, capacity, lazy streams that reveal a missing event, and the model clock."""

from __future__ import annotations

import numpy as np
import pytest

from pycaffe_lms.backend.sim.device import SimDevice
from pycaffe_lms.errors import DeviceError, LostRank, OutOfDeviceMemory
from pycaffe_lms.ops import ops_of

ORDERS = [("latest", 0), ("earliest", 0)] + [("random", seed) for seed in range(12)]


# -- memory ------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_fresh_memory_is_poison(dtype):
    device = SimDevice(4096)
    array = device.array(device.take(600), (10, 7), dtype)
    assert array.shape == (10, 7) and np.isnan(array).all()


def test_spoiling_waits_its_turn_on_the_stream():
    device = SimDevice(4096, order="latest")
    span, seen = device.take(512), np.empty(4, np.float32)
    array = device.array(span, (4,), np.float32)
    device.queue(np.copyto, array, 5)
    device.queue(np.copyto, seen, array)
    device.spoil(span)
    device.synchronize()
    assert (seen == 5).all() and np.isnan(array).all()


def test_who_keeps_an_array_of_memory_given_back_reads_poison():
    device = SimDevice(4096)
    span = device.take(512)
    array = device.array(span, (4,), np.float32)
    device.queue(np.copyto, array, 5)
    device.give(span)
    device.synchronize()
    assert np.isnan(array).all()


def test_memory_is_counted_in_aligned_chunks():
    device = SimDevice(4096)
    spans = [device.take(n) for n in (1, 512, 513, 0)]
    assert [s.nbytes for s in spans] == [512, 512, 1024, 512]
    assert device.in_use() == 2560
    for span in spans:
        device.give(span)
    assert device.in_use() == 0


def test_out_of_memory_says_how_much_was_asked_and_is_there():
    device = SimDevice(4096)
    held = device.take(3000)
    with pytest.raises(OutOfDeviceMemory) as caught:
        device.take(1025)
    assert (caught.value.needed, caught.value.free) == (1536, 1024)
    assert "1.5 KiB" in str(caught.value) and "1.0 KiB of 4.0 KiB are free" in str(caught.value)
    assert device.in_use() == 3072
    assert device.take(1024).nbytes == 1024
    assert held.nbytes == 3072


def test_what_nobody_has_any_more_is_free_again():
    """Check, as for CuPy's pool, that memory is freed after the work that is queued on it."""
    device = SimDevice(4096)
    span = device.take(4096)
    queued = device.copy_down(np.zeros(512, np.uint8), span.at(0, 512))
    del span
    with pytest.raises(OutOfDeviceMemory):
        device.take(512)
    device.wait_host(queued)
    device.synchronize()
    assert device.in_use() == 0 and device.take(4096).nbytes == 4096


def test_a_budget_is_a_smaller_device_never_a_larger_one():
    device = SimDevice(4096)
    device.set_budget(1024)
    assert device.capacity() == 1024
    with pytest.raises(OutOfDeviceMemory):
        device.take(1025)
    device.set_budget(8192)
    assert device.capacity() == 4096
    device.set_budget(None)
    assert device.take(4096).nbytes == 4096


# -- streams -----------------------------------------------------------------------------------------------------------
def _copy_out_before_it_is_made(device, events):
    """Compute a value on the compute stream and copy it on the out stream."""
    span, home = device.take(512), np.zeros(512, np.uint8)
    device.queue(np.copyto, device.array(span, (512,), np.uint8), 7)
    if events:
        device.wait(device.copy_out, device.record(device.compute))
    device.wait_host(device.copy_down(home, span, device.copy_out))
    return home, 7


def _use_before_it_is_in(device, events):
    """Copy a value in on the in stream and use it on the compute stream."""
    span, out = device.take(512), np.zeros(512, np.uint8)
    arrived = device.copy_up(span, np.full(512, 3, np.uint8), device.copy_in)
    if events:
        device.wait(device.compute, arrived)
    device.queue(np.copyto, out, device.array(span, (512,), np.uint8))
    device.wait_host(device.record(device.compute))
    return out, 3


def _reuse_before_it_is_drained(device, events):
    """Copy a value on the out stream while the compute stream reuses its memory."""
    span, home = device.take(512), np.zeros(512, np.uint8)
    array = device.array(span, (512,), np.uint8)
    device.queue(np.copyto, array, 5)
    device.wait(device.copy_out, device.record(device.compute))
    drained = device.copy_down(home, span, device.copy_out)
    if events:
        device.wait(device.compute, drained)
    device.queue(np.copyto, array, 6)
    device.wait_host(device.record(device.compute))
    device.wait_host(drained)
    return home, 5


HAZARDS = pytest.mark.parametrize(
    "hazard", [_copy_out_before_it_is_made, _use_before_it_is_in, _reuse_before_it_is_drained]
)


@HAZARDS
def test_with_its_event_every_order_gives_the_value(hazard):
    for order, seed in ORDERS:
        found, value = hazard(SimDevice(4096, order=order, seed=seed), True)
        assert (found == value).all(), (order, seed)


@HAZARDS
def test_a_missing_event_shows(hazard):
    wrong = []
    for order, seed in ORDERS:
        found, value = hazard(SimDevice(4096, order=order, seed=seed), False)
        if not (found == value).all():
            wrong.append(order)
    assert "latest" in wrong and "random" in wrong


def test_a_missing_event_makes_floats_nan():
    device, home = SimDevice(4096, order="latest"), np.zeros(8, np.float32)
    span = device.take(32)
    device.queue(np.copyto, device.array(span, (8,), np.float32), 1.0)
    device.wait_host(device.copy_down(home.view(np.uint8), span, device.copy_out))
    assert np.isnan(home).all()


def _interleaving(order, seed):
    """Return the order in which six tasks of each stream run; the third of `out` waits for the fourth of `compute`."""
    device, ran = SimDevice(4096, order=order, seed=seed), []
    scheduler = device._scheduler
    for i in range(6):
        for stream in (device.compute, device.copy_in, device.copy_out):
            scheduler.work(stream, lambda name=stream.name, i=i: ran.append((name, i)), 0.0)
        if i == 3:
            event = device.record(device.compute)
            device.wait(device.copy_out, event)
    device.synchronize()
    return ran


def test_random_orders_are_reproducible_legal_and_many():
    runs = [_interleaving("random", seed) for seed in range(10)]
    assert runs == [_interleaving("random", seed) for seed in range(10)]
    assert len({tuple(run) for run in runs}) == 10
    for run in [*runs, _interleaving("latest", 0), _interleaving("earliest", 0)]:
        for name in ("compute", "in", "out"):
            assert [i for n, i in run if n == name] == list(range(6))
        assert run.index(("compute", 3)) < run.index(("out", 4))


def test_an_order_that_does_not_exist_is_refused():
    with pytest.raises(ValueError, match="latest"):
        SimDevice(4096, order="sometimes")


def test_latest_runs_only_what_the_host_waits_for():
    device, ran = SimDevice(4096, order="latest"), []
    work = device._scheduler.work
    work(device.compute, lambda: ran.append("needed by out"), 0.0)
    needed = device.record(device.compute)
    work(device.compute, lambda: ran.append("later on compute"), 0.0)
    work(device.copy_in, lambda: ran.append("in"), 0.0)
    device.wait(device.copy_out, needed)
    work(device.copy_out, lambda: ran.append("out"), 0.0)
    done = device.record(device.copy_out)
    work(device.copy_out, lambda: ran.append("later on out"), 0.0)
    assert ran == []
    device.wait_host(done)
    assert ran == ["needed by out", "out"]
    device.synchronize()
    assert sorted(ran[2:]) == ["in", "later on compute", "later on out"]


def test_earliest_runs_at_once():
    device, ran = SimDevice(4096, order="earliest"), []
    device.queue(ran.append, "now")
    assert ran == ["now"]


def test_operations_are_queued():
    device = SimDevice(4096, order="latest")
    ops, y = ops_of(device), np.zeros(3, np.float32)
    ops.fill(y, 2.0)
    assert not y.any()
    device.synchronize()
    assert (y == 2).all()


# -- the model clock ---------------------------------------------------------------------------------------------------
def test_the_model_clock_adds_up_bytes_and_launches():
    device = SimDevice(1 << 20)
    a = np.zeros(43_000, np.uint8)
    device.queue(np.copyto, a, a)  # 86,000 bytes at 4.3e12 a second are 20 ns, on top of a launch of 5 us
    assert device.compute.time == pytest.approx(5e-6 + 20e-9)
    device.copy_up(device.take(55_000), np.zeros(55_000, np.uint8), device.copy_in)  # 1 us at 55 GB/s
    assert device.copy_in.time == pytest.approx(1e-6)
    assert device.model_seconds() == device.compute.time
    assert (device.bytes_in, device.bytes_out) == (55_000, 0)


def test_on_the_model_clock_streams_overlap_and_events_hold_them_back():
    device, home = SimDevice(1 << 20), np.zeros(110_000, np.uint8)
    span = device.take(home.nbytes)
    device.copy_down(home, span, device.copy_out)  # 2 us
    made = device.copy_up(span, home[:55_000], device.copy_in)  # 1 us, at the same time
    assert device.model_seconds() == pytest.approx(2e-6)
    assert made.time == pytest.approx(1e-6)
    device.wait(device.copy_out, made)  # has ended already: nothing changes
    assert device.copy_out.time == pytest.approx(2e-6)
    device.wait(device.copy_in, device.record(device.copy_out))
    device.copy_up(span, home[:55_000], device.copy_in)
    assert device.copy_in.time == device.model_seconds() == pytest.approx(3e-6)
    assert (device.bytes_in, device.bytes_out) == (110_000, 110_000)


@pytest.mark.parametrize("error", [DeviceError, LostRank])
@pytest.mark.parametrize(("order", "seed"), ORDERS)
def test_after_work_that_failed_no_event_comes_true(order, seed, error):
    """Check, as on a GPU, that every later wait fails: work queued behind the failed work was not computed."""

    def fail(_) -> None:
        raise error("it failed", fix="begin anew")

    device = SimDevice(1 << 20, order=order, seed=seed)
    span, host = device.take(64), device.host_take(64)
    device.zero(span)
    before = device.copy_down(host, span)
    device.wait_host(before)
    assert not host.any()
    with pytest.raises(error, match="it failed"):
        device.queue(fail, host)
        device.wait_host(device.copy_down(host, span))
    host[...] = 7
    for _ in range(2):
        with pytest.raises(error, match="it failed"):
            device.wait_host(device.copy_down(host, span))
    device.wait_host(before)
    assert (host == 7).all()
