"""Record some iterations of a command and write them as a trace, for `-profile FILE`.

Perfetto (ui.perfetto.dev) and chrome://tracing open it. The format is Chrome's trace events: "X" is an event with a
duration, "i" an instant, "M" a name; times are microseconds. Of ranks that train together each is a process of the
trace. Their clocks are set by an exchange that ends at the same moment on all of them, but for the time of a message.
"""

from __future__ import annotations

import json
import logging
import socket
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, astuple, dataclass, replace
from typing import Any

from ...errors import CaffeError
from ...formats.atomic import atomic_write
from ...lms.runtime.recorder import COPIES_IN, COPIES_OUT, HOST, STEPS, RecordedTimes, Recorder
from ...lms.runtime.runtime import Runtime
from ..flags import check_place

_log = logging.getLogger(__name__)
ROWS = (STEPS, COPIES_IN, COPIES_OUT, HOST)  # from top to bottom
_DIGITS = 3  # of a microsecond
Event = dict[str, Any]


@dataclass(frozen=True)
class Recorded:
    """Hold what one process recorded.

    Attributes:
        title: what the trace calls the process.
        timed, iterations: see `Recorder.times`; microseconds since the recording began.
        began_us: when that was, by a clock that all processes share.
    """

    title: str
    timed: Sequence[RecordedTimes]
    iterations: Sequence[tuple[str, float]]
    began_us: float = 0.0

    def encoded(self) -> bytes:
        """Return it as JSON."""
        return json.dumps(asdict(self) | {"timed": [astuple(one) for one in self.timed]}).encode()

    @staticmethod
    def decoded(content: bytes) -> Recorded:
        """Return what `encoded` made JSON of."""
        found = json.loads(content)
        timed = [RecordedTimes(*one) for one in found.pop("timed")]
        return Recorded(timed=timed, **found)


class Profile:
    """Record iterations, and write the trace after the last of them.

    Args:
        path: the file; "" for none.
        first, last: iterations to record, counted from 1; last None: all from `first` on.
        root: this rank writes the file.

    gather: set where ranks train together; returns what each gave. All of them record and call `write`.

    Raises:
        UsageError: the file cannot be made; this is found before hours of training.
    """

    def __init__(
        self, path: str, runtime: Runtime, title: str, *, first: int = 1, last: int | None = None, root: bool = True
    ):
        if root:
            check_place(path, "-profile")
        self.path, self.title, self.first, self.last, self._root = path, title, first, last, root
        self.gather: Callable[[bytes], list[bytes]] | None = None
        self._recorder = Recorder(runtime) if path else None
        self._count = self._recorded = 0

    def iteration(self) -> AbstractContextManager[None]:
        """Return what is to be entered for every iteration; it records the chosen ones and writes after the last."""
        if self._recorder is None:
            return nullcontext()
        if self.last is not None and self._count == self.last:
            self.write()
            return nullcontext()
        self._count += 1
        if self._count < self.first:
            return nullcontext()
        self._recorded += 1
        return self._recorder.iteration(f"iteration {self._count}")

    def write(self) -> None:
        """Write what was recorded, unless it is written."""
        if self._recorder is None:
            return
        timed, iterations = self._recorder.times()
        began, self._recorder = self._recorder.began, None
        if not iterations:
            _log.warning("-profile %s: not written, for the run ended before iteration %d", self.path, self.first)
            return
        recorded = [Recorded(self.title, timed, iterations)]
        if self.gather is not None:
            self.gather(b"now")
            began_us = 1e6 * (began - time.perf_counter())
            mine = Recorded(f"{socket.gethostname()}: {self.title}", timed, iterations, began_us)
            found = map(Recorded.decoded, self.gather(mine.encoded()))
            recorded = [replace(one, title=f"rank {rank} on {one.title}") for rank, one in enumerate(found)]
        if not self._root:
            return
        atomic_write(self.path, json.dumps(build_trace(recorded)).encode(), error=CaffeError)
        _log.info("Wrote a trace of %d iteration(s) to %s", self._recorded, self.path)


def build_trace(recorded: Sequence[Recorded]) -> Event:
    """Return the trace: for each process rows of steps, copies and the host, unless empty, and a mark where iterations
    begin.

    Events are in order of time, the first at 0 or later; those of a row follow each other without overlap.
    """
    # A copy may begin just before the first iteration does, by the row of steps.
    origin = min(one.began_us + min([0.0, *(t.start_us for t in one.timed)]) for one in recorded)
    names, events = list[Event](), list[Event]()
    for process, one in enumerate(recorded, 1):
        began = one.began_us - origin
        rows: dict[str, list[RecordedTimes]] = {row: [] for row in ROWS}
        for times in one.timed:
            rows[times.row].append(times)
        names += [_named("process_name", process, 0, name=one.title)]
        names += [_named("process_sort_index", process, 0, sort_index=process)]
        events += [
            {"ph": "i", "name": name, "ts": round(us + began, _DIGITS), "pid": process, "tid": 0, "s": "p"}
            for name, us in one.iterations
        ]  # "p": a line through all rows of the process
        for tid, (row, found) in enumerate(rows.items()):
            if found:
                names += [_named("thread_name", process, tid, name=row)]
                names += [_named("thread_sort_index", process, tid, sort_index=tid)]
                events += _events(process, tid, found, began)
    events.sort(key=lambda e: e["ts"])
    return {"traceEvents": names + events, "displayTimeUnit": "ms"}


def _named(kind: str, process: int, tid: int, **args: str | int) -> Event:
    return {"ph": "M", "name": kind, "pid": process, "tid": tid, "args": args}


def _events(process: int, tid: int, row: list[RecordedTimes], began: float) -> Iterator[Event]:
    """Yield the events of one row, without overlap: a device's clock has steps of half a microsecond, so an end may
    seem to lie behind the next start, and viewers would take that for nesting."""
    last = 0.0
    for one in sorted(row, key=lambda t: (t.start_us, t.end_us)):
        start = max(round(one.start_us + began, _DIGITS), last)
        last = max(round(one.end_us + began, _DIGITS), start)
        took = round(last - start, _DIGITS)
        event: Event = {"ph": "X", "name": one.name, "ts": start, "dur": took, "pid": process, "tid": tid}
        if one.nbytes:
            event["args"] = {"bytes": one.nbytes} | ({"GB/s": round(one.nbytes / took / 1e3, 3)} if took else {})
        yield event
