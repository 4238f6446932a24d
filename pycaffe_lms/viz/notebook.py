"""Shows learning curves in a notebook while a net trains; needs Matplotlib, and IPython's display.

See also: `progress.py`, the progress bar.
"""

from __future__ import annotations

import importlib
import io
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from ..errors import MissingDependency, UsageError

Panels: TypeAlias = "dict[str, dict[str, tuple[Sequence[int], Sequence[float]]]]"
"""{label of a vertical axis: {label of a curve: (iterations, values)}}"""

_PERIOD_S = 1.0  # least time between the end of a drawing and the next one
_MOST_MARKED = 40  # points of a curve, above which they have no markers


def in_notebook() -> bool:
    """Return whether a Jupyter kernel runs this."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    return any(base.__name__ == "ZMQInteractiveShell" for base in type(shell).__mro__)


def figure(panels: Panels, title: str) -> Any:
    """Return a Matplotlib figure: panels one above the other over the same iterations. Raises MissingDependency."""
    shown = _figure_class()(figsize=(8, 0.8 + 2.2 * len(panels)), layout="constrained")
    shown.suptitle(title)
    all_axes = shown.subplots(len(panels), 1, sharex=True, squeeze=False)[:, 0]
    for axes, (label, curves) in zip(all_axes, panels.items(), strict=True):
        for k, (name, (x, y)) in enumerate(curves.items()):
            axes.plot(x, y, label=name, color=f"C{k}", marker="o" if len(x) <= _MOST_MARKED else None, markersize=3.5)
        axes.set_ylabel(label)
        axes.grid(alpha=0.3)
        axes.spines[["top", "right"]].set_visible(False)
        if any(curves):
            axes.legend(frameon=False)
    shown.align_ylabels()
    all_axes[-1].set_xlabel("iteration")
    all_axes[-1].margins(y=0.15)
    if all_axes[-1].dataLim.ymin >= 0:  # a constant learning rate has no range of its own
        all_axes[-1].set_ylim(bottom=0)
    return shown


def png(panels: Panels, title: str) -> bytes:
    """Return the figure as a PNG file. Raises MissingDependency."""
    content = io.BytesIO()
    figure(panels, title).savefig(content, format="png", dpi=100)
    return content.getvalue()


def _figure_class() -> Any:
    try:
        return importlib.import_module("matplotlib.figure").Figure
    except ImportError:
        raise MissingDependency("matplotlib", "drawing curves", "'pycaffe-lms[plot]'") from None


class NotebookCurves:
    """Draw curves below the cell that runs, and draw them anew as they grow, at most once a second.

    Args:
        panels: returns what is to be drawn now.
        title: stands above it.

    Raises:
        UsageError: this is no notebook.
        MissingDependency: Matplotlib is not installed.
    """

    def __init__(self, panels: Callable[[], Panels], title: str):
        if not in_notebook():
            raise UsageError(
                "live curves need a notebook, and no Jupyter kernel runs this",
                fix="leave curves=True out; the history that fit returns draws them: history.figure().savefig(...)",
            )
        _figure_class()
        self._display: Any = importlib.import_module("IPython.display")
        self._panels, self._title = panels, title
        self._handle: Any = None
        self._drawn = -_PERIOD_S

    def show(self, now: bool = False) -> None:
        """Draw the curves, if a second has passed since the last drawing; now: in any case."""
        if not now and time.monotonic() - self._drawn < _PERIOD_S:
            return
        picture = self._display.Image(data=png(self._panels(), self._title))
        if self._handle is None:
            self._handle = self._display.display(picture, display_id=True)
        else:
            self._handle.update(picture)
        self._drawn = time.monotonic()
