"""A plan as text that people can read and edit: the message LMSPlan. Pure.

Written are the order of steps, who is on the device from when to when, and where, and copies that are made in pieces;
operations and waits follow from that. See also: `planfile_read.py` (from text to plans), `planbook.py` (files).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from google.protobuf import text_format

from ...proto import caffe_pb2
from ..plan.live_ranges import live_ranges_of
from ..plan.plan import Plan
from ..program import Buffer
from .pages import pages_message

VERSION = 1


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


def program_message(plan: Plan) -> caffe_pb2.LMSProgramPlan:
    """One program's plan as a message."""
    message = caffe_pb2.LMSProgramPlan(name=plan.program.name, arena_bytes=plan.arena_bytes)
    names = unique_names(plan.buffers)
    for b, name in names.items():
        message.buffer.add(name=name, bytes=plan.buffers[b].nbytes)
    own = [step.name for step, (_, again) in zip(plan.program.steps, plan.order, strict=True) if not again]
    for s, again in plan.order:
        message.step.add(name=own[s], again=s if again else None)
    for stay, offset in live_ranges_of(plan):
        made = message.residence.add(buffer=names[stay.buffer], first=stay.first, last=stay.last, offset=offset)
        if stay.fetched:
            made.fetched, made.issue = True, stay.issue
        for said, pieces in ((made.piece_in, stay.arrivals), (made.piece_out, stay.departures)):
            for piece in pieces:
                said.add(bytes=piece.nbytes, step=piece.step)
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
