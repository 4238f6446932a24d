"""`-lms auto` plans twice: first with predicted times of the steps, then with those that an iteration took."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

from ..lms.recorder import STEPS, Recorder
from ..net.net import Net

_log = logging.getLogger(__name__)
WARM = 3  # iterations before: kernels are compiled, convolutions chosen


class Autotune:
    """Of one solver, whose train net this is. `around` every iteration; once, where that recorded one, `replan()` is
    called after it, and `done`. What was recorded of the plans that count then is in the runtime's statistics.

    The second plan counts only if it is predicted to be faster, with the measured times, than the first.
    """

    def __init__(self, net: Net):
        self._net, self._runtime, self._iterations = net, net.runtime, 0
        self.done = not (self._runtime.active and self._runtime.config.auto)
        self._next = math.inf if self.done else WARM + 1  # the iteration to record
        self._again = False  # one was recorded before

    def around(self, replan: Callable[[], list[str]]) -> AbstractContextManager:
        """For `with`: one iteration."""
        self._iterations += 1
        if self._iterations < self._next or self._runtime.recorder is not None:  # somebody else records: another time
            return nullcontext()
        return self._record(replan)

    @contextmanager
    def _record(self, replan: Callable[[], list[str]]) -> Iterator[None]:
        recorder = Recorder(self._runtime)
        with recorder.iteration(f"iteration {self._iterations}"):
            yield
        if not self.done:
            self.done = True
            self._take_times(recorder)
            for line in replan():
                _log.info("Large Model Support: %s", line)
        plans = [plan for plan in self._net.memory.plans().values() if plan is not None]
        runs = [run for run in recorder.runs() if any(run.plan is plan for plan in plans)]
        self._runtime.stats.measured(runs)
        self._next = math.inf if runs or self._again else self._iterations + 2  # the new plans, when they have run once
        self._again = True

    def _take_times(self, recorder: Recorder) -> None:
        seconds: dict[str, float] = {}
        for timed in recorder.times()[0]:
            if timed.row == STEPS:
                took = 1e-6 * (timed.end_us - timed.start_us)
                seconds[timed.name] = min(took, seconds.get(timed.name, took))
        self._runtime.measured.update(seconds)
