"""Prefetcher: order, errors, and threads that end."""

import gc
import subprocess
import sys
import threading
import time
import traceback
import weakref
from contextlib import closing
from pathlib import Path

import pytest

from pycaffe_lms.data.feed.prefetch import Prefetcher
from pycaffe_lms.errors import DataError, LayerParamError

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(autouse=True)
def no_thread_is_left():
    yield
    gc.collect()
    assert [t.name for t in threading.enumerate() if t.name.startswith("prefetch")] == []


def until(condition, seconds=10.0):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "waited too long"
        time.sleep(0.001)


@pytest.mark.parametrize("depth", [1, 2, 7])
@pytest.mark.parametrize("start", [0, 5])
def test_order_and_position(depth, start):
    with closing(Prefetcher(lambda b: b * b, depth, start)) as subject:
        for b in range(start, start + 30):
            assert subject.position == b
            assert subject.next() == b * b


def test_at_most_depth_ahead():
    made = []
    with closing(Prefetcher(made.append, depth=3)) as subject:
        until(lambda: len(made) == 3)
        time.sleep(0.02)
        assert made == [0, 1, 2]
        subject.next()
        until(lambda: len(made) == 4)


def fail_at_four(b):
    if b == 4:
        raise DataError("record four")
    return b


def test_nothing_is_made_before_it_is_wanted_where_that_was_asked():
    made = []
    with closing(Prefetcher(lambda b: made.append(b) or b, 2, ahead=False)) as subject:
        for turn in range(2):
            time.sleep(0.05)
            assert made == [0, 1, 2][: 3 * turn]
            subject.seek(0)
            made.clear()
            assert subject.next() == 0
            until(lambda: made == [0, 1, 2])
    with pytest.raises(RuntimeError, match="after close"):
        subject.next()
    Prefetcher(made.append, ahead=False).close()  # never begun


def test_error_arrives_in_its_turn_with_its_traceback():
    with closing(Prefetcher(fail_at_four, depth=10)) as subject:
        assert [subject.next() for _ in range(4)] == [0, 1, 2, 3]
        for _ in range(2):
            with pytest.raises(DataError, match="record four") as caught:
                subject.next()
            names = [frame.name for frame in traceback.extract_tb(caught.value.__traceback__)]
            assert names.count("fail_at_four") == 1
        assert subject.position == 4
        subject.seek(6)
        assert subject.next() == 6


def test_after_an_error_nothing_keeps_it():
    subject = Prefetcher(fail_at_four, start=4)
    with pytest.raises(DataError, match="record four"):
        subject.next()
    left = weakref.ref(subject)
    del subject
    gc.collect()
    assert left() is None


def test_seek():
    with closing(Prefetcher(lambda b: b)) as subject:
        for target in (9, 0, 3, 3):
            subject.seek(target)
            assert subject.position == target
            assert [subject.next() for _ in range(6)] == list(range(target, target + 6))


def test_produce_never_runs_twice_at_once():
    running = threading.Lock()

    def produce(b):
        assert running.acquire(blocking=False)
        time.sleep(0.001)
        running.release()
        return b

    with closing(Prefetcher(produce)) as subject:
        for target in range(20):
            subject.seek(target)
            assert subject.next() == target


def test_close_with_a_full_queue_and_twice():
    subject = Prefetcher(lambda b: b, depth=2)
    until(lambda: len(subject._queue.results) == 2)
    began = time.monotonic()
    subject.close()
    subject.close()
    assert time.monotonic() - began < 1
    with pytest.raises(RuntimeError, match="after close"):
        subject.next()


def test_close_while_producing_waits_for_it():
    began, ended = threading.Event(), threading.Event()

    def produce(b):
        began.set()
        time.sleep(0.05)
        ended.set()

    subject = Prefetcher(produce)
    assert began.wait(5)
    subject.close()
    assert ended.is_set()


def test_close_during_next_in_another_thread():
    hold = threading.Event()
    subject = Prefetcher(lambda b: hold.wait(10))
    caught = []

    def wait():
        try:
            subject.next()
        except RuntimeError as error:
            caught.append(error)

    waiting = threading.Thread(target=wait)
    waiting.start()
    closing = threading.Thread(target=subject.close)
    closing.start()
    waiting.join(5)
    assert len(caught) == 1
    hold.set()
    closing.join(5)
    assert not closing.is_alive()


def test_dropping_it_ends_the_thread():
    subject = Prefetcher(lambda b: b)
    thread = subject._thread
    del subject
    gc.collect()
    thread.join(5)
    assert not thread.is_alive()


def test_depth_zero():
    with pytest.raises(LayerParamError, match="prefetch 0"):
        Prefetcher(lambda b: b, depth=0)


@pytest.mark.parametrize("wait", ["lambda b: time.sleep(0.01)", "lambda b: b"])
def test_interpreter_exit_with_an_open_prefetcher(wait):
    program = (
        "import time\n"
        "from pycaffe_lms.data.feed.prefetch import Prefetcher\n"
        f"p = Prefetcher({wait})\n"
        "p.next()\n"
        "print('end')\n"
    )
    run = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert (run.returncode, run.stdout, run.stderr) == (0, "end\n", "")
