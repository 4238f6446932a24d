"""Write the pictures and the sizes in docs/architecture.md from the source; with --check, only say if they are current.

Pictures must be exact. Sizes may be off by a tenth, so that not every commit has to renew them.
"""

from __future__ import annotations

import argparse
import re
import statistics
import sys
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from tests import structure  # noqa: E402

FILE = ROOT / "docs" / "architecture.md"
SLACK = 0.1  # share by which a size in the file may differ from what is counted
SIZED = ("pycaffe_lms", "tests", "tools")

# What each box of a picture is for, in a few words.
WORDS = {
    "": {
        "backend": "devices: cpu, cuda, sim",
        "cli": "commands and flags",
        "data": "databases, transforms, batches",
        "formats": "prototxt, weights, snapshots",
        "layers": "layer types: declarations and passes",
        "language": "text, vocabularies, generation",
        "lms": "plans: what is on the device when",
        "memory": "buffers and their states",
        "net": "graph, programs, running them",
        "onnx_export": "nets as ONNX models",
        "caffe_export": "nets as Caffe files for chips",
        "onnx_import": "ONNX models as nets",
        "ops": "kernels, per device",
        "parallel": "several ranks",
        "proto": "the schema, generated",
        "pycaffe": "Net, solvers and mode as users see them",
        "solvers": "training loop, updates, snapshots",
        "viz": "pictures of nets, curves",
    },
    "lms": {
        "config": "settings",
        "cost": "seconds of steps and copies",
        "layout": "packing, paging, in-place reuse",
        "managed": "choice of managed buffers",
        "plan": "the plan, its checks, occupancy",
        "planfile": "plans as text",
        "planner": "from program to plan",
        "program": "steps and accesses",
        "remat": "what can be recomputed, at what cost",
        "report": "plans as pages and tables",
        "request": "what a plan is asked for",
        "rules": "every number of the search",
        "runtime": "obeys plans, counts, records",
    },
    "net": {
        "build": "message to graph",
        "arrangement": "how the graph runs, once per shape",
        "blobs": "what users see",
        "first_values": "fillers",
        "fold_norms": "nets for inference",
        "inspect": "tables and statistics",
        "memory": "buffers, plans, fitting",
        "net": "forward, backward, iterations",
        "passes": "graph to graph",
        "program": "graph to steps",
        "recurrent_state": "states of recurrent layers",
        "run": "runs steps and recordings",
        "tuning": "settings of a net",
        "weights": "parameters from and to files",
    },
}


def arrows(folder: str) -> dict[str, set[str]]:
    """Return what every box of a folder imports of the other boxes, without arrows that others imply.

    Boxes are the packages of a folder and, below the top, its modules. At the top an import of a module stands for what
    that module imports, so that a path through `blob.py` is still an arrow between packages.
    """
    direct: dict[str, set[str]] = {}
    for path in structure.sources(*folder.split(".") if folder else ()):
        if path.name == "__init__.py":
            continue
        for name in structure.imports(path, annotations=False):
            ends = _box(folder, structure.module_name(path)), _box(folder, name.removeprefix(f"{structure.NAME}."))
            if name.startswith(f"{structure.NAME}.") and None not in ends and ends[0] != ends[1]:
                direct.setdefault(ends[0], set()).add(ends[1])
                direct.setdefault(ends[1], set())
    boxes = [box for box in direct if folder or structure.ROOT.joinpath(box).is_dir()]
    reached = {box: _reached(direct, box) for box in direct}
    drawn = {}
    for box in sorted(boxes):
        near = reached[box] & set(boxes)
        drawn[box] = {other for other in near if not any(other in reached[between] for between in near)}
    return drawn


def _box(folder: str, module: str) -> str | None:
    """Return the box of a folder's picture that a module lies in; None for a package's own `__init__` and elsewhere."""
    found = structure.child(folder, module)
    return None if found == "__init__" or module == folder else found


def _reached(direct: dict[str, set[str]], start: str) -> set[str]:
    found: set[str] = set()
    todo = [start]
    while todo:
        new = direct.get(todo.pop(), set()) - found
        found |= new
        todo += new
    return found


