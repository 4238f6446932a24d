"""Pages of plans as text: what is written is what was planned, and mistakes have their line."""

from __future__ import annotations

import dataclasses
import functools
import re

import pytest

from pycaffe_lms.backend.sim.device import SimDevice
from pycaffe_lms.errors import PlanError
from pycaffe_lms.lms.layout.paging import Paging
from pycaffe_lms.lms.planfile.pages import pages_message, paging_of
from pycaffe_lms.lms.planfile.read import parse_plan, plan_from

from .nets import NETS, make_solver, train
from .plan_files import ITERATIONS, PAGE, lms_of, planned, read, text_of, without


@functools.cache
def _paged_net() -> str:
    """A net whose plan lies in pages."""
    return next(net for net in NETS if planned(net, "pages")[0].paging is not None and _paged(net).pages)


def _paged(net: str):
    return planned(net, "pages")[0].paging


def test_pages_are_written_and_replayed(tmp_path, monkeypatch):
    net = _paged_net()
    file = tmp_path / "lms.plan"
    lms = lms_of(net, "pages", plan_file=str(file))
    first = make_solver(net, SimDevice(64 << 20), lms)
    plan = first.net.memory.plans()["train"]
    assert plan.paging == _paged(net)
    assert train(first, ITERATIONS) == without(net)
    monkeypatch.setattr("pycaffe_lms.lms.planner.choose.optimise", None)  # nobody plans
    second = make_solver(net, SimDevice(64 << 20, order="random", seed=5), lms)
    assert second.net.memory.plans()["train"] == dataclasses.replace(plan, rules=f"written in {file}")
    assert train(second, ITERATIONS) == without(net)


def test_pages_are_ranges(tmp_path):
    paging = Paging(PAGE, 2 * PAGE, 40, 9 * PAGE, {2 * PAGE: (0, 1, 2, 17, 9, 10), 8 * PAGE: (39,)})
    message = pages_message(paging)
    assert [(a.offset, a.pages) for a in message.address] == [(2 * PAGE, "0-2 17 9-10"), (8 * PAGE, "39")]
    assert paging_of(message, 42 * PAGE, PAGE, None) == paging


@pytest.mark.parametrize(
    "page, said", [(None, "here are none"), (2 * PAGE, "pages of 4.0 KiB, this device's have 8.0")]
)
def test_pages_of_another_device(page, said):
    net = _paged_net()
    entry = parse_plan(text_of(net, "pages"), "my.plan")["train"]
    with pytest.raises(PlanError, match=f"my.plan:{entry.line}: .*{said}"):
        plan_from(entry, *planned(net, "pages")[1], page)


def test_mistakes_in_pages_have_their_line():
    net = _paged_net()
    text = text_of(net, "pages")
    lines = text.splitlines()
    at, line = next((i, line) for i, line in enumerate(lines) if line.startswith("    address {"))
    number = re.search(r'pages: "(\d+)', line)[1]
    whole = next(i for i, line in enumerate(lines) if line.strip() == "program {")
    cases = [
        (line.replace(f'pages: "{number}', 'pages: "4000000'), at, "are no numbers below"),
        (re.sub(r'pages: "[^"]*"', 'pages: "0-999999999"', line), at, "are no numbers below"),
        (re.sub(r'pages: "[^"]*"', 'pages: "1 x"', line), at, "are no numbers below"),
        (re.sub(r'pages: "[^"]*"', 'pages: ""', line), at, "are no numbers below"),
        (line + "\n" + line, at + 1, "is there twice"),
        (line.replace(f'pages: "{number}', f'pages: "{number} {number}'), whole, "given twice|there twice"),
    ]
    for instead, place, said in cases:
        changed = "\n".join([*lines[:at], instead, *lines[at + 1 :]])
        with pytest.raises(PlanError, match=f"my.plan:{place + 1}: .*({said})"):
            read(changed, net, "pages")
    with pytest.raises(PlanError, match=r"my.plan:\d+: offset \d+ is no address that has pages for the whole buffer"):
        read("\n".join([*lines[:at], *lines[at + 1 :]]), net, "pages")
    more = re.sub(r" count: \d+", " count: 99999999999", text)
    with pytest.raises(PlanError, match="are more than the arena's"):
        read(more, net, "pages")


@pytest.mark.thorough
def test_two_at_one_time_in_one_page_are_refused():
    """An edit that gives some address the pages of another: where both are used at one time, the proof fails."""
    net = _paged_net()
    text = text_of(net, "pages")
    addresses = re.findall(r'address \{ offset: (\d+) pages: "([^"]*)" \}', text)
    refused = 0
    for (o, p), (_, q) in zip(addresses, addresses[1:], strict=False):
        if len(p.split()) == len(q.split()) == 1 and p != q:
            changed = text.replace(f'offset: {o} pages: "{p}"', f'offset: {o} pages: "{q}"')
            try:
                read(changed, net, "pages")
            except PlanError:
                refused += 1
    assert refused
    lines = text.splitlines()
    places = {
        i: int(found[1]) for i, line in enumerate(lines) if (found := re.search(r"residence .*offset: (\d+)", line))
    }
    apart = 0
    for i, old in places.items():  # one stay at the address of another
        for new in {int(o) for o, _ in addresses} - {old}:
            moved = [*lines[:i], lines[i].replace(f"offset: {old}", f"offset: {new}"), *lines[i + 1 :]]
            try:
                read("\n".join(moved), net, "pages")
            except PlanError as error:
                apart += " overlap from step " in str(error)
    assert apart
