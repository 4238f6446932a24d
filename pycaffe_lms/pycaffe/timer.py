"""Offers `caffe.Timer`, a stopwatch that waits for the GPU."""

from __future__ import annotations

import logging
import time

from .mode import device_of

_log = logging.getLogger(__name__)


class Timer:
    """Measure milliseconds between `start()` and `stop()`, which in GPU mode wait until the GPU of set_device is idle.

    Starting a running timer and stopping a stopped one have no effect.
    Source of the behaviour: BVLC/caffe, src/caffe/util/benchmark.cpp.
    """

    def __init__(self) -> None:
        self._started: float | None = None
        self._elapsed: float | None = None

    def start(self) -> None:
        """Start measuring."""
        if self._started is None:
            self._started = _now()

    def stop(self) -> None:
        """Stop measuring; `ms` is the time since `start`."""
        if self._started is not None:
            self._elapsed, self._started = (_now() - self._started) * 1000, None

    @property
    def ms(self) -> float:
        """Stop a running timer and return the milliseconds of the last measurement; without one warn and return 0."""
        self.stop()
        if self._elapsed is None:
            _log.warning("Timer has never been run before reading time.")
            return 0.0
        return self._elapsed


def _now() -> float:
    device_of().synchronize()
    return time.perf_counter()