def picture(folder: str) -> list[str]:
    """Return the Mermaid block of a folder: an arrow leads from what imports to what is imported."""
    drawn, words = arrows(folder), WORDS[folder]
    if drawn.keys() != words.keys():
        wrong = ", ".join(sorted(drawn.keys() ^ words.keys()))
        raise SystemExit(f"tools/gen_architecture.py: WORDS[{folder!r}] and the folder differ in {wrong}")
    lines = ["```mermaid", "flowchart TD"]
    lines += [f'    {_id(box)}["<b>{box}</b><br/>{words[box]}"]' for box in drawn]
    lines += [f"    {_id(box)} --> {_id(other)}" for box, others in drawn.items() for other in sorted(others)]
    return [*lines, "```"]


def _id(box: str) -> str:
    """Return a node's name: some words, such as "graph", have a meaning in Mermaid."""
    return f"box_{box}"


def sizes() -> list[str]:
    """Return the table of files, lines and folders; generated code is not counted."""
    lines = ["| folder | files | lines | median lines of a file | largest folder |", "|---|---|---|---|---|"]
    for top in SIZED:
        files = [p for p in sorted((ROOT / top).rglob("*.py")) if p.name != "caffe_pb2.py"]
        modules = [p for p in files if p.name != "__init__.py"]
        lengths = [len(p.read_text().splitlines()) for p in modules]
        folder, most = max(Counter(p.parent for p in modules).items(), key=lambda item: item[1])
        largest = f"{folder.relative_to(ROOT).as_posix()} ({most} modules)"
        total = sum(len(p.read_text().splitlines()) for p in files)
        lines.append(f"| {top} | {len(files)} | {total} | {statistics.median_low(lengths)} | {largest} |")
    return lines


def blocks() -> dict[str, list[str]]:
    """Return the generated parts of the file by the name in their markers."""
    return {"packages": picture(""), "lms": picture("lms"), "net": picture("net"), "sizes": sizes()}


def filled(text: str, parts: dict[str, list[str]]) -> str:
    """Return the text with each part between `<!-- NAME: generated -->` and `<!-- NAME: end -->`."""
    for name, lines in parts.items():
        text, count = _between(name).subn("\n".join(["", "", *lines, "", ""]).replace("\\", r"\\"), text)
        if count != 1:
            raise SystemExit(f"docs/architecture.md: there must be one pair of markers of {name!r}, not {count}")
    return text


def _between(name: str) -> re.Pattern[str]:
    return re.compile(rf"(?<=<!-- {name}: generated -->)\n.*?\n(?=<!-- {name}: end -->)", re.DOTALL)


def is_current(text: str) -> bool:
    """Say whether pictures are those of the source and sizes nearly so."""
    parts = blocks()
    counted = parts.pop("sizes")
    if filled(text, parts) != text:
        return False
    found = _between("sizes").search(text)
    rows = found.group().strip("\n").split("\n") if found else []
    return len(rows) == len(counted) and all(map(_close, rows, counted))


def _close(row: str, counted: str) -> bool:
    """Say whether two rows differ at most in numbers, and those by at most a tenth (or by two)."""
    if re.sub(r"\d+", "", row) != re.sub(r"\d+", "", counted):
        return False
    return all(abs(a - b) <= max(2, SLACK * b) for a, b in zip(_numbers(row), _numbers(counted), strict=True))


def _numbers(text: str) -> Iterable[int]:
    return map(int, re.findall(r"\d+", text))


def main(argv=None) -> int:
    parser = argparse.ArgumentParser(description="Write the generated parts of docs/architecture.md.")
    parser.add_argument("--check", action="store_true", help="only say whether they are current")
    check, text = parser.parse_args(argv).check, FILE.read_text()
    if check and is_current(text):
        return 0
    wanted = filled(text, blocks())
    if check or wanted == text:
        if check:
            print(f"not current: {FILE.name}")
        return int(check)
    FILE.write_text(wanted)
    print(f"written: {FILE.name}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
