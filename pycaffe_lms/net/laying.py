"""Which values lie within others in a solver's programs, so that joining or cutting them copies nothing. Pure.

Where the bottoms of a Concat, as they are stored, are stretches of its top one after the other (the first axis; a batch
of one), they may lie in the top's memory from the start, and so may their gradients; Slice likewise. The copy is left
out where nobody can tell: neither value is changed while the other one is still read, and the memory that an iteration
needs at once does not grow. Passes that a user starts by hand copy, so by hand every blob has a value of its own.

See also: `laid.py` (the steps that follow from it).
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from itertools import accumulate

import numpy as np

from ..backend.device import ALIGN
from ..layers.base import Runs, count
from ..lms.schedule import Buffer, Mode
from .access import LayerStep, node_of
from .graph import Graph, Place
from .laid import Copy, copied
from .precision import type_of


def lay(
    graph: Graph,
    steps: Sequence[LayerStep],
    buffers: Sequence[Buffer],
    passing: Collection[int],
    lasting: Collection[int],
    apart: Collection[int],
    dtype: np.dtype,
    managed: bool,
) -> dict[int, Place]:
    """Where buffers lie within others. steps: of the widest program of a solver. passing: buffers that need memory only
    for a while in it; lasting: those whose values are wanted after it, or come from outside. apart: those that lie in
    no other, and no other in them. managed: with Large Model Support, where no step may need more than it does so."""
    if any(node.layer.looks_at or (node.layer.runs_on is Runs.HOST and node.bottoms) for node in graph.nodes):
        return {}  # shapes may change in the middle, where some stretches are written and others are not
    return _Laying(graph, steps, buffers, passing, lasting, apart, dtype, managed).run()


class _Laying:
    def __init__(self, graph, steps, buffers, passing, lasting, apart, dtype, managed):
        self.graph, self.steps, self.buffers, self.lasting, self.apart = graph, steps, buffers, lasting, apart
        self.managed, self.passing = managed, passing
        self.end = len(steps)
        self.uses: dict[int, list[tuple[int, bool]]] = {}  # buffer -> (step, whether it writes), in order
        for s, step in enumerate(steps):
            for a in step.step.accesses:
                self.uses.setdefault(a.buffer, []).append((s, a.mode is not Mode.READ))
        for b in lasting & self.uses.keys():
            self.uses[b].append((self.end, False))
        pairs = ((s, old, new) for s, step in enumerate(steps) for old, new in step.step.reuses)
        self.reuses = [(s, a, b) for s, a, b in pairs if buffers[a].nbytes == buffers[b].nbytes]
        self.elements = {b: count(v.shape) for v in graph.values for b in (v.data, v.diff)}
        itemsizes = {b: type_of(v, dtype).itemsize for v in graph.values for b in (v.data, v.diff)}
        self.units = {b: ALIGN // size for b, size in itemsizes.items()}  # elements; of stretches and their whole alike
        self.places: dict[int, Place] = {}
        self.inside: dict[int, list[int]] = {}  # whose memory others lie in -> they
        self.needs: tuple[int, int] | None = None  # of `_needs`, with these places; None: nobody asked yet

    def run(self) -> dict[int, Place]:
        for s, step in enumerate(self.steps):
            copies, whole = self._wanted(step)
            if copies and not self._leave_out(copies, s, whole) and not whole:
                for copy in copies:
                    self._leave_out([copy], s, True)
        return self.places

    def _leave_out(self, copies: Sequence[Copy], s: int, every: bool) -> bool:
        """Let what is copied in step `s` be where it is copied to, as far as that may be, and no more memory is needed.
        every: all of it or nothing. Returns whether anything is."""
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

    def _wanted(self, step: LayerStep) -> tuple[list[Copy], bool]:
        """What a step copies, and whether all of it must be left out or nothing."""
        node = node_of(self.graph, step)
        if step.look or step.zero or step.step.host or node.part or node.block:
            return [], False
        found = copied(self.graph, node, step.forward)
        if step.forward or not found:
            return found, False
        if found[0].joins:  # tops without a gradient count as zeros, which somebody must write
            return found if all(step.top_diffs) else [], True
        return [copy for copy, wanted in zip(found, node.propagate, strict=True) if wanted], False

    def _place(self, b: int) -> Place:
        return self.places.get(b, Place(b, 0))

    def _may(self, copy: Copy, s: int) -> bool:
        """Whether a part that is nowhere yet, with what lies in it, may be where step `s` copies it to or from."""
        part, at = copy.part, self._place(copy.whole)
        start = at.start + copy.start
        if part in self.places or part == at.buffer or part in self.lasting or {part, at.buffer} & self.apart:
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
        """Whether somebody could tell that two buffers are one from the copy in step `s` on."""
        target = whole if joins else part
        if any(at < s for at, _ in self.uses[target]):
            return True
        later = [[use for use in self.uses[b] if use[0] > s] for b in (part, whole)]
        return any(
            writes and any(other >= at for other, _ in theirs)
            for mine, theirs in (later, reversed(later))
            for at, writes in mine
        )

    def _put(self, copy: Copy) -> bool:
        at = self._place(copy.whole)
        moved = [copy.part, *self.inside.pop(copy.part, ())]
        for m in moved:
            self.places[m] = Place(at.buffer, at.start + copy.start + self._place(m).start)
        self.inside.setdefault(at.buffer, []).extend(moved)
        return True

    def _needs(self) -> tuple[int, int]:
        """(most bytes alive at once of what passes, if every buffer lives from its first use to its last and hands its
        memory over where it can; with Large Model Support, most that a step touches)."""
        lives: dict[int, tuple[int, int]] = {}
        for b, uses in self.uses.items():
            root = self._place(b).buffer
            if root in self.passing:
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
