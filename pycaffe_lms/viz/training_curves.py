"""Choose curves of training logs (pure), and draw them, which needs Matplotlib.

Source of the chart types: BVLC/caffe, tools/extra/plot_training_log.py.
"""

from __future__ import annotations

import importlib
import io
import math
from collections.abc import Sequence
from dataclasses import dataclass
from types import ModuleType

from ..errors import DataError, MissingDependency
from ..formats.training_log import ITERATION, SECONDS, Point, Row, TrainingLog, columns

ACCURACY, TEST_LOSS, RATE, TRAIN_LOSS = "Test accuracy", "Test loss", "Train learning rate", "Train loss"
ITERS, TIME = "Iters", "Seconds"
CHARTS = tuple((y, x) for y in (ACCURACY, TEST_LOSS, RATE, TRAIN_LOSS) for x in (ITERS, TIME))
"""(vertical axis, horizontal axis) by Caffe's number of the chart."""
FORMATS = ("png", "svg", "pdf")
AXES = {
    **{ITERS: "iteration", TIME: "seconds since the training began", RATE: "learning rate"},
    **{TRAIN_LOSS: "train loss (mean of average_loss iterations)"},
}
_MOST_MARKED = 40  # points of a curve, above which they have no markers
_WIDE = 20.0  # ratio of learning rates above which the axis is logarithmic


@dataclass(frozen=True)
class Curve:
    """Hold a line of a chart."""

    label: str
    x: tuple[float, ...]
    y: tuple[float, ...]


def curves(log: TrainingLog, name: str, chart: int, outputs: Sequence[str] = ()) -> list[Curve]:
    """Return the curves of one log for a chart; of test outputs those named, by default the first that fits.

    For test accuracy that is the first output with "acc" in its name, else the first that counts in no loss; for test
    loss the first that counts in a loss, else with "loss" in its name.
    name: the label. chart: Caffe's number of it.
    Raises: DataError where the log has no such values.
    """
    y, x = CHARTS[chart]
    if y in (RATE, TRAIN_LOSS):
        points = log.rates if y == RATE else log.losses
        if not points:
            raise _nothing(y.lower(), "set `display` in the solver")
        return [_of_points(name, points, x)]
    known = columns(log.test)[3:]
    if not known:
        raise _nothing("test", "set `test_iter` and `test_interval` in the solver")
    for wanted in outputs:
        if wanted not in known:
            raise _nothing(f'test output "{wanted}"', f"it has {', '.join(known)}")
    if outputs:
        return [_of_rows(name if len(outputs) == 1 else f"{name}: {o}", log.test, o, x) for o in outputs]
    if y == ACCURACY:
        best = [o for o in known if "acc" in o.lower()] or [o for o in known if o not in log.weighted]
    else:
        best = [o for o in known if o in log.weighted] or [o for o in known if "loss" in o.lower()]
    if not best:
        raise _nothing(f"output that looks like {y.lower()}", f"name one with -output: {', '.join(known)}")
    return [_of_rows(name, log.test, best[0], x)]


def require_matplotlib() -> ModuleType:
    """Return Matplotlib's module of figures. Raises MissingDependency: to be called before work begins."""
    try:
        return importlib.import_module("matplotlib.figure")
    except ImportError:
        raise MissingDependency("matplotlib", "drawing curves", "'pycaffe-lms[plot]'", "parse_log writes CSV") from None


def draw(lines: Sequence[Curve], chart: int, form: str, title: str = "") -> bytes:
    """Draw the chart as a file of format `form`, one of FORMATS.

    title: stands large above the chart's name. Raises: MissingDependency without Matplotlib.
    """
    y, x = CHARTS[chart]
    figures = require_matplotlib()
    engine = importlib.import_module("matplotlib.layout_engine").ConstrainedLayoutEngine
    figure = figures.Figure(figsize=(8, 5), layout=engine(w_pad=0.15, h_pad=0.1))  # inches
    axes = figure.add_subplot()
    for line in lines:
        marker = "o" if len(line.x) <= _MOST_MARKED else None
        style = "steps-post" if y == RATE else "default"
        axes.plot(line.x, line.y, label=line.label, linewidth=1.5, marker=marker, markersize=3.5, drawstyle=style)
    axes.set(xlabel=AXES[x], ylabel=AXES.get(y, y.lower()), yscale=_scale(lines) if y == RATE else "linear")
    axes.set_title(f"{y} vs. {x}", fontsize="medium" if title else "large", color="dimgray" if title else "black")
    figure.suptitle(title, fontsize="x-large")
    if y == RATE:  # clear of the frame
        axes.margins(y=0.1)
        if axes.get_yscale() == "linear":
            axes.set_ylim(bottom=0)
    axes.grid(alpha=0.3)
    axes.spines[["top", "right"]].set_visible(False)
    if len(lines) > 1:
        axes.legend(loc="lower right" if y == ACCURACY else "upper right", frameon=False)
    else:
        axes.set_title(f"log: {lines[0].label}", loc="right", fontsize="small", color="dimgray")
    content = io.BytesIO()
    figure.savefig(content, format=form, dpi=150, metadata={"Title": f"{y} vs. {x}"})
    return content.getvalue()


def _scale(lines: Sequence[Curve]) -> str:
    """Return the axis for learning rates: "log" where they differ much, else "linear"."""
    values = [v for line in lines for v in line.y if math.isfinite(v)]
    return "log" if values and min(values) > 0 and max(values) > _WIDE * min(values) else "linear"


def _of_points(label: str, points: Sequence[Point], x: str) -> Curve:
    return Curve(label, tuple(p.iteration if x == ITERS else p.seconds for p in points), tuple(p.value for p in points))


def _of_rows(label: str, rows: Sequence[Row], output: str, x: str) -> Curve:
    found = [row for row in rows if output in row]
    column = ITERATION if x == ITERS else SECONDS
    return Curve(label, tuple(row[column] for row in found), tuple(row[output] for row in found))


def _nothing(what: str, fix: str) -> DataError:
    return DataError(f"the log has no {what}", fix=fix)
