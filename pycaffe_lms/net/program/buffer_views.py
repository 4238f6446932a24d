"""Buffer views: values stored inside other values, so that Concat, Slice and similar layers need no copies. Pure.

`choose_views` chooses the views of a net (`Graph.views`); `with_views` rewrites the steps of a program to access the
enclosing buffers and drops the steps that have nothing left to copy. The arrays are made in `net/run/executor.py`.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate

import numpy as np

from ...arrays import DType
from ...backend.device import ALIGN
from ...layers.base import count
from ...lms.program import Access, Buffer, Mode, merge_accesses
from ..build.graph import Graph, Node, Place
from ..passes.order_copies import differs
from ..passes.precision import type_of
from .steps import LayerStep, node_of


@dataclass(frozen=True, slots=True)
class ViewCopy:
    """Describe one copy of a step: between a buffer and a range of elements of a larger buffer."""

    part: int
    whole: int
    start: int  # element of `whole`
    joins: bool  # the part is read and the whole is written


def copied(graph: Graph, node: Node, forward: bool) -> list[ViewCopy]:
    """Return what a pass of a layer copies: one entry per bottom of a layer that joins them (Concat) or per top of one
    that cuts its bottom (Slice), none for other layers."""
    starts = node.layer.view_offsets
    if not starts or any(differs(graph, node, v) for v in (*node.bottoms, *node.tops)):
        return []
    joins = len(node.bottoms) > 1
    many, one = (node.bottoms, node.tops[0]) if joins else (node.tops, node.bottoms[0])
    kind = "data" if forward else "diff"
    whole = getattr(graph.values[one], kind)
    return [
        ViewCopy(getattr(graph.values[v], kind), whole, start, joins == forward)
        for v, start in zip(many, starts, strict=True)
    ]


def in_place(graph: Graph, node: Node, forward: bool) -> frozenset[int]:
    """Return the indices in `copied` of the parts that are views of the whole, so need no copy."""
    found = copied(graph, node, forward)
    return frozenset(i for i, copy in enumerate(found) if _is_view(graph, copy))


def _is_view(graph: Graph, copy: ViewCopy) -> bool:
    part, whole = (graph.views.get(b, Place(b, 0)) for b in (copy.part, copy.whole))
    return part == Place(whole.buffer, whole.start + copy.start)


def place_of(graph: Graph, step: LayerStep, buffer: int) -> Place:
    """Return where a step finds the elements of a buffer."""
    at_start = Place(buffer, 0)
    return at_start if step.without_views is None else graph.views.get(buffer, at_start)


def with_views(graph: Graph, steps: Sequence[LayerStep]) -> list[LayerStep]:
    """Return the steps of a program with the views of `graph.views`, without those that have nothing left to do.

    A step that writes a range of a buffer updates the buffer, since the rest must be kept. The first access of the
    program still overwrites: the buffer has no content yet."""
    if not graph.views:
        return list(steps)
    found, seen = list[LayerStep](), set[int]()
    for step in steps:
        viewed = _with_views(graph, step, seen)
        if viewed is not None:
            found.append(viewed)
            seen.update(a.buffer for a in viewed.step.accesses)
    return found


def _with_views(graph: Graph, step: LayerStep, seen: Collection[int]) -> LayerStep | None:
    """Return the step with accesses to the enclosing buffers, None where nothing is left to do.

    Args:
        seen: buffers that earlier steps of the program access.
    """
    node = node_of(graph, step)
    copies = [] if step.look or step.zero else copied(graph, node, step.forward)
    views = in_place(graph, node, step.forward) if copies else frozenset()
    not_copied: set[int] = {copies[i].part for i in views}
    if views:
        left = {c.part for i, c in enumerate(copies) if i not in views and (step.forward or _moves(node, i))}
        if not left:
            return None
        not_copied -= left
    wholes = {c.whole for c in copies} if views else set()
    parts: list[Access] = []
    for a in step.step.accesses:
        place, mode = graph.views.get(a.buffer), a.mode
        if a.buffer in not_copied:
            continue
        b = a.buffer if place is None else place.buffer
        if mode is Mode.OVERWRITE and b in seen and (place is not None or a.buffer in wholes):
            mode = Mode.UPDATE
        parts.append(Access(b, mode))
    if not views and not any(a.buffer in graph.views for a in step.step.accesses):
        return step
    reuses = tuple(pair for pair in step.step.reuses if not graph.views.keys() & set(pair))
    return replace(
        step, step=replace(step.step, accesses=merge_accesses(parts), reuses=reuses), without_views=step.step
    )


def remat_with_views(graph: Graph, forward: LayerStep, remat: LayerStep | None) -> LayerStep | None:
    """Return the remat step of a forward of `with_views`, None where it would write to a view: only whole buffers are
    rematerialized."""
    if remat is None or forward.without_views is None:
        return remat
    written = {a.buffer for a in remat.step.accesses if a.mode is not Mode.READ}
    if node_of(graph, forward).layer.view_offsets or written & graph.views.keys():
        return None
    return _with_views(graph, remat, ())


def _moves(node: Node, i: int) -> bool:
    """Return whether the backward of a layer that joins or cuts copies its i-th gradient."""
    return node.propagate[i if len(node.bottoms) > 1 else 0]


def choose_views(
    graph: Graph,
    steps: Sequence[LayerStep],
    buffers: Sequence[Buffer],
    short_lived: Collection[int],
    lasting: Collection[int],
    excluded: Collection[int],
    dtype: np.dtype,
    managed: bool,
) -> dict[int, Place]:
    """Choose the buffer views of a net: {buffer: its place in another buffer}.

    A copy is replaced by a view only if peak memory does not grow and every step still finds the same values.

    Args:
        steps: the longest program of the solver.
        short_lived: buffers that need memory during a part of the program only.
        lasting: buffers whose values are read after the program or come from outside.
        excluded: buffers that may neither be views nor have any.
        managed: whether Large Model Support runs; then the most bytes that one step accesses may not grow, either.
    """
    if graph.shapes_may_change:
        return {}  # shapes may change within an iteration, when only some views are written
    return _ViewChoice(graph, steps, buffers, short_lived, lasting, excluded, dtype, managed).run()


class _ViewChoice:
    """Choose views greedily, in the order of the steps."""

    def __init__(
        self,
        graph: Graph,
        steps: Sequence[LayerStep],
        buffers: Sequence[Buffer],
        short_lived: Collection[int],
        lasting: Collection[int],
        excluded: Collection[int],
        dtype: DType,
        managed: bool,
    ):
        self.graph, self.steps, self.buffers, self.lasting, self.excluded = graph, steps, buffers, lasting, excluded
        self.managed, self.short_lived = managed, short_lived
        self.end = len(steps)
        self.uses: dict[int, list[tuple[int, bool]]] = {}  # buffer -> (step, whether it writes), in order
        for s, step in enumerate(steps):
            for a in step.step.accesses:
                self.uses.setdefault(a.buffer, []).append((s, a.mode is not Mode.READ))
        for b in self.uses.keys() & lasting:
            self.uses[b].append((self.end, False))
        pairs = ((s, old, new) for s, step in enumerate(steps) for old, new in step.step.reuses)
        self.reuses = [(s, a, b) for s, a, b in pairs if buffers[a].nbytes == buffers[b].nbytes]
        self.elements = {b: count(v.shape) for v in graph.values for b in (v.data, v.diff)}
        itemsizes = {b: type_of(v, dtype).itemsize for v in graph.values for b in (v.data, v.diff)}
        self.units = {b: ALIGN // size for b, size in itemsizes.items()}  # elements; views start at multiples of it
        self.places: dict[int, Place] = {}
        self.inside: dict[int, list[int]] = {}  # buffer -> its views
        self.needs: tuple[int, int] | None = None  # `_needs` with these places; None: not yet computed

    def run(self) -> dict[int, Place]:
        """Return the chosen places, by buffer."""
        for s, step in enumerate(self.steps):
            copies, all_or_none = self._wanted(step)
            if copies and not self._make_views(copies, s, all_or_none) and not all_or_none:
                for copy in copies:
                    self._make_views([copy], s, True)
        return self.places

    def _make_views(self, copies: Sequence[ViewCopy], s: int, every: bool) -> bool:
        """Make views of what step `s` copies, as far as allowed, unless more memory would be needed.

        Args:
            every: make views of all copies or of none.
        Returns:
            whether any view was made.
        """
        self.needs = self.needs or self._needs()
        before = dict(self.places), {b: list(ids) for b, ids in self.inside.items()}
        done = [self._may(copy, s) and self._put(copy) for copy in copies]
        if all(done) if every else any(done):
            needs = self._needs()
            if all(now <= old for now, old in zip(needs, self.needs, strict=True)):
                self.needs = needs
                return True
        self.places, self.inside = before
        return False

    def _wanted(self, step: LayerStep) -> tuple[list[ViewCopy], bool]:
        """Return the copies of a step that views may replace, and whether views must replace all of them or none."""
        node = node_of(self.graph, step)
        if step.look or step.zero or step.step.host or node.part or node.block:
            return [], False
        found = copied(self.graph, node, step.forward)
        if step.forward or not found:
            return found, False
        if found[0].joins:  # tops without a gradient count as zeros, which this step must write
            return found if all(step.top_diffs) else [], True
        return [copy for copy, wanted in zip(found, node.propagate, strict=True) if wanted], False

    def _place(self, b: int) -> Place:
        """Return where a buffer lies with the views chosen so far."""
        return self.places.get(b, Place(b, 0))

    def _may(self, copy: ViewCopy, s: int) -> bool:
        """Return whether the part of a copy in step `s`, with its own views, may become a view of the whole."""
        part, at = copy.part, self._place(copy.whole)
        start = at.start + copy.start
        if part in self.places or part == at.buffer or part in self.lasting:
            return False
        if part in self.excluded or at.buffer in self.excluded:
            return False
        if start % self.units[part] or not self.elements[part] or not {part, copy.whole} <= self.uses.keys():
            return False
        mine = [(m, start + self._place(m).start) for m in (part, *self.inside.get(part, ()))]
        return not any(
            self._clash(m, other, s, copy.joins)
            for m, first in mine
            for other in (at.buffer, *self.inside.get(at.buffer, ()))
            if first < self._place(other).start + self.elements[other]
            and self._place(other).start < first + self.elements[m]
        )

    def _clash(self, part: int, whole: int, s: int, joins: bool) -> bool:
        """Return whether sharing memory from the copy in step `s` on would change a value that a step reads."""
        target = whole if joins else part
        if any(at < s for at, _ in self.uses[target]):
            return True
        later = [[use for use in self.uses[b] if use[0] > s] for b in (part, whole)]
        return any(
            writes and any(other >= at for other, _ in theirs)
            for mine, theirs in (later, reversed(later))
            for at, writes in mine
        )

    def _put(self, copy: ViewCopy) -> bool:
        """Record the part, and its own views, as views of the whole. Always return True."""
        at = self._place(copy.whole)
        moved = [copy.part, *self.inside.pop(copy.part, ())]
        for m in moved:
            self.places[m] = Place(at.buffer, at.start + copy.start + self._place(m).start)
        self.inside.setdefault(at.buffer, []).extend(moved)
        return True

    def _needs(self) -> tuple[int, int]:
        """Return (peak bytes of the buffers in `short_lived`, most bytes that one step accesses; the latter 0 unless
        managed). Every buffer lives from its first use to its last and is reused in place where possible."""
        lives: dict[int, tuple[int, int]] = {}
        for b, uses in self.uses.items():
            root = self._place(b).buffer
            if root in self.short_lived:
                first, last = lives.get(root, (self.end, 0))
                lives[root] = min(first, uses[0][0]), max(last, uses[-1][0])
        change = [0] * (self.end + 2)
        for b, (first, last) in lives.items():
            change[first] += self.buffers[b].nbytes
            change[last + 1] -= self.buffers[b].nbytes
        for s, old, new in self.reuses:
            if lives.get(old, (0, 0))[1] == s == lives.get(new, (0, 0))[0] and not {old, new} & self.places.keys():
                change[s] -= self.buffers[new].nbytes
                change[s + 1] += self.buffers[new].nbytes
        if not self.managed:
            return max(accumulate(change)), 0
        touched = ({self._place(a.buffer).buffer for a in step.step.accesses} for step in self.steps)
        return max(accumulate(change)), max(sum(self.buffers[b].nbytes for b in ids) for ids in touched)
