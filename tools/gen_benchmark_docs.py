"""Write the measured examples of docs/benchmark.md from what `benchmark -json` wrote; --check only compares.

To measure them again, on the GPU that the page names:

pycaffe-lms benchmark resnet-152 -batch 8,16,32,64,128,256 -image 224 -lms off,1000,auto -budget 16GB -json FILE
pycaffe-lms benchmark unet-3d -batch 1 -image 192x192x192 -lms off,auto -budget 16GB -json FILE

FILE is docs/benchmarks/MODEL.json, in which `net` and `solver` begin with models/.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT)]

from pycaffe_lms.cli.bench import table  # noqa: E402

FILE, MEASURED = ROOT / "docs" / "benchmark.md", ROOT / "docs" / "benchmarks"
BEGIN, END = "<!-- measured: tools/gen_benchmark_docs.py -->\n", "<!-- end of measured -->\n"


def example(model: str) -> str:
    """Return the output of one run as a block of text."""
    found = json.loads((MEASURED / f"{model}.json").read_text())
    rows = found["results"]
    counts = f"the median of {found['iterations']} iterations after {found['warmup']} to warm up; math {found['math']}"
    lines = [rows[0]["versions"], counts, "", table.head(), *map(table.line, rows)]
    lines += ["", *table.remarks(rows), "", *table.chart(rows)]
    return "\n".join(["```text", *lines, "```", ""])


def text() -> str:
    """Return the page with current examples. Raises ValueError where a mark is missing."""
    head, begin, rest = FILE.read_text().partition(BEGIN)
    _, end, tail = rest.partition(END)
    if not (begin and end):
        raise ValueError(f"{FILE}: its marks are missing")
    volume = "A volume of 192x192x192 with the 3-D U-Net, likewise:\n"
    return "\n".join([f"{head}{BEGIN}", example("resnet-152"), volume, f"{example('unet-3d')}{END}{tail}"])


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Write the measured examples of docs/benchmark.md.")
    parser.add_argument("--check", action="store_true", help="only say whether it is current")
    check, wanted = parser.parse_args(argv).check, text()
    if FILE.read_text() == wanted:
        return 0
    if not check:
        FILE.write_text(wanted)
    print(f"{'not current' if check else 'written'}: {FILE.name}")
    return int(check)


if __name__ == "__main__":
    sys.exit(main())
