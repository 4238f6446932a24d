"""Measures whether a program with copies runs faster as a CUDA graph replay or step by step, from a few runs of each.

Launching step by step costs host time, and device time if the host falls behind; in a replay copies overlap slightly
less. Which effect is larger depends on the host. A replay that is hardly slower is preferred, because the host may be
busier later; for the same reason step-by-step runs are timed on. Results are the same to the bit.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from statistics import median

from ...backend.device import Device, Event

_log = logging.getLogger(__name__)
RUNS = 4  # timed runs of each kind; also how many later step-by-step runs give one median
CLOSE = 1.02  # times within this ratio count as equal


class ReplayBenchmark:
    """Time one program on one device, replayed and step by step, and choose the faster way."""

    def __init__(self, device: Device):
        self._device = device
        # (start, end) events of runs not evaluated yet
        self._spans: dict[bool, list[tuple[Event, Event]]] = {False: [], True: []}
        self._pays: bool | None = None
        self._graph = 0.0  # milliseconds of a replay, once known

    def wants(self, recorded: bool) -> bool:
        """Return whether the choice needs more timed runs of this kind."""
        return self._pays is None and len(self._spans[recorded]) < RUNS

    @contextmanager
    def run(self, recorded: bool) -> Iterator[None]:
        """Time the run that is queued inside this context, if it is of use."""
        watch_steps = self._pays is False and not recorded
        if not (self.wants(recorded) or watch_steps):
            yield
            return
        start = self._device.timed_event()
        yield
        self._spans[recorded].append((start, self._device.timed_event()))

    def recording_pays(self, name: str) -> bool:
        """Return whether the replay is the faster way. Call it once both kinds have `RUNS` timed runs.

        The first call waits for the last of these runs; later calls wait for none of the last `RUNS` runs.
        name: the program's, for the log.
        """
        if self._pays is None:
            steps, self._graph = self._took(False), self._took(True)
            self._pays = self._graph <= CLOSE * steps
            which = "as recorded" if self._pays else "step by step"
            _log.info(
                "Program %s took %.1f ms step by step and %.1f ms as recorded: it runs %s",
                name,
                steps,
                self._graph,
                which,
            )
        elif not self._pays and len(self._spans[False]) >= 2 * RUNS:
            steps = self._took(False)
            self._pays = steps > CLOSE * self._graph
            if self._pays:
                _log.info(
                    "Program %s now takes %.1f ms step by step and took %.1f ms as recorded: it runs as recorded",
                    name,
                    steps,
                    self._graph,
                )
        return self._pays

    def _took(self, recorded: bool) -> float:
        """Remove the first `RUNS` runs of this kind and return their median in milliseconds."""
        spans = self._spans[recorded]
        milliseconds = median(self._device.elapsed_ms(*span) for span in spans[:RUNS])
        del spans[:RUNS]
        return milliseconds
