"""Results of lms.py as a table in Markdown and as a picture. Plain data only."""

from __future__ import annotations

from pathlib import Path

GIB = 1 << 30


def _gib(nbytes) -> str:
    return "-" if nbytes is None else f"{nbytes / GIB:.1f}"


def _budget(nbytes) -> str:
    """With a second digit where it says something: 16.0, 2.56."""
    text = "-" if nbytes is None else f"{nbytes / GIB:.2f}"
    return text[:-1] if text.endswith("0") else text


def markdown(results: list[dict]) -> str:
    """A row per result, in order of net, budget, batch."""
    head = [
        "net",
        "budget GiB",
        "batch",
        "mode",
        "ms",
        "images/s",
        "in GiB",
        "out GiB",
        "again",
        "device GiB",
        "host GiB",
        "predicted ms",
    ]
    lines = [head, ["---"] * len(head)]
    for r in sorted(results, key=lambda r: (r["model"], -(r["budget"] or 0), r["batch"])):
        line = [r["model"], _budget(r["budget"]), str(r["batch"]), r["who"]]
        if "error" in r:
            line += [r["error"]] + ["-"] * (len(head) - 5)
        else:
            predicted = r.get("predicted_s")
            line += [
                f"{1e3 * r['seconds']:.1f}",
                f"{r['batch'] / r['seconds']:.0f}",
                _gib(r.get("bytes_in")),
                _gib(r.get("bytes_out")),
                str(r.get("replayed", "-")),
                _gib(r["device_peak"]),
                _gib(r.get("host")),
                f"{1e3 * predicted:.1f}" if predicted else "-",
            ]
        lines.append(line)
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def read_markdown(text: str) -> list[dict]:
    """The results of the first such table in a text, to the digits that it shows."""
    results, inside = [], False
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.strip().strip("|").split(" | ")]
        if cells[:4] == ["net", "budget GiB", "batch", "mode"]:
            inside = True
        elif inside and len(cells) > 5 and cells[0] != "---":
            budget = None if cells[1] == "-" else round(float(cells[1]) * GIB)
            found = {"model": cells[0], "budget": budget, "batch": int(cells[2]), "who": cells[3]}
            if cells[5] == "-":
                found["error"] = cells[4]
            else:
                found |= {"seconds": float(cells[4]) / 1e3, "device_peak": float(cells[9]) * GIB}
            results.append(found)
        elif inside and results:
            return results
    return results


def plot(results: list[dict], model: str, path: Path) -> None:
    """Of one net, three pictures and their legend: images/s against batch, memory against batch, both within the
    largest budget; images/s against what memory it takes, at the batch that was run in most."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    ran = [r for r in results if "error" not in r and r["model"] == model]
    figure, ((speed, memory), (budgets, legend)) = pyplot.subplots(2, 2, figsize=(9, 7.5))
    main = max((r["budget"] or 0 for r in ran), default=0)
    pairs = {(r["batch"], r["budget"] or 0) for r in ran if r["budget"]}
    batches = [batch for batch, _ in pairs]
    usual = max(batches, key=lambda batch: (batches.count(batch), batch), default=0)
    for i, who in enumerate(dict.fromkeys(r["who"] for r in ran)):
        mine = sorted((r for r in ran if r["who"] == who and (r["budget"] or 0) == main), key=lambda r: r["batch"])
        if mine:
            at = [r["batch"] for r in mine]
            speed.plot(at, [r["batch"] / r["seconds"] for r in mine], "o-", color=f"C{i}", label=who)
            memory.plot(at, [r["device_peak"] / GIB for r in mine], "o-", color=f"C{i}", label=who)
        several = sorted((r for r in ran if r["who"] == who and r["batch"] == usual), key=lambda r: r["device_peak"])
        if several:
            at = [r["device_peak"] / GIB for r in several]
            budgets.plot(at, [r["batch"] / r["seconds"] for r in several], "o-", color=f"C{i}", label=who)
    for axes, title, x, y in (
        (speed, "speed", "batch", "images/s"),
        (memory, f"device memory; line: {main / GIB:g} GiB", "batch", "GiB"),
        (budgets, f"speed at batch {usual}", "device memory, GiB", "images/s"),
    ):
        axes.set_title(title, fontsize=11)
        axes.set_xlabel(x)
        axes.set_ylabel(y)
        axes.grid(alpha=0.3)
    shown = {line.get_label(): line for axes in (speed, budgets) for line in axes.get_legend_handles_labels()[0]}
    legend.axis("off")
    if shown:
        legend.legend(shown.values(), shown.keys(), loc="center", title="mode")
    speed.set_xscale("log", base=2)
    memory.set_xscale("log", base=2)
    memory.axhline(main / GIB, color="black", linewidth=0.8)
    figure.tight_layout()
    figure.savefig(path, dpi=110, metadata={"Date": None} if path.suffix == ".svg" else None)
