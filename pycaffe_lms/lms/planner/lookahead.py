"""From an access list to a plan: who is on the device when, where, and what waits for what. Pure.

Covers: on-demand residences (from a step to the next one that needs the buffer, if that is the following step),
look-ahead by a number of steps into memory that would be idle, offsets, minimal waits.
See also: `optimise.py`, which chooses by predicted time what stays, is copied or is made again.
Does not cover: who is managed (`policy.py`); whether the plan is right (`verify.py` proves it without this code).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise

from ...errors import OutOfDeviceMemory, Where, human_bytes
from ..layout.inplace_reuse import Pair, chains, inplace_reuses, needed_bytes
from ..layout.packing import Lifetime, Load, Packing, pack
from ..layout.paging import Paging, in_one_piece, paged, taken_bytes
from ..plan.live_ranges import LiveRange
from ..plan.plan import Plan
from ..program import Buffer, Mode, Program, layer_of
from .lowering import Emitted, emit

IN_PARTS = (  # why it is not done unasked
    "-lms_split auto, to run layers in parts of the batch, or -lms_split_outputs auto, fully connected ones in blocks "
    "of their outputs: that rounds sums otherwise, so results equal those of whole layers to rounding, not to the bit"
)


def make_plan(
    program: Program,
    buffers: Mapping[int, Buffer],
    *,
    limit: int | None,
    ahead: int,
    uncopied: Collection[int] = (),
    page: int | None = None,
) -> Plan:
    """Plan `program` for the managed `buffers` (id -> Buffer, sizes aligned by the caller) in an arena of at most
    `limit` bytes (None: no limit), looking `ahead` steps ahead where memory would be idle. uncopied: buffers whose
    values stay from first to last use. page: size of the pages that the arena is made of; None: it is contiguous.

    Raises OutOfDeviceMemory, naming the step, its buffers and their bytes, when even on-demand fetching cannot fit.
    """
    demand = live_ranges(program, buffers, uncopied=uncopied)
    refuse_impossible(program, buffers, limit)
    sizes = {b: taken_bytes(buffer.nbytes, page) for b, buffer in buffers.items()}
    room, packing, stays = limit, None, demand
    for _ in range(12):
        stays = _look_ahead(demand, sizes, len(program.steps), room, ahead) if ahead else demand
        packing = _pack(program, stays, buffers, limit, page)
        if limit is None or packing.peak <= limit or stays == demand:
            break
        room = int((room or packing.peak) * 0.94)
    if limit is not None and packing.peak > limit:
        stays, packing = demand, _pack(program, demand, buffers, limit, page)
    if limit is not None and packing.peak > limit and page is not None:  # whole pages are too much: without
        packing = in_one_piece(_pack(program, demand, buffers, limit // page * page, None), page)
    if limit is not None and packing.peak > limit:
        raise OutOfDeviceMemory(
            f"program {program.name}: the managed buffers need {human_bytes(packing.peak)} at their offsets "
            f"({human_bytes(packing.max_live)} are alive at once), {human_bytes(max(limit, 0))} are there",
            needed=packing.peak,
            free=limit,
            fix=f"raise -lms_budget a little, or lower batch_size; or {IN_PARTS}",
        )
    return replace(
        finish(program, buffers, stays, packing), rules=f"look-ahead of {ahead} steps" if ahead else "on demand"
    )


def _pack(
    program: Program, stays: Sequence[LiveRange], buffers: Mapping[int, Buffer], limit: int | None, page: int | None
) -> Packing:
    groups = chains(stays, inplace_reuses(program, buffers))
    lives = [Lifetime(stays[g[0]].issue, stays[g[-1]].until, buffers[stays[g[0]].buffer].nbytes) for g in groups]
    packing = pack(lives, limit) if page is None else paged(lives, page, limit)
    return spread(packing, groups, len(stays))


def spread(packing: Packing, groups: Sequence[Sequence[int]], n: int) -> Packing:
    """The packing of groups, as one of their `n` members."""
    offsets = [0] * n
    for group, offset in zip(groups, packing.offsets, strict=True):
        for i in group:
            offsets[i] = offset
    return replace(packing, offsets=tuple(offsets))


def finish(
    program: Program,
    buffers: Mapping[int, Buffer],
    stays: Sequence[LiveRange],
    packing: Packing,
    order: Sequence[tuple[int, bool]] | None = None,
) -> Plan:
    """The plan of these residences at these offsets."""
    made = emitted(program, buffers, stays, packing.offsets, packing.paging)
    plan = Plan(
        program=program,
        buffers=dict(buffers),
        ops=made.ops,
        arena_bytes=packing.peak,
        held_bytes=made.held,
        live_bytes=packing.max_live,
        bytes_in=sum(buffers[r.buffer].copied for r in stays if r.fetched),
        bytes_out=sum(buffers[r.buffer].copied for r in stays if r.saved),
        order=tuple(order) if order is not None else tuple((s, False) for s in range(len(program.steps))),
        paging=packing.paging,
    )
    left = sum(plan.copied(op) for op in plan.carried_over)
    return replace(plan, bytes_in=plan.bytes_in - left) if left else plan


def emitted(
    program: Program,
    buffers: Mapping[int, Buffer],
    stays: Sequence[LiveRange],
    offsets: Sequence[int],
    paging: Paging | None,
) -> Emitted:
    """The operations of these residences at these offsets."""
    pairs = inplace_reuses(program, buffers)
    before = {j: i for group in chains(stays, pairs) for i, j in pairwise(group)}
    return emit(program, buffers, stays, offsets, before, paging)


def live_ranges(
    program: Program,
    buffers: Mapping[int, Buffer],
    left: Collection[tuple[int, int]] | None = None,
    uncopied: Collection[int] = (),
) -> list[LiveRange]:
    """On demand: a stay spans consecutive steps that use the buffer, and no more. With `left`: a stay goes on to the
    next use, unless that is a host's or overwrites, or (buffer, step of the last use) is in `left`; a value in `left`
    that is overwritten next ends there, be it in the next step. The stays of `uncopied` buffers go on like that in any
    case."""
    uses: dict[int, list[tuple[int, Mode, bool]]] = {b: [] for b in buffers}
    for s, step in enumerate(program.steps):
        for a in step.accesses:
            if a.buffer in uses:
                uses[a.buffer].append((s, a.mode, step.host))
    stays: list[LiveRange] = []
    for b, accesses in uses.items():
        run: list[tuple[int, Mode]] = []
        earliest = 0
        for i, (s, mode, host) in enumerate(accesses):
            if host:
                earliest = s + 1
                continue
            run.append((s, mode))
            following = accesses[i + 1] if i + 1 < len(accesses) else None
            goes_on = following and not following[2] and following[1] is not Mode.OVERWRITE
            given = left is not None and (b, s) in left and not goes_on  # its memory may be another's already
            if following and not following[2] and following[0] == s + 1 and not given:
                continue
            if goes_on and (b in uncopied if left is None else (b, s) not in left):
                continue
            live = following[1] is not Mode.OVERWRITE if following else b in program.live_out
            written = max((t for t, m in run if m is not Mode.READ), default=None)
            fetched = run[0][1] is not Mode.OVERWRITE
            stays.append(LiveRange(b, run[0][0], s, fetched, written, live, earliest, run[0][0], s))
            earliest, run = s + 1, []
    return sorted(stays, key=lambda r: (r.first, r.buffer))


def refuse_impossible(
    program: Program,
    buffers: Mapping[int, Buffer],
    limit: int | None,
    pairs: Mapping[int, Sequence[Pair]] | None = None,
) -> None:
    """Raise OutOfDeviceMemory for a step that does not fit. pairs: of in-place reuse, where not the program's own."""
    if limit is None:
        return
    sizes = {b: buffer.nbytes for b, buffer in buffers.items()}
    pairs = inplace_reuses(program, buffers) if pairs is None else pairs
    need = [needed_bytes(program, s, sizes, pairs) for s in range(len(program.steps))]
    needed = max(need, default=0)
    if needed <= limit:
        return
    worst = program.steps[need.index(needed)]
    parts = sorted({a.buffer for a in worst.accesses if a.buffer in buffers}, key=lambda b: -sizes[b])
    listing = ", ".join(f'"{buffers[b].name}" {human_bytes(sizes[b])}' for b in parts[:6])
    raise OutOfDeviceMemory(
        f"step {worst.name} needs {human_bytes(needed)} of device memory at once, {human_bytes(max(limit, 0))} are "
        f"there for managed buffers (largest: {listing})",
        needed=needed,
        free=limit,
        where=Where(layer=layer_of(worst.name)),
        fix="raise -lms_budget, lower batch_size or -workspace, or lower -lms so that fewer buffers stay on the device "
        f"for good, for one layer's buffers must fit at once; or {IN_PARTS}",
    )


