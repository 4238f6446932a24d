"""Queues part of a layer's pass on a second stream, beside the rest, and joins it when the pass ends."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager


class Branch:
    """Fork work to the branch stream of a device and join it."""

    def __init__(self, device):
        self._device = device
        self._busy = False  # whether the compute stream has yet to wait for the branch

    @contextmanager
    def beside(self) -> Iterator[None]:
        """Queue the work of this context on the branch stream; only while a CUDA graph is captured.

        Outside a capture the extra events would cost the host time, so the work stays on the compute stream.
        """
        device = self._device
        if not device.capturing:
            yield
            return
        device.wait(device.branch, device.record(device.compute))
        self._busy = True
        with device.on(device.branch):
            yield

    def join(self) -> None:
        """Let the compute stream wait for the branch, if there was work on it."""
        if self._busy:
            self._busy = False
            self._device.wait(self._device.compute, self._device.record(self._device.branch))
