"""Find in-place reuse: a step that reads a value for the last time writes another one of the same size over it.

Pure. Layers declare the pairs that allow it (`Step.reuses`); this module finds the steps at which the old value ends.
`planner/optimise.py` gives the two live ranges one offset.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from ..program import Buffer, Mode, Program, Step

if TYPE_CHECKING:
    from ..plan.live_ranges import LiveRange
    from ..remat.candidates import RematCandidates

Pair = tuple[int, int]  # (buffer whose value ends, buffer written over it)


def inplace_reuses(program: Program, buffers: Mapping[int, Buffer]) -> dict[int, tuple[Pair, ...]]:
    """Return step -> pairs of `buffers` that reuse memory there; a buffer is in at most one pair per step."""
    following: dict[int, Mode] = {}  # buffer -> mode of its next access
    found: dict[int, tuple[Pair, ...]] = {}
    for s in range(len(program.steps) - 1, -1, -1):
        step = program.steps[s]
        pairs: list[Pair] = []
        for old, new in possible(step, buffers):
            ends = following.get(old, Mode.READ if old in program.live_out else Mode.OVERWRITE) is Mode.OVERWRITE
            if ends and not any({old, new} & {*p} for p in pairs):
                pairs.append((old, new))
        if pairs:
            found[s] = tuple(pairs)
        for a in step.accesses:
            following[a.buffer] = a.mode
    return found


def possible(step: Step, buffers: Mapping[int, Buffer]) -> list[Pair]:
    """Return the pairs of `buffers` whose second may be written over the first, if the first ends at this step."""
    if not step.reuses or step.host:
        return []
    modes = {a.buffer: a.mode for a in step.accesses if a.buffer in buffers}
    return [
        (old, new)
        for old, new in step.reuses
        if modes.get(old) in _READS and modes.get(new) is Mode.OVERWRITE and buffers[old].nbytes == buffers[new].nbytes
    ]


def hoped(program: Program, buffers: Mapping[int, Buffer], can: RematCandidates) -> dict[int, tuple[Pair, ...]]:
    """Return `inplace_reuses` plus the pairs whose old value is read later but can be rematerialized for that."""
    found = {s: list(pairs) for s, pairs in inplace_reuses(program, buffers).items()}
    wanted: dict[tuple[int, int], int] = {}  # (step, old) -> the next step that reads it
    following: dict[int, tuple[int, Mode]] = {}
    for s in range(len(program.steps) - 1, -1, -1):
        step = program.steps[s]
        for old, _ in possible(step, buffers):
            if old in following and following[old][1] is not Mode.OVERWRITE:
                wanted[s, old] = following[old][0]
        following.update((a.buffer, (s, a.mode)) for a in step.accesses)
    maker: dict[int, int] = {}
    for s, step in enumerate(program.steps):
        maker.update((a.buffer, s) for a in step.accesses if a.mode is not Mode.READ)
        for old, new in possible(step, buffers):
            r, pairs = maker.get(old), found.setdefault(s, [])
            if r is None or (s, old) not in wanted or r not in can.valid_until or old not in can.makes[r]:
                continue
            if can.valid_until[r] >= wanted[s, old] and not any({old, new} & {*p} for p in pairs):
                pairs.append((old, new))
    return {s: tuple(pairs) for s, pairs in found.items() if pairs}


_READS = (Mode.READ, Mode.UPDATE)


def chains(live_ranges: Sequence[LiveRange], pairs: Mapping[int, Sequence[Pair]]) -> list[list[int]]:
    """Group live ranges that share one place.

    Returns:
        Lists of indices into `live_ranges`, each in order of time; without in-place reuse a list has one.
    """
    ending = {(r.buffer, r.last): i for i, r in enumerate(live_ranges) if not r.live and r.until == r.last}
    starting = {(r.buffer, r.first): i for i, r in enumerate(live_ranges) if not r.fetched}
    after: dict[int, int] = {}
    for s, found in pairs.items():
        for old, new in found:
            i, j = ending.get((old, s)), starting.get((new, s))
            if i is not None and j is not None and i != j:
                after[i] = j
    followers = set(after.values())
    groups = []
    for i in range(len(live_ranges)):
        if i not in followers:
            group = [i]
            while group[-1] in after:
                group.append(after[group[-1]])
            groups.append(group)
    return groups


def step_needs(
    program: Program, buffers: Mapping[int, Buffer], pairs: Mapping[int, Sequence[Pair]] | None = None
) -> list[int]:
    """Return, per step, the bytes of `buffers` that it needs on the device at once. pairs: in-place reuse; None: the
    program's."""
    sizes = {b: buffer.nbytes for b, buffer in buffers.items()}
    pairs = inplace_reuses(program, buffers) if pairs is None else pairs
    steps = enumerate(program.steps)
    return [step.device_bytes(sizes) - sum(sizes[new] for _, new in pairs.get(s, ())) for s, step in steps]
