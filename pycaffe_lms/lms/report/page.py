"""Write a plan as one HTML page: memory over an iteration, the streams, costs of layers, and totals. Pure.

`render` fills `page.html`, which has the style and the script, with a `section.html` for each plan. Numbers come from
`layer_costs.py`, charts from `page_charts.py`. The page is self-contained, and its policy forbids loading anything.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from string import Template
from typing import Any

from ...errors import human_bytes
from ..cost.timing import MeasuredRun, PlanTimes
from ..plan.plan import Plan
from ..plan.statistics import plan_statistics
from . import page_charts as charts
from .device_time import device_times
from .layer_costs import KINDS, LayerCost, Occupancy, layer_costs, occupancy
from .page_charts import TICKS, duration, plain

POINTS = 2000  # most points of the memory chart
_STREAMS = (
    *(("forward", "forward"), ("backward", "backward"), ("again", "forward, run again"), ("other", "update, others")),
    *(("in", "copy"), ("stall", "waiting for copies")),
)
_NOTHING = ("0", "0 B", "0, 0 B")  # totals that are not shown


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


@cache
def _template(name: str) -> Template:
    return Template(Path(__file__).with_name(name).read_text(encoding="utf-8"))


def render(first: Contents, *others: Contents) -> str:
    """Return the page as HTML. With others, plans of the same net for other budgets, it has a slider, by budget.

    Title, remark and the plan shown at the beginning are those of the first.
    """
    plans = sorted((first, *others), key=lambda c: c.budget or 0)
    return _template("page.html").substitute(
        title=plain(first.title),
        remark=plain(first.remark),
        slider=_slider(plans, plans.index(first)) if others else "",
        plans="".join(map(_section, plans)),
    )


def _slider(plans: Sequence[Contents], value: int) -> str:
    texts = (
        f'<span style="left:{100 * i / (len(plans) - 1):.1f}%">{human_bytes(c.budget or 0)}<br>'
        f"{duration(c.times.seconds)}, {human_bytes(c.plan.bytes_in)} in</span>"
        for i, c in enumerate(plans)
    )
    return (
        f'<div class="slider"><label>budget<input type="range" min="0" max="{len(plans) - 1}" value="{value}"></label>'
        f"<div>{''.join(texts)}</div></div>"
    )


def _section(c: Contents) -> str:
    """Return what the page has about one plan."""
    shown, run = device_times(c.plan, c.times), c.measured
    held = occupancy(c.plan, shown, c.kinds, POINTS)
    seconds = max(shown.seconds, device_times(run.plan, run.times).seconds if run else 0.0)
    top = charts.chart_top(held, c.fixed, c.budget)
    timed = [(c.plan, c.times), *([(run.plan, run.times)] if run else [])]
    looks = {
        "in" if mark.look == "out" else mark.look for plan, times in timed for mark in charts.marks_of(plan, times)
    }
    return _template("section.html").substitute(
        facts=_facts([*_plan_facts(c), *c.facts]),
        memory_key=_memory_key(c, held, top),
        streams_key=_key((look, text) for look, text in _STREAMS if look in looks),
        phases=_phases(c.plan, c.times, seconds),
        bytes="".join(
            f'<span style="top:{100 * (1 - nbytes / top):.2f}%">{text}</span>'
            for nbytes, text in charts.byte_ticks(top)
        ),
        memory=charts.memory_chart(held, c.fixed, seconds, c.budget),
        lanes=_lanes(c.plan, c.times, seconds, "predicted", 0),
        apart=_apart(c.times, shown),
        measured=_measured(run, seconds) if run else "",
        table=_table(layer_costs(c.plan, c.times, run.times if run else None), run.how if run else ""),
        totals=_totals(c.plan),
        data=_data(c.fixed, held, seconds, [charts.layer_spans(plan, times, seconds) for plan, times in timed]),
    )


def _plan_facts(c: Contents) -> list[tuple[str, ...]]:
    """Return (name, value, detail) of the page's head."""
    plan, times, run = c.plan, c.times, c.measured
    runs = [("predicted", times), *([(run.how, run.times)] if run else [])]
    used = human_bytes(sum(nbytes for _, nbytes in c.fixed) + plan.arena_bytes)
    return [
        *((how, duration(t.seconds), f"{duration(t.stall)} of it waiting for copies") for how, t in runs),
        ("budget", "no limit" if c.budget is None else human_bytes(c.budget)),
        ("device memory used", used, f"{human_bytes(plan.arena_bytes)} of it for managed buffers"),
        ("copied in", human_bytes(plan.bytes_in), f"the link is busy for {duration(times.busy_in)}"),
        ("copied out", human_bytes(plan.bytes_out), f"the link is busy for {duration(times.busy_out)}"),
        ("steps", str(len(plan.program.steps)), f"{plan.rematerialized or 'none'} of them run again to save memory"),
    ]


