"""Tests that caffe.Timer measures real time, only between start and stop."""

from __future__ import annotations

import time

import pytest

import pycaffe_lms as caffe
from pycaffe_lms.backend import cuda_available


def test_milliseconds():
    timer = caffe.Timer()
    timer.start()
    time.sleep(0.05)
    timer.stop()
    first = timer.ms
    time.sleep(0.02)
    assert 50 <= first < 5000 and timer.ms == first
    timer.stop()  # changes nothing
    assert timer.ms == first


def test_reading_stops_and_starting_twice_counts_from_the_first():
    timer = caffe.Timer()
    timer.start()
    time.sleep(0.02)
    timer.start()
    first = timer.ms
    assert first >= 20 and timer.ms == first


def test_a_timer_that_never_ran_says_so(caplog):
    assert caffe.Timer().ms == 0
    assert "Timer has never been run before reading time." in caplog.text


@pytest.mark.gpu
@pytest.mark.skipif(not cuda_available(), reason="no GPU")
def test_the_gpu_is_waited_for():
    import cupy

    caffe.set_mode_gpu()
    try:
        a = cupy.ones((8192, 8192), cupy.float32)
        (a @ a).sum()
        cupy.cuda.Device().synchronize()
        timer, start, stop = caffe.Timer(), cupy.cuda.Event(), cupy.cuda.Event()
        timer.start()
        start.record()
        for _ in range(10):
            a @ a
        stop.record()
        issued_ms = timer.ms
        stop.synchronize()
        assert issued_ms >= 0.9 * cupy.cuda.get_elapsed_time(start, stop)
    finally:
        caffe.set_mode_cpu()
