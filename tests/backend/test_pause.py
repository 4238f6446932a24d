"""Check that the compute stream stands still while the host queues the work to be timed."""

from __future__ import annotations

import pytest

from pycaffe_lms.backend import cuda_available, get_device
from pycaffe_lms.backend.sim.device import SimDevice


@pytest.mark.gpu
@pytest.mark.skipif(not cuda_available(), reason="no GPU")
def test_steps_that_are_queued_during_a_pause_take_their_own_time():
    device = get_device("cuda")
    span = device.take(4096)
    for seconds in (0.0, 0.05):  # the first compiles
        device.synchronize()
        begin = device.timed_event()
        device.pause(seconds)
        marks = [device.timed_event()]
        for _ in range(200):
            device.zero(span)
            marks.append(device.timed_event())
        assert device.elapsed_ms(begin, marks[0]) >= 1e3 * seconds
    steps = [device.elapsed_ms(a, b) for a, b in zip(marks, marks[1:], strict=False)]
    assert sorted(steps)[100] < 0.02  # queuing one takes longer
    device.give(span)


def test_the_model_clock_does_not_move():
    device = SimDevice(1 << 20)
    start = device.timed_event()
    device.pause(1.0)
    assert device.elapsed_ms(start, device.timed_event()) == 0