def _facts(facts: Iterable[tuple[str, ...]]) -> str:
    """Return a list of (name, value) or (name, value, detail)."""
    rows = []
    for name, value, *detail in facts:
        small = "".join(f"<small>{plain(text)}</small>" for text in detail)
        rows.append(f"<div><dt>{plain(name)}</dt><dd>{plain(value)}{small}</dd></div>")
    return f"<dl>{''.join(rows)}</dl>"


def _key(entries: Iterable[tuple[str, str]]) -> str:
    return '<div class="key">' + "".join(f'<span><i class="{c}"></i>{plain(t)}</span>' for c, t in entries) + "</div>"


def _memory_key(c: Contents, held: Occupancy, top: int) -> str:
    """Return the key of the memory chart, in the order of its areas from the top down."""
    entries = [(kind, f"{kind}, at most {human_bytes(max(held.held[kind]))}") for kind in KINDS if any(held.held[kind])]
    entries = [(name, f"{name} {human_bytes(nbytes)}") for name, nbytes in c.fixed if nbytes] + entries
    if c.budget is not None:
        entries.append(("line", f"budget {human_bytes(c.budget)}{' (above the chart)' if c.budget > top else ''}"))
    return _key(reversed(entries))


def _phases(plan: Plan, times: PlanTimes, seconds: float) -> str:
    found = []
    for name, start, end in charts.phases(charts.marks_of(plan, times)):
        begin, until = (round(TICKS * t / seconds) if seconds else 0 for t in (start, end))
        place = f"left:{100 * begin / TICKS:.2f}%;width:{100 * (until - begin) / TICKS:.2f}%"
        text = f"{name}, {duration(end - start)}"
        found.append(
            f'<span class="{name}" data-from="{begin}" data-to="{until}" style="{place}" title="{text}">{text}</span>'
        )
    return "".join(found)


def _lanes(plan: Plan, times: PlanTimes, seconds: float, how: str, number: int) -> str:
    """Return the rows of a figure's grid: the streams, the axis of time, the names of layers."""
    marks = charts.marks_of(plan, times)
    lanes = charts.LANES[: 1 + max((m.lane for m in marks), default=0)]
    ticks = "".join(
        f'<span class="{"" if t else "start"}" style="left:{100 * t / seconds if seconds else 0:.2f}%">{text}</span>'
        for t, text in charts.time_ticks(seconds)
    )
    return "\n".join(
        [
            f'<div class="lanes">{"".join(f"<div>{name}</div>" for name in lanes)}</div>',
            charts.timeline(marks, len(lanes), seconds, f"{how} timeline"),
            f'<div>device time</div><div class="axis">{ticks}</div>',
            f'<div>layers</div><div class="names" data-of="{number}"></div>',
        ]
    )


def _apart(times: PlanTimes, shown: PlanTimes) -> str:
    """Return a sentence about the time of the run that is not on the axis; "" for none."""
    host = times.seconds - shown.seconds
    return f"The axis leaves out {duration(host)} in which only the host works." if host > 1e-9 else ""


def _measured(run: MeasuredRun, seconds: float) -> str:
    return "\n".join(
        [
            f"<h3>{run.how}: {plain(run.iteration)}</h3>",
            f'<div class="figure"><div></div><div class="phases">{_phases(run.plan, run.times, seconds)}</div>',
            _lanes(run.plan, run.times, seconds, run.how, 1),
            f'</div><p class="dim">{_apart(run.times, device_times(run.plan, run.times))}</p>',
        ]
    )


