"""Read plans from text; errors name the line. No arrays, no files.

The text holds only the order of steps and the live ranges (field `residence`) with their offsets, so that little can be
wrong. `plan_from` derives the rest for the program that is to run, and `../plan/verify.py` proves the whole.
`write.py` is the other direction, `cache.py` opens files.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
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
from ..program import Buffer, Mode, Program, Step, uses_of
from ..remat.candidates import Ordered, ordered, verify_remat
from .pages import paging_of
from .write import VERSION, unique_names

ANEW = "plans belong to one net, batch size and set of flags; delete the file, and the next run writes it anew"


@dataclass(frozen=True)
class FileProgram:
    """Hold the plan of a program as it stands in a file, and the line numbers of its parts."""

    message: caffe_pb2.LMSProgramPlan
    file: str
    line: int | None
    lines: Mapping[str, Sequence[int]]  # of "buffer", "step", "residence" and "address"

    def wrong(self, part: str | None, index: int, what: str, fix: str = ANEW) -> PlanError:
        """Return the error for entry `index` of `part` (a key of `lines`); None: for the whole program."""
        known = self.lines.get(part, ()) if part else ()
        line = known[index] if index < len(known) else self.line
        return PlanError(what, where=Where(file=self.file, line=line), fix=fix)


def parse_plan(text: str, file: str) -> dict[str, FileProgram]:
    """Return the programs of a plan file by name. Raises PlanError, with file and line, if it is not a plan."""
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
    """Return the line numbers of each part of a program; parts whose lines are unknown are missing."""
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
    remats: Mapping[int, Step],
    scratch: frozenset[int],
    page: int | None = None,
) -> Plan:
    """Return the file's plan of `program`, verified.

    Args:
        buffers, remats, scratch: as of `optimise`.
        page: bytes of the device's pages; None: it has none.

    Raises:
        PlanError: with file and line; the plan is of another net, or unsafe.
    """
    ids = _buffers(entry, buffers)
    result = _order(entry, program, remats)
    message, paging = entry.message, None
    if message.HasField("pages"):
        paging = paging_of(message.pages, message.arena_bytes, page, entry.wrong)
    end = message.arena_bytes if paging is None else max(paging.linear, paging.size)
    ranges, offsets, places = _live_ranges(entry, result.program, buffers, ids, end)
    for live_range, offset, place in zip(ranges, offsets, places, strict=True):
        if paging is not None and not paging.holds(offset, buffers[live_range.buffer].nbytes):
            raise entry.wrong("residence", place, f"offset {offset} is no address that has pages for the whole buffer")
    _apart(entry, result.program, buffers, ranges, offsets, places, paging)
    lives = [Lifetime(r.issue, r.until, buffers[r.buffer].nbytes) for r in ranges]
    packing = Packing(tuple(offsets), message.arena_bytes, max_live_bytes(lives), paging)
    try:
        plan = finish(result.program, buffers, ranges, packing, result.order)
        verify(plan)
        if result.rematerialized:
            verify_remat(program, result, remats, scratch)
    except PlanError as error:
        raise error.at(file=entry.file, line=entry.line) from None
    return plan


def _buffers(entry: FileProgram, buffers: Mapping[int, Buffer]) -> dict[str, int]:
    """Return the ids of the managed buffers by name. Raises PlanError unless the file has just these."""
    names = {name: b for b, name in unique_names(buffers).items()}
    seen: set[str] = set()
    for i, declared in enumerate(entry.message.buffer):
        if declared.name not in names:
            raise entry.wrong("buffer", i, f'the net has no managed buffer "{declared.name}"')
        nbytes = buffers[names[declared.name]].nbytes
        if declared.bytes != nbytes:
            raise entry.wrong(
                "buffer", i, f'"{declared.name}" has {nbytes} bytes in the net, {declared.bytes} in the plan'
            )
        if declared.name in seen:
            raise entry.wrong("buffer", i, f'"{declared.name}" is there twice', "delete one")
        seen.add(declared.name)
    missing = [name for name in names if name not in seen]
    if missing:
        raise entry.wrong(None, 0, f'"{missing[0]}" is managed in the net, and not in the plan')
    return names


def _order(entry: FileProgram, program: Program, remats: Mapping[int, Step]) -> Ordered:
    """Return the program in the file's order of steps. Raises PlanError where the program cannot run so."""
    order: list[tuple[int, bool]] = []
    done = 0
    for i, listed in enumerate(entry.message.step):
        again = listed.HasField("again")
        s = listed.again if again else done
        if s >= len(program.steps):
            raise entry.wrong("step", i, f'"{listed.name}": the program has {len(program.steps)} steps')
        if program.steps[s].name != listed.name:
            raise entry.wrong("step", i, f'step {s} of the program is "{program.steps[s].name}", not "{listed.name}"')
        if again and (s >= done or s not in remats):
            why = "before it ran once" if s >= done else "it cannot, or -lms_recompute is off"
            raise entry.wrong("step", i, f'"{listed.name}" is to run again: {why}')
        done += not again
        order.append((s, again))
    if done < len(program.steps):
        raise entry.wrong(None, 0, f'step {done}, "{program.steps[done].name}", is missing in the plan')
    return ordered(program, remats, order)


