"""Items by several threads: all of them, and the first error in order."""

from __future__ import annotations

import itertools
import os
import platform
import subprocess
import sys
import threading
import time

import numpy as np
import pytest

from pycaffe_lms.data.transform import workers
from pycaffe_lms.ops.cpu import threads


def test_every_item_once():
    done = np.zeros(100, np.int64)

    def work(i):
        done[i] += i

    workers.each(work, 100)
    np.testing.assert_array_equal(done, np.arange(100))
    workers.each(work, 0)


@pytest.fixture(params=[2])
def several_threads(monkeypatch, request):
    monkeypatch.setenv("OMP_NUM_THREADS", str(request.param))
    threads._pool.cache_clear()
    yield
    threads._pool.cache_clear()


def test_the_first_error_in_order_whatever_comes_first_in_time(several_threads):
    """Item 3 fails after item 60 did. No item is begun after that."""
    later, begun = threading.Event(), []

    def work(i):
        begun.append(i)
        if i == 3:
            assert later.wait(20)
            time.sleep(0.05)
        if i == 60:
            later.set()
        if i in (3, 60):
            raise ValueError(f"item {i}")

    with pytest.raises(ValueError, match="item 3"):
        workers.each(work, 100)
    assert sorted(begun) == [*range(61)]


def test_a_thread_that_is_done_takes_the_next_item(several_threads):
    others, done = threading.Event(), []

    def work(i):
        if i == 0:
            assert others.wait(20)
        done.append(i)
        if len(done) == 99:
            others.set()

    workers.each(work, 100)
    assert done == [*range(1, 100), 0]


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="about glibc")
def test_memory_of_freed_pictures_is_kept():
    """A program of its own, whose memory nothing has touched: four blocks of 48 pages, fifty times."""
    program = """
import resource, sys
import numpy as np
np.empty(int(sys.argv[1]), np.uint8)
before = None
for _ in range(51):
    [np.ones(48 << 12, np.uint8) for _ in range(4)]
    before = before or resource.getrusage(resource.RUSAGE_SELF).ru_minflt
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""
    faults = []
    for size in (1, workers._KEPT_BYTES):
        argv = [sys.executable, "-c", program, str(size)]
        env = {k: v for k, v in os.environ.items() if not k.startswith(("MALLOC_", "GLIBC_", "LD_PRELOAD"))}
        faults.append(int(subprocess.run(argv, env=env, capture_output=True, check=True, text=True).stdout))
    assert faults[1] < 100 < 2000 < faults[0], faults


def test_spare_arrays_of_the_same_shape_and_type():
    spare = workers.SpareArrays()
    first, double, large = np.ones((2, 3), np.float32), np.ones((2, 3), np.float64), np.ones((4, 3), np.float32)
    spare.give(first)
    assert spare.take((2, 3), np.dtype(np.float32)) is first
    fresh = spare.take((2, 3), np.dtype(np.float32))
    assert fresh is not first and fresh.shape == (2, 3) and fresh.dtype == np.float32
    spare.give(double)
    spare.give(large)
    assert spare.take((2, 3), np.dtype(np.float32)) is not double
    spare.give(first)
    assert spare.take((2, 3), np.dtype(np.float32)) is first, "large is forgotten"


@pytest.mark.parametrize("several_threads", [3], indirect=True)
def test_several_threads_take_part(several_threads):
    names, together = set(), threading.Barrier(3, timeout=20)

    def work(i):
        names.add(threading.current_thread().name)
        if i % 2 == 0:
            together.wait()  # only passes when three threads are here at once

    workers.each(work, 6)
    assert len(names) == 3


@pytest.mark.parametrize("threads", ["1", "3"])
def test_a_stream_keeps_the_order_of_its_items(monkeypatch, threads):
    monkeypatch.setenv("OMP_NUM_THREADS", threads)

    def slow_at_first(k):
        time.sleep(0.02 if k % 7 == 0 else 0)
        return k * k

    assert list(workers.in_order(slow_at_first, iter(range(50)))) == [k * k for k in range(50)]
    assert list(workers.in_order(slow_at_first, [])) == []


def test_a_stream_runs_only_a_few_items_ahead(monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    taken = itertools.count()
    results = workers.in_order(lambda k: k, taken)  # endless
    assert [next(results) for _ in range(10)] == list(range(10))
    results.close()
    assert next(taken) <= 10 + 4 * 3


def test_an_error_in_a_stream_stands_where_its_result_would(monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "3")

    def work(k):
        if k >= 5:
            raise ValueError(f"item {k}")
        return k

    results = workers.in_order(work, range(100))
    assert [next(results) for _ in range(5)] == [0, 1, 2, 3, 4]
    with pytest.raises(ValueError, match="item 5"):
        next(results)
    assert not [t.name for t in threading.enumerate() if t.name.startswith("caffe-data")]


def test_a_stream_is_worked_on_by_several_threads_at_once(monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    together = threading.Barrier(3, timeout=20)
    assert list(workers.in_order(lambda k: together.wait() >= 0, range(6))) == [True] * 6
