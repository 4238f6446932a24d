"""Write the table of rooflines in docs/speed.md: the least time of each measured iteration beside its time.

python tools/gen_roofline.py              count every net's work, which takes ten seconds, and write the table
python tools/gen_roofline.py --check      write nothing; exit 1 if it is not current
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tools"), str(ROOT / "tools" / "bench")]

from common import dummy_net  # noqa: E402
from pages import with_part, write_or_check  # noqa: E402

from pycaffe_lms.cli.views.plan_nets import Nets  # noqa: E402
from pycaffe_lms.formats.prototxt.parser import Lines, Parsed  # noqa: E402
from pycaffe_lms.layers.data.input import on_host  # noqa: E402
from pycaffe_lms.lms.config import LMSConfig  # noqa: E402
from pycaffe_lms.lms.cost.machine import find_machine  # noqa: E402
from pycaffe_lms.net.program.costs import layer_bytes, step_bytes, step_flops  # noqa: E402
from pycaffe_lms.net.program.steps import LayerStep, node_of  # noqa: E402
from pycaffe_lms.solvers.rules import RULES  # noqa: E402

PAGE = ROOT / "docs" / "speed.md"
MEMORY = 4.0e12  # bytes/s, and operations/s of products, that an H200 reaches: see the page
PRODUCTS = {"TF32": 419e12, "bf16": 809e12}


@dataclass(frozen=True)
class Work:
    """Hold the least work of an iteration.

    Attributes:
        nbytes: that its steps read and write, each array once in each step.
        flops: of products.
        ms: the sum over steps of the longer one of both.
    """

    nbytes: int
    flops: int
    ms: float


def work_of(net: str, batch: int, math: str) -> Work:
    """Count the work of a training iteration of models/NET, with the steps that a GPU runs."""
    half = math == "bf16"
    machine = find_machine("h200").with_math("bf16") if half else find_machine("h200")
    with on_host(frozenset({"data"})):  # the images are there already, as in the measured runs
        nets = Nets(
            Parsed(dummy_net(net, batch), Lines(), None),
            (),
            level=0,
            stages=(),
            rule=RULES["SGD"],
            machine=machine,
            lms=LMSConfig(),
            workspace=36 << 20,
            half=half,
        )
        found, tail = nets.without_lms()
        found.plan_only(tail)
    graph, memory = found.run_graph, found.memory
    sizes = {b: m.nbytes for b, m in memory.memories.items()}
    total_bytes, total_flops, seconds = 0, 0, 0.0
    for step in found.program_of(tail).steps:
        if step.step.host:
            continue
        if isinstance(step, LayerStep):
            nbytes, flops = layer_bytes(graph, step, memory.buffers, sizes), step_flops(graph, step)
            rate = PRODUCTS["bf16" if node_of(graph, step).half else "TF32"]
        else:
            nbytes, flops, rate = step_bytes(step.step, memory.buffers, sizes), 0, PRODUCTS["TF32"]
        total_bytes, total_flops = total_bytes + nbytes, total_flops + flops
        seconds += max(nbytes / MEMORY, flops / rate)
    return Work(total_bytes, total_flops, 1e3 * seconds)


def measured(text: str) -> Iterator[tuple[str, int, str, float]]:
    """Yield (net, batch, math, ms) of the rows in memory of docs/speed.md."""
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if line[:1] == "|" and len(cells) == 13 and cells[1].isdigit():
            yield cells[0], int(cells[1]), "TF32", float(cells[2])
        elif line[:1] == "|" and len(cells) == 8 and cells[2] in PRODUCTS:
            yield cells[0], int(cells[1]), cells[2], float(cells[3])


def table(text: str) -> str:
    """Return the rows for a page with these measurements."""
    lines = [
        "| net | batch | math | GB moved | TFLOP | memory ms | products ms | limit ms | measured ms | share |",
        "|---|---:|---|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for net, batch, math, ms in measured(text):
        work = work_of(net, batch, math)
        memory, products = 1e3 * work.nbytes / MEMORY, 1e3 * work.flops / PRODUCTS[math]
        lines.append(
            f"| {net} | {batch} | {math} | {work.nbytes / 1e9:.1f} | {work.flops / 1e12:.2f} | {memory:.1f} | "
            f"{products:.1f} | {work.ms:.1f} | {ms} | {work.ms / ms:.2f} |"
        )
    return "\n".join(lines)


def page() -> str:
    """Return docs/speed.md with a current table."""
    old = PAGE.read_text()
    return with_part(old, "roofline", table(old))


def main(argv: list[str] | None = None) -> int:
    """Write docs/speed.md, or with --check only say whether it is current; return the exit code."""
    return write_or_check(PAGE, page, "Write the table of rooflines in docs/speed.md.", argv)


if __name__ == "__main__":
    sys.exit(main())
