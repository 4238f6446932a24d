"""Memory and time of each batch without Large Model Support, with it as it comes, and tuned: two pictures of bars."""

from __future__ import annotations

from pathlib import Path

GIB = 1 << 30
WAYS = {"off": "off", "1000": "-lms 1000", "auto": "-lms auto"}


def bars(results: list[dict], model: str, budget: int) -> tuple[list[int], dict[str, list], dict[str, list]]:
    """(batches, GiB of device memory by way, time relative to that in memory by way): a value per batch, None where
    nothing was measured, "no" where it does not fit."""
    here = {(r["batch"], r["who"]): r for r in results if r["model"] == model and r["budget"] == budget}
    batches = sorted({batch for batch, who in here if who == "memory" and "error" not in here[batch, who]})
    memory: dict[str, list] = {way: [] for way in WAYS}
    time: dict[str, list] = {way: [] for way in WAYS}
    for batch in batches:
        for way in WAYS:
            found = here.get((batch, way))
            if found is None or "error" in found:
                memory[way].append(found and "no")
                time[way].append(found and "no")
                continue
            memory[way].append(found["device_peak"] / GIB)
            time[way].append(found["seconds"] / here[batch, "memory"]["seconds"])
    return batches, memory, time


def scenarios(results: list[dict], model: str, budget: int, path: Path) -> None:
    """The two pictures, beside each other."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    batches, *values = bars(results, model, budget)
    figure, both = pyplot.subplots(1, 2, figsize=(9, 4))
    titles = "device memory, GiB", "time, divided by that with all of the GPU's memory"
    for axes, by_way, title in zip(both, values, titles, strict=True):
        for i, (way, label) in enumerate(WAYS.items()):
            places = [b + 0.27 * (i - 1) for b in range(len(batches))]
            known = [(p, v) for p, v in zip(places, by_way[way], strict=True) if isinstance(v, float)]
            axes.bar([p for p, _ in known], [v for _, v in known], width=0.25, label=label)
            for place, value in zip(places, by_way[way], strict=True):
                if value == "no":
                    axes.text(place, 0, " does not fit", rotation=90, ha="center", va="bottom", fontsize=8)
        axes.set_xticks(range(len(batches)), [str(b) for b in batches])
        axes.set_xlabel("batch")
        axes.set_title(title, fontsize=10)
        axes.grid(axis="y", alpha=0.3)
        axes.set_axisbelow(True)
    both[0].axhline(budget / GIB, color="black", linewidth=0.8)
    both[1].axhline(1, color="black", linewidth=0.8)
    both[0].legend(fontsize=8)
    figure.suptitle(f"{model}, {budget / GIB:g} GiB", fontsize=11)
    figure.tight_layout()
    figure.savefig(path, dpi=110, metadata={"Date": None} if path.suffix == ".svg" else None)
