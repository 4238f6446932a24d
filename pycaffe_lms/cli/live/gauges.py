"""Read at each display: images per second, device memory, bytes that LMS copied.

All of it is the host's bookkeeping; nothing waits for the device.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ...lms.plan.plan import Plan
from ...solvers import Solver
from ...solvers.events import Display
from ...solvers.rank_report import images_per_iteration, per_iteration


@dataclass(frozen=True)
class Reading:
    """Hold what was read; None where there is nothing: no speed at the first display, no device memory on the CPU.

    Attributes:
        images_per_second: batch_size * iter_size * ranks * iterations per second.
        device_bytes: taken from the device's pool, the arena of LMS included.
        lms_in, lms_out: bytes that training, without tests, copied to and from the device per iteration since the last
            display, or since the start; of several ranks the sums in the newest report of ranks, None before the first.
        lms_stall: seconds per iteration in which layers wait for copies, as the plans predict.
        lms_waited: the same, measured in the last recorded iteration of these plans.
        simulated: measured by the model clock of a simulated device.
    """

    images_per_second: float | None = None
    device_bytes: int | None = None
    lms_in: float | None = None
    lms_out: float | None = None
    lms_stall: float | None = None
    lms_waited: float | None = None
    simulated: bool = False


class Gauges:
    """Read for the displays of one solver, which come in order."""

    def __init__(self, solver: Solver):
        self._solver, self._images = solver, images_per_iteration(solver)
        self._copied = self._totals()

    def read(self, display: Display) -> Reading:
        """Return what belongs to this display."""
        speed, copied = display.speed, self._totals()
        moved = [(now - before) / max(1, display.iterations) for now, before in zip(copied, self._copied, strict=True)]
        self._copied = copied
        lms: Sequence[float | None] = moved if self._solver.runtime.active else (None, None)
        if self._solver.solver_count > 1:
            lms = [per_iteration(self._solver.rank_report.rows, name) for name in ("bytes_in", "bytes_out")]
        return Reading(
            images_per_second=None if speed is None or self._images is None else speed * self._images,
            device_bytes=self.device_bytes(),
            lms_in=lms[0],
            lms_out=lms[1],
            lms_stall=predicted_stall(self._solver) if self._solver.runtime.active else None,
            lms_waited=measured_stall(self._solver) if self._solver.runtime.active else None,
            simulated=self._solver.runtime.device.simulated,
        )

    def device_bytes(self) -> int | None:
        """Return the bytes taken from the device's pool; None on the CPU."""
        device = self._solver.runtime.device
        return None if device.is_host else device.in_use()

    def _totals(self) -> tuple[int, int]:
        trained = self._solver.lms_log.trained
        return trained.bytes_in, trained.bytes_out


def predicted_stall(solver: Solver) -> float | None:
    """Return the seconds per iteration in which layers wait for copies, by the plans in use; None: no plan says."""
    known = [(times, plan) for times, _, plan in _train_plans(solver) if plan.seconds > 0]
    return sum(times * plan.stall for times, plan in known) if known else None


def measured_stall(solver: Solver) -> float | None:
    """Return the same as measured when these plans were recorded last; None: one of them was not."""
    programs, total = solver.runtime.stats.programs, 0.0
    plans = _train_plans(solver)
    for times, key, plan in plans:
        run = programs[key].measured if key in programs else None
        if run is None or run.plan is not plan:
            return None
        total += times * run.times.stall
    return total if plans else None


def _train_plans(solver: Solver) -> list[tuple[int, str, Plan]]:
    """Return (runs per iteration, its program, plan) of each plan in use."""
    middle = solver.param.iter_size - 2  # how often "train more" runs
    plans = [(key, plan) for key, plan in solver.net.memory.plans().items() if key.startswith("train")]
    return [(middle if key.startswith("train more") else 1, key, plan) for key, plan in plans if plan is not None]
