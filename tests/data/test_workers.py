"""Items by several threads: all of them, and the first error in order."""

from __future__ import annotations

import threading

import numpy as np
import pytest

from pycaffe_lms.data import workers


def test_every_item_once():
    done = np.zeros(100, np.int64)

    def work(i):
        done[i] += i

    workers.each(work, 100)
    np.testing.assert_array_equal(done, np.arange(100))
    workers.each(work, 0)


def test_the_first_error_in_order_whatever_comes_first_in_time(monkeypatch):
    """Parts run in the opposite order here: item 60's error comes before item 3's in time."""

    def backwards(kernel, n, *args, grain):
        for first, last in ((50, n), (0, 50)):
            kernel(first, last, *args)

    monkeypatch.setattr(workers, "parallel", backwards)

    def work(i):
        if i in (3, 60):
            raise ValueError(f"item {i}")

    with pytest.raises(ValueError, match="item 3"):
        workers.each(work, 100)


def test_several_threads_take_part(monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    from pycaffe_lms.ops.cpu import threads

    threads._pool.cache_clear()
    try:
        names, together = set(), threading.Barrier(3, timeout=20)

        def work(i):
            names.add(threading.current_thread().name)
            if i % 2 == 0:
                together.wait()  # only passes when three threads are here at once

        workers.each(work, 6)
        assert len(names) == 3
    finally:
        threads._pool.cache_clear()
