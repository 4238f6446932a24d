"""Whether a program with copies runs faster from its recording or step by step: a few runs of each are timed.

Issuing step by step costs the host time, and the device too where the host is late; in a recording copies overlap a
little less. Which counts for more depends on the host, so it is measured. Results are the same to the bit.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from statistics import median

from ..backend.device import Device

_log = logging.getLogger(__name__)
RUNS = 4  # that are timed, of each


class Trial:
    """Of one program on one device."""

    def __init__(self, device: Device):
        self._device = device
        self._spans: dict[bool, list[tuple]] = {False: [], True: []}
        self._pays: bool | None = None

    def wants(self, recorded: bool) -> bool:
        """Whether more runs of this kind are to be timed."""
        return len(self._spans[recorded]) < RUNS

    @contextmanager
    def run(self, recorded: bool) -> Iterator[None]:
        """Within, one run is queued."""
        start = self._device.timed_event()
        yield
        self._spans[recorded].append((start, self._device.timed_event()))

    def recording_pays(self, name: str) -> bool:
        """Which is faster, once all runs are timed; waits for the last of them. name: the program's, for the log."""
        if self._pays is None:
            elapsed = self._device.elapsed_ms
            steps, graph = (median(elapsed(*span) for span in self._spans[kind]) for kind in (False, True))
            self._pays = graph <= steps
            which = "as recorded" if self._pays else "step by step"
            _log.info(
                "Program %s took %.1f ms step by step and %.1f ms as recorded: it runs %s", name, steps, graph, which
            )
        return self._pays
