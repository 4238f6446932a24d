"""Plan from an access list: when each buffer is on the device, at which offset, and what waits for what. Pure.

`live_ranges` finds live ranges on demand; `make_plan` lengthens them by a number of steps where memory would be idle
(prefetch early, copy out late) and packs them; `finish` makes the plan from live ranges and offsets.

See also: `lowering.py` (operations and waits), `optimise.py` (chooses by predicted time what stays, is copied or is
rematerialized), `../managed.py` (which buffers are managed), `../plan/verify.py` (proves plans, without this code).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise

from ...errors import OutOfDeviceMemory, Where, human_bytes
from ..layout.inplace_reuse import Pair, chains, inplace_reuses, step_needs
from ..layout.packing import Lifetime, Load, Packing, pack
from ..layout.paging import Paging, in_one_piece, paged, taken_bytes
from ..plan.live_ranges import LiveRange
from ..plan.plan import Plan
from ..program import Buffer, Mode, Program, layer_of, uses_of
from ..rules import SEARCH, SearchBudget
from .lowering import Emitted, emit

IN_PARTS = (  # advice in errors; also says why this is not the default
    "-lms_split auto, to run layers in micro-batches or slabs, or -lms_split_outputs auto, to run fully connected "
    "layers in blocks of outputs: sums round differently then, so results equal those of whole layers to rounding, "
    "not to the bit"
)


def make_plan(
    program: Program,
    buffers: Mapping[int, Buffer],
    *,
    limit: int | None,
    ahead: int,
    uncopied: Collection[int] = (),
    page: int | None = None,
    search: SearchBudget = SEARCH,
) -> Plan:
    """Plan `program` on demand, with look-ahead where memory would be idle.

    Args:
        buffers: managed buffers by id; the caller aligns their sizes.
        limit: bytes of the arena; None: no limit.
        ahead: most steps that a prefetch comes before its use.
        uncopied: buffers whose values are on the device from first to last use.
        page: bytes of the arena's pages; None: the arena is contiguous.
        search: the numbers by which plans are searched for.

    Raises:
        OutOfDeviceMemory: prefetch on demand does not fit either; names the step, its buffers and their bytes.
    """
    demand = live_ranges(program, buffers, uncopied=uncopied)
    refuse_impossible(program, buffers, limit)
    sizes = {b: taken_bytes(buffer.nbytes, page) for b, buffer in buffers.items()}
    memory, tries = limit, 0
    while True:
        ranges = _look_ahead(demand, sizes, len(program.steps), memory, ahead) if ahead else demand
        packing, tries = _pack(program, ranges, buffers, limit, page), tries + 1
        if limit is None or packing.peak <= limit or ranges == demand or tries == search.ahead_tries:
            break
        memory = int((memory or packing.peak) * search.ahead_factor)
    if limit is not None and packing.peak > limit:
        ranges, packing = demand, _pack(program, demand, buffers, limit, page)
    if limit is not None and packing.peak > limit and page is not None:  # rounding to whole pages takes too much
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
        finish(program, buffers, ranges, packing), rules=f"look-ahead of {ahead} steps" if ahead else "on demand"
    )


def _pack(
    program: Program,
    ranges: Sequence[LiveRange],
    buffers: Mapping[int, Buffer],
    limit: int | None,
    page: int | None,
) -> Packing:
    """Pack live ranges, those joined by in-place reuse as one."""
    groups = chains(ranges, inplace_reuses(program, buffers))
    lives = [Lifetime(ranges[g[0]].issue, ranges[g[-1]].until, buffers[ranges[g[0]].buffer].nbytes) for g in groups]
    packing = pack(lives, limit) if page is None else paged(lives, page, limit)
    return spread(packing, groups, len(ranges))


def spread(packing: Packing, groups: Sequence[Sequence[int]], n: int) -> Packing:
    """Return the packing of groups as a packing of their `n` members."""
    offsets = [0] * n
    for group, offset in zip(groups, packing.offsets, strict=True):
        for i in group:
            offsets[i] = offset
    return replace(packing, offsets=tuple(offsets))


def finish(
    program: Program,
    buffers: Mapping[int, Buffer],
    ranges: Sequence[LiveRange],
    packing: Packing,
    order: Sequence[tuple[int, bool]] | None = None,
) -> Plan:
    """Make the plan of these live ranges at these offsets (bytes). order: as `Plan.order`; None: the program's own."""
    made = emitted(program, buffers, ranges, packing.offsets, packing.paging)
    plan = Plan(
        program=program,
        buffers=dict(buffers),
        ops=made.ops,
        arena_bytes=packing.peak,
        held_bytes=made.held,
        live_bytes=packing.max_live,
        bytes_in=sum(buffers[r.buffer].copied for r in ranges if r.fetched),
        bytes_out=sum(buffers[r.buffer].copied for r in ranges if r.saved),
        order=tuple(order) if order is not None else tuple((s, False) for s in range(len(program.steps))),
        paging=packing.paging,
    )
    left = sum(plan.copied(op) for op in plan.carried_over)
    return replace(plan, bytes_in=plan.bytes_in - left) if left else plan


