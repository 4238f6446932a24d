"""Starts one process per rank, watches them, and ends all where one fails.

Ranks are processes, not threads: each has an interpreter of its own, so that ranks do not wait for each other while
they queue work, and when a rank crashes in a library, the parent can report it. They are started with "spawn", because
a forked process cannot use a GPU that its parent has used. `run_ranks` is the parent's side, `_run` the rank's.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from functools import partial
from multiprocessing.connection import Connection, wait
from typing import Any

from ..errors import CaffeError, LostRank
from .mpi import MpiRanks
from .pulse import FIX, SLOTS, TICK_S, Listener, Slots

_GRACE_S = 5.0  # time for the rank that failed first to report it, and for the others to end by themselves
_INTERRUPTED = 130
SIGNALS = [  # they ask to stop or to snapshot; not every system has all
    getattr(signal, name) for name in ("SIGINT", "SIGHUP", "SIGTERM") if hasattr(signal, name)
]
_AGAIN = b"interrupted: all ranks stop after this iteration; a second Ctrl-C ends them at once\n"


@dataclass(frozen=True)
class Rank:
    """Say which rank a process is.

    Args:
        index, count: this rank, from 0, and the number of ranks.
        place: where they meet: NCCL's uid, the path of a `meeting.Meeting`, or the ranks that MPI started.
        beats: a counter of each rank, which grows as it works; one that stands still shows which rank stopped.
        slots: numbers of this rank by which the process that started it sees that it lives, see `pulse.py`.
        end: ends this process, given the error; None: nobody would hear it.
    """

    index: int
    count: int
    place: bytes | str | MpiRanks
    beats: Any = None
    slots: Slots | None = None
    end: Callable[[str], None] | None = None


@dataclass(frozen=True)
class _Report:
    """Hold what a rank's process reports at its end.

    Args:
        code: its exit code.
        error: what went wrong; None: nothing.
        lost: it failed only because another rank is gone.
    """

    code: int
    error: str | None = None
    lost: bool = False


class RankError(CaffeError):
    """Report that a rank failed: the message is all that it said, `exit_code` is its own."""


@dataclass
class _Started:
    """Hold a rank's process and what is known of it."""

    process: multiprocessing.process.BaseProcess
    pipe: Connection
    listener: Listener
    report: _Report | None = None
    since: float = 0.0  # when it reported, as time.monotonic()

    def poll(self) -> None:
        """Take the report, if there is one; a process that ended without one has failed."""
        if self.report is not None:
            return
        try:
            if self.pipe.poll():
                self.report = _Report(**json.loads(self.pipe.recv_bytes()))
        except EOFError:
            self.process.join(_GRACE_S)
        if self.report is None and not self.process.is_alive():
            self.report = _Report(1, f"its process {_ending(self.process.exitcode)} without a report")
        if self.report is None and (wrong := self.listener.look()):
            self.report = _Report(1, f"{wrong}\n  fix: {FIX}")

    def end(self) -> _Report:
        """Wait for a process that was asked to end, kill it where it does not; return its report."""
        self.process.join(_GRACE_S)
        if self.process.is_alive():
            self.process.kill()
            self.process.join()
        if self.report is None:
            self.report, self.since = _Report(1, "it was ended", lost=True), float("inf")
        self.pipe.close()
        return self.report


def run_ranks(
    work: Callable[..., int], args: Sequence[object], place: bytes | str, names: Sequence[str], *, insist: bool = True
) -> int:
    """Run work(*args, rank) in one process per rank until all are done; return the exit code of rank 0.

    Only rank 0 obeys SIGINT, SIGHUP and SIGTERM; those that reach this process are sent on to it.

    Args:
        work: a function at the top of a module.
        names: what messages call the ranks, such as "GPU 0".
        insist: a second SIGINT ends all processes at once, as KeyboardInterrupt.

    Raises:
        RankError: a rank failed; no process is left.
    """
    context = multiprocessing.get_context("spawn")
    beats = context.RawArray("q", len(names))
    started: list[_Started] = []
    with _forwarded(started, insist):
        try:
            for i in range(len(names)):
                ours, theirs = context.Pipe()
                slots = context.RawArray("d", SLOTS)
                rank = Rank(i, len(names), place, beats, slots)
                process = context.Process(target=_run, args=(work, tuple(args), rank, theirs), name=f"rank {i}")
                process.start()
                theirs.close()
                started.append(_Started(process, ours, Listener(slots, process.pid or 0)))
            _watch(started)
        finally:
            reports = _end(started)
    failed = [i for i, report in enumerate(reports) if report.error is not None]
    if failed:
        first = min(failed, key=lambda i: (reports[i].lost, started[i].since))
        error = RankError(f"rank {first} of {len(started)} ({names[first]}) failed: {reports[first].error}")
        error.exit_code = reports[first].code
        raise error
    return reports[0].code


