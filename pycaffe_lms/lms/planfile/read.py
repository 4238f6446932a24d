"""From a plan's text to a plan, with every mistake's line. No arrays, no files.

The text says little, so that little can be wrong: which steps run, who stays when and where. All else is worked out
again for the program that is to run, and `verify.py` proves the whole.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from google.protobuf import text_format

from ...backend.device import ALIGN
from ...errors import PlanError, Where, human_bytes
from ...formats.prototxt.scanner import Entry, scan, tokenize
from ...proto import caffe_pb2
from ..layout.inplace_reuse import chains, inplace_reuses
from ..layout.packing import Lifetime, Packing, max_live_bytes
from ..layout.paging import Paging
from ..plan.live_ranges import LiveRange
from ..plan.plan import Piece, Plan
from ..plan.verify import verify
from ..planner.lookahead import finish
from ..program import Buffer, Mode, Program, Step
from ..remat.candidates import Ordered, ordered, verify_remat
from .pages import paging_of
from .write import VERSION, unique_names

ANEW = "plans belong to one net, batch size and set of flags; delete the file, and the next run writes it anew"


@dataclass(frozen=True)
class FileProgram:
    """A program's plan as it stands in a file, and the lines of its parts."""

    message: caffe_pb2.LMSProgramPlan
    file: str
    line: int | None
    lines: Mapping[str, Sequence[int]]  # of "buffer", "step", "residence" and "address"

    def wrong(self, part: str | None, index: int, what: str, fix: str = ANEW) -> PlanError:
        """The error for one of its parts; None: for the whole."""
        known = self.lines.get(part, ()) if part else ()
        line = known[index] if index < len(known) else self.line
        return PlanError(what, where=Where(file=self.file, line=line), fix=fix)


def parse_plan(text: str, file: str) -> dict[str, FileProgram]:
    """The programs of a plan file, by name. Raises PlanError for what is no plan, with file and line."""
    message = caffe_pb2.LMSPlan()
    try:
        text_format.Parse(text, message)
    except (text_format.ParseError, UnicodeError) as failure:
        line = failure.GetLine() if isinstance(failure, text_format.ParseError) else None
        reason = str(failure).split(" : ", 1)[-1]
        raise PlanError(f"not a plan: {reason}", where=Where(file=file, line=line), fix=ANEW) from None
    if message.version != VERSION:
        what = f"is of version {message.version}, not {VERSION}" if message.HasField("version") else "has no version"
        raise PlanError(f"the plan {what}", where=Where(file=file), fix=ANEW)
    entries = [entry for entry in scan(tokenize(text)) if entry.name == "program"]
    programs: dict[str, FileProgram] = {}
    for i, program in enumerate(message.program):
        entry = entries[i] if len(entries) == len(message.program) else None
        found = FileProgram(program, file, entry.line if entry else None, _lines(program, entry))
        if program.name in programs:
            raise found.wrong(None, 0, f'there are two plans of program "{program.name}"', "delete one")
        programs[program.name] = found
    if not programs:
        raise PlanError("there is no program in the plan", where=Where(file=file), fix=ANEW)
    return programs


def _lines(program: caffe_pb2.LMSProgramPlan, entry: Entry | None) -> dict[str, list[int]]:
    lines: dict[str, list[int]] = {"buffer": [], "step": [], "residence": []}
    addresses: list[int] = []
    for part in scan(entry.body) if entry else ():
        if part.name in lines:
            lines[part.name].append(part.line)
        elif part.name == "pages":
            addresses = [inner.line for inner in scan(part.body) if inner.name == "address"]
    known = {name: found for name, found in lines.items() if len(found) == len(getattr(program, name))}
    return known | ({"address": addresses} if len(addresses) == len(program.pages.address) else {})


def plan_from(
    entry: FileProgram,
    program: Program,
    buffers: Mapping[int, Buffer],
    replays: Mapping[int, Step],
    scratch: frozenset[int],
    page: int | None = None,
) -> Plan:
    """The plan of `program` that the file holds, proved. buffers, replays, scratch: as `optimise` gets them. page:
    bytes of the device's pages; None: it has none.

    Raises PlanError, with file and line, where it is another net's, or not safe."""
    ids = _buffers(entry, buffers)
    result = _order(entry, program, replays)
    said, paging = entry.message, None
    if said.HasField("pages"):
        paging = paging_of(said.pages, said.arena_bytes, page, entry.wrong)
    end = said.arena_bytes if paging is None else max(paging.linear, paging.size)
    stays, offsets, places = _stays(entry, result.program, buffers, ids, end)
    for stay, offset, place in zip(stays, offsets, places, strict=True):
        if paging is not None and not paging.holds(offset, buffers[stay.buffer].nbytes):
            raise entry.wrong("residence", place, f"offset {offset} is no address that has pages for the whole buffer")
    _apart(entry, result.program, buffers, stays, offsets, places, paging)
    lives = [Lifetime(r.issue, r.until, buffers[r.buffer].nbytes) for r in stays]
    packing = Packing(tuple(offsets), said.arena_bytes, max_live_bytes(lives), paging)
    try:
        plan = finish(result.program, buffers, stays, packing, result.order)
        verify(plan)
        if result.replayed:
            verify_remat(program, result, replays, scratch)
    except PlanError as error:
        raise error.at(file=entry.file, line=entry.line) from None
    return plan


