"""Formats a net as a table with a row per layer, for `print(net)`, notebooks and logs. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from ...errors import human_bytes
from ...layers.base import count
from ..build.graph import Graph
from ..passes.precision import value_bytes

HEAD = ("layer", "type", "tops", "parameters", "bytes")
_RIGHT = {"parameters", "MFLOP", "bytes"}


@dataclass(frozen=True)
class LayerRow:
    """Describe one layer.

    tops: (name, shape). parameters: count of numbers that it learns or keeps; those owned by another layer
    (shared_with) count there. nbytes: bytes of tops and parameters that have memory of their own, without gradients.
    """

    name: str
    type: str
    tops: tuple[tuple[str, tuple[int, ...]], ...]
    parameters: int
    nbytes: int
    shared_with: str | None = None


def rows(graph: Graph, itemsize: int) -> list[LayerRow]:
    """Return a row for each layer, in order. Memory that several layers use (in place, Split, Flatten) counts once."""
    seen: set[int] = set()
    found = []
    for node in graph.nodes:
        tops = [graph.values[t] for t in node.tops]
        params = [graph.params[p] for p in node.params]
        own = [p for p in params if p.owner == p.index]
        owners = {graph.nodes[graph.params[p.owner].node].name for p in params if p.owner != p.index}
        fresh = {v.data: value_bytes(v, itemsize) for v in tops if v.data not in seen}
        seen |= fresh.keys()
        learned = sum(count(p.shape) for p in own)
        found.append(
            LayerRow(
                node.name,
                node.layer.param.type,
                tuple((v.name, tuple(v.shape)) for v in tops),
                learned,
                sum(fresh.values()) + itemsize * learned,
                ", ".join(sorted(owners)) or None,
            )
        )
    return found


def short(name: str, rows: Sequence[LayerRow]) -> str:
    """Format one line for `repr(net)`."""
    parameters = sum(row.parameters for row in rows)
    return f"<Net {name!r}: {len(rows)} layers, {parameters:,} parameters>"


def text(title: str, rows: Sequence[LayerRow]) -> str:
    """Format the table as aligned text with a total at the end."""
    return aligned(title, HEAD, [_cells(row) for row in rows], _total(rows))


def aligned(title: str, head: Sequence[str], body: Sequence[Sequence[str]], total: Sequence[str]) -> str:
    """Format cells as aligned text below a title, with the total at the end."""
    cells = [head, *body, total]
    widths = [max(len(line[i]) for line in cells) for i in range(len(head))]

    def line(row: Sequence[str]) -> str:
        parts = (c.rjust(w) if h in _RIGHT else c.ljust(w) for h, c, w in zip(head, row, widths, strict=True))
        return "  ".join(parts).rstrip()

    rule = "-" * (sum(widths) + 2 * (len(widths) - 1))
    return "\n".join([title, line(cells[0]), rule, *map(line, cells[1:-1]), rule, line(cells[-1])])


def html(title: str, rows: Sequence[LayerRow]) -> str:
    """Format the table as HTML for notebooks."""
    return as_html(title, HEAD, [_cells(row) for row in rows], _total(rows))


def as_html(title: str, head: Sequence[str], body: Sequence[Sequence[str]], total: Sequence[str]) -> str:
    """Format cells as an HTML table with a title, and the total at the end."""

    def line(cells: Sequence[str], tag: str) -> str:
        parts = (
            f'<{tag} style="text-align:{"right" if name in _RIGHT else "left"}">{escape(cell)}</{tag}>'
            for name, cell in zip(head, cells, strict=True)
        )
        return f"<tr>{''.join(parts)}</tr>"

    rows = "".join(line(cells, "td") for cells in body)
    return (
        f"<table><caption>{escape(title)}</caption><thead>{line(head, 'th')}</thead><tbody>{rows}</tbody>"
        f"<tfoot>{line(total, 'th')}</tfoot></table>"
    )


def _cells(row: LayerRow) -> list[str]:
    tops = ", ".join(f"{name} ({' '.join(map(str, shape))})" for name, shape in row.tops) or "-"
    parameters = f"{row.parameters:,}" if row.parameters else "-"
    if row.shared_with:
        parameters = f"of {row.shared_with}" + (f", {parameters}" if row.parameters else "")
    return [row.name, row.type, tops, parameters, human_bytes(row.nbytes) if row.nbytes else "-"]


def _total(rows: Sequence[LayerRow]) -> list[str]:
    parameters, nbytes = sum(r.parameters for r in rows), sum(r.nbytes for r in rows)
    return ["total", f"{len(rows)} layers", "", f"{parameters:,}", human_bytes(nbytes)]
