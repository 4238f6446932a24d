"""Plans a second time for `-lms auto`: first with predicted times of steps and the link's rates by the GPU's name,
then with measured ones."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Protocol

from ..lms.cost.machine import Machine
from ..lms.runtime.link_rates import described, link_shares, with_shares
from ..lms.runtime.recorder import STEPS, Recorder
from ..net.net import Net

_log = logging.getLogger(__name__)
WARM = 3  # iterations before the measurement, in which kernels are compiled and convolutions chosen
MEASURED = 2  # iterations; the least of a step's times counts, since other work may delay one
HEAD_START_S = 0.1  # least pause of the device, so that short steps do not seem as long as the host takes to issue them
HEAD_START_EACH_S = 1e-4  # pause for each operation, twice what the host takes to issue it


class MeetingRanks(Protocol):
    """Join ranks that measure together: what this needs of `base.Ranks`."""

    def largest(self, values: Sequence[int], /) -> list[int]: ...

    def meet(self) -> None: ...


class Autotune:
    """Measure iterations of a solver, given its train net, and plan them again.

    Enter `around` for every iteration. After the last one that is measured it calls `replan()` and sets `done`; then
    one more iteration is recorded, for the runtime's statistics of the plans in use. The second plan is used only if,
    with the measured times, it is predicted to be faster than the first.
    """

    def __init__(self, net: Net):
        self._net, self._runtime, self._iterations, self._recorded = net, net.runtime, 0, 0
        self.done = not (self._runtime.active and self._runtime.config.auto)
        self._next = math.inf if self.done else WARM + 1  # the iteration to record
        self._seconds: dict[str, float] = {}
        self._shares: dict[bool, float] = {}  # measured shares of the link's rates, see `link_shares`
        self._meet: Callable[[], None] | None = None

    def join(self, ranks: MeetingRanks) -> None:
        """Let the devices of all ranks begin an iteration that is measured together: sums that wait for another rank
        hold multiprocessors, so layers would seem slower than they are. Every rank calls it before its iterations."""
        if ranks.largest([int(not self.done)]) != [0]:  # a rank without anything to measure takes part
            self._meet = ranks.meet

    def around(self, replan: Callable[[], list[str]]) -> AbstractContextManager[None]:
        """Return a context manager for one iteration. replan: plans again and returns lines for the log."""
        self._iterations += 1
        meet = self._meet if WARM < self._iterations <= WARM + MEASURED else None
        if self._iterations < self._next or self._runtime.recorder is not None:  # while another one records: later
            return nullcontext() if meet is None else _behind(meet)
        return self._watch() if self.done else self._measure(replan, meet)

    @contextmanager
    def _measure(self, replan: Callable[[], list[str]], meet: Callable[[], None] | None) -> Iterator[None]:
        recorder = Recorder(self._runtime)
        with recorder.iteration(f"iteration {self._iterations}"):
            self._runtime.device.pause(max(HEAD_START_S, HEAD_START_EACH_S * self._operations()))
            if meet is not None:
                meet()
            yield
        self._take_times(recorder)
        self._recorded += 1
        if self._recorded < MEASURED:
            return
        self.done = True
        self._runtime.measured.update(self._seconds)
        assumed = self._machine
        found = self._runtime.machine = with_shares(assumed, self._shares)
        if found is not assumed:
            _log.info("Large Model Support: %s", described(found, assumed))
        for line in replan():
            _log.info("Large Model Support: %s", line)
        self._next = self._iterations + 2  # after new plans have run once

    @property
    def _machine(self) -> Machine:
        machine = self._runtime.machine
        assert machine is not None  # the runtime looks it up where LMS is on
        return machine

    def _operations(self) -> int:
        """Return how many operations the host issues in an iteration."""
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
        for out, share in link_shares(found, self._machine).items():
            self._shares[out] = max(share, self._shares.get(out, share))


@contextmanager
def _behind(first: Callable[[], None]) -> Iterator[None]:
    first()
    yield
