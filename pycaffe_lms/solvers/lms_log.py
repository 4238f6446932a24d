"""Large Model Support in the training log: a line per display, in words that no parser of Caffe's logs looks for."""

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
    """Of one solver. Counts iterations, and what they copied since the last line; tests are left out.

    trained: what all iterations did, since the start or `reset`; its held_peak is 0."""

    def __init__(self, runtime: Runtime):
        self._runtime = runtime
        self.iterations = self._since = 0
        self.trained, self._before = Counters(), Counters()

    @contextmanager
    def iteration(self) -> Iterator[None]:
        """Within: one iteration of training."""
        if not self._runtime.active:
            yield
            return
        before = {f.name: getattr(self._runtime.stats, f.name) for f in fields(Counters) if f.name != "held_peak"}
        yield
        for name, value in before.items():
            setattr(self.trained, name, getattr(self.trained, name) + getattr(self._runtime.stats, name) - value)

    def iterated(self, displays: bool) -> None:
        """An iteration is over. displays: it is time for a line; there is none where LMS is off."""
        self.iterations += 1
        self._since += 1
        if not displays or not self._runtime.active:
            return
        _log.info(line(self._runtime, self.trained, self._before, self._since))
        self._since, self._before = 0, replace(self.trained)

    def reset(self) -> None:
        """Count from zero, here and in the runtime."""
        self._runtime.stats.reset()
        self.iterations = self._since = 0
        self.trained, self._before = Counters(), Counters()


def line(runtime: Runtime, now: Counters, before: Counters, iterations: int) -> str:
    """What the iterations between two counts did, each on average."""

    def each(name: str) -> float:
        return (getattr(now, name) - getattr(before, name)) / iterations

    peak = runtime.resident_bytes + runtime.workspace_bytes + runtime.stats.held_peak
    lossy = f" in lossy {runtime.config.compress}" if runtime.compression is not None else ""
    return (
        f"LMS: {human_bytes(each('bytes_in'))} in, {human_bytes(each('bytes_out'))} out{lossy}, stall "
        f"{1e3 * each('stall_seconds'):.3g} ms (predicted), {each('steps_replayed'):.6g} steps rematerialized each "
        f"time; peak {human_bytes(peak)} of {human_bytes(runtime.device.capacity())}"
    )
