"""Check that the simulated device captures work on all its streams, with their events, and launches it again."""

from __future__ import annotations

import numpy as np
import pytest

from pycaffe_lms.backend.sim.device import SimDevice
from pycaffe_lms.errors import DeviceError

ORDERS = [("latest", 0), ("earliest", 0)] + [("random", seed) for seed in range(12)]


@pytest.mark.parametrize("order, seed", ORDERS)
def test_a_capture_runs_when_it_is_launched_and_each_time(order, seed):
    device = SimDevice(4096, order=order, seed=seed)
    array = device.array(span := device.take(512), (2,), np.float64)
    device.zero(span)
    start = device.model_seconds()
    launch = device.capture(lambda: device.queue(np.add, array, 1, array))
    assert device.model_seconds() == start and device.launches == 0
    for _ in range(3):
        launch()
    device.synchronize()
    assert array.tolist() == [3, 3] and device.launches == 3 and device.model_seconds() > start


@pytest.mark.parametrize(
    "act",
    [
        lambda device, span: device.take(1),
        lambda device, span: device.give(span),
        lambda device, span: device.synchronize(),
        lambda device, span: device.wait_host(device.record(device.compute)),
        lambda device, span: device.timed_event(),
        lambda device, span: device.capture(lambda: None),
    ],
)
def test_what_a_capture_refuses(act):
    """Check the refusals of a CUDA graph, and that the device still works after a failure."""
    device = SimDevice(4096)
    span = device.take(512)
    with pytest.raises(DeviceError, match="capture"):
        device.capture(lambda: act(device, span))
    act(device, span)


def test_events_of_a_capture_mean_nothing_outside_and_the_reverse():
    device, made = SimDevice(4096), []
    before = device.record(device.compute)
    with pytest.raises(DeviceError, match="event"):
        device.capture(lambda: device.wait(device.copy_in, before))
    device.capture(lambda: made.append(device.record(device.copy_in)))
    for use in (lambda: device.wait(device.compute, made[0]), lambda: device.wait_host(made[0])):
        with pytest.raises(DeviceError, match="event"):
            use()
    with pytest.raises(DeviceError, match="event"):
        device.capture(lambda: device.wait(device.compute, made[0]))


def _captured_hazards(device, events):
    """A value comes in, is doubled in place, goes out; its memory is then taken by another, which goes out as well.
    Three launches. events: those to leave out. Returns what came home after each launch."""
    span, source, host_segments = device.take(64), np.zeros(8), [np.zeros(8), np.zeros(8)]
    array, raw = device.array(span, (8,), np.float64), [h.view(np.uint8) for h in (source, *host_segments)]

    def after(name, stream, event):
        if name not in events:
            device.wait(stream, event)

    def work():
        device.copy_up(span, raw[0], device.copy_in)
        after("arrived", device.compute, device.record(device.copy_in))
        device.queue(np.multiply, array, 2, array)
        after("made", device.copy_out, device.record(device.compute))
        device.copy_down(raw[1], span, device.copy_out)
        after("drained", device.compute, device.record(device.copy_out))
        device.queue(np.copyto, array, 5)
        after("made again", device.copy_out, device.record(device.compute))
        device.copy_down(raw[2], span, device.copy_out)

    launch, found = device.capture(work), []
    for i in range(3):
        source[:] = i + 1
        launch()
        device.wait_host(device.record(device.compute))
        found.append([h.tolist() for h in host_segments])
    return found


@pytest.mark.parametrize("order, seed", ORDERS)
def test_a_capture_of_all_streams_with_its_events(order, seed):
    device = SimDevice(4096, order=order, seed=seed)
    assert _captured_hazards(device, ()) == [[[2.0 * i] * 8, [5.0] * 8] for i in (1, 2, 3)]
    assert (device.bytes_in, device.bytes_out, device.launches) == (3 * 64, 3 * 128, 3)


@pytest.mark.parametrize("missing", ["arrived", "made", "drained", "made again"])
def test_an_event_that_is_missing_within_a_capture_shows(missing):
    expected = _captured_hazards(SimDevice(4096), ())
    assert any(
        str(_captured_hazards(SimDevice(4096, order=order, seed=seed), (missing,))) != str(expected)
        for order, seed in ORDERS
    )


@pytest.mark.parametrize("joined", [True, False])
def test_other_streams_and_a_launch_know_nothing_of_each_other(joined):
    """Read a value on a launch's copy stream that the device's copy stream copies in: one must wait for the other."""
    wrong = 0
    for order, seed in ORDERS:
        device = SimDevice(4096, order=order, seed=seed)
        span, home = device.take(64), np.zeros(8)
        launch = device.capture(lambda d=device, s=span, h=home: d.copy_down(h.view(np.uint8), s, d.copy_in))
        arrived = device.copy_up(span, np.full(8, 3.0).view(np.uint8), device.copy_in)
        if joined:
            device.wait(device.compute, arrived)
        launch()
        device.wait_host(device.record(device.compute))
        wrong += not (home == 3).all()
    assert (wrong == 0) if joined else wrong


def test_on_the_model_clock_the_streams_of_a_launch_overlap():
    device = SimDevice(1 << 20)
    span, home = device.take(110_000), np.zeros(110_000, np.uint8)

    def work():
        device.copy_down(home, span, device.copy_out)  # 2 us
        device.copy_up(span, home[:55_000], device.copy_in)  # 1 us, at the same time

    launch = device.capture(work)
    assert device.model_seconds() == 0 and (device.bytes_in, device.bytes_out) == (0, 0)
    launch()
    assert device.model_seconds() == pytest.approx(2e-6)
    launch()
    assert device.model_seconds() == pytest.approx(4e-6)
