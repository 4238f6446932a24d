"""Write the table of docs/import_onnx.md from docs/import_onnx.json, which tools/bench/import_onnx.py measures.

python tools/gen_import_docs.py            write it
python tools/gen_import_docs.py --check    write nothing; exit 1 if it is not current
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "tools")]

from pages import with_part, write_or_check  # noqa: E402

FILE, RESULTS = ROOT / "docs" / "import_onnx.md", ROOT / "docs" / "import_onnx.json"


def text() -> str:
    """Return the whole page."""
    known = json.loads(RESULTS.read_text())
    versions = ", ".join(f"{name} {version}" for name, version in known["versions"].items())
    lines = [
        f"With {versions}, on a CPU:",
        "",
        "| net | input | older exporter | newer exporter |",
        "|---|---|---:|---:|",
    ]
    for name, found in known["nets"].items():
        shape = " x ".join(map(str, found["shape"]))
        lines.append(f"| {name} | {shape} | {_cell(found['older'])} | {_cell(found['newer'])} |")
    return with_part(FILE.read_text(), "differences", "\n".join(lines))


def _cell(found: float | str) -> str:
    return found if isinstance(found, str) else f"{found:.1e}"


def main(argv: Sequence[str] | None = None) -> int:
    """Write the page, or with --check only say whether it is current; return the exit code."""
    return write_or_check(FILE, text, "Write the table of docs/import_onnx.md.", argv)


if __name__ == "__main__":
    sys.exit(main())
