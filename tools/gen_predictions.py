"""Write the table of predictions in docs/speed.md: times of its other tables beside what `plan` predicts today.

python tools/gen_predictions.py              plan every row, which takes two minutes, and write the table
python tools/gen_predictions.py --check      write nothing; exit 1 if it is not current
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tools")]

from gen_plan_pictures import outcome  # noqa: E402
from pages import with_part, write_or_check  # noqa: E402

from pycaffe_lms.layers.data.input import on_host  # noqa: E402

PAGE = ROOT / "docs" / "speed.md"
TOLERANCE = 0.02  # of a time: the search may find a slightly different plan
PICTURES = {"alexnet": "3,227,227"}  # of the others 3,224,224; unet-3d's file has the volume and a batch of 1
IN_MEMORY = (  # those of the table in memory that are not in the one under a budget
    ("resnet-50", 16),
    ("vgg-16", 128),
    ("googlenet", 256),
    ("alexnet", 1024),
)
BUDGETED = (  # net, batch, budgets of -lms auto in GiB, whether -lms 1000 in 16 GiB is there, too
    ("resnet-152", 8, (), False),
    ("resnet-152", 64, (), False),
    ("resnet-152", 128, (), False),
    ("resnet-152", 256, ("16.0", "8.0", "4.0", "3.0", "2.0"), True),
    ("resnet-152", 1024, ("16.0",), False),
    ("resnet-50", 256, ("6.0", "4.0", "3.0", "2.8", "2.56"), False),
    ("resnet-50", 1440, ("16.0",), False),
    ("unet-3d", 1, ("16.0",), True),
)


def measured(text: str) -> dict[tuple[str, str, str], str]:
    """Return {(net, batch, "memory" or mode and budget): ms} of the tables of docs/speed.md."""
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines() if line[:1] == "|"]
    found = {(r[0], r[1], "memory"): r[2] for r in rows if len(r) == 13}
    for r in rows:
        if len(r) == 12:
            found[r[0], r[2], "memory" if r[3] == "memory" else f"{r[3]} {r[1]}"] = r[4]
    return found


def cases() -> Iterator[tuple[str, int, str]]:
    """Yield (net, batch, mode) of every row."""
    for net, batch, budgets, copies in BUDGETED:
        if (net, batch) != ("resnet-152", 1024):
            yield net, batch, "memory"
        for budget in budgets:
            yield net, batch, f"auto {budget}"
        if copies:
            yield net, batch, "1000 16.0"
    for net, batch in IN_MEMORY:
        yield net, batch, "memory"


def predicted_ms(net: str, batch: int, mode: str) -> float:
    """Return what `plan -gpu h200` says that an iteration takes."""
    way, _, budget = mode.partition(" ")
    shapes = () if net == "unet-3d" else (f"data={batch},{PICTURES.get(net, '3,224,224')}",)
    model = f"models/{net}/train_dummy.prototxt"
    with on_host(frozenset({"data"})):  # the images come from there, as in the measured runs
        found = outcome(model, shapes, f"{budget}GB" if budget else None, way if budget else "0")
    assert found.refused is None, found.refused
    return 1e3 * found.seconds


def table(text: str) -> str:
    """Return the rows, for a page with these measurements."""
    known = measured(text)
    lines = ["| net | batch | flags | measured ms | planned ms | ratio |", "|---|---:|---|---:|---:|---:|"]
    for net, batch, mode in cases():
        way, _, budget = mode.partition(" ")
        flags = f"`-lms {way}`, {budget.removesuffix('.0')} GB" if budget else "without LMS"
        ms, plan = known[net, str(batch), mode], predicted_ms(net, batch, mode)
        lines.append(f"| {net} | {batch} | {flags} | {ms} | {plan:.1f} | {plan / float(ms):.2f} |")
    return "\n".join(lines)


def is_current(old: str, new: str) -> bool:
    """Tell whether two pages differ in predicted times by no more than `TOLERANCE`, and in nothing else."""
    pairs = list(zip(old.splitlines(), new.splitlines(), strict=False))
    if len(old.splitlines()) != len(new.splitlines()):
        return False
    for a, b in pairs:
        if a != b:
            one, two = a.split("|"), b.split("|")
            if len(one) != 8 or one[:5] != two[:5] or abs(float(one[5]) / float(two[5]) - 1) > TOLERANCE:
                return False
    return True


def page() -> str:
    """Return docs/speed.md with a current table."""
    old = PAGE.read_text()
    return with_part(old, "predictions", table(old))


def main(argv: list[str] | None = None) -> int:
    """Write docs/speed.md, or with --check only say whether it is current; return the exit code."""
    return write_or_check(PAGE, page, "Write the table of predictions in docs/speed.md.", argv, is_current)


if __name__ == "__main__":
    sys.exit(main())
