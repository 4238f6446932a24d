"""Write the table of `pycaffe-lms summarize` as text, Markdown and JSON. Pure: summaries to text."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from ...errors import human_bytes
from ...net.inspect.summary import LayerSummary, totals

Cells = Sequence[Sequence[str]]
HEAD = ("layer", "type", "settings", "bottoms", "tops", "parameters", "MFLOP", "memory")
WIRING_HEAD = ("layer", "type", "settings", "bottoms", "tops", "param")
_RIGHT = {"parameters", "MFLOP", "memory"}
_NONE = "-"


def rows(layers: Sequence[LayerSummary]) -> list[list[str]]:
    """Return cells under `HEAD`, the totals last."""
    parameters, flops, nbytes = totals(layers)
    return [_cells(x) for x in layers] + [
        ["total", f"{len(layers)} layers", "", "", "", f"{parameters:,}", _mega(flops), human_bytes(nbytes)]
    ]


def text(head: Sequence[str], lines: Cells, most: int) -> str:
    """Return columns of text. most: characters of a cell; a longer one keeps its beginning."""
    lines = [[c if len(c) <= most else c[: most - 2] + ".." for c in line] for line in [head, *lines]]
    widths = [max(len(line[i]) for line in lines) for i in range(len(head))]
    shown = [
        "  ".join(
            c.rjust(w) if h in _RIGHT else c.ljust(w) for h, c, w in zip(head, line, widths, strict=True)
        ).rstrip()
        for line in lines
    ]
    return "\n".join([shown[0], "-" * max(map(len, shown)), *shown[1:]])


def markdown(head: Sequence[str], lines: Cells) -> str:
    """Return a table in GitHub's Markdown."""
    rule = ["---:" if h in _RIGHT else "---" for h in head]
    escaped = [[c.replace("\\", "\\\\").replace("|", "\\|") for c in line] for line in lines]
    return "\n".join("| " + " | ".join(line) + " |" for line in [head, rule, *escaped])


def as_json(title: dict[str, object], layers: Sequence[LayerSummary], more: dict[str, int]) -> str:
    """Return one object: what `title` says, "layers", "total". Shapes are lists of numbers, sizes are bytes."""
    parameters, flops, nbytes = totals(layers)
    total = {"parameters": parameters, "flops": flops, "nbytes": nbytes, **more}
    return json.dumps({**title, "layers": [_named(asdict(x)) for x in layers], "total": total}, indent=2)


def _named(layer: dict[str, Any]) -> dict[str, Any]:
    for which in ("bottoms", "tops"):
        layer[which] = [{"blob": name, "shape": shape} for name, shape in layer[which]]
    return layer


def _cells(x: LayerSummary) -> list[str]:
    owners = ", ".join(sorted({p.owner for p in x.params if p.owner}))
    parameters = f"{x.parameters:,}" if x.parameters else _NONE
    if owners:
        parameters = f"of {owners}" + (f", {parameters}" if x.parameters else "")
    return [
        x.name,
        x.type,
        x.settings or _NONE,
        ", ".join(name for name, _ in x.bottoms) or _NONE,
        ", ".join(f"{name} ({' '.join(map(str, shape))})" for name, shape in x.tops) or _NONE,
        parameters,
        _mega(x.flops),
        human_bytes(x.nbytes) if x.nbytes else _NONE,
    ]


def _mega(flops: int) -> str:
    return f"{flops / 1e6:,.3f}" if flops else _NONE