def _live_ranges(
    entry: FileProgram, program: Program, buffers: Mapping[int, Buffer], ids: Mapping[str, int], end: int
) -> tuple[list[LiveRange], list[int], list[int]]:
    """Return (live ranges in order of first use, their offsets in bytes, their indices in the file).

    end: bytes below which each must lie. Raises PlanError."""
    indices: dict[int, list[int]] = {b: [] for b in buffers}
    for i, r in enumerate(entry.message.residence):
        if r.buffer not in ids:
            raise entry.wrong("residence", i, f'the net has no managed buffer "{r.buffer}"')
        if not r.first <= r.last < len(program.steps):
            raise entry.wrong("residence", i, f"steps {r.first} to {r.last} are not among {len(program.steps)}")
        nbytes = buffers[ids[r.buffer]].nbytes
        if r.offset % ALIGN or r.offset + nbytes > end:
            raise entry.wrong(
                "residence",
                i,
                f"offset {r.offset} is no multiple of {ALIGN}, or {human_bytes(nbytes)} from there "
                "are not in the arena",
                "see arena_bytes",
            )
        indices[ids[r.buffer]].append(i)
    uses = uses_of(program, buffers)
    found: list[tuple[LiveRange, int, int]] = []
    names = {b: name for name, b in ids.items()}
    for b, mine in indices.items():
        mine.sort(key=lambda i: entry.message.residence[i].first)
        found += _live_ranges_of(entry, program, b, names[b], uses[b], mine)
    found.sort(key=lambda f: (f[0].first, f[0].buffer))
    return [f[0] for f in found], [f[1] for f in found], [f[2] for f in found]


def _live_ranges_of(
    entry: FileProgram, program: Program, b: int, name: str, uses: Sequence[tuple[int, Mode, bool]], mine: Sequence[int]
) -> Iterator[tuple[LiveRange, int, int]]:
    """Yield those of buffer `b`: (live range, offset, index in the file). They must cover its uses in order."""
    at = earliest = 0
    for i in mine:
        r = entry.message.residence[i]
        while at < len(uses) and uses[at][2]:  # on the host
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
        live_range = LiveRange(b, r.first, r.last, fetched, written, live, earliest, issue, r.last)
        yield _with_pieces(entry, i, live_range, len(program.steps)), r.offset, i
        earliest = r.last + 1
    left = next((use for use in uses[at:] if not use[2]), None)
    if left is not None:
        step = entry.message.step[left[0]].name
        raise entry.wrong(None, 0, f'step {left[0]}, "{step}", uses "{name}", and no residence says where')


def _with_pieces(entry: FileProgram, i: int, live_range: LiveRange, n_steps: int) -> LiveRange:
    """Return the live range with the pieces of its copies. `verify` checks that copies out are not too late."""
    r = entry.message.residence[i]
    arrivals = _pieces(entry, i, "piece_in", live_range.fetched, live_range.issue, live_range.first)
    departures = _pieces(entry, i, "piece_out", live_range.saved, live_range.written, n_steps - 1)
    if arrivals and arrivals[0].step != live_range.issue:
        raise entry.wrong(
            "residence", i, f'the first piece_in of "{r.buffer}" must be at step {live_range.issue}, its issue'
        )
    return replace(live_range, arrivals=arrivals, departures=departures)


def _pieces(entry: FileProgram, i: int, kind: str, copied: bool, first: int | None, last: int) -> tuple[Piece, ...]:
    """Return the pieces of a copy: they must make up the whole buffer, in order, in steps `first` to `last`."""
    r = entry.message.residence[i]
    pieces = [Piece(piece.step, piece.bytes) for piece in getattr(r, kind)]
    if not pieces:
        return ()
    whole = next(buffer.bytes for buffer in entry.message.buffer if buffer.name == r.buffer)
    wrong = None
    if not copied or first is None:
        wrong = "there is no such copy"
    elif sum(piece.nbytes for piece in pieces) != whole or any(p.nbytes % ALIGN or not p.nbytes for p in pieces):
        wrong = f"their bytes must be multiples of {ALIGN} and make {whole} together"
    elif not all(a.step < b.step for a, b in pairwise(pieces)) or pieces[0].step < first or pieces[-1].step > last:
        wrong = f"their steps must rise, from {first} or later to {last} or earlier"
    if wrong:
        raise entry.wrong("residence", i, f'{kind} of "{r.buffer}": {wrong}')
    return tuple(pieces)


def _apart(
    entry: FileProgram,
    program: Program,
    buffers: Mapping[int, Buffer],
    ranges: Sequence[LiveRange],
    offsets: Sequence[int],
    places: Sequence[int],
    paging: Paging | None,
) -> None:
    """Raise PlanError where two live ranges overlap, unless one reuses the memory of the other in place."""
    reuses = {}
    for group in chains(ranges, inplace_reuses(program, buffers)):
        for i, j in zip(group, group[1:], strict=False):
            reuses[j] = i
            if offsets[i] != offsets[j]:
                names = [buffers[ranges[k].buffer].name for k in (j, i)]
                raise entry.wrong(
                    "residence",
                    places[j],
                    f'"{names[0]}" reuses the memory of "{names[1]}" in place, so their offsets must be equal',
                    f"write offset: {offsets[i]}",
                )
    pages = {} if paging is None else {offset: frozenset(found) for offset, found in paging.pages.items()}
    none: frozenset[int] = frozenset()
    there: list[int] = []
    for i in sorted(range(len(ranges)), key=lambda i: ranges[i].issue):
        there = [j for j in there if ranges[j].last >= ranges[i].issue]
        end, mine = offsets[i] + buffers[ranges[i].buffer].nbytes, pages.get(offsets[i], none)
        for j in there:
            overlap = offsets[j] < end and offsets[i] < offsets[j] + buffers[ranges[j].buffer].nbytes
            if overlap or not mine.isdisjoint(pages.get(offsets[j], none)):
                if reuses.get(i) == j or reuses.get(j) == i:
                    continue
                names = [buffers[ranges[k].buffer].name for k in (i, j)]
                raise entry.wrong(
                    "residence",
                    places[i],
                    f'"{names[0]}" and "{names[1]}" overlap from step {ranges[i].issue} on',
                    "give one of them another offset",
                )
        there.append(i)
