"""Ends a rank that hangs: a thread of its process beats while it lives, and looks whether the main thread goes on.

`Heart` is that thread. It ends the process where the main thread makes no progress in something that should end soon
(`activity.py`). Where the process does not run at all, because it is stopped, or because a library keeps Python's lock,
there are no beats: the process that started the rank, which sees them in shared memory, ends it (`Listener`). Where the
whole host is gone, the next rank notices (`Neighbours`, through MPI).

All of them count seconds in which they ran themselves. So a job that is suspended as a whole, or a machine that stands
still, ends nothing.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Protocol

from ..activity import activity

HANG_S = 60.0  # of a process without beats, or a main thread without progress
SHORTEST_S = 3.0  # that can be asked for: a process beats about once a second
PATIENCE = 20  # times the longest iteration so far
SETTLING = 4  # iterations at the beginning, in which kernels are compiled, plans made and graphs recorded
SETTLING_TIMES = 10  # so much longer may they take; of them only the last counts as the longest
FURTHER_S = 10.0  # a neighbour waits so much longer than the process that started a rank, which knows more
TICK_S = 1.0
SLOTS = 3  # numbers of each rank in shared memory: beats, seconds of silence (0: it is not watched), whether it spoke
_BEATS, _LIMIT, _SPOKE = range(SLOTS)
SAID_S = 0.2  # in which a launcher passes on what was said
_GONE_S = 5.0  # a process that was killed is gone by then, unless the system waits for a disk
_FRAMES = 5
_TAG = 1
_GOODBYE = 0
FIX = (
    "see what it waits for (a file system, a data base, a lock, a loop in a layer of your own), and begin again with "
    "-resume latest; -hang_timeout says how many seconds that may take, 0: for ever"
)


class Slots(Protocol):
    """Hold `SLOTS` numbers in memory that two processes share."""

    def __getitem__(self, index: int, /) -> float: ...

    def __setitem__(self, index: int, value: float, /) -> None: ...


class _Awake:
    """Count seconds between looks, but none in which this process did not run."""

    def __init__(self) -> None:
        self._last = time.monotonic()

    def tick(self) -> float:
        """Return the seconds since the last call, at most a tick: longer, and this process stood still, too."""
        last, self._last = self._last, time.monotonic()
        return min(self._last - last, TICK_S)


class Heart:
    """Beat for this process, and watch its main thread, in a thread of its own from `start` to `stop`.

    Args:
        slots: the numbers of this rank, in memory that it shares with the process that started it.
        name: of the rank, for messages, such as "rank 2 on node7".
        limit: seconds.
        idle: returns whether the device has nothing to do: else the main thread may wait for it, and so for other
            ranks.
        end: called with what is wrong; it ends the process.
        late: seconds by which this rank speaks after another that finds the same.
        neighbours: those of other processes, None where one process started all ranks.
    """

    def __init__(
        self,
        slots: Slots,
        name: str,
        limit: float,
        *,
        idle: Callable[[], bool],
        end: Callable[[str], None],
        late: float = 0.0,
        neighbours: Neighbours | None = None,
    ):
        self._slots, self._name, self._limit, self._idle, self._end = slots, name, limit, idle, end
        self._late, self._neighbours = late, neighbours
        self._iterations, self._longest = 0, 0.0
        self._error = ""  # for which the process ends
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="caffe-pulse", daemon=True)

    def start(self) -> None:
        """Begin to beat."""
        self._slots[_LIMIT] = self._limit
        self._thread.start()

    def stop(self) -> None:
        """Stop beating. All ranks call it at the end."""
        self._slots[_LIMIT] = 0.0
        self._stopped.set()
        self._thread.join()
        if self._neighbours is not None:
            self._neighbours.close()

    def ending(self, error: str) -> None:
        """Take note that the process ends because of an error; it has `limit` seconds for it."""
        self._error = error

    @contextmanager
    def iteration(self, number: int) -> Iterator[None]:
        """Within: the main thread runs this iteration of the solver."""
        began = time.monotonic()
        with activity.doing(f"iteration {number}", bounded=True):
            yield
        self._iterations += 1
        if self._iterations >= SETTLING:
            self._longest = max(self._longest, time.monotonic() - began)

    @property
    def allowed(self) -> float:
        """Return the seconds without progress after which the main thread hangs."""
        if self._iterations < SETTLING:
            return self._limit * SETTLING_TIMES
        return max(self._limit, PATIENCE * self._longest)

    def _run(self) -> None:
        clock, seen, still, failed = _Awake(), (activity.now, activity.passes), 0.0, 0.0
        while not self._stopped.wait(TICK_S):
            self._slots[_BEATS] += 1
            seconds = clock.tick()
            if self._neighbours is not None and (lost := self._neighbours.look(seconds, self._limit + FURTHER_S)):
                self._speak(lost)
            failed = failed + seconds if self._error else 0.0
            if failed > self._limit:
                self._speak(f"{self._name} cannot end by itself after an error: {self._error}")
            now = (activity.now, activity.passes)
            still = still + seconds if now == seen and now[0].bounded else 0.0
            seen = now
            if still > self.allowed + self._late and self._idle() and (activity.now, activity.passes) == seen:
                self._speak(self._described(still))

    def _described(self, still: float) -> str:
        layer = f', layer "{activity.layer}"' if activity.layer else ""
        before = f"; other iterations, but for the first, took at most {self._longest:.2g} s" if self._longest else ""
        frame = sys._current_frames().get(threading.main_thread().ident or 0)
        stack = traceback.format_list(traceback.extract_stack(frame)[-_FRAMES:]) if frame is not None else []
        return (
            f"{self._name} has made no progress for {still:.0f} s in {activity.now.what}{layer}{before}\n"
            f"  it is here:\n{''.join(stack).rstrip()}\n  fix: {FIX}"
        )

    def _speak(self, what: str) -> None:
        self._slots[_SPOKE] = 1.0
        self._end(what)


class Listener:
    """Hear the beats of a rank, in the process that started it. Call `look` about every `TICK_S` seconds."""

    def __init__(self, slots: Slots, process: int):
        self._slots, self._process = slots, process
        self._clock, self._beats, self._silent = _Awake(), slots[_BEATS], 0.0

    def look(self) -> str:
        """Return what is wrong with the rank's process, "" for nothing."""
        seconds, beats, limit = self._clock.tick(), self._slots[_BEATS], self._slots[_LIMIT]
        self._silent = self._silent + seconds if beats == self._beats and limit else 0.0
        self._beats = beats
        if not limit or self._silent <= limit:
            return ""
        return f"its process {self._process} has not run for {self._silent:.0f} s: {_state(self._process)}"

    @property
    def spoke(self) -> bool:
        """Return whether the rank has said itself what is wrong, and ends."""
        return bool(self._slots[_SPOKE])


