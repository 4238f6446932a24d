"""Write the generated parts of README.md: the net, the table of speed, the ten flags.

The net is docs/small_net.prototxt, the figures are rows of docs/speed.md, the flags have the help of the parser of
`train`. With --check, only say whether README.md is current.
"""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tools")]

from gen_cli_docs import section  # noqa: E402
from pages import with_part, write_or_check  # noqa: E402

from pycaffe_lms.cli.catalogue import module_of  # noqa: E402

FILE, SPEED = ROOT / "README.md", ROOT / "docs" / "speed.md"
FLAGS = ("solver", "weights", "resume", "gpu", "backend", "math", "lms", "lms_budget", "lms_recompute", "lms_split")
MODEL, BATCH = "resnet-152", "256"
# (budget in GiB, the mode in docs/speed.md, how that is said here)
ROWS = (
    ("16.0", "torch:memory", "PyTorch 2.11, channels-last, in memory"),
    ("16.0", "memory", "pycaffe-lms, in memory"),
    ("16.0", "auto", "pycaffe-lms, `-lms auto -lms_budget 16GB`"),
    ("8.0", "auto", "pycaffe-lms, `-lms auto -lms_budget 8GB`"),
    ("4.0", "auto", "pycaffe-lms, `-lms auto -lms_budget 4GB`"),
    ("2.0", "auto", "pycaffe-lms, `-lms auto -lms_budget 2GB`"),
    ("16.0", "1000", "pycaffe-lms, `-lms 1000 -lms_budget 16GB` (copies only)"),
    ("16.0", "torch:offload", "PyTorch, activations copied to the host on a second stream"),
    ("16.0", "torch:save_on_cpu", "PyTorch, `save_on_cpu(pin_memory=True)`"),
)


def speed() -> str:
    """Return the table of speed: rows of docs/speed.md. Raises KeyError where one is missing."""
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in SPEED.read_text().splitlines()]
    found = {(r[1], r[3]): r for r in rows if len(r) == 12 and (r[0], r[2]) == (MODEL, BATCH)}
    lines = ["| how it runs | GPU memory | images/s |", "|---|---:|---:|"]
    for budget, who, said in ROWS:
        row = found[budget, who]
        lines.append(f"| {said} | {row[9]} GiB | {row[5]} |")
    return "\n".join(lines)


def flags() -> str:
    """Return the table of ten flags of `train`. Raises KeyError where one is gone."""
    known = {flag.name: flag for flag in section("train", module_of("train").build_parser()).flags}
    lines = ["| flag of `train` | what it does |", "|---|---|"]
    for name in FLAGS:
        said = known.get(name.upper(), known[name]).help  # of a word that may be a flag, the word's
        value, text = known[name].value.replace("|", "\\|"), said.replace("|", "\\|")
        lines.append(f"| `-{name} {value}` | {text} |")
    return "\n".join(lines)


def text() -> str:
    """Return README.md with current parts."""
    net = (ROOT / "docs" / "small_net.prototxt").read_text()
    found = FILE.read_text()
    for name, part in (("net", f"```prototxt\n{net}```"), ("speed", speed()), ("flags", flags())):
        found = with_part(found, name, part)
    return found


def main(argv: list[str] | None = None) -> int:
    """Write README.md, or with --check only say whether it is current; return the exit code."""
    return write_or_check(FILE, text, "Write the generated parts of README.md.", argv)


if __name__ == "__main__":
    sys.exit(main())