def _buffers(entry: FileProgram, buffers: Mapping[int, Buffer]) -> dict[str, int]:
    names = {name: b for b, name in unique_names(buffers).items()}
    seen: set[str] = set()
    for i, said in enumerate(entry.message.buffer):
        if said.name not in names:
            raise entry.wrong("buffer", i, f'the net has no managed buffer "{said.name}"')
        nbytes = buffers[names[said.name]].nbytes
        if said.bytes != nbytes:
            raise entry.wrong("buffer", i, f'"{said.name}" has {nbytes} bytes in the net, {said.bytes} in the plan')
        if said.name in seen:
            raise entry.wrong("buffer", i, f'"{said.name}" is there twice', "delete one")
        seen.add(said.name)
    missing = [name for name in names if name not in seen]
    if missing:
        raise entry.wrong(None, 0, f'"{missing[0]}" is managed in the net, and not in the plan')
    return names


def _order(entry: FileProgram, program: Program, replays: Mapping[int, Step]) -> Ordered:
    order: list[tuple[int, bool]] = []
    done = 0
    for i, said in enumerate(entry.message.step):
        again = said.HasField("again")
        s = said.again if again else done
        if s >= len(program.steps):
            raise entry.wrong("step", i, f'"{said.name}": the program has {len(program.steps)} steps')
        if program.steps[s].name != said.name:
            raise entry.wrong("step", i, f'step {s} of the program is "{program.steps[s].name}", not "{said.name}"')
        if again and (s >= done or s not in replays):
            why = "before it ran once" if s >= done else "it cannot, or -lms_recompute is off"
            raise entry.wrong("step", i, f'"{said.name}" is to run again: {why}')
        done += not again
        order.append((s, again))
    if done < len(program.steps):
        raise entry.wrong(None, 0, f'step {done}, "{program.steps[done].name}", is missing in the plan')
    return ordered(program, replays, order)


_Stays = tuple[list[LiveRange], list[int], list[int]]


def _stays(
    entry: FileProgram, program: Program, buffers: Mapping[int, Buffer], ids: Mapping[str, int], end: int
) -> _Stays:
    """(stays in order of their first use, their offsets, their places in the file). end: of all offsets."""
    said: dict[int, list[int]] = {b: [] for b in buffers}
    for i, r in enumerate(entry.message.residence):
        if r.buffer not in ids:
            raise entry.wrong("residence", i, f'the net has no managed buffer "{r.buffer}"')
        if not r.first <= r.last < len(program.steps):
            raise entry.wrong("residence", i, f"steps {r.first} to {r.last} are not among {len(program.steps)}")
        nbytes = buffers[ids[r.buffer]].nbytes
        if r.offset % ALIGN or r.offset + nbytes > end:
            raise entry.wrong(
                "residence", i, f"offset {r.offset} is no multiple of {ALIGN}, or {human_bytes(nbytes)} from there "
                "are not in the arena", "see arena_bytes",
            )  # fmt: skip
        said[ids[r.buffer]].append(i)
    uses: dict[int, list[tuple[int, Mode, bool]]] = {b: [] for b in buffers}
    for s, step in enumerate(program.steps):
        for a in step.accesses:
            if a.buffer in uses:
                uses[a.buffer].append((s, a.mode, step.host))
    found: list[tuple[LiveRange, int, int]] = []
    names = {b: name for name, b in ids.items()}
    for b, mine in said.items():
        mine.sort(key=lambda i: entry.message.residence[i].first)
        found += _stays_of(entry, program, b, names[b], uses[b], mine)
    found.sort(key=lambda f: (f[0].first, f[0].buffer))
    return [f[0] for f in found], [f[1] for f in found], [f[2] for f in found]


