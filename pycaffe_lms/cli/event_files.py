"""`-tensorboard DIR`: event files for TensorBoard, one scalar per number.

Tags: train/loss, train/lr, train/outputs/NAME, speed/.., memory/.., lms/..; test/NAME of test net 0, testK/NAME of the
others; a number of its own, /K, for every element of an output that has several.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ..errors import CaffeError, MissingDependency, UsageError, Where
from ..solvers import Solver
from ..solvers.events import Display, Done, Evaluation, Start
from .gauges import Gauges, Reading
from .metrics import by_name
from .watcher import Watcher


def display_scalars(display: Display, reading: Reading) -> Iterator[tuple[str, float]]:
    """(tag, value) of a display."""
    yield "train/loss", display.loss
    yield "train/lr", display.rate
    yield from _outputs("train/outputs", display.outputs)
    values = {
        "speed/images_per_second": reading.images_per_second,
        "speed/iterations_per_second": display.speed,
        "memory/device_bytes": reading.device_bytes,
        "lms/bytes_in_per_iteration": reading.lms_in,
        "lms/bytes_out_per_iteration": reading.lms_out,
        "lms/stall_seconds_predicted": reading.lms_stall,
        "lms/stall_seconds_measured": reading.lms_waited,
    }
    yield from ((tag, value) for tag, value in values.items() if value is not None)


def test_scalars(test: Evaluation) -> Iterator[tuple[str, float]]:
    """(tag, value) of a test."""
    folder = f"test{test.net or ''}"
    yield from _outputs(folder, test.outputs)
    if test.loss is not None:
        yield f"{folder}/mean_loss", test.loss


def _outputs(folder: str, outputs) -> Iterator[tuple[str, float]]:
    counts = {name: len(v) if isinstance(v, list) else 1 for name, v in by_name(outputs).items()}
    seen: dict[str, int] = {}
    for output in outputs:
        k = seen.setdefault(output.name, 0)
        seen[output.name] += 1
        yield f"{folder}/{output.name}" + (f"/{k}" if counts[output.name] > 1 else ""), output.value


class EventFiles(Watcher):
    """Writes to `folder`, which is made. A run resumed at N takes back what an earlier one wrote from N on.

    Raises MissingDependency without tensorboardX, UsageError where the folder cannot be made."""

    def __init__(self, folder: str):
        try:
            self._package = importlib.import_module("tensorboardX")
        except ImportError:
            raise MissingDependency("tensorboardX", "-tensorboard", "'pycaffe-lms[tensorboard]'") from None
        try:
            Path(folder).mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UsageError(f"-tensorboard {folder}: {error.strerror}", fix="give a folder to write to") from error
        self._folder, self._writer = folder, None

    def start(self, solver: Solver) -> None:
        self._gauges = Gauges(solver)

    def stop(self) -> None:
        if self._writer is not None:
            self._writer.close()
            self._writer = None

    def on_start(self, start: Start) -> None:
        try:
            self._writer: Any = self._package.SummaryWriter(self._folder, purge_step=start.iteration or None)
        except OSError as error:
            raise CaffeError(f"no event file can be made: {error.strerror}", where=Where(file=self._folder)) from error

    def on_display(self, display: Display) -> None:
        self._write(display.iteration, display_scalars(display, self._gauges.read(display)))

    def on_test(self, test: Evaluation) -> None:
        self._write(test.iteration, test_scalars(test))

    def on_done(self, done: Done) -> None:
        self._writer.flush()

    def _write(self, iteration: int, scalars: Iterator[tuple[str, float]]) -> None:
        for tag, value in scalars:
            self._writer.add_scalar(tag, value, iteration)
