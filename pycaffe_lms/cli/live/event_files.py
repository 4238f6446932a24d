"""Write event files for TensorBoard, one scalar per number, for `-tensorboard DIR`.

Tags: train/loss, train/lr, train/outputs/NAME, speed/.., memory/.., lms/..; test/NAME of test net 0, testK/NAME of the
others; a number of its own, /K, for every element of an output that has several.
"""

from __future__ import annotations

import importlib
import os
import socket
import struct
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from ...errors import MissingDependency, UsageError
from ...solvers import Solver
from ...solvers.events import Display, Evaluation, Output, Start
from .gauges import Gauges, Reading
from .metrics import by_name
from .watcher import Watcher, append


def display_scalars(display: Display, reading: Reading) -> Iterator[tuple[str, float]]:
    """Yield (tag, value) of a display's numbers."""
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
    """Yield (tag, value) of a test's numbers."""
    folder = f"test{test.net or ''}"
    yield from _outputs(folder, test.outputs)
    if test.loss is not None:
        yield f"{folder}/mean_loss", test.loss


def _outputs(folder: str, outputs: Sequence[Output]) -> Iterator[tuple[str, float]]:
    counts = {name: len(v) if isinstance(v, list) else 1 for name, v in by_name(outputs).items()}
    seen: dict[str, int] = {}
    for output in outputs:
        k = seen.setdefault(output.name, 0)
        seen[output.name] += 1
        yield f"{folder}/{output.name}" + (f"/{k}" if counts[output.name] > 1 else ""), output.value


class EventFiles(Watcher):
    """Write a new file in `folder`, which is made. A run resumed at N takes back what an earlier one wrote from N on.

    Messages and checksums are tensorboardX's. Its SummaryWriter is not used: if its thread cannot write, it ends, and
    the next call that adds a number waits for it without end.

    Raises:
        MissingDependency: tensorboardX is not installed.
        UsageError: the folder or the file cannot be made.
    """

    def __init__(self, folder: str):
        try:
            importlib.import_module("tensorboardX")
            self._event = importlib.import_module("tensorboardX.proto.event_pb2")
            self._checksum = importlib.import_module("tensorboardX.record_writer").masked_crc32c
            self._scalar = importlib.import_module("tensorboardX.summary").scalar
        except ImportError:
            raise MissingDependency("tensorboardX", "-tensorboard", "'pycaffe-lms[tensorboard]'") from None
        try:
            Path(folder).mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise self._refused(folder, error) from error
        self._folder, self._path, self._file = folder, "", -1

    def _refused(self, folder: str, error: OSError) -> UsageError:
        return UsageError(f"-tensorboard {folder}: {error.strerror}", fix="give a folder to write to")

    def start(self, solver: Solver) -> None:
        self._gauges = Gauges(solver)
        name = f"events.out.tfevents.{int(time.time())}.{socket.gethostname()}.{os.getpid()}"
        self._path = str(Path(self._folder) / name)
        try:
            self._file = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | getattr(os, "O_BINARY", 0), 0o666)
        except OSError as error:
            raise self._refused(self._folder, error) from error

    def stop(self) -> None:
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def on_start(self, start: Start) -> None:
        events = [self._event.Event(file_version="brain.Event:2")]
        if start.iteration:
            begins = self._event.SessionLog(status=self._event.SessionLog.START)
            events.append(self._event.Event(step=start.iteration, session_log=begins))
        self._append(events)

    def on_display(self, display: Display) -> None:
        self._write(display.iteration, display_scalars(display, self._gauges.read(display)))

    def on_test(self, test: Evaluation) -> None:
        self._write(test.iteration, test_scalars(test))

    def _write(self, iteration: int, scalars: Iterator[tuple[str, float]]) -> None:
        self._append([self._event.Event(step=iteration, summary=self._scalar(*scalar)) for scalar in scalars])

    def _append(self, events: list[Any]) -> None:
        """Write TensorFlow's records: the length, the message, and a checksum behind each."""
        records = []
        for event in events:
            event.wall_time = time.time()
            message = event.SerializeToString()
            length = struct.pack("<Q", len(message))
            records += [length, struct.pack("<I", self._checksum(length)), message]
            records.append(struct.pack("<I", self._checksum(message)))
        append(self._file, self._path, b"".join(records))
