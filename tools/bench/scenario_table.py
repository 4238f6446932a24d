"""Rows of scenarios.py as a table in Markdown and as a picture. Plain data only."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

GIB, MIB = 1 << 30, 1 << 20
Row = dict[str, Any]
_HEAD = ("batch", "LMS", "ranks", "math", "images/s", "efficiency", "memory", "in", "out", "bits")
_WAYS = {"memory": "all memory", "off": "off", "1000": "-lms 1000", "tuned": "tuned", "auto": "-lms auto"}
_ALIKE = ("backend", "model", "budget", "math", "batch")  # what rows must share to be compared


def rate(row: Row) -> float:
    """Images per second of all ranks together."""
    return row["ranks"] * row["batch"] / row["seconds"]


def efficiency(row: Row, rows: Sequence[Row]) -> float | None:
    """Images per second of a rank over those of one alone with the same settings; None: not known. On the simulated
    device it is not: there sums over ranks take no time of a network."""
    alone = [r for r in rows if r["who"] == row["who"] and r["ranks"] == 1 and "seconds" in r and _alike(r, row)]
    if row["backend"] == "sim" or row["ranks"] == 1 or not alone or "seconds" not in row:
        return None
    return alone[0]["seconds"] / row["seconds"]


def bits(row: Row, rows: Sequence[Row]) -> str:
    """Whether all ranks have the same parameters, and the same as the first row of as many ranks and iterations."""
    if "digests" not in row:
        return "-"
    if len(set(row["digests"])) > 1:
        return "ranks differ"
    same = ("ranks", "iterations")
    rows = [r for r in rows if r.get("apart", False) == row.get("apart", False)]  # apart there are no sums
    first = next(r for r in rows if "digests" in r and _alike(r, row) and all(r[k] == row[k] for k in same))
    return "equal" if first["digests"] == row["digests"] else f"not those of {_WAYS.get(first['who'], first['who'])}"


def _alike(a: Row, b: Row) -> bool:
    return all(a[k] == b[k] for k in _ALIKE)


def ordered(rows: Sequence[Row]) -> list[Row]:
    """Rows by machine, math, batch, variation and number of ranks."""
    ways = list(_WAYS)
    place = {who: i for i, who in enumerate([*ways, *sorted({r["who"] for r in rows} - set(ways))])}
    key = ("backend", "model", "budget", "math", "batch")
    return sorted(rows, key=lambda r: (*(r[k] for k in key), place[r["who"]], r["ranks"], *_kind(r)))


def _kind(row: Row) -> tuple[bool, bool]:
    """Order rows of one number of ranks: apart, with sums, recorded with sums."""
    return bool(row.get("capture")), not row.get("apart")


def markdown(rows: Sequence[Row], ranks: Collection[int] = ()) -> str:
    """A row per result. Memory and bytes copied in an iteration have their units; errors are their first line, of
    a traceback the last.

    ranks: show results of these numbers of ranks alone, and of errors only which kind they are; none: all."""
    lines = [_HEAD, ("---:", "---", *["---:"] * 7, "---")]
    rows = ordered(rows)
    for r in (r for r in rows if not ranks or r["ranks"] in ranks):
        who = _WAYS.get(r["who"], f"-lms {r['who']}") + (f": -lms {r['kb']}" if "kb" in r else "")
        count = str(r["ranks"]) + " over sockets" * r.get("network", False) + ", recorded" * r.get("capture", False)
        count += ", apart" * r.get("apart", False)
        line = [str(r["batch"]), who, count, "fp32" if r["backend"] == "sim" else r["math"]]
        if "error" in r:
            said = r["error"].splitlines()
            told = said[-1 if said[0].endswith("(most recent call last):") else 0].replace("|", "/")
            line += [_failure(r) if ranks else f"{_failure(r)}: {told}", *["-"] * 5]
        else:
            share = efficiency(r, rows)
            line += [_rate(rate(r)), "-" if share is None else f"{share:.3f}", _size(r["memory"])]
            line += [_size(r["bytes_in"]), _size(r["bytes_out"]), bits(r, rows)]
        lines.append(tuple(line))
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def _failure(row: Row) -> str:
    return "failed" if row.get("fits", True) else "does not fit"


def _rate(images_per_s: float) -> str:
    return f"{images_per_s:.0f}" if images_per_s >= 1000 else f"{images_per_s:.4g}"


def _size(nbytes: float) -> str:
    return "-" if not nbytes else f"{nbytes / GIB:.1f} GiB" if nbytes >= GIB else f"{nbytes / MIB:.1f} MiB"


def figure(rows: Sequence[Row], path: Path) -> None:
    """Of the most ranks: images/s of each rank, efficiency over one, memory; bars by batch and variation. Where some
    rows are of recorded iterations, those are shown."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    rows = [r for r in rows if not r.get("apart")]
    most = max(r["ranks"] for r in rows)
    shown = [r for r in ordered(rows) if r["ranks"] == most and r["math"] == rows[0]["math"]]
    recorded = {(r["batch"], r["who"]) for r in shown if r.get("capture")}
    shown = [r for r in shown if r.get("capture") or (r["batch"], r["who"]) not in recorded]
    batches, ways = sorted({r["batch"] for r in shown}), list(dict.fromkeys(r["who"] for r in shown))
    unit, name = (GIB, "GiB") if max(r.get("memory", 0) for r in shown) >= GIB else (MIB, "MiB")
    panels = {
        "images/s of each rank": lambda r: rate(r) / most,
        f"memory of each rank, {name}": lambda r: r["memory"] / unit,
        "efficiency, compared to one rank": lambda r: efficiency(r, rows),
    }
    if all(efficiency(r, rows) is None for r in shown):
        del panels["efficiency, compared to one rank"]
    picture, all_axes = pyplot.subplots(len(panels), 1, figsize=(9, 3.3 * len(panels)))
    width = 0.85 / len(ways)
    for axes, (title, value) in zip(all_axes, panels.items(), strict=True):
        for i, way in enumerate(ways):
            for r in (r for r in shown if r["who"] == way):
                place = batches.index(r["batch"]) + width * (i - (len(ways) - 1) / 2)
                if "error" in r:
                    axes.text(
                        place, 0, f" {_failure(r)}", rotation=90, ha="center", va="bottom", fontsize=7, color=f"C{i}"
                    )
                elif (height := value(r)) is not None:
                    axes.bar(place, height, width=0.92 * width, color=f"C{i}")
            axes.bar(0, 0, color=f"C{i}", label=_WAYS.get(way, f"-lms {way}"))
        axes.set_xticks(range(len(batches)), [f"{b}\n{chr(65 + j)}" for j, b in enumerate(batches)])
        axes.set_title(title, fontsize=11)
        axes.grid(axis="y", alpha=0.3)
        axes.set_axisbelow(True)
    all_axes[-1].set_xlabel("batch of each rank")
    all_axes[1].axhline(shown[0]["budget"] / unit, color="black", linewidth=0.8)
    all_axes[0].legend(fontsize=9)
    said = {"plan": "predicted for H200s", "sim": "simulated devices", "cuda": shown[0].get("device", "GPUs")}
    first = shown[0]
    picture.suptitle(
        f"{first['model']}, {most} rank{'s' * (most > 1)}, {_size(first['budget'])}, {said[first['backend']]}",
        fontsize=11,
    )
    picture.tight_layout()
    picture.savefig(path, dpi=110, metadata={"Date": None} if path.suffix == ".svg" else None)
