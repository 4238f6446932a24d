"""Results of lms.py as a table in Markdown and as a picture. Plain data only."""

from __future__ import annotations

from pathlib import Path

GIB = 1 << 30


def _gib(nbytes) -> str:
    return "-" if nbytes is None else f"{nbytes / GIB:.1f}"


def markdown(results: list[dict]) -> str:
    """A row per result, in order of net, budget, batch."""
    head = ["net", "budget GiB", "batch", "who", "ms", "images/s", "in GiB", "out GiB", "again", "device GiB",
            "host GiB", "predicted ms"]  # fmt: skip
    lines = [head, ["---"] * len(head)]
    for r in sorted(results, key=lambda r: (r["model"], -(r["budget"] or 0), r["batch"])):
        line = [r["model"], _gib(r["budget"]), str(r["batch"]), r["who"]]
        if "error" in r:
            line += [r["error"]] + ["-"] * (len(head) - 5)
        else:
            predicted = r.get("predicted_s")
            line += [f"{1e3 * r['seconds']:.1f}", f"{r['batch'] / r['seconds']:.0f}", _gib(r.get("bytes_in")),
                     _gib(r.get("bytes_out")), str(r.get("replayed", "-")), _gib(r["device_peak"]),
                     _gib(r.get("host")), f"{1e3 * predicted:.1f}" if predicted else "-"]  # fmt: skip
        lines.append(line)
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def plot(results: list[dict], path: Path) -> None:
    """Three pictures beside each other: images/s against batch, memory against batch, images/s against budget."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    ran = [r for r in results if "error" not in r]
    figure, (speed, memory, budgets) = pyplot.subplots(1, 3, figsize=(15, 4.5))
    main = max((r["budget"] or 0 for r in ran), default=0)
    for who in dict.fromkeys(r["who"] for r in ran):
        mine = sorted((r for r in ran if r["who"] == who and (r["budget"] or 0) == main), key=lambda r: r["batch"])
        if mine:
            batches = [r["batch"] for r in mine]
            speed.plot(batches, [r["batch"] / r["seconds"] for r in mine], "o-", label=who)
            memory.plot(batches, [r["device_peak"] / GIB for r in mine], "o-", label=who)
        widest = max((r["batch"] for r in ran if r["who"] == who), default=0)
        several = sorted((r for r in ran if r["who"] == who and r["batch"] == widest), key=lambda r: r["budget"] or 0)
        if len(several) > 1:
            at = [(r["budget"] or 0) / GIB for r in several]
            budgets.plot(at, [r["batch"] / r["seconds"] for r in several], "o-", label=f"{who}, batch {widest}")
    for axes, x, y in (
        (speed, "batch", "images/s"),
        (memory, "batch", "device GiB"),
        (budgets, "budget GiB", "images/s"),
    ):
        axes.set_xlabel(x)
        axes.set_ylabel(y)
        axes.grid(alpha=0.3)
        if axes.get_legend_handles_labels()[1]:
            axes.legend(fontsize=8)
    speed.set_xscale("log", base=2)
    memory.set_xscale("log", base=2)
    memory.axhline(main / GIB, color="black", linewidth=0.8)
    figure.tight_layout()
    figure.savefig(path, dpi=110)
