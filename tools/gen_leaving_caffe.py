"""Write the tables of docs/leaving_caffe.md from docs/leaving_caffe.json, which tools/bench/leaving_caffe.py measures.

python tools/gen_leaving_caffe.py            write them
python tools/gen_leaving_caffe.py --check    write nothing; exit 1 if they are not current
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "tools")]

from pages import with_part, write_or_check  # noqa: E402

FILE, RESULTS = ROOT / "docs" / "leaving_caffe.md", ROOT / "docs" / "leaving_caffe.json"


def text() -> str:
    """The whole page."""
    known = json.loads(RESULTS.read_text())
    page = with_part(FILE.read_text(), "models", models(known["models"]))
    return with_part(page, "differences", differences(known))


def models(known: dict[str, Any]) -> str:
    """A row for each model: its input, its command, what its structure needs."""
    lines = ["| model | input | command | to know |", "|---|---|---|---|"]
    for model in known.values():
        made = Path(model["prototxt"]).stem
        files = f"{model['prototxt']} -weights {model['caffemodel']} -o {made}.onnx -check"
        files += "" if any("fixed_batch" in r or "refused" in r for r in model["results"]) else " -dynamic_batch"
        command = f"`pycaffe-lms export_onnx {files}`"
        if model.get("cut"):
            command = f"{command} for each part"
        elif model.get("by_hand"):
            command = "in Python, see above"
        lines.append(f"| {model['name']} | {model['input']} | {command} | {model['needs']} |")
    return "\n".join(lines)


def differences(known: dict[str, Any]) -> str:
    """A row for each net that was measured, and what with."""
    v, lines, of = known["versions"], [], {"real": 0, "random": 0}
    for model in known["models"].values():
        for i, result in enumerate(model["results"]):
            name = f"{model['name']}, part {i + 1}" if len(model["results"]) > 1 else model["name"]
            weights = result.get("weights", "-")
            if "refused" in result:
                lines.append(f"| {name} | {weights} | refused: {_cell(result['refused'])} | - | - |")
                continue
            of[weights] += 1
            numbers = " | ".join(_worst(result.get(key)) for key in ("onnx", "opencv5", "opencv"))
            lines.append(f"| {name} | {weights} | {numbers} |")
    head = [
        f"onnxruntime {v['onnxruntime']} with opset {v['opset']}, OpenCV {v['opencv5']} (`readNetFromONNX`) and OpenCV",
        f"{v['opencv']} (`readNetFromCaffe`), on a CPU.",
        "",
        f"**Only {of['real']} of these nets ran with their real weights, the other {of['random']} with random ones**",
        f"(seed {v['seed']}), because their weights could not be downloaded there. Random weights show that",
        "structure, order and arithmetic agree. A last Softmax, which would hide differences, was left off for them.",
        "",
        "| net | weights | onnxruntime | OpenCV 5, the ONNX model | OpenCV 4, Caffe's files |",
        "|---|---|---:|---:|---:|",
    ]
    return "\n".join(head + lines)


def _worst(found: dict[str, Sequence[Any]] | None) -> str:
    """The largest relative difference of the outputs, or why there is none."""
    if not found:
        return "-"
    words = [absolute for absolute, relative in found.values() if relative is None]
    return _cell(words[0]) if words else f"{max(relative for _, relative in found.values()):.1e}"


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def main(argv: Sequence[str] | None = None) -> int:
    """Write the page, or with --check only say whether it is current; return the exit code."""
    return write_or_check(FILE, text, "Write the tables of docs/leaving_caffe.md.", argv)


if __name__ == "__main__":
    sys.exit(main())
