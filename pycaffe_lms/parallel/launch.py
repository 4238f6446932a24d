"""Starts one process per rank, watches them, and ends all where one fails.

Processes and not threads: a process has an interpreter of its own, so that ranks do not wait for each other while they
queue work, and a rank that crashes in a library leaves a parent that can say so. They are started with "spawn", because
a process that is forked off cannot use a GPU that its parent has touched.
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
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from typing import Any

from ..errors import CaffeError, LostRank

_GRACE_S = 5.0  # for the rank that is to blame to say so, and for the others to end by themselves
_INTERRUPTED = 130
_ASKING = ("SIGINT", "SIGHUP", "SIGTERM")
_AGAIN = b"interrupted: all ranks stop after this iteration; a second Ctrl-C ends them at once\n"


@dataclass(frozen=True)
class Rank:
    """Which of how many a process is, and where they meet: NCCL's uid, or the path of a `meeting.Meeting`.

    beats: of every rank, a number that grows with what it has done: by them the others find one that stopped."""

    index: int
    count: int
    place: bytes | str
    beats: Any = None


class RankError(CaffeError):
    """A rank failed; the message is all that it said. `exit_code` is the rank's."""


@dataclass
class _Started:
    name: str
    process: multiprocessing.process.BaseProcess
    pipe: Connection
    report: dict | None = None
    since: float = field(default=0.0)

    def poll(self) -> None:
        """Take its report, if there is one; a process that ended without has failed."""
        if self.report is not None:
            return
        try:
            if self.pipe.poll():
                self.report = json.loads(self.pipe.recv_bytes())
        except EOFError:
            self.process.join(_GRACE_S)
        if self.report is None and not self.process.is_alive():
            how = _ending(self.process.exitcode)
            self.report = {"code": 1, "error": f"its process {how} without a word", "lost": False}


def run_ranks(
    work: Callable[..., int], args: Sequence, place: bytes | str, names: Sequence[str], *, insist: bool = True
) -> int:
    """Run work(*args, rank) in a process per name ("GPU 0", for messages), until all are done; returns rank 0's code.

    `work` is a function of a module. SIGINT, SIGHUP and SIGTERM are for rank 0, which gets those that reach this
    process too. insist: a second SIGINT ends all processes at once, as KeyboardInterrupt.
    Raises RankError, once no process is left, where one of them failed.
    """
    context = multiprocessing.get_context("spawn")
    beats = context.RawArray("q", len(names))
    started: list[_Started] = []
    with _forwarded(started, insist):
        try:
            for i, name in enumerate(names):
                ours, theirs = context.Pipe()
                rank = Rank(i, len(names), place, beats)
                process = context.Process(target=_run, args=(work, tuple(args), rank, theirs), name=f"rank {i}")
                process.start()
                theirs.close()
                started.append(_Started(name, process, ours))
            _watch(started)
        finally:
            _end(started)
    failed = [s for s in started if "error" in s.report]
    if failed:
        first = min(failed, key=lambda s: (s.report["lost"], s.since))
        who = f"rank {started.index(first)} of {len(started)} ({first.name})"
        error = RankError(f"{who} failed: {first.report['error']}")
        error.exit_code = first.report["code"]
        raise error
    return started[0].report["code"]


def _watch(started: Sequence[_Started]) -> None:
    """Until all have reported, or one has failed and the others have had time to say why."""
    failed_at = None
    while any(s.report is None for s in started):
        left = None if failed_at is None else failed_at + _GRACE_S - time.monotonic()
        if left is not None and left <= 0:
            return
        waiting = [s for s in started if s.report is None]
        wait([x for s in waiting for x in (s.pipe, s.process.sentinel)], timeout=left)
        for s in waiting:
            s.poll()
            if s.report is not None:
                s.since = time.monotonic()
                if "error" in s.report and failed_at is None:
                    failed_at = s.since
                if "error" in s.report and not s.report["lost"]:
                    return


def _end(started: Sequence[_Started]) -> None:
    """No process is left afterwards."""
    for s in started:
        s.process.join(_GRACE_S if s.report is not None and "error" not in s.report else 0)
        if s.process.is_alive():
            s.process.kill()  # SIGTERM only asks a rank to stop
    for s in started:
        s.process.join(_GRACE_S)
        if s.process.is_alive():
            s.process.kill()
            s.process.join()
        if s.report is None:
            s.report = {"code": 1, "error": "it was ended", "lost": True}
            s.since = float("inf")
        s.pipe.close()


@contextmanager
def _forwarded(started: Sequence[_Started], insist: bool) -> Iterator[None]:
    """Within: signals that ask to stop or to snapshot go to the root, which decides with the others.

    insist: the second SIGINT kills all processes, also those that are stopped and those that wait for others."""
    asked = False

    def forward(number, frame) -> None:
        nonlocal asked
        if number == signal.SIGINT and insist and (asked or not started):
            for s in started:
                s.process.kill()
            raise KeyboardInterrupt
        asked |= number == signal.SIGINT
        root = started[0].process if started else None
        if root is not None and root.is_alive():
            os.kill(root.pid, number)
        if number == signal.SIGINT and insist:
            os.write(2, _AGAIN)  # a handler may have come into the middle of a print

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    numbers = [getattr(signal, name) for name in _ASKING if hasattr(signal, name)]
    before = {number: signal.signal(number, forward) for number in numbers}
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
def _run(work: Callable[..., int], args: tuple, rank: Rank, pipe: Connection) -> None:
    threading.Thread(target=_end_with_parent, args=(pipe,), name="caffe-parent", daemon=True).start()
    if rank.index:
        for name in _ASKING:
            if hasattr(signal, name):
                signal.signal(getattr(signal, name), signal.SIG_IGN)
    try:
        report = {"code": work(*args, rank)}
    except CaffeError as error:
        report = {"code": error.exit_code, "error": str(error), "lost": isinstance(error, LostRank)}
    except KeyboardInterrupt:
        report = {"code": _INTERRUPTED, "error": "interrupted", "lost": False}
    except BaseException:
        report = {"code": 1, "error": traceback.format_exc().rstrip(), "lost": False}
    pipe.send_bytes(json.dumps(report).encode())


def _end_with_parent(pipe: Connection) -> None:
    """The parent never sends: what comes is its end."""
    try:
        pipe.recv_bytes()
    except (EOFError, OSError):
        os._exit(1)
