"""Write plans as text that people can read and edit (the message `LMSPlan`). Pure.

Written are the order of steps, the live ranges (field `residence`) with their offsets, and copies in several pieces;
operations and waits follow from these. See also: `read.py` (from text to plans), `cache.py` (files).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from google.protobuf import text_format
from google.protobuf.message import Message

from ...proto import caffe_pb2
from ..plan.live_ranges import live_ranges_of
from ..plan.plan import Plan
from ..program import Buffer
from .pages import pages_message

VERSION = 1


def unique_names(buffers: Mapping[int, Buffer]) -> dict[int, str]:
    """Return a unique name for each buffer: in order of ids, the second of one name gets "(2)", and so on."""
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
    """Return the plan of one program as a message."""
    message = caffe_pb2.LMSProgramPlan(name=plan.program.name, arena_bytes=plan.arena_bytes)
    names = unique_names(plan.buffers)
    for b, name in names.items():
        message.buffer.add(name=name, bytes=plan.buffers[b].nbytes)
    own = [step.name for step, (_, again) in zip(plan.program.steps, plan.order, strict=True) if not again]
    for s, again in plan.order:
        message.step.add(name=own[s], again=s if again else None)
    for live_range, offset in live_ranges_of(plan):
        made = message.residence.add(
            buffer=names[live_range.buffer], first=live_range.first, last=live_range.last, offset=offset
        )
        if live_range.fetched:
            made.fetched, made.issue = True, live_range.issue
        for written, pieces in ((made.piece_in, live_range.arrivals), (made.piece_out, live_range.departures)):
            for piece in pieces:
                written.add(bytes=piece.nbytes, step=piece.step)
    if plan.paging is not None:
        message.pages.CopyFrom(pages_message(plan.paging))
    return message


def plan_text(net: str, programs: Iterable[caffe_pb2.LMSProgramPlan], about: Iterable[str] = ()) -> str:
    """Return the text of a plan file. about: comment lines for its head."""
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


def _short(message: Message) -> str:
    return text_format.MessageToString(message, as_one_line=True, as_utf8=True)


def _quoted(text: str) -> str:
    return _short(caffe_pb2.LMSPlanBuffer(name=text)).removeprefix("name: ")
