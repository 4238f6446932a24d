"""Programs of a net: forward of some layers, backward of some layers, a whole training iteration. Pure.

`ProgramBuilder` puts the steps of layers in order; `sequence` makes a program of steps. In a program that the solver
repeats, values are dropped after their last use; every value survives a pass that a user starts by hand, since what
follows it is not known.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import TypeAlias

from ...layers.base import count
from ...lms.program import Mode, Program, Step, first_modes
from ..build.graph import Graph, Node
from .buffer_views import with_views
from .steps import (
    LayerStep,
    backward_steps,
    finish_step,
    forward_step,
    joinable,
    look_step,
    prepare_step,
    separable,
    wants,
    written_diffs,
)


@dataclass(frozen=True)
class HostedStep:
    """Hold a step that is not a layer's pass, such as a parameter's update or a norm.

    Args:
        run: run the step, once its buffers are where its accesses need them.
        repeatable: every run queues the same operations with the same scalars, as long as arrays do not move.
        last_uses: the buffers whose values nobody needs after the step, not even after the program.
    """

    step: Step
    run: Callable[[], None]
    repeatable: bool = False
    last_uses: frozenset[int] = frozenset()


AnyStep: TypeAlias = LayerStep | HostedStep


@dataclass(frozen=True)
class Sequenced:
    """Hold a program and what runs each of its steps.

    Args:
        by_hand: every value survives the program.
        split_backward: return the same program with split backwards, where it may be planned instead (see
            `split_backward.py`).
    """

    program: Program
    steps: tuple[AnyStep, ...]
    by_hand: bool = False
    split_backward: Callable[[], Sequenced] | None = None


class SplitBackward(Enum):
    """Select which separable layers have a split backward: none, those that are not `SMALL`, or all."""

    NONE = "none"
    LARGE = "large"
    ALL = "all"


SMALL = 6  # a layer is small if its gradients have less than 1/SMALL of the elements of the largest layer's


def _elements(graph: Graph, node: Node) -> int:
    """Return the elements that a layer's backward makes: of gradients of bottoms or of parameters, the larger sum."""
    bottoms = (b for b, wanted in zip(node.bottoms, node.propagate, strict=True) if wanted)
    params = (p for p, wanted in zip(node.params, node.param_propagate, strict=True) if wanted)
    return max(sum(count(graph.values[b].shape) for b in bottoms), sum(count(graph.params[p].shape) for p in params))


@dataclass
class ProgramBuilder:
    """Build the steps of a graph's forward and backward. Layers are given by their indices in the user's graph.

    Args:
        join: whether readers of one value may add their gradients to one buffer in a solver's program.
    """

    graph: Graph
    join: bool = True

    def _units(self, start: int, end: int, fused: bool) -> list[Node]:
        """Return layers start..end in the order in which they run. With `fused`, a group whose layers are all among
        them stands in their place, where its last layer would run."""
        nodes = [node for node in self.graph.nodes if start <= node.origin <= end]
        here = {node.index for node in nodes}
        groups = [g for g in self.graph.groups if fused and here.issuperset(g.members)]
        inside = {m for g in groups for m in g.members}
        last = {g.members[-1]: g for g in groups}
        return [last.get(node.index, node) for node in nodes if node.index in last or node.index not in inside]

    def forward(self, start: int, end: int, *, fused: bool = False) -> list[LayerStep]:
        """Return the forward of layers start..end, both included. fused: as a solver runs it, with groups and views."""
        found: list[LayerStep] = []
        finish: list[LayerStep] = []  # after the forwards of all data layers, which can then run ahead of the device
        for node in self._units(start, end, fused):
            steps = [s for make in (look_step, prepare_step, forward_step) if (s := make(self.graph, node)) is not None]
            if node.bottoms or not all(s.step.host for s in steps):
                found += finish
                finish = []
            found += steps
            last = finish_step(self.graph, node)
            if last is not None:
                finish.append(last)
        found += finish
        return with_views(self.graph, found) if fused else found

    def backward(
        self,
        start: int,
        end: int,
        present: Collection[int],
        *,
        accumulate: bool,
        fused: bool = False,
        split_backward: SplitBackward = SplitBackward.NONE,
    ) -> list[LayerStep]:
        """Return the backward of layers start..end, both included, start >= end.

        Args:
            present: diff buffers that hold a gradient already.
            accumulate: add to the parameters' gradients.
            fused: as a solver runs it, with groups and views.
            split_backward: which layers have a split backward.
        """
        here, touched, steps = set(present), set[int](), list[LayerStep]()
        units = self._units(end, start, fused)
        least, join = self._least(units, split_backward), joinable(self.graph) if fused and self.join else None
        for node in reversed(units):
            split = _elements(self.graph, node) >= least
            for step in backward_steps(self.graph, node, here, touched, accumulate, join, split):
                steps.append(step)
                here |= written_diffs(self.graph, step)
                if not step.zero:
                    wanted = zip(node.params, wants(node, step.makes)[1], strict=True)
                    touched |= {self.graph.params[p].diff for p, wants_it in wanted if wants_it}
        return with_views(self.graph, steps) if fused else steps

    def _least(self, units: Sequence[Node], split_backward: SplitBackward) -> float:
        """Return the least `_elements` of a layer with a split backward."""
        if split_backward is not SplitBackward.LARGE:
            return 0 if split_backward is SplitBackward.ALL else math.inf
        return max((_elements(self.graph, n) for n in units if separable(self.graph, n)), default=0) / SMALL

    def loss_diffs(self) -> set[int]:
        """Return the diff buffers that hold a loss weight."""
        return {v.diff for v in self.graph.values if v.loss_weight}


def sequence(
    name: str,
    steps: Sequence[AnyStep],
    survive: Iterable[int] | None,
) -> Sequenced:
    """Make a program of steps.

    Args:
        survive: buffers whose values are needed after the program; None: all of them. What the program reads before it
            writes survives in any case, for the next iteration reads it; `HostedStep.last_uses` never do.
    Raises:
        CaffeError: the error of a step that is refused.
    """
    for s in steps:
        if isinstance(s, LayerStep) and s.refused is not None:
            raise s.refused
    first = first_modes(s.step for s in steps)
    read_first = {b for b, mode in first.items() if mode is not Mode.OVERWRITE}
    live_out = first.keys() if survive is None else (first.keys() & survive) | read_first
    ended = {b for s in steps if isinstance(s, HostedStep) for b in s.last_uses}
    program = Program(name, tuple(s.step for s in steps), frozenset(live_out - ended))
    return Sequenced(program, tuple(steps), survive is None)
