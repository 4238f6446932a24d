"""Record when steps and copies ran, by timed events on the streams and the host's clock.

A runtime has a `Recorder` only inside `Recorder.iteration`, so other iterations cost nothing. On the simulated device
times are those of the model clock. A recorded iteration runs step by step, never as a replayed CUDA graph. Afterwards
`times` returns rows for `cli/views/profile.py`, and `runs` the `MeasuredRun`s of `cost/timing.py`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import accumulate
from typing import TYPE_CHECKING, Any

from ..cost.timing import MeasuredRun, measured_run
from ..plan.plan import OpKind, Plan

if TYPE_CHECKING:
    from .runtime import Runtime

STEPS, COPIES_IN, COPIES_OUT, HOST = "steps", "copies in", "copies out", "host: issuing steps"


@dataclass(frozen=True)
class RecordedTimes:
    """Hold one step or copy of a row, from `start_us` to `end_us` microseconds since the recording began."""

    row: str
    name: str
    start_us: float
    end_us: float
    nbytes: int = 0


@dataclass
class _Run:
    """Collect the marks of one run of a plan.

    Attributes:
        op: id of the operation that is being issued.
        marks: by operation, its start and end on a stream.
        hosted: by operation, its start and end on the host, in seconds of the host's clock.
        waits: (step, mark where the compute stream began to wait, ids of the copies it waits for).
    """

    plan: Plan
    iteration: int
    op: int = -1
    marks: dict[int, tuple[object, object]] = field(default_factory=dict)
    hosted: dict[int, tuple[float, float]] = field(default_factory=dict)
    waits: list[tuple[int, object, list[int]]] = field(default_factory=list)


class Recorder:
    """Record iterations of one runtime.

    On a device the rows are steps, copies in, copies out, and the host issuing the steps. Without a device there is
    only the row of steps, by the wall clock.

    began: `time.perf_counter()` at the start of the first iteration.
    """

    def __init__(self, runtime: Runtime):
        self.runtime, self.device = runtime, runtime.device
        self._queued = not self.device.is_host
        self.began = 0.0
        self._anchors: list[tuple[str, object]] = []  # iterations: name, mark of the start
        self._marks: list[tuple[int, str, str, object, object, int]] = []  # iteration, row, name, start, end, bytes
        self._issued: list[tuple[str, float, float]] = []
        self._runs: list[_Run] = []
        self._run: _Run | None = None  # the current one

    @contextmanager
    def iteration(self, name: str) -> Iterator[None]:
        """Record everything that the runtime runs inside the context, as one iteration of this name."""
        if not self._anchors:
            self.device.synchronize()  # so that the first mark is the same moment on both clocks
            self.began = time.perf_counter()
        with self.device.active():
            self._anchors.append((name, self.begin(self.device.compute)))
        self.runtime.recorder = self
        try:
            yield
        finally:
            self.runtime.recorder = None

    # -- called while steps and copies are issued ----------------------------------------------------------------
    def begin(self, stream: Any) -> Any:
        """Return a mark on a stream: a timed event, or without a device the time in seconds."""
        return self.device.timed_event(stream) if self._queued else time.perf_counter()

    def end(self, row: str, name: str, start: object, stream: Any, nbytes: int = 0) -> None:
        """Note a step or copy of `nbytes` bytes, queued on the stream since the mark `start`."""
        end = self.begin(stream)
        self._marks.append((len(self._anchors) - 1, row, name, start, end, nbytes))
        if self._run is not None:
            self._run.marks[self._run.op] = start, end

    def idle(self, stream: Any) -> None:
        """Note that the current operation of the plan took no time."""
        mark, run = self.begin(stream), self._running
        run.marks[run.op] = mark, mark

    @property
    def _running(self) -> _Run:
        assert self._run is not None, "only inside `run`"
        return self._run

    @contextmanager
    def run(self, plan: Plan) -> Iterator[None]:
        """Record a run of a plan inside the context; `operation` names the operations."""
        self._run = _Run(plan, len(self._anchors) - 1)
        try:
            yield
            self._runs.append(self._run)
        finally:
            self._run = None

    def operation(self, op: int) -> None:
        """Attribute the next marks to operation `op` of the plan."""
        self._running.op = op

    def waits(self, step: int, ops: Iterable[int]) -> None:
        """Note that the compute stream (or the host, for a host step) now waits for operations `ops` before `step`.

        Only copies among them count as a stall, which lasts until the last of these ends.
        """
        copies = [w for w in ops if self._running.plan.ops[w].kind in (OpKind.IN, OpKind.OUT)]
        if copies:
            self._running.waits.append((step, self.begin(self.device.compute), copies))

    def step(self, name: str, host: bool, run: Callable[[], None]) -> None:
        """Run a step and record it. host: it runs on the issuing thread and not on the device."""
        issued, stream = time.perf_counter(), self.device.compute
        on_row = not (host and self._queued)
        start = self.begin(stream) if on_row else None
        run()
        if on_row:
            self.end(STEPS, name, start, stream)
        if self._queued:
            self._issued.append((name, issued, time.perf_counter()))
            if not on_row and self._run is not None and self.device.simulated:
                self.idle(stream)  # the model clock does not advance for host steps
            elif not on_row and self._run is not None:
                self._run.hosted[self._run.op] = self._issued[-1][1:]

    # -- results -------------------------------------------------------------------------------------------------
    def times(self) -> tuple[list[RecordedTimes], list[tuple[str, float]]]:
        """Return everything recorded, and the iterations as (name, start in microseconds). Wait for the device."""
        begins = self._begins()
        timed = [
            RecordedTimes(row, name, self._us(begins, i, start), self._us(begins, i, end), nbytes)
            for i, row, name, start, end, nbytes in self._marks
        ]
        timed += [
            RecordedTimes(HOST, name, 1e6 * (a - self.began), 1e6 * (b - self.began)) for name, a, b in self._issued
        ]
        return timed, [(name, us) for (name, _), us in zip(self._anchors, begins, strict=True)]

    def _begins(self) -> list[float]:
        """Return the start of each iteration in microseconds."""
        self.device.synchronize()
        anchors = [mark for _, mark in self._anchors]
        steps = (self._between_us(a, b) for a, b in zip(anchors, anchors[1:], strict=False))
        return list(accumulate(steps, initial=0.0))[: len(anchors)]

    def runs(self) -> list[MeasuredRun]:
        """Return all recorded runs of plans. Wait for the device."""
        begins, found = self._begins(), []
        for run in self._runs:

            def seconds(mark: object, i: int = run.iteration) -> float:
                return 1e-6 * self._us(begins, i, mark)

            spans = {op: (seconds(a), seconds(b)) for op, (a, b) in run.marks.items()}
            spans |= {op: (a - self.began, b - self.began) for op, (a, b) in run.hosted.items()}
            stalls: dict[int, float] = {}
            for step, mark, copies in run.waits:
                late = max(spans[w][1] for w in copies) - seconds(mark)
                stalls[step] = stalls.get(step, 0.0) + max(0.0, late)
            found.append(measured_run(run.plan, self._anchors[run.iteration][0], spans, stalls, self.device.simulated))
        return found

    def _us(self, begins: Sequence[float], i: int, mark: object) -> float:
        """Return when a mark of iteration `i` was, in microseconds since the recording began."""
        return begins[i] + self._between_us(self._anchors[i][1], mark)

    def _between_us(self, start: Any, end: Any) -> float:
        return 1e3 * float(self.device.elapsed_ms(start, end)) if self._queued else 1e6 * float(end - start)
