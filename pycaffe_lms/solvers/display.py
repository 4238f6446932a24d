"""Displays training as Caffe logs it: losses, outputs and learning rates of the iterations that are displayed.

Source: BVLC/caffe, solver.cpp (log lines, the mean over average_loss iterations).
"""

from __future__ import annotations

import logging
import math
import time
from collections import deque
from collections.abc import Iterator

from ..net.net import Net
from ..proto.caffe_pb2 import SolverParameter
from .events import Display, Output

_log = logging.getLogger(__name__)


class TrainingDisplay:
    """Keep the last average_loss losses and log the iterations that are displayed.

    Args:
        param: the settings; `display` is read anew at every iteration.
        root: whether this rank displays.
    """

    def __init__(self, param: SolverParameter, root: bool):
        self._param, self._root = param, root
        self._losses: deque[float] = deque(maxlen=max(1, param.average_loss))
        self._last, self._clock = 0, 0.0  # iteration and time of the last display
        self._shown: tuple[tuple[Output, ...], int, float] | None = None  # of a display whose rate is not logged yet
        self._display: Display | None = None
        self.last_loss = self.last_rate = math.nan  # of the last iteration; of the last whose loss was read

    def begin(self, iteration: int) -> None:
        """Forget earlier losses, and count iterations and seconds from now on."""
        self._losses.clear()
        self._last, self._clock = iteration, time.monotonic()

    def due(self, iteration: int) -> bool:
        """Return whether an iteration is displayed."""
        return self._root and bool(self._param.display) and iteration % self._param.display == 0

    def needs_loss(self, iteration: int, end: int) -> bool:
        """Return whether an iteration's loss enters a mean that is displayed or is the last of `step`, before `end`."""
        window, display = max(1, self._param.average_loss), self._param.display
        return self._root and bool(display) and -iteration % display < window or end - iteration <= window

    @property
    def mean_loss(self) -> float:
        """Return the mean of the losses that are kept; NaN without one."""
        return sum(self._losses) / len(self._losses) if self._losses else math.nan

    def add_loss(self, loss: float) -> None:
        """Take a loss into the mean."""
        self._losses.append(loss)
        self.last_loss = loss

    def show_loss(self, iteration: int, net: Net) -> None:
        """Log the mean loss and the outputs of an iteration's last batch, where the iteration is displayed."""
        if not self.due(iteration):
            return
        now = time.monotonic()
        iterations, seconds = iteration - self._last, max(now - self._clock, 1e-9)
        _log.info(
            "Iteration %d (%s iter/s, %ss/%d iters), loss = %s",
            iteration,
            number(iterations / seconds),
            number(seconds),
            self._param.display,
            number(self.mean_loss),
        )
        outputs = tuple(output_elements(net))
        self._shown = outputs, iterations, seconds
        self._last, self._clock = iteration, now
        log_outputs("Train", outputs)

    def show_rate(self, iteration: int, rate: float) -> None:
        """Keep the learning rate; log it where the iteration is displayed."""
        self.last_rate = rate
        if not self.due(iteration):
            return
        _log.info("Iteration %d, lr = %s", iteration, number(rate))
        if self._shown is not None:
            (outputs, iterations, seconds), self._shown = self._shown, None
            self._display = Display(iteration, self.mean_loss, rate, outputs, iterations, seconds)

    def take(self) -> Display | None:
        """Return the display of this iteration, for observers, once."""
        display, self._display = self._display, None
        return display


def log_outputs(kind: str, outputs: tuple[Output, ...]) -> None:
    """Log the outputs of a net. kind: "Train" or "Test"."""
    for k, (name, value, weight) in enumerate(outputs):
        loss = f" (* {number(weight)} = {number(weight * value)} loss)" if weight else ""
        _log.info("    %s net output #%d: %s = %s%s", kind, k, name, number(value), loss)


def output_elements(net: Net) -> Iterator[Output]:
    """Yield every element of every output blob."""
    for name in net.outputs:
        weight = net.graph.values[net.graph.last[name]].loss_weight
        for value in net.blobs[name].read_data().reshape(-1).tolist():
            yield Output(name, value, weight)


def number(value: float) -> str:
    """Return a number as C++ streams print it, with six significant digits; zero without a sign."""
    return f"{value + 0.0:.6g}"  # -0.0 + 0.0 is 0.0
