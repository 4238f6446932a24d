"""Write a plan as one HTML page: memory over an iteration, the streams, costs of layers, and totals. Pure.

`render` puts `Contents` together: numbers from `layer_costs.py`, charts from `page_charts.py`, style and script from
`page_style.py`. The page is self-contained and its policy forbids loading anything. Names are escaped.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from ...errors import human_bytes
from ..cost.timing import MeasuredRun, PlanTimes
from ..plan.plan import Plan
from . import text as report
from .layer_costs import KINDS, LayerCost, Occupancy, layer_costs, occupancy
from .page_charts import LANES, TICKS, chart_top, marks_of, memory_chart, milliseconds, plain, timeline
from .page_style import CSS, SCRIPT

POINTS = 2000  # most points of the memory chart
_KEY = (
    *(("forward", "forward"), ("backward", "backward"), ("again", "rematerialized"), ("other", "update and others")),
    *(("host", "on the host"), ("in", "copy in"), ("out", "copy out"), ("stall", "waiting for copies")),
)


@dataclass(frozen=True)
class Contents:
    """Hold what a page shows.

    Attributes:
        plan, times: the plan and its predicted times.
        kinds: one of KINDS for every managed buffer.
        fixed: (name, bytes) of resident memory.
        budget: bytes of the device that may be used; None: no limit.
        measured: a recorded run of the same plan.
        facts: (name, value) for the head.
        remark: a sentence below the title.
        totals: lines at the end, after the plan's summary.
    """

    title: str
    plan: Plan
    times: PlanTimes
    kinds: Mapping[int, str]
    fixed: Sequence[tuple[str, int]] = ()
    budget: int | None = None
    measured: MeasuredRun | None = None
    facts: Sequence[tuple[str, str]] = ()
    remark: str = ""
    totals: Sequence[str] = field(default=())


def render(c: Contents) -> str:
    """Return the page as HTML."""
    held = occupancy(c.plan, c.times, c.kinds, POINTS)
    measured = c.measured.times if c.measured else None
    seconds = max(c.times.seconds, measured.seconds if measured else 0.0)
    parts = [
        "<!DOCTYPE html>",
        '<html lang="en"><head><meta charset="utf-8">',
        '<meta http-equiv="Content-Security-Policy" '
        "content=\"default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'\">",
        '<meta name="viewport" content="width=device-width">',
        f"<title>{plain(c.title)}</title><style>{CSS}</style></head><body>",
        f"<h1>{plain(c.title)}</h1><p>{plain(c.remark)}</p>",
        _facts(_plan_facts(c) + list(c.facts)),
        "<h2>Device memory over the iteration, as predicted</h2>",
        _memory_key(c, held),
        '<div class="rowed"><div class="dim">' + human_bytes(chart_top(held, c.fixed, c.budget)) + "</div>",
        memory_chart(held, c.fixed, seconds, c.budget),
        "</div>",
        _axis(seconds),
        "<h2>Streams</h2>",
        _key(_KEY),
        '<p class="dim">Turn the wheel over a chart to zoom, drag to move, click twice to see all.</p>',
        "<h3>predicted</h3>",
        _lanes(c.plan, c.times, seconds, "predicted timeline"),
    ]
    if c.measured is not None and measured is not None:
        parts += [
            f"<h3>{c.measured.how}: {plain(c.measured.iteration)}</h3>",
            _lanes(c.measured.plan, measured, seconds, f"{c.measured.how} timeline"),
        ]
    parts += [
        _axis(seconds),
        "<h2>Layers</h2>",
        '<p class="dim">Copies in count for the layer that waits for them, copies '
        "out for the layer that wrote the value. Click a column to sort.</p>",
        _table(layer_costs(c.plan, c.times, measured), c.measured.how if c.measured else ""),
        "<h2>Totals</h2>",
        "<pre>" + "\n".join(plain(line) for line in (*report.summary(c.plan), *c.totals)) + "</pre>",
        '<div id="tip"></div>',
        f'<script type="application/json" id="data">{_data(c, held, seconds)}</script>',
        f"<script>{SCRIPT}</script></body></html>",
    ]
    return "\n".join(parts) + "\n"


def _plan_facts(c: Contents) -> list[tuple[str, str]]:
    plan, times = c.plan, c.times
    copies = [sum(op.stream == stream and op.begins for op in plan.ops) for stream in (1, 2)]
    found = [
        ("budget", "no limit" if c.budget is None else human_bytes(c.budget)),
        ("rule chosen", plan.rules or "none"),
        ("predicted", f"{milliseconds(times.seconds)}, of it {milliseconds(times.stall)} waiting for copies"),
        ("copied in", f"{human_bytes(plan.bytes_in)} in {copies[0]} copies, link busy {milliseconds(times.busy_in)}"),
        (
            "copied out",
            f"{human_bytes(plan.bytes_out)} in {copies[1]} copies, link busy {milliseconds(times.busy_out)}",
        ),
        ("steps", f"{len(plan.program.steps)}, of them {plan.rematerialized} rematerialized"),
    ]
    if c.measured is not None:
        m = c.measured.times
        found.insert(
            3, (c.measured.how, f"{milliseconds(m.seconds)}, of it {milliseconds(m.stall)} waiting for copies")
        )
    return found


def _facts(facts: Iterable[tuple[str, str]]) -> str:
    return "<dl>" + "".join(f"<div><dt>{plain(k)}</dt><dd>{plain(v)}</dd></div>" for k, v in facts) + "</dl>"


def _key(entries: Iterable[tuple[str, str]]) -> str:
    return '<div class="key">' + "".join(f'<span><i class="{c}"></i>{plain(t)}</span>' for c, t in entries) + "</div>"


def _memory_key(c: Contents, held: Occupancy) -> str:
    entries = [(name, f"{name} {human_bytes(nbytes)}") for name, nbytes in c.fixed if nbytes]
    entries += [
        (kind, f"{kind}, at most {human_bytes(max(held.held[kind]))}") for kind in KINDS if any(held.held[kind])
    ]
    if c.budget is not None:
        entries.append(("stall", f"budget {human_bytes(c.budget)} (broken line)"))
    return _key(entries)


def _axis(seconds: float) -> str:
    return '<div class="axis">' + "".join(f"<span>{milliseconds(seconds * i / 5)}</span>" for i in range(6)) + "</div>"


def _lanes(plan: Plan, times: PlanTimes, seconds: float, label: str) -> str:
    names = "".join(f"<div>{name}</div>" for name in LANES)
    chart = timeline(marks_of(plan, times), seconds, label)
    return f'<div class="rowed"><div class="lane-names">{names}</div>{chart}</div>'


def _table(rows: Sequence[LayerCost], how: str) -> str:
    with_times = any(row.measured is not None for row in rows)
    names = ["layer", "needs at once", "copied in", "copies in", "copied out", "copies out", "remat steps"]
    names += ["stall", "time, predicted"] + ([f"stall, {how}", f"time, {how}"] if with_times else [])
    body = []
    for row in rows:
        cells = [_bytes_cell(row.needs_bytes), _bytes_cell(row.bytes_in), _count_cell(row.copies_in)]
        cells += [_bytes_cell(row.bytes_out), _count_cell(row.copies_out), _count_cell(row.remats)]
        cells += [_time_cell(row.stall), _time_cell(row.predicted)]
        if with_times:
            cells += [_time_cell(row.measured_stall or 0.0), _time_cell(row.measured or 0.0)]
        body.append(f"<tr><td>{plain(row.layer)}</td>{''.join(cells)}</tr>")
    head = "".join(f"<th>{name}</th>" for name in names)
    return f'<div class="table"><table><thead><tr>{head}</tr></thead><tbody>{"".join(body)}</tbody></table></div>'


def _cell(value: float, text: str) -> str:
    return f'<td data-v="{value:.9g}">{text if value else ""}</td>'


def _bytes_cell(nbytes: int) -> str:
    return _cell(nbytes, human_bytes(nbytes))


def _count_cell(n: int) -> str:
    return _cell(n, str(n))


def _time_cell(seconds: float) -> str:
    return _cell(seconds, milliseconds(seconds))


def _data(c: Contents, held: Occupancy, seconds: float) -> str:
    """Return the script's data as JSON: numbers, and names of kinds (none from the user)."""
    values: list[tuple[str, list[int]]] = [(name, [nbytes]) for name, nbytes in c.fixed]
    values += [(kind, list(held.held[kind])) for kind in KINDS]
    at = [float(f"{t:.7g}") for t in held.at]
    return json.dumps({"ticks": TICKS, "seconds": seconds, "at": at, "held": values}).replace("<", "\\u003c")
