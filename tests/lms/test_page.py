"""The page of a plan: whole HTML, a mark for everything that runs, names that stay names, and nothing from outside."""

from __future__ import annotations

import dataclasses
import itertools
import json
import math
import random
import re
from html.parser import HTMLParser

import pytest

from pycaffe_lms.errors import human_bytes
from pycaffe_lms.lms.cost.machine import MACHINES, Costs
from pycaffe_lms.lms.cost.timing import MeasuredRun, time_plan
from pycaffe_lms.lms.plan.plan import OpKind
from pycaffe_lms.lms.planner.lookahead import make_plan
from pycaffe_lms.lms.program import Access, Buffer, Mode, Program, Step, layer_of
from pycaffe_lms.lms.report import page_charts
from pycaffe_lms.lms.report.device_time import device_times
from pycaffe_lms.lms.report.layer_costs import KINDS
from pycaffe_lms.lms.report.page import Contents, render

from .test_account import timed_plan

VOID = {"meta", "rect", "polygon", "line", "input", "br"}  # closed where they open, or never
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
    assert [a["aria-label"] for a in page.all("svg")[1:]] == ["predicted timeline", "measured timeline"]
    rects = [a for a in page.all("rect") if a["class"] != "stall"]
    assert len(rects) == 2 * len(plan.ops)
    assert "time, measured" in page.texts["th"] and "measured: iteration 4" in page.texts["h3"]
    assert max(int(a["x"]) + int(a["width"]) for a in rects) <= page_charts.TICKS // 2 + 1  # on one scale


def test_memory_is_stacked_up_to_the_peak_below_the_budget():
    plan, times = timed_plan(3)
    budget = 40 << 10
    c = contents(plan, times, budget=budget)
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
    top = 1.05 * budget
    assert min(lowest.values()) == pytest.approx(page_charts.HEIGHT * (1 - (peak + 4608) / top), abs=1)
    (line,) = page.all("line")
    assert int(line["y1"]) == pytest.approx(page_charts.HEIGHT * (1 - budget / top), abs=1)
    assert Page(render(contents(plan, times))).all("line") == []  # no budget, no line
    copies = sum(op.kind is OpKind.OUT for op in plan.ops)
    assert f"{human_bytes(plan.bytes_out)} in {copies} copies" in page.texts["dd"]


def test_a_budget_far_above_what_is_used_does_not_flatten_the_chart():
    plan, times = timed_plan(3)
    page = Page(render(contents(plan, times, budget=1 << 30)))
    assert page.all("line") == [] and "budget 1.0 GiB (above the chart)" in page.texts["span"]
    highest = min(int(p.split(",")[1]) for a in page.all("polygon") for p in a["points"].split())
    assert highest == pytest.approx(page_charts.HEIGHT * (1 - 1 / 1.05), abs=1)


def test_axes_have_round_numbers_with_units():
    assert page_charts.time_ticks(0.0199)[:3] == [(0, "0 ms"), (0.002, "2 ms"), (0.004, "4 ms")]
    assert page_charts.time_ticks(265e-6)[-1] == (pytest.approx(250e-6), "250 µs")
    assert page_charts.time_ticks(3.0)[-1] == (3.0, "3 s") and page_charts.time_ticks(0) == [(0, "0")]
    assert page_charts.byte_ticks(2254857830)[1:3] == [(1 << 29, "0.5 GiB"), (1 << 30, "1 GiB")]
    assert page_charts.byte_ticks(900 << 10)[1] == (200 << 10, "200 KiB")
    for seconds in (1e-7, 3.3e-5, 0.7, 12.0, 4000.0):
        ticks = page_charts.time_ticks(seconds)
        assert 4 <= len(ticks) <= 13 and 0.7 * seconds < ticks[-1][0] < 1.001 * seconds
    for top in (5, 1023, 1 << 10, 5 << 20, 999 << 30, 3 << 40):
        ticks = page_charts.byte_ticks(top)
        assert 2 <= len(ticks) <= 6 and top / 2 < ticks[-1][0] <= top
    texts = [page_charts.duration(t) for t in (0, 8.59e-6, 0.9996e-3, 0.0199, 0.99951, 12.34, 1234.5)]
    assert texts == ["0", "8.59 µs", "1 ms", "19.9 ms", "1 s", "12.3 s", "1234 s"]
    plan, times = timed_plan(3)
    page = Page(render(contents(plan, times)))
    labels = [text for _, text in page_charts.time_ticks(device_times(plan, times).seconds)]
    assert [t for t in page.texts["span"] if t in labels] == labels


def test_forward_and_backward_are_marked():
    plan, times = timed_plan(1)
    page = Page(render(contents(plan, times)))
    names = [s.name.partition(":")[0] for s in plan.program.steps]
    first = next(op for op in plan.ops if op.place is None and names[op.step] == "backward")
    begin = round(page_charts.TICKS * device_times(plan, times).start[first.id] / device_times(plan, times).seconds)
    found = {a["class"]: (int(a["data-from"]), int(a["data-to"])) for a in page.all("span") if "data-from" in a}
    assert found["forward"] == (0, begin) and found["backward"][0] == begin
    assert found["backward"][1] <= page_charts.TICKS


