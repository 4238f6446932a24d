"""Work of one layer's pass beside what follows in it, on a stream of its own, joined when the pass ends."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager


class Branch:
    """Of one device's branch stream."""

    def __init__(self, device):
        self._device = device
        self._busy = False  # there is work that the compute stream did not wait for

    @contextmanager
    def beside(self) -> Iterator[None]:
        """Only where it costs the host nothing: in what is recorded."""
        device = self._device
        if not device.capturing:
            yield
            return
        device.wait(device.branch, device.record(device.compute))
        self._busy = True
        with device.on(device.branch):
            yield

    def join(self) -> None:
        """What follows waits for the work beside."""
        if self._busy:
            self._busy = False
            self._device.wait(self._device.compute, self._device.record(self._device.branch))
