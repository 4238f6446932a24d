"""Read the log of a training run: tables of train and test outputs, losses and learning rates.

Reads logs of this package and of Caffe, with glog's old prefix and with the newer one that begins with the year.
Source of the behaviour: BVLC/caffe, tools/extra/parse_log.py and extract_seconds.py. Unlike there, NaN and infinite
values count, a table may have a single row, each element of a blob has a column, and so has each test net, and a row's
learning rate is that of its own iteration.
"""

from __future__ import annotations

import calendar
import logging
import os
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime, timezone
from pathlib import Path

from ..errors import DataError, Where
from .rawfile import could_not_open

_log = logging.getLogger(__name__)

ITERATION, SECONDS, RATE = "NumIters", "Seconds", "LearningRate"
# A whole number: in a log with several writers, another line may begin in the middle of one.
_NUMBER = r"([-+]?(?:(?:\d+\.?\d*|\.\d+)(?:e[-+]?\d+)?|nan|inf))(?![^\s,()])"
_STAMP = re.compile(r"\s*[IWEF](\d{4})?(\d\d)(\d\d) +(\d{1,2}):(\d{1,2}):(\d{1,2})\.(\d+)\s")
_AT = re.compile(r"Iteration (\d{1,18})\b")
_TESTING = re.compile(r"Testing net \(#(\d{1,9})\)")
_OUTPUT = re.compile(rf"(Train|Test) net output #(\d+): (\S+) = {_NUMBER}( \(\*)?", re.IGNORECASE)
_LOSS = re.compile(rf"Iteration \d{{1,18}}(?: \(.*?\))?, loss = {_NUMBER}", re.IGNORECASE)
_LR = re.compile(rf"\blr = {_NUMBER}", re.IGNORECASE)
_BEGIN = "Solving"

Row = dict[str, float]
"""Column -> value: NumIters, Seconds (since the line "Solving ..."), LearningRate, then outputs by name."""


@dataclass(frozen=True)
class Point:
    """Hold a displayed value. seconds: since the line "Solving ..."."""

    iteration: int
    seconds: float
    value: float


@dataclass
class TrainingLog:
    """Hold what a log says.

    Attributes:
        train: a row per display. Outputs of a blob with several elements are "name", "name[1]", ...
        test: a row per test; outputs of test nets after the first are "net1/name", ...
        losses: the smoothed training loss.
        rates: learning rates, each at its own iteration. The column LearningRate of a row is the one displayed for
            its iteration, which comes behind the outputs; where there is none, the last one before the row.
        weighted: the outputs that count in a loss.
        net: the name of the net; "" where it has none.
    """

    train: list[Row] = field(default_factory=list)
    test: list[Row] = field(default_factory=list)
    losses: list[Point] = field(default_factory=list)
    rates: list[Point] = field(default_factory=list)
    weighted: set[str] = field(default_factory=set)
    net: str = ""


def read_training_log(path: str | os.PathLike[str]) -> TrainingLog:
    """Read the log in a file. Raises: DataError for a file that cannot be read, or in which no training begins."""
    name = os.fspath(path)
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            log = parse_training_log(file, _year_of(Path(path)))
    except OSError as failure:
        raise could_not_open(path, failure, DataError) from None
    if log is None:
        raise DataError(
            f'no line with the words "{_BEGIN} ..." and a time: this is not the log of a training run',
            where=Where(file=name),
            fix="give what `train` writes to stderr: pycaffe-lms train ... 2>&1 | tee train.log",
        )
    if not (log.train or log.test or log.losses):
        _log.warning("%s: the log has no outputs; set `display` or `test_interval` in the solver", name)
    return log


def parse_training_log(lines: Iterable[str], year: int) -> TrainingLog | None:
    """Parse a log; return None where no training begins. year: of the first line, where lines name none."""
    clock, reader = _LogClock(year), None
    for line in lines:
        if reader is None:
            start = clock.read(line) if _BEGIN in line else None
            if start is not None:
                reader = _Reader(start)
                reader.log.net = line.partition(_BEGIN)[2].strip()
            continue
        reader.take(line, clock)
    return None if reader is None else reader.finish()


class _LogClock:
    """Read the times of lines. The old prefix has no year: a smaller month than before begins the next year."""

    def __init__(self, year: int):
        self.year = year
        self.month = 0

    def read(self, line: str) -> datetime | None:
        stamp = _STAMP.match(line)
        if stamp is None:
            return None
        month, day, hour, minute, second = map(int, stamp.groups()[1:6])
        year = int(stamp[1]) if stamp[1] else self.year + (month < self.month)
        micros = int(stamp[7][:6].ljust(6, "0"))
        try:
            now = datetime(year, month, day, hour, minute, second, micros, tzinfo=timezone.utc)
        except (ValueError, OverflowError):  # no date after all
            return None
        self.year, self.month = now.year, now.month
        return now


class _Reader:
    """Collect rows and points line by line, from the line after `start` on."""

    def __init__(self, start: datetime):
        self.log = TrainingLog()
        self.start = start
        self.iteration = -1  # that the newest lines are about
        self.net = 0
        self.places: list[tuple[Row, int]] = []  # each row, and how many rates were displayed before it
        self.rows: dict[str, Row] = {}  # the open row of "train" and "test"

    def take(self, line: str, clock: _LogClock) -> None:
        at = _AT.search(line)
        if at:
            self.iteration = int(at.group(1))
        if self.iteration < 0:
            return
        now = clock.read(line)
        if now is None:
            return
        seconds = (now - self.start).total_seconds()
        if testing := _TESTING.search(line):
            self.net = int(testing.group(1))
        if loss := _LOSS.search(line):
            self._point(self.log.losses, seconds, loss.group(1))
        if rate := _LR.search(line):
            self._point(self.log.rates, seconds, rate.group(1))
        if output := _OUTPUT.search(line):
            self._output(seconds, *output.groups())

    def _point(self, points: list[Point], seconds: float, text: str) -> None:
        points.append(Point(self.iteration, seconds, float(text)))

    def _output(self, seconds: float, which: str, index: str, name: str, text: str, weight: str | None) -> None:
        which, table = which.lower(), self.log.train if which.lower() == "train" else self.log.test
        prefix = f"net{self.net}/" if which == "test" and self.net else ""
        row = self.rows.get(which)
        if row is None or row[ITERATION] != self.iteration or (index == "0" and not prefix):
            row = self.rows[which] = {ITERATION: float(self.iteration), SECONDS: seconds, RATE: float("nan")}
            table.append(row)
            self.places.append((row, len(self.log.rates)))
        column, k = prefix + name, 0
        while column in row:
            k += 1
            column = f"{prefix}{name}[{k}]"
        row[column] = float(text)
        if weight:
            self.log.weighted.add(column)

    def finish(self) -> TrainingLog:
        rates = self.log.rates
        for row, k in self.places:
            own = k < len(rates) and rates[k].iteration == row[ITERATION]
            if rates:
                row[RATE] = rates[k if own or k == 0 else k - 1].value
        return self.log


def columns(rows: Iterable[Row]) -> list[str]:
    """Return all columns of a table, in the order in which they first appear."""
    return list(dict.fromkeys(name for row in rows for name in row))


def _year_of(path: Path) -> int:
    """Return the year of a file's last change; the leap year before where the log has a February 29th."""
    year = datetime.fromtimestamp(os.stat(path).st_ctime).year
    if not calendar.isleap(year):
        with open(path, encoding="utf-8", errors="replace") as file:
            if any(line[1:6] == "0229 " for line in file):
                year = next(y for y in range(year, 0, -1) if calendar.isleap(y))
    return year
