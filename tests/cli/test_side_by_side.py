"""Tests work in two processes: who does what, and that it is done whatever happens to the other process."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import time

import pytest

from pycaffe_lms.cli.views.side_by_side import side_by_side
from pycaffe_lms.errors import CaffeError

pytestmark = pytest.mark.skipif(
    sys.platform != "linux" or len(os.sched_getaffinity(0)) < 2, reason="needs two processors and fork"
)
HERE = os.getpid()


def elsewhere():
    return os.getpid() != HERE


def test_the_last_piece_is_done_by_the_other_process():
    begun = multiprocessing.get_context("fork").Event()

    def first():
        assert begun.wait(60)  # else this process might take the last piece, too
        return elsewhere()

    def last():
        begun.set()
        return elsewhere()

    assert side_by_side([first, last]) == [False, True]


def test_who_is_done_takes_the_next_piece():
    context = multiprocessing.get_context("fork")
    begun, ends = context.Event(), context.Event()

    def long():
        begun.set()
        assert ends.wait(60)
        return elsewhere()

    def between():
        assert begun.wait(60)
        ends.set()
        return elsewhere()

    assert side_by_side([elsewhere, between, long]) == [False, False, True]
    ends.clear()
    assert side_by_side([long, between, elsewhere]) == [False, True, True]


def test_with_one_processor_all_is_done_here(monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0})
    assert side_by_side([elsewhere] * 3) == [False] * 3
    assert side_by_side([]) == []


@pytest.mark.parametrize("how", ["fails", "is killed"])
def test_work_whose_process_gives_no_result_is_done_again(how):
    tried = multiprocessing.get_context("fork").Event()

    def work():
        if elsewhere():
            tried.set()
            if how == "is killed":
                os.kill(os.getpid(), signal.SIGKILL)
            raise CaffeError("it is reported by the first process")
        return "done"

    assert side_by_side([lambda: tried.wait(60), work]) == [True, "done"]


def test_work_that_fails_in_both_raises_here():
    def work():
        raise CaffeError("of both")

    with pytest.raises(CaffeError, match="of both"):
        side_by_side([elsewhere, work])


def test_work_that_is_not_waited_for_ends():
    pids = multiprocessing.get_context("fork").SimpleQueue()

    def first():
        first.pid = pids.get()
        raise ValueError("of the first process")

    def last():
        pids.put(os.getpid())
        time.sleep(3600)

    with pytest.raises(ValueError, match="of the first process"):
        side_by_side([first, last])
    with pytest.raises(ProcessLookupError):
        os.kill(first.pid, 0)