def emitted(
    program: Program,
    buffers: Mapping[int, Buffer],
    ranges: Sequence[LiveRange],
    offsets: Sequence[int],
    paging: Paging | None,
) -> Emitted:
    """Return the operations of these live ranges at these offsets (bytes)."""
    pairs = inplace_reuses(program, buffers)
    before = {j: i for group in chains(ranges, pairs) for i, j in pairwise(group)}
    return emit(program, buffers, ranges, offsets, before, paging)


def live_ranges(
    program: Program,
    buffers: Mapping[int, Buffer],
    left: Collection[tuple[int, int]] | None = None,
    uncopied: Collection[int] = (),
) -> list[LiveRange]:
    """Return live ranges in order of first use.

    Without `left`, live ranges are on demand: each spans consecutive steps that use the buffer, and no more; those of
    `uncopied` buffers go on to the next use, unless that is on the host or overwrites the value.

    Args:
        left: evictions, as (buffer, step of the last use before it). All other live ranges go on to the next use,
            unless that is on the host or overwrites the value. A live range in `left` that is overwritten next ends,
            even where the next step does so.
    """
    ranges: list[LiveRange] = []
    for b, accesses in uses_of(program, buffers).items():
        run: list[tuple[int, Mode]] = []
        earliest = 0
        for i, (s, mode, host) in enumerate(accesses):
            if host:
                earliest = s + 1
                continue
            run.append((s, mode))
            following = accesses[i + 1] if i + 1 < len(accesses) else None
            goes_on = following and not following[2] and following[1] is not Mode.OVERWRITE
            given = left is not None and (b, s) in left and not goes_on  # in-place reuse may have taken its memory
            if following and not following[2] and following[0] == s + 1 and not given:
                continue
            if goes_on and (b in uncopied if left is None else (b, s) not in left):
                continue
            live = following[1] is not Mode.OVERWRITE if following else b in program.live_out
            written = max((t for t, m in run if m is not Mode.READ), default=None)
            fetched = run[0][1] is not Mode.OVERWRITE
            ranges.append(LiveRange(b, run[0][0], s, fetched, written, live, earliest, run[0][0], s))
            earliest, run = s + 1, []
    return sorted(ranges, key=lambda r: (r.first, r.buffer))


def refuse_impossible(
    program: Program,
    buffers: Mapping[int, Buffer],
    limit: int | None,
    pairs: Mapping[int, Sequence[Pair]] | None = None,
) -> None:
    """Raise OutOfDeviceMemory if a step's buffers exceed `limit` bytes. pairs: in-place reuse; None: the program's."""
    if limit is None:
        return
    need = step_needs(program, buffers, pairs)
    needed = max(need, default=0)
    if needed <= limit:
        return
    worst = program.steps[need.index(needed)]
    parts = sorted({a.buffer for a in worst.accesses if a.buffer in buffers}, key=lambda b: -buffers[b].nbytes)
    listing = ", ".join(f'"{buffers[b].name}" {human_bytes(buffers[b].nbytes)}' for b in parts[:6])
    raise OutOfDeviceMemory(
        f"step {worst.name} needs {human_bytes(needed)} of device memory at once, {human_bytes(max(limit, 0))} are "
        f"there for managed buffers (largest: {listing})",
        needed=needed,
        free=limit,
        where=Where(layer=layer_of(worst.name)),
        fix="raise -lms_budget, lower batch_size or -workspace, or lower -lms so that fewer buffers stay on the device "
        f"all the time, because the buffers of one layer must fit at once; or {IN_PARTS}",
    )


def _look_ahead(
    demand: list[LiveRange], sizes: Mapping[int, int], n_steps: int, limit: int | None, ahead: int
) -> list[LiveRange]:
    """Fill idle memory: bridge short gaps, then prefetch early, then let copies out finish while later steps run."""
    load = Load(n_steps + 1)
    for r in demand:
        load.add(sizes[r.buffer], r.issue, r.until)

    def fits(size: int, start: int, end: int) -> bool:
        return limit is None or load.most(start, end) + size <= limit

    ranges: list[LiveRange] = []
    last_of: dict[int, int] = {}
    for r in demand:  # bridge gaps of at most `ahead` steps
        before = last_of.get(r.buffer)
        size = sizes[r.buffer]
        if before is not None and r.fetched and r.earliest == ranges[before].last + 1:
            old = ranges[before]
            if r.first - old.last - 1 <= ahead and fits(size, old.last + 1, r.first - 1):
                load.add(size, old.last + 1, r.first - 1)
                written = old.written if r.written is None else r.written
                ranges[before] = replace(old, last=r.last, until=r.last, written=written, live=r.live)
                continue
        last_of[r.buffer] = len(ranges)
        ranges.append(r)
    for i, r in enumerate(ranges):
        size, issue = sizes[r.buffer], r.issue
        while r.fetched and issue > max(r.earliest, r.first - ahead) and fits(size, issue - 1, issue - 1):
            issue -= 1
            load.add(size, issue, issue)
        ranges[i] = replace(r, issue=issue)
    for i, r in enumerate(ranges):  # hold the memory one step longer for the copy out
        size, until = sizes[r.buffer], r.last + 1
        if r.saved and until < n_steps and fits(size, until, until):
            load.add(size, until, until)
            ranges[i] = replace(r, until=until)
    return ranges
