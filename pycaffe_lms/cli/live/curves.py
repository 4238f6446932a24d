"""Draw the learning curves of a run when it ends, for `-plot FILE.png|svg`."""

from __future__ import annotations

import importlib
import logging
import math
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from ...errors import MissingDependency, UsageError
from ...formats.atomic import atomic_write
from ...solvers import Solver
from ...solvers.events import Display, Done, Evaluation
from ..flags import check_place
from . import metrics
from .gauges import Reading
from .watcher import Watcher

_log = logging.getLogger(__name__)
KINDS = (".png", ".svg")
Points = list[tuple[int, float]]
RATE = "learning rate"
_MOST_ELEMENTS = 10  # of one output that are drawn


def panels(records: Iterable[metrics.Record]) -> dict[str, dict[str, Points]]:
    """Return curves by panel and label. Values that are null leave a gap (NaN).

    Panels: the mean loss, every output by name (an output named "loss" is in the first panel), the learning rate.
    """
    found: dict[str, dict[str, Points]] = {"loss": {}}
    rates: Points = []
    for record in records:
        iteration, train = record["iteration"], record["kind"] == "train"
        source = "train" if train else f"test {record['net']}" if record["net"] else "test"
        if train:
            _add(found, "loss", "train, mean", iteration, record["loss"])
            rates.append((iteration, _number(record["lr"])))
        elif record["loss"] is not None:
            _add(found, "loss", f"{source}, mean", iteration, record["loss"])
        for name, value in record["outputs"].items():
            many = isinstance(value, list)
            for k, v in enumerate(value[:_MOST_ELEMENTS] if many else [value]):
                if not (train and name == "loss"):  # the mean says the same, smoother
                    _add(found, name, f"{source}, {k}" if many else source, iteration, v)
    found[RATE] = {"": rates}
    return {panel: curves for panel, curves in found.items() if any(curves.values())}


def _add(found: dict[str, dict[str, Points]], panel: str, label: str, iteration: int, value: float | None) -> None:
    found.setdefault(panel, {}).setdefault(label, []).append((iteration, _number(value)))


def _number(value: float | None) -> float:
    return math.nan if value is None else value


class Curves(Watcher):
    """Collect what is displayed and tested, and draw it at the end.

    Args:
        path: the picture.
        earlier: a file of -metrics that the run continues, so that the curves begin there; "" for none.

    Raises:
        UsageError: another kind of picture, or it cannot be made.
        MissingDependency: matplotlib is not installed.
    """

    def __init__(self, path: str, title: str, earlier: str = ""):
        if Path(path).suffix.lower() not in KINDS:
            raise UsageError(f"-plot {path}: pictures are {' or '.join(KINDS)}", fix=f"for example -plot {path}.png")
        check_place(path, "-plot")
        try:
            self._figure = importlib.import_module("matplotlib.figure")
        except ImportError:
            raise MissingDependency("matplotlib", "-plot", "'pycaffe-lms[plot]'") from None
        self._path, self._title, self._earlier = path, title, earlier
        self._records: list[metrics.Record] = []

    def start(self, solver: Solver) -> None:
        if self._earlier and Path(self._earlier).exists():
            self._records = metrics.read(self._earlier)

    def on_display(self, display: Display) -> None:
        self._records.append(metrics.train_record(display, Reading(), time.time()))

    def on_test(self, test: Evaluation) -> None:
        self._records.append(metrics.test_record(test, time.time()))

    def on_done(self, done: Done) -> None:
        if not self._records:
            _log.warning("-plot %s: not written, for nothing was displayed or tested; set display", self._path)
            return
        figure = draw(self._figure.Figure, panels(metrics.continued(self._records)), self._title)
        kind = Path(self._path).suffix.lower()[1:]
        atomic_write(self._path, lambda part: figure.savefig(part, format=kind, dpi=120))
        _log.info("Plotted the learning curves to %s", self._path)


def draw(figure_class: Any, shown: dict[str, dict[str, Points]], title: str) -> Any:
    """Return a matplotlib figure: panels one above the other over the same iterations."""
    figure = figure_class(figsize=(8, 0.8 + 2.2 * len(shown)), layout="constrained")
    figure.suptitle(title)
    all_axes = figure.subplots(len(shown), 1, sharex=True, squeeze=False)[:, 0]
    for axes, (panel, curves) in zip(all_axes, shown.items(), strict=True):
        for label, points in curves.items():
            style = {"drawstyle": "steps-post"} if not label else {"marker": "." if len(points) < 50 else ""}
            color = {"train, mean": "C0", "train": "C0", "test": "C1", "test, mean": "C1"}.get(label)
            axes.plot(*zip(*points, strict=True), label=label, color="C2" if not label else color, **style)
        axes.set_ylabel(panel)
        axes.grid(alpha=0.3)
        if any(curves):
            axes.legend(frameon=False)
        if panel == RATE:
            axes.set_ylim(bottom=0)
    figure.align_ylabels()
    all_axes[-1].set_xlabel("iteration")
    return figure
