"""The page of a plan: whole HTML, a mark for everything that runs, names that stay names, and nothing from outside."""

from __future__ import annotations

import dataclasses
import json
import re
from html.parser import HTMLParser

import pytest

from pycaffe_lms.errors import human_bytes
from pycaffe_lms.lms.cost.machine import MACHINES, Costs
from pycaffe_lms.lms.cost.timing import MeasuredRun, time_plan
from pycaffe_lms.lms.planner.lookahead import make_plan
from pycaffe_lms.lms.program import Access, Buffer, Mode, Program, Step
from pycaffe_lms.lms.report import page_charts
from pycaffe_lms.lms.report.layer_costs import KINDS
from pycaffe_lms.lms.report.page import Contents, render

from .test_account import timed_plan

VOID = {"meta", "rect", "polygon", "line"}  # closed where they open, or never
NASTY = "a\"><script>alert('x')</script>&amp;\x00\N{SNOWMAN}"


class Page(HTMLParser):
    """Elements by name, their attributes and their text; every tag must be closed in order."""

    def __init__(self, text: str):
        super().__init__(convert_charrefs=True)
        self.elements: list[tuple[str, dict]] = []
        self.texts: dict[str, list[str]] = {}
        self._open: list[str] = []
        self.feed(text)
        self.close()
        assert self._open == []

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self._open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        assert self._open.pop() == tag

    def handle_data(self, data):
        self.texts.setdefault(self._open[-1] if self._open else "", []).append(data)

    def all(self, tag: str, **attrs) -> list[dict]:
        return [a for t, a in self.elements if t == tag and all(a.get(k) == v for k, v in attrs.items())]


def contents(plan, times, **more) -> Contents:
    kinds = {b: KINDS[b % len(KINDS)] for b in plan.buffers}
    return Contents("a plan", plan, times, kinds, (("resident", 4096), ("workspace", 512)), **more)


@pytest.mark.parametrize("seed", range(6))
def test_a_mark_for_every_operation_and_every_stall(seed):
    plan, times = timed_plan(seed)
    page = Page(render(contents(plan, times, budget=1 << 20)))
    looks = [a["class"] for a in page.all("rect")]
    assert len(looks) - looks.count("stall") == len(plan.ops)
    assert looks.count("in") == sum(op.kind.value == "in" for op in plan.ops)
    assert looks.count("out") == sum(op.kind.value == "out" for op in plan.ops)
    assert looks.count("backward") == sum(s.name.startswith("backward") for s in plan.program.steps)
    device = [s for s in range(len(times.stalls) - 1) if times.stalls[s] > 0]
    assert looks.count("stall") >= len(device) > 0
    widths = sum(int(a["width"]) for a in page.all("rect", **{"class": "stall"}))
    assert widths == pytest.approx(page_charts.TICKS * times.stall / times.seconds, abs=2 * len(looks))
    assert all(a["data-t"] and 0 <= int(a["x"]) <= page_charts.TICKS for a in page.all("rect"))


def test_measured_times_stand_beside_the_predicted():
    plan, times = timed_plan(1)
    later = dataclasses.replace(times, seconds=2 * times.seconds)
    page = Page(render(contents(plan, times, measured=MeasuredRun(plan, "iteration 4", later))))
    assert len(page.all("svg", **{"class": "zooms lanes"})) == 2
    rects = [a for a in page.all("rect") if a["class"] != "stall"]
    assert len(rects) == 2 * len(plan.ops)
    assert "time, measured" in page.texts["th"] and "measured: iteration 4" in page.texts["h3"]
    assert max(int(a["x"]) + int(a["width"]) for a in rects) <= page_charts.TICKS // 2 + 1  # on one scale


def test_memory_is_stacked_up_to_the_peak_below_the_budget():
    plan, times = timed_plan(3)
    c = contents(plan, times, budget=1 << 20)
    page = Page(render(c))
    data = json.loads(next(t for t in page.texts["script"] if t.startswith("{")))
    held = dict(data["held"])
    assert held["resident"] == [4096] and held["workspace"] == [512] and set(held) == {*KINDS, "resident", "workspace"}
    peak = max(sum(column) for column in zip(*(held[k] for k in KINDS), strict=True))
    lowest = {}
    for a in page.all("polygon"):
        points = [tuple(map(int, p.split(","))) for p in a["points"].split()]
        assert points[0][0] == 0 and max(x for x, _ in points) == page_charts.TICKS
        lowest[a["class"]] = min(y for _, y in points)
    top = 1.05 * (1 << 20)
    assert min(lowest.values()) == pytest.approx(page_charts.HEIGHT * (1 - (peak + 4608) / top), abs=1)
    (line,) = page.all("line")
    assert int(line["y1"]) == pytest.approx(page_charts.HEIGHT * (1 - (1 << 20) / top), abs=1)
    assert Page(render(contents(plan, times))).all("line") == []  # no budget, no line
    text = " ".join(page.texts["pre"])
    assert f"{human_bytes(plan.bytes_in)} in, {human_bytes(plan.bytes_out)} out" in text