def _table(rows: Sequence[LayerCost], how: str) -> str:
    """Return the table of layers. Columns without any number are left out."""
    columns: list[tuple[str, Sequence[float], Callable[[Any], str]]] = [
        ("needs at once", [row.needs_bytes for row in rows], human_bytes),
        ("copied in", [row.bytes_in for row in rows], human_bytes),
        ("copies in", [row.copies_in for row in rows], str),
        ("copied out", [row.bytes_out for row in rows], human_bytes),
        ("copies out", [row.copies_out for row in rows], str),
        ("steps run again", [row.remats for row in rows], str),
        ("waits, predicted", [row.stall for row in rows], duration),
        ("time, predicted", [row.predicted for row in rows], duration),
        (f"waits, {how}", [row.measured_stall or 0.0 for row in rows], duration),
        (f"time, {how}", [row.measured or 0.0 for row in rows], duration),
    ]
    columns = [column for column in columns if any(column[1])]
    body = []
    for i, row in enumerate(rows):
        cells = (f'<td data-v="{v[i]:.9g}">{text(v[i]) if v[i] else ""}</td>' for _, v, text in columns)
        body.append(f"<tr><td>{plain(row.layer)}</td>{''.join(cells)}</tr>")
    head = "".join(f"<th>{name}</th>" for name in ("layer", *(name for name, _, _ in columns)))
    return f'<div class="table"><table><thead><tr>{head}</tr></thead><tbody>{"".join(body)}</tbody></table></div>'


def _totals(plan: Plan) -> str:
    found = plan_statistics(plan)
    size = {key: human_bytes(value) for key, value in found.items() if "bytes" in key}
    counted = {key: f"{n['count']}, {human_bytes(n['bytes'])}" for key, n in found["buffers"].items()}
    carried = human_bytes(sum(map(plan.copied, plan.carried_over)))
    groups: dict[str, list[tuple[str, ...]]] = {
        "Memory": [
            ("device memory", size["arena_bytes"]),
            ("needed at once, at most", size["live_bytes"]),
            ("lost between buffers", f"{found['packing_loss']:.1%}"),
            ("host memory for copies", size["host_bytes"]),
            ("host memory, if not shared", size["host_bytes_unshared"]),
        ],
        "Copies per run": [
            ("in", f"{size['bytes_in']} in {found['copies_in']} copies"),
            ("out", f"{size['bytes_out']} in {found['copies_out']} copies"),
            ("pieces of copies made in pieces", str(found["copies_in_parts"])),
            ("carried over from run to run", carried),
        ],
        "Buffers": [
            ("managed", counted["managed"]),
            ("always on the device", counted["stay"]),
            ("copied", counted["copied"]),
            ("copied in 16 bits (lossy)", counted["lossy"]),
            ("computed again", counted["recomputed"]),
            ("dropped at least once", counted["dropped"]),
        ],
        "Plan": [
            ("program", found["program"]),
            ("steps", f"{found['steps']}, {found['steps_rematerialized']} of them run again"),
            ("predicted", f"{duration(plan.seconds)}, {duration(plan.stall)} of it waiting for copies"),
            ("method", found["rules"] or "none"),
        ],
    }
    return "".join(
        f"<section><h3>{name}</h3>{_facts(row for row in rows if row[1] not in _NOTHING)}</section>"
        for name, rows in groups.items()
    )


def _data(
    fixed: Sequence[tuple[str, int]], held: Occupancy, seconds: float, layers: Sequence[Sequence[tuple[int, int, str]]]
) -> str:
    """Return what the script reads, as JSON that cannot end the element."""
    names = {name: i for i, name in enumerate(dict.fromkeys(name for spans in layers for _, _, name in spans))}
    numbers = {
        "ticks": TICKS,
        "seconds": seconds,
        "at": [float(f"{t:.6g}") for t in held.at],
        "held": [(name, [nbytes]) for name, nbytes in fixed] + [(kind, held.held[kind]) for kind in KINDS],
        "names": list(names),
        "layers": [[(start, end, names[name]) for start, end, name in spans] for spans in layers],
    }
    return json.dumps(numbers, separators=(",", ":")).replace("<", "\\u003c")
