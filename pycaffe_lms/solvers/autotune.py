"""`-lms auto` plans twice: first with predicted times of the steps, and rates of the link as the GPU's name tells them;
then with what iterations took."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

from ..lms.runtime.link_rates import described, link_shares, with_shares
from ..lms.runtime.recorder import STEPS, Recorder
from ..net.net import Net

_log = logging.getLogger(__name__)
WARM = 3  # iterations before: kernels are compiled, convolutions chosen
MEASURED = 2  # iterations: of a step's times the least counts, for one may be held up by something else
HEAD_START_S = 0.1  # of the host, at least, so that short steps are not taken for as long as it takes to issue them
HEAD_START_EACH_S = 1e-4  # for an operation, which the host issues in half of that


class Autotune:
    """Of one solver, whose train net this is. `around` every iteration; after the last that was measured `replan()` is
    called, and `done`. Then one more is recorded as it is, for the runtime's statistics of the plans that count.

    The second plan counts only if it is predicted to be faster, with the measured times, than the first.
    """

    def __init__(self, net: Net):
        self._net, self._runtime, self._iterations, self._recorded = net, net.runtime, 0, 0
        self.done = not (self._runtime.active and self._runtime.config.auto)
        self._next = math.inf if self.done else WARM + 1  # the iteration to record
        self._seconds: dict[str, float] = {}
        self._shares: dict[bool, float] = {}  # of the link's rates, see `link_shares`

    def around(self, replan: Callable[[], list[str]]) -> AbstractContextManager:
        """For `with`: one iteration."""
        self._iterations += 1
        if self._iterations < self._next or self._runtime.recorder is not None:  # somebody else records: another time
            return nullcontext()
        return self._watch() if self.done else self._measure(replan)

    @contextmanager
    def _measure(self, replan: Callable[[], list[str]]) -> Iterator[None]:
        recorder = Recorder(self._runtime)
        with recorder.iteration(f"iteration {self._iterations}"):
            self._runtime.device.pause(max(HEAD_START_S, HEAD_START_EACH_S * self._operations()))
            yield
        self._take_times(recorder)
        self._recorded += 1
        if self._recorded < MEASURED:
            return
        self.done = True
        self._runtime.measured.update(self._seconds)
        assumed = self._runtime.machine
        self._runtime.machine = with_shares(assumed, self._shares)
        if self._runtime.machine is not assumed:
            _log.info("Large Model Support: %s", described(self._runtime.machine, assumed))
        for line in replan():
            _log.info("Large Model Support: %s", line)
        self._next = self._iterations + 2  # when new plans have run once

    def _operations(self) -> int:
        """That the host issues in an iteration."""
        return sum(len(plan.ops) for plan in self._net.memory.plans().values() if plan is not None)

    @contextmanager
    def _watch(self) -> Iterator[None]:
        self._next = math.inf
        recorder = Recorder(self._runtime)
        with recorder.iteration(f"iteration {self._iterations}"):
            yield
        plans = [plan for plan in self._net.memory.plans().values() if plan is not None]
        self._runtime.stats.measured(run for run in recorder.runs() if any(run.plan is plan for plan in plans))

    def _take_times(self, recorder: Recorder) -> None:
        found = recorder.times()[0]
        for timed in found:
            if timed.row == STEPS:
                took = 1e-6 * (timed.end_us - timed.start_us)
                self._seconds[timed.name] = min(took, self._seconds.get(timed.name, took))
        for out, share in link_shares(found, self._runtime.machine).items():
            self._shares[out] = max(share, self._shares.get(out, share))
