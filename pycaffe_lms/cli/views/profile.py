"""Record some iterations of a command and write them as a trace, for `-profile FILE`.

Perfetto (ui.perfetto.dev) and chrome://tracing open it. The format is Chrome's trace events: "X" is an event with a
duration, "i" an instant, "M" a name; times are microseconds.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from ...errors import CaffeError
from ...formats.atomic import atomic_write
from ...lms.runtime.recorder import COPIES_IN, COPIES_OUT, HOST, STEPS, RecordedTimes, Recorder
from ...lms.runtime.runtime import Runtime
from ..flags import check_place

_log = logging.getLogger(__name__)
ROWS = (STEPS, COPIES_IN, COPIES_OUT, HOST)  # from top to bottom
_PROCESS = 1
_DIGITS = 3  # of a microsecond
Event = dict[str, Any]


class Profile:
    """Record iterations, and write the trace after the last of them.

    Args:
        path: the file; "" for none.
        first, last: iterations to record, counted from 1; last None: all from `first` on.

    Raises:
        UsageError: the file cannot be made; this is found before hours of training.
    """

    def __init__(self, path: str, runtime: Runtime, title: str, *, first: int = 1, last: int | None = None):
        check_place(path, "-profile")
        self.path, self.title, self.first, self.last = path, title, first, last
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
        self._recorder = None
        if not iterations:
            _log.warning("-profile %s: not written, for the run ended before iteration %d", self.path, self.first)
            return
        content = json.dumps(build_trace(timed, iterations, self.title)).encode()
        atomic_write(self.path, content, error=CaffeError)
        _log.info("Wrote a trace of %d iteration(s) to %s", self._recorded, self.path)


def build_trace(timed: Iterable[RecordedTimes], iterations: Sequence[tuple[str, float]], title: str) -> Event:
    """Return the trace: a row each for steps, copies and the host, unless empty, and a mark where iterations begin.

    Events are in order of time, the first at 0 or later; those of a row follow each other without overlap.
    """
    rows: dict[str, list[RecordedTimes]] = {row: [] for row in ROWS}
    for one in timed:
        rows[one.row].append(one)
    # A copy may begin just before the first iteration does, by the row of steps.
    origin = min([0.0, *(one.start_us for row in rows.values() for one in row)])
    names = [_named("process_name", 0, name=title)]
    events: list[Event] = [
        {"ph": "i", "name": name, "ts": round(us - origin, _DIGITS), "pid": _PROCESS, "tid": 0, "s": "p"}
        for name, us in iterations
    ]  # "p": a line through all rows of the process
    for tid, (row, found) in enumerate(rows.items()):
        if found:
            names += [_named("thread_name", tid, name=row), _named("thread_sort_index", tid, sort_index=tid)]
            events += _events(tid, found, origin)
    events.sort(key=lambda e: e["ts"])
    return {"traceEvents": names + events, "displayTimeUnit": "ms"}


def _named(kind: str, tid: int, **args: str | int) -> Event:
    return {"ph": "M", "name": kind, "pid": _PROCESS, "tid": tid, "args": args}


def _events(tid: int, row: list[RecordedTimes], origin: float) -> Iterator[Event]:
    """Yield the events of one row, without overlap: a device's clock has steps of half a microsecond, so an end may
    seem to lie behind the next start, and viewers would take that for nesting."""
    last = 0.0
    for one in sorted(row, key=lambda t: (t.start_us, t.end_us)):
        start = max(round(one.start_us - origin, _DIGITS), last)
        last = max(round(one.end_us - origin, _DIGITS), start)
        took = round(last - start, _DIGITS)
        event: Event = {"ph": "X", "name": one.name, "ts": start, "dur": took, "pid": _PROCESS, "tid": tid}
        if one.nbytes:
            event["args"] = {"bytes": one.nbytes} | ({"GB/s": round(one.nbytes / took / 1e3, 3)} if took else {})
        yield event
