"""Write one JSON object per display and per test, a line each, for `-metrics FILE.jsonl`.

    {"kind": "train", "iteration": 100, "time": 1790000000.5, "loss": 0.25, "lr": 0.01, "outputs": {"loss": 0.24},
     "iterations_per_second": 31.0, "images_per_second": 1984.0, "device_bytes": 734003200, ...}
    {"kind": "test", "iteration": 100, "time": 1790000001.5, "net": 0, "loss": null, "outputs": {"accuracy": 0.9}}

time: seconds since 1970. An output of several elements is a list. What is not finite is null, as JSON has no other
name for it. Under LMS there are also, each per iteration of training, lms_bytes_in, lms_bytes_out, lms_stall_seconds
(predicted) and, once an iteration of the plans in use was recorded, lms_stall_seconds_measured (on the simulated
device by its model clock). With several ranks images_per_second and bytes copied are those of all together, the bytes
as of the newest report of ranks in the log (without one they are left out); other numbers are those of rank 0.
"""

from __future__ import annotations

import json
import logging
import math
import os
import time
from collections.abc import Iterable
from typing import Any

from ...errors import DataError, UsageError, Where
from ...solvers import Solver
from ...solvers.events import Display, Evaluation, Output
from ..flags import check_place
from .gauges import Gauges, Reading
from .watcher import Watcher, append

_log = logging.getLogger(__name__)
_KINDS = ("train", "test")
_OPEN = os.O_RDWR | os.O_APPEND | os.O_CREAT | getattr(os, "O_BINARY", 0)
_TAIL = 1 << 20  # bytes at a file's end in which its last line must begin

Record = dict[str, Any]


def train_record(display: Display, reading: Reading, clock: float) -> Record:
    """Return the object of a display."""
    record: Record = {
        "kind": "train",
        "iteration": display.iteration,
        "time": clock,
        "loss": _finite(display.loss),
        "lr": _finite(display.rate),
        "outputs": by_name(display.outputs),
        "iterations_per_second": display.speed,
        "images_per_second": reading.images_per_second,
        "device_bytes": reading.device_bytes,
    }
    if reading.lms_in is not None:
        record |= {
            "lms_bytes_in": reading.lms_in,
            "lms_bytes_out": reading.lms_out,
            "lms_stall_seconds": reading.lms_stall,
        }
        if reading.lms_waited is not None:
            record["lms_stall_seconds_measured"] = reading.lms_waited
    return record


def test_record(test: Evaluation, clock: float) -> Record:
    """Return the object of a test."""
    return {
        "kind": "test",
        "iteration": test.iteration,
        "time": clock,
        "net": test.net,
        "loss": None if test.loss is None else _finite(test.loss),
        "outputs": by_name(test.outputs),
    }


def by_name(outputs: Iterable[Output]) -> dict[str, float | None | list[float | None]]:
    """Return outputs by blob: the value, or the list of values if there are several."""
    values: dict[str, list[float | None]] = {}
    for output in outputs:
        values.setdefault(output.name, []).append(_finite(output.value))
    return {name: v[0] if len(v) == 1 else v for name, v in values.items()}


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def continued(records: Iterable[Record]) -> list[Record]:
    """Return the records without what a resumed run did again.

    A record replaces those of its kind and net from its iteration on.
    """
    kept: list[Record] = []
    for record in records:
        while kept and kept[-1]["iteration"] > record["iteration"]:
            kept.pop()
        at = len(kept)
        while at and kept[at - 1]["iteration"] == record["iteration"]:
            at -= 1
        kept[at:] = [r for r in kept[at:] if (r["kind"], r.get("net")) != (record["kind"], record.get("net"))]
        kept.append(record)
    return kept


def read(path: str) -> list[Record]:
    """Return the records of a file. A last line without an end (of a killed run) is left out. Raises DataError."""
    try:
        with open(path, "rb") as file:
            lines = file.read().split(b"\n")
    except OSError as error:
        raise DataError(f"cannot be read: {error.strerror}", where=Where(file=path)) from error
    return [_parse(line, Where(file=path, line=k)) for k, line in enumerate(lines[:-1], 1)]


def _parse(line: bytes, where: Where) -> Record:
    try:
        record = json.loads(line)
    except (ValueError, RecursionError):
        record = None
    if (
        isinstance(record, dict)
        and record.get("kind") in _KINDS
        and isinstance(record.get("outputs"), dict)
        and isinstance(record.get("iteration"), int)
    ):
        return record
    raise DataError("this line is no record of -metrics", where=where, fix="give a file that -metrics wrote")


class Metrics(Watcher):
    """Append to `path`, which need not exist; each line by one write.

    Raises:
        UsageError: it cannot be written.
        DataError: it is a file of another kind.
    """

    def __init__(self, path: str):
        check_place(path, "-metrics")
        self._path, self._file = path, -1

    def start(self, solver: Solver) -> None:
        self._gauges = Gauges(solver)
        try:
            self._file = os.open(self._path, _OPEN, 0o666)
            self._check_end()
        except OSError as error:
            raise UsageError(
                f"-metrics {self._path}: {error.strerror}", fix="give a file that can be written"
            ) from error

    def _check_end(self) -> None:
        """Remove a last line that a killed run left incomplete. Raises DataError for a file of another kind."""
        size = os.fstat(self._file).st_size
        begin = max(0, size - _TAIL)
        os.lseek(self._file, begin, os.SEEK_SET)
        *whole, rest = os.read(self._file, size - begin).split(b"\n")
        if whole:
            _parse(whole[-1], Where(file=self._path))
        elif rest and not rest.startswith(b'{"kind": "'[: len(rest)]):
            raise DataError("this is no file of -metrics", where=Where(file=self._path), fix="give another name")
        if rest:
            _log.warning("-metrics %s: its last line is not complete (a run was killed); it is removed", self._path)
            os.ftruncate(self._file, size - len(rest))

    def stop(self) -> None:
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def on_display(self, display: Display) -> None:
        self._append(train_record(display, self._gauges.read(display), time.time()))

    def on_test(self, test: Evaluation) -> None:
        self._append(test_record(test, time.time()))

    def _append(self, record: Record) -> None:
        append(self._file, self._path, json.dumps(record, allow_nan=False).encode() + b"\n")
