"""Call functions in processes: order, errors, processes that end too early, the size of a message."""

from __future__ import annotations

import io
import os
import pickle
from contextlib import closing

import pytest

from pycaffe_lms.data.transform import processes
from pycaffe_lms.data.transform.processes import in_order_by_processes
from pycaffe_lms.errors import DataError

pytest.importorskip("cv2")


def test_results_are_in_order_and_an_error_has_the_place_of_its_item():
    items = ["__import__('os').getpid()"] * 48 + [str(k) for k in range(50)] + ["int('seven')", "1"]
    with closing(in_order_by_processes(eval, items, 2)) as results:
        pids = [next(results) for _ in range(48)]  # three chunks
        assert pids[:16] == pids[32:] == pids[:1] * 16 and pids[16:32] == pids[16:17] * 16
        assert len({*pids, os.getpid()}) == 3
        assert [next(results) for _ in range(50)] == list(range(50))
        with pytest.raises(RuntimeError, match="invalid literal for int.. with base 10: 'seven'"):
            next(results)
    for pid in set(pids):
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


def test_a_process_that_ends_too_early_is_an_error():
    with pytest.raises(DataError, match="ended with code 3") as caught:
        list(in_order_by_processes(os._exit, [3], 1))
    assert "OMP_NUM_THREADS" in caught.value.fix


def test_a_message_ends_at_its_size(monkeypatch):
    monkeypatch.setattr(processes, "_MESSAGE_BYTES", 100)
    messages = list(processes._messages(bytes, [10, 20, 90, 1, 400, 5], -1, 0))
    sizes = []
    for message in map(io.BytesIO, messages):
        sizes.append([])
        while message.tell() < len(message.getbuffer()):
            sizes[-1].append(len(pickle.load(message)))
    assert sizes == [[10, 20, 90], [1, 400], [5]]


@pytest.mark.parametrize("shared_bytes", [0, 1 << 20, 16 << 20])
def test_results_go_through_shared_memory_as_far_as_they_fit(monkeypatch, shared_bytes):
    """None of a chunk's sixteen, some, all; each in its place, and none written over before it was read."""
    if shared_bytes:
        monkeypatch.setattr(processes, "_SHARED_BYTES", shared_bytes)
    else:
        monkeypatch.delattr(os, "memfd_create", raising=False)
    items = [f"bytes([{k}]) * {100000 + k}" for k in range(200)]
    with closing(in_order_by_processes(eval, items, 2)) as results:
        assert list(results) == [bytes([k]) * (100000 + k) for k in range(200)]


def _filled(size):
    return bytes([size % 251]) * size


@pytest.mark.skipif(not hasattr(os, "memfd_create"), reason="the system has no files in memory")
def test_what_does_not_fit_its_part_goes_through_the_pipe():
    """The first and the last of three fit the second half of a file, which is not made longer."""
    shared, part = os.memfd_create("test"), 6000 + processes._LARGE_BYTES
    try:
        os.ftruncate(shared, 2 * part)
        sizes = [6000, 6001, processes._LARGE_BYTES]
        [message] = processes._messages(_filled, sizes, shared, 1)
        assert 6001 < len(message) < 6500 and os.fstat(shared).st_size == 2 * part
        stream = io.BytesIO(message)
        assert [processes._Unpickler(stream, shared).load() for _ in sizes] == [*map(_filled, sizes)]
        assert os.pread(shared, part, 0) == bytes(part)
    finally:
        os.close(shared)


def test_large_items_and_large_results_do_not_wait_for_each_other():
    """Neither a chunk nor its results fit the pipe between the processes."""
    items = [f"{k!r:<40000} * 300000" for k in ("a", "b", "c", "d") * 20]
    with closing(in_order_by_processes(eval, items, 1)) as results:
        assert [r[0] for r in results] == ["a", "b", "c", "d"] * 20