def _stays_of(entry: FileProgram, program: Program, b: int, name: str, uses, mine: Sequence[int]):
    """One buffer's: they must cover its uses on the device, in order."""
    at = earliest = 0
    for i in mine:
        r = entry.message.residence[i]
        while at < len(uses) and uses[at][2]:  # the host's
            earliest = uses[at][0] + 1
            at += 1
        if at == len(uses) or uses[at][0] != r.first:
            when = f"by step {uses[at][0]}" if at < len(uses) else "no more"
            raise entry.wrong("residence", i, f'"{r.buffer}" is used next {when}, not by step {r.first}')
        run = []
        while at < len(uses) and not uses[at][2] and uses[at][0] <= r.last:
            run.append(uses[at])
            at += 1
        if run[-1][0] != r.last:
            raise entry.wrong("residence", i, f'"{r.buffer}" is last used by step {run[-1][0]}, not by step {r.last}')
        fetched = run[0][1] is not Mode.OVERWRITE
        if fetched != r.fetched:
            why = "reads it" if fetched else "overwrites it"
            raise entry.wrong("residence", i, f"fetched must be {str(fetched).lower()}: step {r.first} {why}")
        issue = r.issue if r.HasField("issue") else r.first
        if not (earliest if fetched else r.first) <= issue <= r.first:
            raise entry.wrong("residence", i, f"issue {issue} is not between {earliest} and {r.first}")
        following = uses[at] if at < len(uses) else None
        live = following[1] is not Mode.OVERWRITE if following else b in program.live_out
        written = max((s for s, mode, _ in run if mode is not Mode.READ), default=None)
        stay = LiveRange(b, r.first, r.last, fetched, written, live, earliest, issue, r.last)
        yield _with_pieces(entry, i, stay, len(program.steps)), r.offset, i
        earliest = r.last + 1
    left = next((use for use in uses[at:] if not use[2]), None)
    if left is not None:
        step = entry.message.step[left[0]].name
        raise entry.wrong(None, 0, f'step {left[0]}, "{step}", uses "{name}", and no residence says where')


def _with_pieces(entry: FileProgram, i: int, stay: LiveRange, n_steps: int) -> LiveRange:
    """The residence with the pieces of its copies. When a copy out may still be made is for `verify` to say."""
    r = entry.message.residence[i]
    arrivals = _pieces(entry, i, "piece_in", stay.fetched, stay.issue, stay.first)
    departures = _pieces(entry, i, "piece_out", stay.saved, stay.written, n_steps - 1)
    if arrivals and arrivals[0].step != stay.issue:
        raise entry.wrong("residence", i, f'the first piece_in of "{r.buffer}" must be at step {stay.issue}, its issue')
    return replace(stay, arrivals=arrivals, departures=departures)


def _pieces(entry: FileProgram, i: int, kind: str, copied: bool, first: int | None, last: int) -> tuple[Piece, ...]:
    """What is said of a copy's pieces: they are the whole buffer, one after the other, in steps `first` to `last`."""
    r = entry.message.residence[i]
    said = [Piece(piece.step, piece.bytes) for piece in getattr(r, kind)]
    if not said:
        return ()
    whole = next(buffer.bytes for buffer in entry.message.buffer if buffer.name == r.buffer)
    wrong = None
    if not copied:
        wrong = "there is no such copy"
    elif sum(piece.nbytes for piece in said) != whole or any(p.nbytes % ALIGN or not p.nbytes for p in said):
        wrong = f"their bytes must be multiples of {ALIGN} and make {whole} together"
    elif not all(a.step < b.step for a, b in pairwise(said)) or said[0].step < first or said[-1].step > last:
        wrong = f"their steps must rise, from {first} or later to {last} or earlier"
    if wrong:
        raise entry.wrong("residence", i, f'{kind} of "{r.buffer}": {wrong}')
    return tuple(said)


def _apart(entry: FileProgram, program: Program, buffers, stays, offsets, places, paging: Paging | None) -> None:
    """Raise PlanError where two stays overlap, but for a value that is born where another ends."""
    follows = {}
    for group in chains(stays, inplace_reuses(program, buffers)):
        for i, j in zip(group, group[1:], strict=False):
            follows[j] = i
            if offsets[i] != offsets[j]:
                names = [buffers[stays[k].buffer].name for k in (j, i)]
                raise entry.wrong(
                    "residence", places[j], f'"{names[0]}" takes the place of "{names[1]}", so their offsets must be '
                    "one", f"write offset: {offsets[i]}",
                )  # fmt: skip
    there: list[int] = []
    for i in sorted(range(len(stays)), key=lambda i: stays[i].issue):
        there = [j for j in there if stays[j].last >= stays[i].issue]
        end = offsets[i] + buffers[stays[i].buffer].nbytes
        for j in there:
            overlap = offsets[j] < end and offsets[i] < offsets[j] + buffers[stays[j].buffer].nbytes
            if overlap or (paging is not None and paging.share(offsets[i], offsets[j])):
                if follows.get(i) == j or follows.get(j) == i:
                    continue
                names = [buffers[stays[k].buffer].name for k in (i, j)]
                raise entry.wrong(
                    "residence", places[i], f'"{names[0]}" and "{names[1]}" overlap from step {stays[i].issue} on',
                    "give one of them another offset",
                )  # fmt: skip
        there.append(i)