def test_names_are_escaped_everywhere():
    buffers = {0: Buffer(0, f"{NASTY}.data", 512), 1: Buffer(1, "y.data", 512)}
    steps = (
        Step(f"forward:{NASTY}", (Access(0, Mode.UPDATE), Access(1, Mode.OVERWRITE))),
        Step(f"{NASTY}:backward", (Access(0, Mode.READ), Access(1, Mode.READ))),
    )
    program = Program(NASTY, steps, frozenset({0}))
    plan = dataclasses.replace(make_plan(program, buffers, limit=None, ahead=0), rules=NASTY)
    times = time_plan(plan, Costs([1e-5, 1e-5], {}, MACHINES["h200"]))
    run = MeasuredRun(plan, NASTY, times)
    c = contents(plan, times, measured=run, facts=[(NASTY, NASTY)], remark=NASTY, totals=[NASTY])
    text = render(dataclasses.replace(c, title=NASTY))
    page = Page(text)
    assert len(page.all("script")) == 2 and "<script>alert" not in text and "\x00" not in text
    shown = NASTY.replace("\x00", "\N{REPLACEMENT CHARACTER}")
    assert page.texts["h1"] == page.texts["title"] == [shown]
    assert shown in page.texts["td"] and shown in page.texts["dd"] and shown in page.texts["dt"]
    assert any(shown in a["data-t"] for a in page.all("rect"))
    assert all(set(a) <= {"class", "x", "y", "width", "height", "data-t"} for a in page.all("rect"))


def test_nothing_comes_from_outside():
    plan, times = timed_plan(2)
    text = render(contents(plan, times))
    assert not re.search(r"https?:|//[a-z]|url\(|@import|\ssrc=|\shref=|<link|<img|<iframe", text)
    (policy,) = [a for a in Page(text).all("meta") if a.get("http-equiv") == "Content-Security-Policy"]
    assert "default-src 'none'" in policy["content"]


def _long_plan(n: int):
    """n layers forward and back, of which every value leaves and comes back."""
    buffers = {i: Buffer(i, f"stage{i // 10}/block{i}_convolution.data", 512 * (1 + i % 5)) for i in range(n + 1)}
    steps = [Step("forward:data", (Access(0, Mode.OVERWRITE),))]
    steps += [
        Step(f"forward:stage{i // 10}/block{i}_convolution", (Access(i, Mode.READ), Access(i + 1, Mode.OVERWRITE)))
        for i in range(n)
    ]
    steps += [Step(f"backward:stage{i // 10}/block{i}_convolution", (Access(i, Mode.READ),)) for i in range(n)[::-1]]
    plan = make_plan(Program("long", tuple(steps), frozenset()), buffers, limit=None, ahead=0)
    return plan, time_plan(plan, Costs([1e-4] * len(steps), {}, MACHINES["v100"]))


def test_a_net_of_thousands_of_steps_stays_small():
    plan, times = _long_plan(1200)
    text = render(contents(plan, times, measured=MeasuredRun(plan, "iteration 4", times)))
    assert len(text) < 3 << 20
    page = Page(text)
    assert sum(a["class"] != "stall" for a in page.all("rect")) == 2 * len(plan.ops) > 9_000
    assert len(page.all("tr")) == 1 + 1201


def test_more_marks_than_anybody_can_see_become_fewer():
    plan, times = _long_plan(6000)
    assert len(render(contents(plan, times, measured=MeasuredRun(plan, "iteration 4", times)))) < 5 << 20
    plan, times = _long_plan(300)
    marks = page_charts.marks_of(plan, times)
    few = page_charts.joined(marks, 100)
    assert len(few) <= 100 + 2 * len(page_charts.LANES)
    for lane in range(len(page_charts.LANES)):
        mine = [[m for m in some if m.lane == lane and m.look != "stall"] for some in (marks, few)]
        ends = [(min(m.start for m in one), max(m.end for m in one)) for one in mine]
        assert ends[0] == ends[1]
    assert page_charts.joined(marks, len(marks)) == marks
