"""Write what Large Model Support did in a run: `-lms_report FILE.html` as a page, `-lms_stats FILE.json` as numbers."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from contextlib import contextmanager

from ...errors import CaffeError, UsageError
from ...formats.atomic import atomic_write
from ...lms.cost.timing import MeasuredRun
from ...lms.report.page import Contents, render
from ...lms.runtime.recorder import Recorder
from ...net.inspect.account import page_contents
from ...solvers import Solver
from ..flags import check_place

_log = logging.getLogger(__name__)
WARM = 3  # iterations before one is recorded: kernels are built, convolutions chosen


def write_page(path: str, *contents: Contents) -> None:
    """Write the page of a plan, or of several for different budgets, whole or not at all."""
    atomic_write(path, render(*contents).encode(), error=CaffeError)


class LmsFiles:
    """Record an iteration of one `train` and write its files.

    Args:
        report, stats: paths; "" for none.

    Raises:
        UsageError: a file cannot be written.
    """

    def __init__(self, report: str, stats: str):
        check_place(report, "-lms_report")
        check_place(stats, "-lms_stats")
        self._report, self._stats = report, stats
        self._count = self._settled = 0
        self._run: MeasuredRun | None = None
        self._done = not (report or stats)

    def follow(self, solver: Solver) -> None:
        """Begin to follow a solver. Raises UsageError if a file is wanted and nothing is managed."""
        self._solver = solver
        if not self._done and not (solver.runtime.active or solver.runtime.idle):
            flag = "-lms_report" if self._report else "-lms_stats"
            raise UsageError(
                f"{flag}: Large Model Support is off, or there is no device memory for it to save",
                fix="add -lms auto, or -lms 1000, and train on a GPU or with -backend sim",
            )

    @contextmanager
    def iteration(self) -> Iterator[None]:
        """Within: an iteration. One is recorded, once the plan will not change any more, or else the last one."""
        runtime, solver = self._solver.runtime, self._solver
        self._count += 1
        self._settled += solver.settled
        last = solver.iter + 1 >= solver.param.max_iter
        ready = self._count > WARM and self._settled > 1
        if self._done or not (ready or last):
            yield
            return
        recorder = runtime.recorder  # of -profile, perhaps
        if recorder is None:
            recorder = Recorder(runtime)
            with recorder.iteration(f"iteration {self._count}"):
                yield
        else:
            yield
        self._done = True
        runs = recorder.runs()
        runs = [run for run in runs if run.iteration == runs[-1].iteration]
        runtime.stats.measured(runs)
        self._run = max(runs, key=lambda run: len(run.plan.ops), default=None)

    def write(self) -> None:
        """Write the files, after the run."""
        if self._report:
            self._write_report()
        if self._stats:
            content, rows = self._solver.statistics(), self._solver.rank_report.totals
            if rows:
                content["ranks"] = [row.described() for row in rows]
            atomic_write(self._stats, json.dumps(content, indent=1).encode(), error=CaffeError)
            _log.info("Wrote the statistics of Large Model Support to %s", self._stats)

    def _write_report(self) -> None:
        net = self._solver.net
        plans = [plan for plan in net.memory.plans().values() if plan is not None]
        if not self._solver.runtime.active or (self._run is None and not plans):
            _log.warning("-lms_report %s: not written, for nothing is managed", self._report)
            return
        plan = self._run.plan if self._run else max(plans, key=lambda plan: len(plan.ops))
        remark = f"Program {plan.program.name} of net {net.name}. "
        if self._run is None:
            remark += "Nothing was recorded, so all times are predictions."
        elif self._run.simulated:
            remark += f"Simulated: {self._run.iteration} of the run, by the model clock of the simulated device."
        else:
            remark += f"Measured: {self._run.iteration} of the run, step by step and with the marks of the recording."
        title = f"Large Model Support: {net.name}"
        budget = self._solver.runtime.device.capacity()
        write_page(self._report, page_contents(net, title, plan, remark=remark, measured=self._run, budget=budget))
        _log.info("Wrote the report of Large Model Support to %s", self._report)