def _look_ahead(demand: list[LiveRange], sizes, n_steps: int, limit: int | None, ahead: int) -> list[LiveRange]:
    """Fill idle memory: bridge short gaps, then fetch early, then let copies out drain while later steps run."""
    load = Load(n_steps + 1)
    for r in demand:
        load.add(sizes[r.buffer], r.issue, r.until)
    book = load.add

    def fits(size: int, start: int, end: int) -> bool:
        return limit is None or load.most(start, end) + size <= limit

    stays: list[LiveRange] = []
    last_of: dict[int, int] = {}
    for r in demand:  # a value that is needed again in a moment stays
        before = last_of.get(r.buffer)
        size = sizes[r.buffer]
        if before is not None and r.fetched and r.earliest == stays[before].last + 1:
            old = stays[before]
            if r.first - old.last - 1 <= ahead and fits(size, old.last + 1, r.first - 1):
                book(size, old.last + 1, r.first - 1)
                written = old.written if r.written is None else r.written
                stays[before] = replace(old, last=r.last, until=r.last, written=written, live=r.live)
                continue
        last_of[r.buffer] = len(stays)
        stays.append(r)
    for i, r in enumerate(stays):
        size, issue = sizes[r.buffer], r.issue
        while r.fetched and issue > max(r.earliest, r.first - ahead) and fits(size, issue - 1, issue - 1):
            issue -= 1
            book(size, issue, issue)
        stays[i] = replace(r, issue=issue)
    return [_drain(r, sizes[r.buffer], stays, fits, book, n_steps) for r in stays]


def _drain(r: LiveRange, size: int, stays, fits, book, n_steps: int) -> LiveRange:
    if not r.saved or r.last + 1 >= n_steps or not fits(size, r.last + 1, r.last + 1):
        return r
    book(size, r.last + 1, r.last + 1)
    return replace(r, until=r.last + 1)