def _watch(started: Sequence[_Started]) -> None:
    """Wait until all have reported, or until one has failed and the others have had time to report why."""
    failed_at = None
    while any(s.report is None for s in started):
        left = None if failed_at is None else failed_at + _GRACE_S - time.monotonic()
        if left is not None and left <= 0:
            return
        waiting = [s for s in started if s.report is None]
        wait([x for s in waiting for x in (s.pipe, s.process.sentinel)], timeout=min(left or TICK_S, TICK_S))
        for s in waiting:
            s.poll()
            if s.report is not None:
                s.since = time.monotonic()
                if s.report.error is not None and failed_at is None:
                    failed_at = s.since
                if s.report.error is not None and not s.report.lost:
                    return


def _end(started: Sequence[_Started]) -> list[_Report]:
    """End all processes; return their reports."""
    for s in started:
        s.process.join(_GRACE_S if s.report is not None and s.report.error is None else 0)
        if s.process.is_alive():
            s.process.kill()  # SIGTERM only asks a rank to stop
    return [s.end() for s in started]


@contextmanager
def _forwarded(started: Sequence[_Started], insist: bool) -> Iterator[None]:
    """Within: send signals that ask to stop or to snapshot on to rank 0, which decides with the others.

    insist: the second SIGINT kills all processes, also those that are suspended or wait for others."""
    asked = False

    def forward(number: int, frame: object) -> None:
        nonlocal asked
        if number == signal.SIGINT and insist and (asked or not started):
            for s in started:
                s.process.kill()
            raise KeyboardInterrupt
        asked |= number == signal.SIGINT
        root = started[0].process if started else None
        if root is not None and root.pid is not None and root.is_alive():
            os.kill(root.pid, number)
        if number == signal.SIGINT and insist:
            os.write(2, _AGAIN)  # not print, which the signal may have interrupted

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, forward) for number in SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _ending(code: int | None) -> str:
    if code is not None and code < 0:
        return f"was ended by {signal.Signals(-code).name}"
    return f"ended with code {code}"


# -- in the rank's process ---------------------------------------------------------------------------------------------
def _run(work: Callable[..., int], args: tuple[object, ...], rank: Rank, pipe: Connection) -> None:
    """Do a rank's work and report how it ended."""
    threading.Thread(target=end_with_parent, args=(pipe,), name="caffe-parent", daemon=True).start()
    if rank.index:
        for number in SIGNALS:
            signal.signal(number, signal.SIG_IGN)
    try:
        report = _Report(work(*args, replace(rank, end=partial(_end_at_once, pipe))))
    except CaffeError as error:
        report = _Report(error.exit_code, str(error), lost=isinstance(error, LostRank))
    except KeyboardInterrupt:
        report = _Report(_INTERRUPTED, "interrupted")
    except BaseException:
        report = _Report(1, traceback.format_exc().rstrip())
    _send(pipe, report)


def _end_at_once(pipe: Connection, error: str) -> None:
    """Report what is wrong from another thread than the main one, which hangs, and end this process."""
    _send(pipe, _Report(1, error))
    os.kill(os.getpid(), signal.SIGKILL)


def _send(pipe: Connection, report: _Report) -> None:
    pipe.send_bytes(json.dumps(asdict(report)).encode())


def end_with_parent(pipe: Connection) -> None:
    """End this process when the parent, which never sends anything, has ended."""
    try:
        pipe.recv_bytes()
    except (EOFError, OSError):
        os._exit(1)
