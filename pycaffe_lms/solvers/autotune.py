"""`-lms auto` plans twice: first with predicted times of the steps, then with those that an iteration took."""

from __future__ import annotations

import logging
from contextlib import AbstractContextManager, contextmanager, nullcontext

from ..lms.recorder import STEPS, Recorder
from ..lms.runtime import Runtime

_log = logging.getLogger(__name__)
WARM = 3  # iterations before: kernels are compiled, convolutions chosen
HEAD_START_S = 0.1  # of the host, so that short steps are not taken for as long as it takes to issue them
MEASURED = 2  # iterations: of a step's times the least counts, for one may be held up by something else


class Autotune:
    """Of one solver. `around` every iteration until `done`; after the last that is recorded `replan()` is called.

    The second plan counts only if it is predicted to be faster, with the measured times, than the first.
    """

    def __init__(self, runtime: Runtime):
        self._runtime, self._iterations, self._recorded = runtime, 0, 0
        self._seconds: dict[str, float] = {}
        self.done = not (runtime.active and runtime.config.auto)

    def around(self, replan) -> AbstractContextManager:
        """For `with`: one iteration."""
        if self.done:
            return nullcontext()
        self._iterations += 1
        if self._iterations <= WARM or self._runtime.recorder is not None:  # somebody else records: another time
            return nullcontext()
        return self._record(replan)

    @contextmanager
    def _record(self, replan):
        recorder = Recorder(self._runtime)
        with recorder.iteration("tuning"):
            self._runtime.device.pause(HEAD_START_S)
            yield
        for timed in recorder.times()[0]:
            if timed.row == STEPS:
                took = 1e-6 * (timed.end_us - timed.start_us)
                self._seconds[timed.name] = min(took, self._seconds.get(timed.name, took))
        self._recorded += 1
        self.done = self._recorded == MEASURED
        if not self.done:
            return
        self._runtime.measured.update(self._seconds)
        for line in replan():
            _log.info("Large Model Support: %s", line)