def end_if_silent(listener: Listener, child: int, tell: Callable[[str], None]) -> None:
    """Watch a child process until it ends: kill it where it is silent, after `tell(why)`. Run it in a thread.

    Where it cannot be killed, because it waits for a disk, this process ends too, so that others notice."""
    while True:
        time.sleep(TICK_S)
        wrong = "" if listener.spoke else listener.look()
        if not wrong and not listener.spoke:
            continue
        if wrong:
            tell(wrong)
            time.sleep(SAID_S)
            with suppress(ProcessLookupError):
                os.kill(child, signal.SIGKILL)
        time.sleep(_GONE_S)
        os.kill(os.getpid(), signal.SIGKILL)


def _state(process: int) -> str:
    """Return why a process does not run, as far as the system tells."""
    with suppress(OSError, IndexError):
        state = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
        if state in "Tt":
            return "it is stopped (SIGSTOP, or a debugger)"
        if state == "D":
            return "it waits for a disk or a network file system"
    return "a library keeps Python's lock, or the host has no memory or time for it"


class Neighbours:
    """Exchange beats with ranks on other hosts, in a ring: each rank hears the one before it.

    All ranks make one together, in the main thread; MPI must allow calls of several threads.

    Args:
        comm: of mpi4py.
        place: returns where a rank runs.
    """

    def __init__(self, comm: Any, place: Callable[[int], str]):
        self._comm, self._place = comm.Dup(), place  # messages of others stay apart
        rank, count = comm.Get_rank(), comm.Get_size()
        self._before, self._after = (rank - 1) % count, (rank + 1) % count
        self._silent, self._ended = 0.0, False
        self._sent: list[Any] = []  # requests; they keep their buffers

    def look(self, seconds: float, limit: float) -> str:
        """Beat, and hear; return what is wrong with the rank before, "" for nothing. seconds: since the last call."""
        self._send(1)
        self._silent = 0.0 if self._hear() or self._ended else self._silent + seconds
        if self._silent <= limit:
            return ""
        return (
            f"rank {self._before} ({self._place(self._before)}) has not been heard of for {self._silent:.0f} s\n"
            "  fix: see whether its host and the network are up, and begin again with -resume latest"
        )

    def close(self) -> None:
        """Say goodbye, and wait for that of the rank before. All ranks call it, after the last `look`."""
        self._send(_GOODBYE)
        until = time.monotonic() + HANG_S  # where its host is gone, MPI's own end waits for it
        while not self._ended and time.monotonic() < until:
            self._hear()
            time.sleep(0.01)

    def _send(self, word: int) -> None:
        self._sent = [request for request in self._sent if not request.Test()]
        self._sent.append(self._comm.isend(word, self._after, _TAG))

    def _hear(self) -> bool:
        heard = False
        while self._comm.iprobe(source=self._before, tag=_TAG):
            heard = True
            self._ended |= self._comm.recv(source=self._before, tag=_TAG) == _GOODBYE
        return heard
