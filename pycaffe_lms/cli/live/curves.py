"""Draw the learning curves of a run when it ends, for `-plot FILE.png|svg`, and `-plot -`: in a terminal."""

from __future__ import annotations

import importlib
import logging
import math
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from ...errors import MissingDependency, UsageError
from ...formats.atomic import atomic_write
from ...solvers import Solver
from ...solvers.events import Display, Done, Evaluation
from ...viz.text_chart import TERMINAL, text_chart
from ..flags import check_place
from . import metrics
from .gauges import Reading
from .watcher import Watcher

_log = logging.getLogger(__name__)
KINDS = (".png", ".svg")
Points = list[tuple[float, float]]
LOSS, RATE = "loss", "learning rate"
_COLORS = {"train": "#0072b2", "test": "#d55e00", "": "#009e73"}  # of Okabe and Ito (2008)
_MOST_ELEMENTS = 10  # of one output that are drawn


def panels(records: Iterable[metrics.Record]) -> dict[str, dict[str, Points]]:
    """Return curves by panel and label. Values that are null leave a gap (NaN).

    Panels: the displayed loss, every output by name (an output named "loss" is in the first panel), the learning rate.
    """
    found: dict[str, dict[str, Points]] = {LOSS: {"train": []}}
    rates: Points = []
    for record in records:
        iteration, train = record["iteration"], record["kind"] == "train"
        source = "train" if train else f"test {record['net']}" if record["net"] else "test"
        if train:
            _add(found, LOSS, "train", iteration, record["loss"])
            rates.append((iteration, _number(record["lr"])))
        elif record["loss"] is not None:
            _add(found, LOSS, f"{source}, mean", iteration, record["loss"])
        for name, value in record["outputs"].items():
            many = isinstance(value, list)
            for k, v in enumerate(value[:_MOST_ELEMENTS] if many else [value]):
                if not (train and name == LOSS):  # the displayed loss says the same, smoother
                    _add(found, name, f"{source}, {k}" if many else source, iteration, v)
    found[RATE] = {"": rates}
    found = {panel: {label: points for label, points in curves.items() if points} for panel, curves in found.items()}
    return {panel: curves for panel, curves in found.items() if curves}


def _add(found: dict[str, dict[str, Points]], panel: str, label: str, iteration: int, value: float | None) -> None:
    found.setdefault(panel, {}).setdefault(label, []).append((iteration, _number(value)))


def _number(value: float | None) -> float:
    return math.nan if value is None else value


def explained(average_loss: int, test_batches: Iterable[int]) -> str:
    """Return a sentence about what "train" and "test" are in the curves of a solver."""
    train = "loss of the iteration's batch" if average_loss <= 1 else f"mean loss of the last {average_loss} iterations"
    batches = " and ".join(str(n) for n in test_batches)
    return f"train: {train}" + (f"; test: mean of {batches} batches" if batches else "")


class Curves(Watcher):
    """Collect what is displayed and tested, and draw it at the end.

    Args:
        path: the picture; TERMINAL: draw the loss on stderr, in plain characters.
        earlier: a file of -metrics that the run continues, so that the curves begin there; "" for none.

    Raises:
        UsageError: another kind of picture, or it cannot be made.
        MissingDependency: matplotlib is not installed.
    """

    def __init__(self, path: str, earlier: str = ""):
        self._path, self._earlier = path, earlier
        self._records: list[metrics.Record] = []
        if path == TERMINAL:
            return
        if Path(path).suffix.lower() not in KINDS:
            raise UsageError(
                f"-plot {path}: pictures are {' or '.join(KINDS)}", fix=f"for example -plot {path}.png, or -plot -"
            )
        check_place(path, "-plot")
        try:
            self._figure = importlib.import_module("matplotlib.figure")
        except ImportError:
            raise MissingDependency("matplotlib", "-plot", "'pycaffe-lms[plot]'") from None

    def start(self, solver: Solver) -> None:
        self._title = solver.net.name or "training"
        self._caption = explained(solver.param.average_loss, solver.param.test_iter)
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
        shown = panels(metrics.continued(self._records))
        if self._path == TERMINAL:
            print(
                *text_chart(f"{self._title}: loss", shown.get(LOSS, {}).items(), "iteration"), sep="\n", file=sys.stderr
            )
            return
        figure = draw(self._figure.Figure, shown, self._title, self._caption)
        kind = Path(self._path).suffix.lower()[1:]
        atomic_write(self._path, lambda part: figure.savefig(part, format=kind, dpi=120))
        _log.info("Plotted the learning curves to %s", self._path)


def draw(figure_class: Any, shown: dict[str, dict[str, Points]], title: str, caption: str = "") -> Any:
    """Return a matplotlib figure: panels one above the other over the same iterations."""
    figure = figure_class(figsize=(8, 0.9 + 2.2 * len(shown)), layout="constrained")
    figure.suptitle(title, fontsize="x-large")
    all_axes = figure.subplots(len(shown), 1, sharex=True, squeeze=False)[:, 0]
    all_axes[0].set_title(caption, fontsize="medium", color="dimgray")
    for axes, (panel, curves) in zip(all_axes, shown.items(), strict=True):
        for label, points in curves.items():
            style = {"drawstyle": "steps-post"} if not label else {"marker": "." if len(points) < 50 else ""}
            axes.plot(*zip(*points, strict=True), label=label, color=_COLORS.get(label.split(",")[0]), **style)
        axes.set_ylabel(panel)
        axes.grid(alpha=0.3)
        axes.spines[["top", "right"]].set_visible(False)
        if any(curves):
            axes.legend(frameon=False)
        if panel == RATE:  # clear of both edges
            axes.set_ylim(0, 1.15 * max((r for _, r in curves[""] if r > 0), default=1.0))
    figure.align_ylabels()
    all_axes[-1].set_xlabel("iteration")
    return figure
