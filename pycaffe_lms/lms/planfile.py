"""A plan as text that people can read and edit: the message LMSPlan. Pure.

Written are the order of steps and who is on the device from when to when, and where; operations and waits follow from
that. See also: `planfile_read.py` (from text to plans), `planbook.py` (files).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from google.protobuf import text_format

from ..proto import caffe_pb2
from .plan import Kind, Plan
from .planpages import pages_message
from .schedule import Buffer

VERSION = 1


@dataclass(frozen=True)
class Stay:
    """A buffer on the device: used by steps `first` to `last`; fetched: by a copy queued before step `issue`."""

    buffer: int
    first: int
    last: int
    issue: int
    offset: int
    fetched: bool


def unique_names(buffers: Mapping[int, Buffer]) -> dict[int, str]:
    """Buffer -> its name; of buffers with one name the second gets "(2)", and so on, in order of their ids."""
    names: dict[int, str] = {}
    taken: set[str] = set()
    for b in sorted(buffers):
        name, k = buffers[b].name, 1
        while name in taken:
            k += 1
            name = f"{buffers[b].name}({k})"
        taken.add(name)
        names[b] = name
    return names


def stays_of(plan: Plan) -> list[Stay]:
    """Who is on the device when, from a plan's operations; in order of their first use."""
    uses: dict[int, list[int]] = {b: [] for b in plan.buffers}
    for s, step in enumerate(plan.program.steps):
        if not step.host:
            for a in step.accesses:
                if a.buffer in uses:
                    uses[a.buffer].append(s)
    began: dict[int, tuple[int, int, bool]] = {}  # buffer -> (step, offset, fetched)
    stays: list[Stay] = []

    def end(b: int, last: int) -> None:
        issue, offset, fetched = began.pop(b)
        first = next(s for s in uses[b] if s >= issue)
        stays.append(Stay(b, first, last, issue, offset, fetched))

    for op in plan.ops:
        if op.kind is Kind.IN:
            began[op.place.buffer] = (op.step, op.place.offset, True)
        elif op.kind is Kind.OUT and op.release:
            end(op.place.buffer, op.step)
        elif op.kind is Kind.COMPUTE:
            for place in op.births:
                began[place.buffer] = (op.step, place.offset, False)
            for b in (*op.frees, *op.drops):
                end(b, op.step)
    return sorted(stays, key=lambda stay: (stay.first, stay.buffer))


def program_message(plan: Plan) -> caffe_pb2.LMSProgramPlan:
    """One program's plan as a message."""
    message = caffe_pb2.LMSProgramPlan(name=plan.program.name, arena_bytes=plan.arena_bytes)
    names = unique_names(plan.buffers)
    for b, name in names.items():
        message.buffer.add(name=name, bytes=plan.buffers[b].nbytes)
    own = [step.name for step, (_, again) in zip(plan.program.steps, plan.order, strict=True) if not again]
    for s, again in plan.order:
        message.step.add(name=own[s], again=s if again else None)
    for stay in stays_of(plan):
        made = message.residence.add(buffer=names[stay.buffer], first=stay.first, last=stay.last, offset=stay.offset)
        if stay.fetched:
            made.fetched, made.issue = True, stay.issue
    if plan.paging is not None:
        message.pages.CopyFrom(pages_message(plan.paging))
    return message


def plan_text(net: str, programs: Iterable[caffe_pb2.LMSProgramPlan], about: Iterable[str] = ()) -> str:
    """The file's text. about: lines for its head."""
    return "\n".join(_lines(net, programs, about)) + "\n"


def _lines(net: str, programs: Iterable[caffe_pb2.LMSProgramPlan], about: Iterable[str]) -> Iterator[str]:
    yield "# A plan of Large Model Support. It may be edited: all of it is checked before it runs."
    for line in about:
        yield f"# {line}"
    yield f"version: {VERSION}"
    yield f"net: {_quoted(net)}"
    for program in programs:
        yield "program {"
        yield f"  name: {_quoted(program.name)}"
        yield f"  arena_bytes: {program.arena_bytes}"
        for buffer in program.buffer:
            yield f"  buffer {{ {_short(buffer)} }}"
        for s, step in enumerate(program.step):
            yield f"  step {{ {_short(step)} }}  # {s}"
        for residence in program.residence:
            yield f"  residence {{ {_short(residence)} }}"
        if program.HasField("pages"):
            own = program.pages
            yield "  pages {"
            yield f"    bytes: {own.bytes} linear: {own.linear} count: {own.count} end: {own.end}"
            for address in own.address:
                yield f"    address {{ {_short(address)} }}"
            yield "  }"
        yield "}"


def _short(message) -> str:
    return text_format.MessageToString(message, as_one_line=True, as_utf8=True)


def _quoted(text: str) -> str:
    return _short(caffe_pb2.LMSPlanBuffer(name=text)).removeprefix("name: ")
