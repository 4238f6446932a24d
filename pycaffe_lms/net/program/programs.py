"""Programs of a net: forward of some layers, backward of some layers, a whole training iteration. Pure but for `state`.

A program that the solver repeats knows its future, so dead values are dropped; one that a user starts by hand does not,
so every value survives it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from enum import Enum

from ...layers.base import count
from ...lms.program import Mode, Program, Step
from ..build.graph import Graph, Node
from .buffer_views import laid_out
from .steps import LayerStep, backward_steps, forward_step, look_step, separable, wants, written_diffs


@dataclass(frozen=True)
class HostedStep:
    """A step that is not a layer pass: a parameter's update, a norm. `run()` does it, once the asks are made.

    repeatable: each time it queues the same operations with the same numbers, as long as arrays stay in their place.
    """

    step: Step
    run: Callable[[], None]
    repeatable: bool = False


@dataclass(frozen=True)
class Sequenced:
    """A program and what runs each of its steps. separate: makes the same program with gradients of parameters and of
    bottoms in two steps, where that may be planned in its place (see `separating.py`)."""

    program: Program
    steps: tuple[LayerStep | HostedStep, ...]
    by_hand: bool = False  # every value survives
    separate: Callable[[], Sequenced] | None = None


class SplitBackward(Enum):
    """Of which layers the gradients of parameters and those of bottoms are made in two steps: of those that may, and
    then of all, or of those that are not small beside the largest."""

    NONE = "none"
    LARGE = "large"
    ALL = "all"


SMALL = 6  # a layer is small if it has less than one part in so many of the largest's elements


def _elements(graph: Graph, node: Node) -> int:
    """Of what its backward makes: gradients of bottoms, or of parameters, whichever are more."""
    bottoms = (b for b, wanted in zip(node.bottoms, node.propagate, strict=True) if wanted)
    params = (p for p, wanted in zip(node.params, node.param_propagate, strict=True) if wanted)
    return max(sum(count(graph.values[b].shape) for b in bottoms), sum(count(graph.params[p].shape) for p in params))


@dataclass
class ProgramBuilder:
    """graph: what runs. Layers are named by their indices in the user's graph. join: where a solver's program may add
    up gradients of one value in one place."""

    graph: Graph
    join: bool = True

    def _units(self, start: int, end: int, fused: bool) -> list[Node]:
        """Layers start..end in the order in which they run; with `fused`, groups that lie inside in place of their
        layers, at their last."""
        nodes = [node for node in self.graph.nodes if start <= node.origin <= end]
        here = {node.index for node in nodes}
        groups = [g for g in self.graph.groups if fused and here.issuperset(g.members)]
        inside = {m for g in groups for m in g.members}
        last = {g.members[-1]: g for g in groups}
        return [last.get(node.index, node) for node in nodes if node.index in last or node.index not in inside]

    def forward(self, start: int, end: int, *, fused: bool = False) -> list[LayerStep]:
        """Forward of layers start..end, both included."""
        nodes = self._units(start, end, fused)
        steps = (make(self.graph, node) for node in nodes for make in (look_step, forward_step))
        found = [s for s in steps if s is not None]
        return laid_out(self.graph, found) if fused else found

    def backward(
        self, start: int, end: int, present: Collection[int], *, accumulate: bool, fused: bool = False,
        separate: SplitBackward = SplitBackward.NONE,
    ) -> list[LayerStep]:  # fmt: skip
        """Backward of layers start..end, start >= end. present: diff buffers that hold a gradient already. separate:
        of which layers the gradients of parameters and of bottoms are made in two steps."""
        here, touched, steps = set(present), set(), []
        units = self._units(end, start, fused)
        least, join = self._least(units, separate), fused and self.join
        for node in reversed(units):
            halves = _elements(self.graph, node) >= least
            for step in backward_steps(self.graph, node, here, touched, accumulate, join, halves):
                steps.append(step)
                here |= written_diffs(self.graph, step)
                if not step.zero:
                    wanted = zip(node.params, wants(node, step.makes)[1], strict=True)
                    touched |= {self.graph.params[p].diff for p, wants_it in wanted if wants_it}
        return laid_out(self.graph, steps) if fused else steps

    def _least(self, units: Sequence[Node], separate: SplitBackward) -> float:
        """Elements that a layer must have for two steps."""
        if separate is not SplitBackward.LARGE:
            return 0 if separate is SplitBackward.ALL else math.inf
        return max((_elements(self.graph, n) for n in units if separable(self.graph, n)), default=0) / SMALL

    def loss_diffs(self) -> set[int]:
        """Diff buffers that hold a loss weight."""
        return {v.diff for v in self.graph.values if v.loss_weight}


def sequence(
    name: str,
    steps: Sequence[LayerStep | HostedStep],
    survive: Iterable[int] | None,
) -> Sequenced:
    """A program of these steps. survive: buffers whose values are needed after it; None: all of them.

    What a repeated program reads before it writes must survive too, whatever `survive` says. Raises the error of a step
    that is refused.
    """
    for s in steps:
        if isinstance(s, LayerStep) and s.refused is not None:
            raise s.refused
    first: dict[int, Mode] = {}
    touched: set[int] = set()
    for s in steps:
        for a in s.step.accesses:
            first.setdefault(a.buffer, a.mode)
            touched.add(a.buffer)
    read_first = {b for b, mode in first.items() if mode is not Mode.OVERWRITE}
    live_out = touched if survive is None else (set(survive) & touched) | read_first
    program = Program(name, tuple(s.step for s in steps), frozenset(live_out))
    return Sequenced(program, tuple(steps), survive is None)
