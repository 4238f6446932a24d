"""Whether a program with copies runs faster from its recording or step by step: a few runs of each are timed.

Issuing step by step costs the host time, and the device too where the host is late; in a recording copies overlap a
little less. Which counts for more depends on the host, so it is measured. As a host that keeps up may be busy later, a
recording that takes hardly longer is preferred, and runs step by step go on being timed. Results are the same to the
bit.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from statistics import median

from ...backend.device import Device

_log = logging.getLogger(__name__)
RUNS = 4  # of each that are timed, and of those step by step that are judged together afterwards
CLOSE = 1.02  # one way is faster than the other if that takes more than this times as long


class ReplayBenchmark:
    """Of one program on one device."""

    def __init__(self, device: Device):
        self._device = device
        self._spans: dict[bool, list[tuple]] = {False: [], True: []}  # of runs that are not judged yet
        self._pays: bool | None = None
        self._graph = 0.0  # milliseconds of a recorded run, once known

    def wants(self, recorded: bool) -> bool:
        """Whether more runs of this kind are to be timed before it is known which is faster."""
        return self._pays is None and len(self._spans[recorded]) < RUNS

    @contextmanager
    def run(self, recorded: bool) -> Iterator[None]:
        """Within, one run is queued."""
        step_by_step_for_good = self._pays is False and not recorded
        if not (self.wants(recorded) or step_by_step_for_good):
            yield
            return
        start = self._device.timed_event()
        yield
        self._spans[recorded].append((start, self._device.timed_event()))

    def recording_pays(self, name: str) -> bool:
        """Which is faster, once the wanted runs are timed; waits for the last of them, later for none of the last
        `RUNS`. name: the program's, for the log."""
        if self._pays is None:
            steps, self._graph = self._took(False), self._took(True)
            self._pays = self._graph <= CLOSE * steps
            which = "as recorded" if self._pays else "step by step"
            _log.info(
                "Program %s took %.1f ms step by step and %.1f ms as recorded: it runs %s",
                name, steps, self._graph, which,
            )  # fmt: skip
        elif not self._pays and len(self._spans[False]) >= 2 * RUNS:
            steps = self._took(False)
            self._pays = steps > CLOSE * self._graph
            if self._pays:
                _log.info(
                    "Program %s now takes %.1f ms step by step and took %.1f ms as recorded: it runs as recorded",
                    name, steps, self._graph,
                )  # fmt: skip
        return self._pays

    def _took(self, recorded: bool) -> float:
        """Milliseconds of the first runs of this kind, which are judged with that."""
        spans = self._spans[recorded]
        found = median(self._device.elapsed_ms(*span) for span in spans[:RUNS])
        del spans[:RUNS]
        return found
