"""Tells in the training log what Large Model Support did: a line per display, which no parser of Caffe's logs reads."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import fields, replace

from ..errors import human_bytes
from ..lms.runtime.counters import Counters
from ..lms.runtime.runtime import Runtime

_log = logging.getLogger(__name__)


class IterationLog:
    """Count a solver's iterations and what they copied, tests aside, and log it at displays.

    trained: totals of all iterations since the start or `reset`; its held_peak is 0."""

    def __init__(self, runtime: Runtime):
        self._runtime = runtime
        self._said = ""
        self.iterations = self._since = 0
        self.trained, self._before = Counters(), Counters()

    @contextmanager
    def iteration(self) -> Iterator[None]:
        """Within: count what the runtime does as one iteration of training."""
        if not self._runtime.active:
            yield
            return
        before = {f.name: getattr(self._runtime.stats, f.name) for f in fields(Counters) if f.name != "held_peak"}
        yield
        for name, value in before.items():
            setattr(self.trained, name, getattr(self.trained, name) + getattr(self._runtime.stats, name) - value)

    def iterated(self, displays: bool) -> None:
        """Count an iteration that is over. displays: log a line, unless LMS is off or the last line said the same."""
        self.iterations += 1
        self._since += 1
        if not displays or not self._runtime.active:
            return
        line = _line(self._runtime, self.trained, self._before, self._since)
        if line != self._said:
            _log.info(line)
            self._said = line
        self._since, self._before = 0, replace(self.trained)

    def reset(self) -> None:
        """Restart all counts, here and in the runtime, from zero."""
        self._runtime.stats.reset()
        self.iterations = self._since = 0
        self._said = ""
        self.trained, self._before = Counters(), Counters()


def _line(runtime: Runtime, now: Counters, before: Counters, iterations: int) -> str:
    """Return the line about the iterations between two counts: means per iteration."""

    def each(name: str) -> float:
        total: float = getattr(now, name) - getattr(before, name)
        return total / iterations

    peak = runtime.resident_bytes + runtime.workspace_bytes + runtime.stats.held_peak
    lossy = f" in lossy {runtime.config.compress}" if runtime.compression is not None else ""
    return (
        f"LMS: {human_bytes(each('bytes_in'))} in, {human_bytes(each('bytes_out'))} out{lossy}, stall "
        f"{1e3 * each('stall_seconds'):.3g} ms (predicted), {each('steps_rematerialized'):.6g} steps rematerialized "
        f"each time; peak {human_bytes(peak)} of {human_bytes(runtime.device.capacity())}"
    )
