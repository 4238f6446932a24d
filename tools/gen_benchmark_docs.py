"""Write the measured examples of docs/benchmark.md from what `benchmark -json` wrote; --check only compares.

To measure them again, on the GPU that the page names:

pycaffe-lms benchmark resnet-152 -batch 8,16,32,64,128,256 -image 224 -lms off,1000,auto -budget 16GB -json FILE
pycaffe-lms benchmark unet-3d -batch 1 -image 192x192x192 -lms off,auto -budget 16GB -json FILE

FILE is docs/benchmarks/MODEL.json, in which `net` and `solver` begin with models/. The rows of
docs/benchmarks/scenarios.json are of tools/bench/scenarios.py, by the commands on the page.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tools"), str(ROOT / "tools" / "bench")]

from pages import with_part, write_or_check  # noqa: E402
from scenario_table import markdown  # noqa: E402

from pycaffe_lms.cli.bench import table  # noqa: E402

FILE, MEASURED = ROOT / "docs" / "benchmark.md", ROOT / "docs" / "benchmarks"


def example(model: str) -> str:
    """Return the output of one run as a block of text."""
    found = json.loads((MEASURED / f"{model}.json").read_text())
    rows = found["results"]
    counts = f"the median of {found['iterations']} iterations after {found['warmup']} to warm up; math {found['math']}"
    lines = [rows[0]["versions"], counts, "", table.head(), *map(table.line, rows)]
    lines += ["", *table.remarks(rows), "", *table.chart(rows)]
    return "\n".join(["```text", *lines, "```"])


def text() -> str:
    """Return the page with current examples. Raises ValueError where a marker is missing."""
    page = FILE.read_text()
    for model in ("resnet-152", "unet-3d"):
        page = with_part(page, model, example(model))
    rows = json.loads((MEASURED / "scenarios.json").read_text())
    for part, backend, ranks in (
        ("cuda", "cuda", (1,)),
        ("several", "cuda", (2, 4)),
        ("plan", "plan", (4,)),
        ("sim", "sim", (4,)),
    ):
        page = with_part(page, f"scenarios {part}", markdown([r for r in rows if r["backend"] == backend], ranks))
    return page


def main(argv: list[str] | None = None) -> int:
    """Write docs/benchmark.md, or with --check only say whether it is current; return the exit code."""
    return write_or_check(FILE, text, "Write the measured examples of docs/benchmark.md.", argv)


if __name__ == "__main__":
    sys.exit(main())
