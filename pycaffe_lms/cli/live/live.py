"""Show a training in a terminal: how far it is, and the numbers of the last display and test.

A thread of rich's draws four times a second from what the host knows; it never waits for the device. The log goes on
above the display.
"""

from __future__ import annotations

import math
import time
from collections import deque
from dataclasses import dataclass, field
from typing import Any

from ...errors import human_bytes
from ...solvers import Solver
from ...solvers.display import number
from ...solvers.events import Display, Evaluation, Start
from .. import terminal
from .gauges import Gauges, Reading
from .watcher import Watcher

_PER_SECOND = 4
_WINDOW = 60.0  # seconds before now from which the time left is predicted
_MOST_OUTPUTS = 4  # of a test that fit in a line


class Pace:
    """Predict when a run will end, from its progress in the last minute."""

    def __init__(self) -> None:
        self._seen: deque[tuple[float, int]] = deque()

    def at(self, now: float, iteration: int) -> None:
        """Note the iteration at a time; times come in order, and an iteration before the last one begins anew."""
        if self._seen and iteration < self._seen[-1][1]:
            self._seen.clear()
        self._seen.append((now, iteration))
        while len(self._seen) > 2 and now - self._seen[1][0] >= _WINDOW:
            self._seen.popleft()

    def left(self, end: int) -> float | None:
        """Return the seconds until iteration `end`; None while nothing moves."""
        if not self._seen:
            return None
        (first, begun), (last, done) = self._seen[0], self._seen[-1]
        return (end - done) * (last - first) / (done - begun) if done > begun else None


@dataclass
class Status:
    """Hold what is shown; `numbers` and `tests` are its lines of text. Pure."""

    display: Display | None = None
    reading: Reading = field(default_factory=Reading)
    capacity: int | None = None
    evaluations: dict[int, Evaluation] = field(default_factory=dict)

    def numbers(self) -> list[str]:
        """Return the lines of the last display; what LMS does has a line of its own."""
        if self.display is None:
            return []
        d, r = self.display, self.reading
        parts = [f"iteration {d.iteration}", f"loss {number(d.loss)}", f"lr {number(d.rate)}"]
        if r.images_per_second is not None:
            parts.append(f"{number(float(f'{r.images_per_second:.3g}'))} images/s")
        if r.device_bytes is not None:
            of = f" of {human_bytes(self.capacity)}" if self.capacity else ""
            parts.append(f"device memory {human_bytes(r.device_bytes)}{of}")
        lms = []
        if r.lms_in is not None and r.lms_out is not None:
            waits = ""
            if r.lms_waited is not None:
                how = "simulated" if r.simulated else "measured"
                waits = f", {1e3 * r.lms_waited:.3g} ms of waiting {how}"
            elif r.lms_stall is not None:
                waits = f", {1e3 * r.lms_stall:.3g} ms of waiting predicted"
            lms = [f"LMS per iteration: {human_bytes(r.lms_in)} in, {human_bytes(r.lms_out)} out{waits}"]
        return ["  ".join(parts), *lms]

    def tests(self) -> list[str]:
        """Return a line for the last test of every test net."""
        lines = []
        for net, test in sorted(self.evaluations.items()):
            outputs = "  ".join(f"{o.name} {number(o.value)}" for o in test.outputs[:_MOST_OUTPUTS])
            more = len(test.outputs) - _MOST_OUTPUTS
            lines.append(f"test {net} at {test.iteration}: {outputs}{f'  and {more} more' if more > 0 else ''}")
        return lines


class Live(Watcher):
    """Draw the display on stderr; rich must be installed."""

    def __init__(self) -> None:
        from rich.console import Console

        self._console = Console(stderr=True)
        self._status, self._pace = Status(), Pace()
        self._screen: terminal.Screen | None = None
        self._end = self._clock = 0.0

    def start(self, solver: Solver) -> None:
        from rich.live import Live as RichLive

        self._solver, self._gauges = solver, Gauges(solver)
        self._title = solver.net.name or "training"
        device = solver.runtime.device
        self._status.capacity = None if device.is_host else device.capacity()
        self._end, self._clock = solver.param.max_iter, time.monotonic()
        live = RichLive(get_renderable=self.picture, console=self._console, refresh_per_second=_PER_SECOND)
        self._screen = terminal.Screen(live)
        self._screen.start()

    def stop(self) -> None:
        if self._screen is not None:
            self._screen.stop()
            self._screen = None

    def on_start(self, start: Start) -> None:
        self._end, self._pace = start.end, Pace()

    def on_display(self, display: Display) -> None:
        self._status.display, self._status.reading = display, self._gauges.read(display)

    def on_test(self, test: Evaluation) -> None:
        self._status.evaluations[test.net] = test

    def picture(self) -> Any:
        """Return what rich draws now."""
        from rich.console import Group
        from rich.progress_bar import ProgressBar
        from rich.table import Table
        from rich.text import Text

        now, done, end = time.monotonic(), self._solver.iter, int(self._end)
        self._pace.at(now, done)
        left = self._pace.left(end)
        bar = Table.grid(padding=(0, 1))
        bar.add_row(
            Text(self._title, overflow="ellipsis", no_wrap=True),
            ProgressBar(max(1, end), done, width=30),
            f"{done}/{end}",
            Text(clock(now - self._clock), "yellow"),
            Text(f"{clock(left)} left", "cyan"),
        )
        lines = [*self._status.numbers(), *self._status.tests()]
        return Group(bar, *(Text(line, overflow="ellipsis", no_wrap=True) for line in lines))


def clock(seconds: float | None) -> str:
    """Return the time as h:mm:ss."""
    if seconds is None or not math.isfinite(seconds):
        return "-:--:--"
    whole = round(seconds)
    return f"{whole // 3600}:{whole // 60 % 60:02}:{whole % 60:02}"
