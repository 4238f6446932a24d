"""Steps of a solver's programs with values where `Graph.laid` has them: within others. Pure.

See also: `laying.py` (which values those are, and why), `executor.py` (the arrays).
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

from ..lms.schedule import Access, Mode, merge_accesses
from .access import LayerStep, node_of
from .copies import differs
from .graph import Graph, Node, Place


@dataclass(frozen=True, slots=True)
class Copy:
    """What a step copies: a buffer to, or from, the stretch of another one that begins at this element."""

    part: int
    whole: int
    start: int
    joins: bool  # the part is read, the whole is written


def copied(graph: Graph, node: Node, forward: bool) -> list[Copy]:
    """For each of the many bottoms of a layer that joins them, or tops of one that cuts its bottom, what a pass
    copies; none for any other layer."""
    starts = node.layer.stretches
    if not starts or any(differs(graph, node, v) for v in (*node.bottoms, *node.tops)):
        return []
    joins = len(node.bottoms) > 1
    many, one = (node.bottoms, node.tops[0]) if joins else (node.tops, node.bottoms[0])
    kind = "data" if forward else "diff"
    whole = getattr(graph.values[one], kind)
    return [
        Copy(getattr(graph.values[v], kind), whole, start, joins == forward)
        for v, start in zip(many, starts, strict=True)
    ]


def in_place(graph: Graph, node: Node, forward: bool) -> frozenset[int]:
    """Those of `copied`, by index, that lie where they would be copied to."""
    found = copied(graph, node, forward)
    return frozenset(i for i, copy in enumerate(found) if _settled(graph, copy))


def _settled(graph: Graph, copy: Copy) -> bool:
    part, whole = (graph.laid.get(b, Place(b, 0)) for b in (copy.part, copy.whole))
    return part == Place(whole.buffer, whole.start + copy.start)


def place_of(graph: Graph, step: LayerStep, buffer: int) -> Place:
    """Where a step finds what it calls that buffer."""
    at_start = Place(buffer, 0)
    return at_start if step.apart is None else graph.laid.get(buffer, at_start)


def laid_out(graph: Graph, steps: Sequence[LayerStep]) -> list[LayerStep]:
    """The steps of a program with values where `graph.laid` has them; those that then have nothing to do are left out.

    Who writes a stretch of a buffer leaves the rest of it, but for the first who touches it: nothing is there yet."""
    if not graph.laid:
        return list(steps)
    found, seen = [], set()
    for step in steps:
        laid = _laid(graph, step, seen)
        if laid is not None:
            found.append(laid)
            seen.update(a.buffer for a in laid.step.accesses)
    return found


def _laid(graph: Graph, step: LayerStep, seen: Collection[int]) -> LayerStep | None:
    node = node_of(graph, step)
    copies = [] if step.look or step.zero else copied(graph, node, step.forward)
    settled = in_place(graph, node, step.forward) if copies else frozenset()
    gone: set[int] = {copies[i].part for i in settled}
    if settled:
        left = {c.part for i, c in enumerate(copies) if i not in settled and (step.forward or _moves(node, i))}
        if not left:
            return None
        gone -= left
    wholes = {c.whole for c in copies} if settled else set()
    parts: list[Access] = []
    for a in step.step.accesses:
        place, mode = graph.laid.get(a.buffer), a.mode
        if a.buffer in gone:
            continue
        b = a.buffer if place is None else place.buffer
        if mode is Mode.OVERWRITE and b in seen and (place is not None or a.buffer in wholes):
            mode = Mode.UPDATE
        parts.append(Access(b, mode))
    if not settled and not any(a.buffer in graph.laid for a in step.step.accesses):
        return step
    reuses = tuple(pair for pair in step.step.reuses if not graph.laid.keys() & set(pair))
    return replace(step, step=replace(step.step, accesses=merge_accesses(parts), reuses=reuses), apart=step.step)


def replayed(graph: Graph, forward: LayerStep, replay: LayerStep | None) -> LayerStep | None:
    """The replay of a forward of `laid_out`: None where it would write a stretch, for whole values are made again."""
    if replay is None or forward.apart is None:
        return replay
    written = {a.buffer for a in replay.step.accesses if a.mode is not Mode.READ}
    if node_of(graph, forward).layer.stretches or written & graph.laid.keys():
        return None
    return _laid(graph, replay, ())


def _moves(node: Node, i: int) -> bool:
    """Whether the backward of a layer that joins or cuts moves its i-th gradient."""
    return node.propagate[i if len(node.bottoms) > 1 else 0]