def test_layers_are_named_in_the_order_in_which_they_run():
    plan, times = timed_plan(1)
    data = json.loads(next(t for t in Page(render(contents(plan, times))).texts["script"] if t.startswith("{")))
    (spans,) = data["layers"]
    assert [start for start, _, _ in spans] == sorted(start for start, _, _ in spans)
    want = [layer_of(s.name) for s in plan.program.steps if not s.host]
    want = [name for name, before in zip(want, [None, *want], strict=False) if name != before]
    assert [data["names"][number] for _, _, number in spans] == want


def test_work_of_the_host_is_not_on_the_axis():
    """A step of 10 ms on the host, then two of 1 ms on the device: the axis has 2 ms and says so."""
    buffers = {0: Buffer(0, "x.data", 512), 1: Buffer(1, "y.data", 512)}
    steps = (
        Step("forward:read", (), host=True),
        Step("forward:a+b+c", (Access(0, Mode.OVERWRITE),)),
        Step("backward:a+b+c", (Access(0, Mode.READ), Access(1, Mode.OVERWRITE))),
    )
    plan = make_plan(Program("p", steps, frozenset()), buffers, limit=None, ahead=0)
    times = time_plan(plan, Costs([1e-2, 1e-3, 1e-3], {}, MACHINES["h200"]))
    shown = device_times(plan, times)
    assert times.seconds == pytest.approx(0.012) and shown.seconds == pytest.approx(0.002)
    assert [s for op in plan.ops if op.place is None for s in (shown.start[op.id],)] == pytest.approx([0, 0, 0.001])
    page = Page(render(contents(plan, times)))
    assert any("leaves out 10 ms in which only the host works" in text for text in page.texts["p"])
    (host,) = page.all("rect", **{"class": "host"})
    assert host["data-t"].startswith("forward:read (on the host): 10 ms")
    assert [int(a["width"]) for a in page.all("rect") if a["class"] != "host"] == [50_000, 50_000]
    data = json.loads(next(t for t in page.texts["script"] if t.startswith("{")))
    assert data["names"] == ["a +2"] and data["layers"] == [[[0, 100_000, 0]]]


def test_host_work_beside_a_copy_stays_on_the_axis():
    """Host 0..4 and 6..9 ms; a copy 1..2, steps 3..7: the clock stands still at 0..1, 2..3 and 7..9."""
    plan, times = timed_plan(0)
    kinds = {op.id: op.kind for op in plan.ops}
    spans = {OpKind.HOST: [(0, 4), (6, 9)], OpKind.COMPUTE: [(3, 5), (5, 7)], OpKind.IN: [(1, 2)]}
    wanted = [(kind, a, b) for kind, some in spans.items() for a, b in some]
    ops = [next(i for i in kinds if kinds[i] is OpKind.COMPUTE)] * len(wanted)
    ops = [dataclasses.replace(plan.ops[ops[k]], id=k, kind=kind) for k, (kind, _, _) in enumerate(wanted)]
    plan = dataclasses.replace(plan, ops=tuple(ops))
    times = dataclasses.replace(
        times, start=tuple(float(a) for _, a, _ in wanted), end=tuple(float(b) for _, _, b in wanted), seconds=10.0
    )
    shown = device_times(plan, times)
    clock = {0: 0, 1: 0, 2: 1, 3: 1, 4: 2, 5: 3, 6: 4, 7: 5, 9: 5, 10: 6}
    assert shown.start == tuple(clock[a] for _, a, _ in wanted)
    assert shown.end == tuple(clock[b] for _, _, b in wanted) and shown.seconds == clock[10]


@pytest.mark.parametrize("seed", range(30))
def test_the_clock_of_the_device_second_by_second(seed):
    """A second passes unless the host works in it and nothing else does."""
    chance = random.Random(seed)
    plan, times = timed_plan(0)
    step = next(op for op in plan.ops if op.kind is OpKind.COMPUTE)
    cuts = sorted(chance.sample(range(41), 10))
    spans = [(OpKind.HOST, a, b) for a, b in zip(cuts[::2], cuts[1::2], strict=True)]
    spans += [(OpKind.COMPUTE, a, a + chance.randrange(9)) for a in chance.choices(range(32), k=chance.randrange(6))]
    plan = dataclasses.replace(
        plan, ops=tuple(dataclasses.replace(step, id=k, kind=kind) for k, (kind, _, _) in enumerate(spans))
    )
    start, end = (tuple(float(span[i]) for span in spans) for i in (1, 2))
    shown = device_times(plan, dataclasses.replace(times, start=start, end=end, seconds=41.0))
    clock = [0]
    for second in range(41):
        at_work = {kind for kind, a, b in spans if a <= second < b}
        clock.append(clock[-1] + (at_work != {OpKind.HOST}))
    assert shown.start == tuple(clock[a] for _, a, _ in spans) and shown.end == tuple(clock[b] for _, _, b in spans)
    assert shown.seconds == clock[41]


