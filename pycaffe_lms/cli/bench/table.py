"""Show rows of `benchmark`: a table, a chart of plain characters, a picture. Pure, but for the picture's library."""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from ...errors import CaffeError, MissingDependency, UsageError, human_bytes
from ...formats.atomic import atomic_write
from ..flags import check_place
from .measure import Row

_HEAD = ("batch", "-lms", "images/s", "ms", "fastest-slowest", "memory", "copied in", "copied out")
_WIDTHS = (7, 6, 9, 10, 19, 10, 10, 10)
_BAR = 50  # characters of the longest bar
_PICTURES = (".png", ".svg", ".pdf")


def head() -> str:
    """Return the line above the rows."""
    return _line(_HEAD)


def line(row: Row) -> str:
    """Return a case as a line: what was measured, or why nothing was."""
    if "error" in row:
        return f"{_line((str(row['batch']), row['lms']))}  {failure(row)}"
    seconds = [1e3 * s for s in row["seconds"]]
    copied = [human_bytes(row[k]) if row["bytes_in"] or row["bytes_out"] else "-" for k in ("bytes_in", "bytes_out")]
    return _line(
        (
            str(row["batch"]),
            row["lms"],
            _rate(row["images_per_s"]),
            f"{1e3 * row['median_s']:.2f}",
            f"{min(seconds):.2f}-{max(seconds):.2f}",
            human_bytes(row["memory"]),
            *copied,
        )
    )


def _rate(per_second: float) -> str:
    return f"{per_second:.4g}" if per_second < 1000 else f"{per_second:.0f}"


def failure(row: Row) -> str:
    """Say why nothing was measured, and what would be enough memory."""
    if row.get("fits", True):
        return f"failed: {row['error']}"
    if "least" not in row:
        return f"does not fit: {row['error']}"
    return f"does not fit: needs -budget {budget(row['least'])}"


def budget(nbytes: int) -> str:
    """Return a size that -budget takes, at least so large, with two or more digits."""
    for unit, size in (("GB", 1 << 30), ("MB", 1 << 20)):
        if nbytes >= 10 * size:
            tenths = -(-10 * nbytes // size)
            return f"{tenths // 10}.{tenths % 10}{unit}"
    return f"{-(-nbytes // 1024)}KB"


def remarks(rows: Sequence[Row]) -> Iterator[str]:
    """Yield what explains the columns."""
    by = {row["memory_by"] for row in rows if "memory_by" in row}
    if "driver" in by:
        yield "memory: of the GPU, as its driver reports it, with CUDA's own part and that of other processes"
    elif by:
        yield "memory: of the net and the solver, as pycaffe-lms counts it"
    if any("simulated" in row.get("device", "") for row in rows):
        yield "times are those of the simulated device's model clock, as an H200 would take; none is measured"
    if any("least" in row for row in rows):
        yield "needs -budget: about the least with which it would run, by its plan"


def chart(rows: Sequence[Row]) -> Iterator[str]:
    """Yield lines with a bar of images/s per row."""
    most = max((row["images_per_s"] for row in rows if "error" not in row), default=0.0)
    yield "images/s"
    before = None
    for row in rows:
        label = f"batch {row['batch']}" if row["batch"] != before else ""
        before = row["batch"]
        if "error" in row:
            bar = "(does not fit)" if not row.get("fits", True) else "(failed)"
        else:
            bar = f"{'#' * max(1, round(_BAR * row['images_per_s'] / most))} {_rate(row['images_per_s'])}"
        yield f"{label:<12} {row['lms']:>6} |{bar}"


def check_plot(path: str) -> None:
    """Raise what `plot` would, before hours of work: UsageError, MissingDependency; "" is no picture."""
    if not path:
        return
    if Path(path).suffix.lower() not in _PICTURES:
        raise UsageError(f"-plot {path}: pictures are {', '.join(_PICTURES)}", fix=f"for example -plot {path}.png")
    check_place(path, "-plot")
    try:
        importlib.import_module("matplotlib.figure")
    except ImportError:
        otherwise = "leave -plot out: a chart is printed"
        raise MissingDependency("matplotlib", "-plot", "'pycaffe-lms[plot]'", otherwise) from None


def plot(rows: Sequence[Row], title: str, limit: int | None, path: str) -> None:
    """Draw bars of images/s and of memory by batch, a colour for each setting of -lms. limit: of memory, in bytes."""
    figure = importlib.import_module("matplotlib.figure").Figure(figsize=(11, 4.5), layout="constrained")
    panels = figure.subplots(1, 2)
    scale, unit = (
        (1 << 30, "GiB") if max((r.get("memory", 0) for r in rows), default=0) >= 1 << 30 else (1 << 20, "MiB")
    )
    by = {row.get("memory_by") for row in rows} - {None}
    told = "as the driver reports it" if by == {"driver"} else "as pycaffe-lms counts it"
    _bars(panels[0], rows, "images_per_s", 1)
    panels[0].set_title("images/s")
    _bars(panels[1], rows, "memory", scale)
    panels[1].set_title(f"memory, {unit}, {told}")
    if limit is not None:
        panels[1].axhline(limit / scale, color="black", linewidth=0.8, label="-budget")
    handles, labels = panels[1].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=len(labels), frameon=False)
    figure.suptitle(title)
    kind = Path(path).suffix.lower()[1:]
    atomic_write(path, lambda part: figure.savefig(part, format=kind, dpi=120), error=CaffeError)


def _bars(axes: Any, rows: Sequence[Row], key: str, scale: float) -> None:
    batches, settings = list(dict.fromkeys(r["batch"] for r in rows)), list(dict.fromkeys(r["lms"] for r in rows))
    width = 0.8 / len(settings)
    for i, setting in enumerate(settings):
        places, heights = [], []
        for row in (r for r in rows if r["lms"] == setting):
            place = batches.index(row["batch"]) + width * (i - (len(settings) - 1) / 2)
            if "error" in row:
                why = "failed" if row.get("fits", True) else "does not fit"
                axes.text(place, 0, f" {why}", rotation=90, ha="center", va="bottom", fontsize=8, color=f"C{i}")
            else:
                places.append(place)
                heights.append(row[key] / scale)
        axes.bar(places, heights, width=0.92 * width, color=f"C{i}", label=f"-lms {setting}")
    axes.set_xticks(range(len(batches)), [str(batch) for batch in batches])
    axes.set_xlim(-0.5, len(batches) - 0.5)
    axes.set_xlabel("batch")
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:,.10g}")
    axes.grid(axis="y", alpha=0.3)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)


def _line(cells: Sequence[str]) -> str:
    return "  ".join(f"{cell:>{width}}" for cell, width in zip(cells, _WIDTHS, strict=False))