# Colours as people see them who lack one kind of cones: matrices of Machado, Oliveira and Fernandes (2009), linear RGB.
SIGHT = {
    "all": ((1, 0, 0), (0, 1, 0), (0, 0, 1)),
    "protanopia": (
        (0.152286, 1.052583, -0.204868),
        (0.114503, 0.786281, 0.099216),
        (-0.003882, -0.048116, 1.051998),
    ),
    "deuteranopia": (
        (0.367322, 0.860646, -0.227968),
        (0.280085, 0.672501, 0.047413),
        (-0.01182, 0.04294, 0.968881),
    ),
    "tritanopia": (
        (1.255528, -0.076749, -0.178779),
        (-0.078411, 0.930809, 0.147602),
        (0.004733, 0.691367, 0.3039),
    ),
}


def _linear(color: str) -> list[float]:
    parts = [int(color[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    return [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]


def _lab(rgb: list[float]) -> tuple[float, float, float]:
    """CIE 1976 L*a*b*, white D65."""
    to_xyz = ((0.412456, 0.357576, 0.180438), (0.212673, 0.715152, 0.072175), (0.019334, 0.119192, 0.950304))
    xyz = [sum(m * c for m, c in zip(row, rgb, strict=True)) for row in to_xyz]
    f = [
        (v / w) ** (1 / 3) if v / w > 0.008856 else 7.787 * v / w + 16 / 116
        for v, w in zip(xyz, (0.95047, 1, 1.08883), strict=True)
    ]
    return 116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])


@pytest.mark.parametrize("dark", [False, True])
def test_five_colours_that_everybody_tells_apart(dark):
    plan, times = timed_plan(0)
    style = render(contents(plan, times))
    values = dict(re.findall(r"--(\w+): (#\w+)", style.split("prefers-color-scheme: dark")[dark]))
    colors = [values[name] for name in ("blue", "red", "green", "amber", "pink")]
    rules = re.findall(r"((?:\.\w+(?:, )?)+) \{ --c: var\(--(\w+)\)", style)
    of = {name: color for names, color in rules for name in re.findall(r"\w+", names)}
    for together in (("resident", "workspace", *KINDS), ("forward", "backward", "again", "other", "in", "stall")):
        assert len({of[name] for name in together}) == len(together)
    assert len(set(colors)) == 5 and of["in"] == of["out"]
    for matrix in SIGHT.values():
        seen = []
        for color in colors:
            rgb = _linear(color)
            seen.append(_lab([min(1, max(0, sum(m * c for m, c in zip(row, rgb, strict=True)))) for row in matrix]))
        assert min(math.dist(a, b) for a, b in itertools.combinations(seen, 2)) > 20  # 2.3 is just noticeable

    def light(color: str) -> float:  # relative luminance of WCAG 2
        return 0.05 + sum(w * c for w, c in zip((0.2126, 0.7152, 0.0722), _linear(color), strict=True))

    paper = light(values["paper"])
    for color in colors:
        assert max(light(color), paper) / min(light(color), paper) >= 3  # what WCAG 2.1 asks of graphics


def test_a_slider_chooses_among_budgets():
    plan, times = timed_plan(3)
    budgets = [30 << 10, 20 << 10, 40 << 10]
    pages = [
        contents(plan, dataclasses.replace(times, seconds=times.seconds + k), budget=b) for k, b in enumerate(budgets)
    ]
    page = Page(render(*pages))
    assert len(page.all("section", **{"class": "plan"})) == 3 and len(page.all("polygon")) % 3 == 0
    (slider,) = page.all("input")
    assert (slider["type"], slider["min"], slider["max"], slider["value"]) == (
        "range",
        "0",
        "2",
        "1",
    )  # the first, 30 KiB
    assert [t for t in page.texts["span"] if t in ("20.0 KiB", "30.0 KiB", "40.0 KiB")] == [
        *("20.0 KiB", "30.0 KiB", "40.0 KiB"),
    ]
    assert [t for t in page.texts["dd"] if t.endswith("0.0 KiB") and t[0] in "234"] == [
        "20.0 KiB",
        "30.0 KiB",
        "40.0 KiB",
    ]
    assert sum(t.startswith("{") for t in page.texts["script"]) == 3
    assert Page(render(pages[0])).all("input") == []


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
    c = contents(plan, times, measured=run, facts=[(NASTY, NASTY)], remark=NASTY)
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


@pytest.mark.thorough
def test_a_net_of_many_thousands_of_steps_stays_small():
    plan, times = _long_plan(6000)
    assert len(render(contents(plan, times, measured=MeasuredRun(plan, "iteration 4", times)))) < 5 << 20


def test_more_marks_than_anybody_can_see_become_fewer():
    plan, times = _long_plan(300)
    marks = page_charts.marks_of(plan, times)
    few = page_charts.joined(marks, 100)
    assert len(few) <= 100 + 2 * len(page_charts.LANES)
    for lane in range(3):  # nothing runs on the host
        mine = [[m for m in some if m.lane == lane and m.look != "stall"] for some in (marks, few)]
        ends = [(min(m.start for m in one), max(m.end for m in one)) for one in mine]
        assert ends[0] == ends[1]
    assert page_charts.joined(marks, len(marks)) == marks
