"""Runs the tests of a solver: forwards over test_iter batches, and the means of the outputs.

Of N ranks, rank r runs the batches r, r + N, ... of a test with the values of rank 0, and each adds up the outputs
of all batches in their order, so that means equal those of rank 0 alone to the bit. `why_alone` says which test nets
cannot be divided so; those rank 0 runs alone while the others wait in their next sum, as in Caffe.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ..layers.base import Layer
from . import debug, loss_watch
from .detection_scores import DetectionScores
from .display import output_elements
from .events import Output

if TYPE_CHECKING:
    from ..net.net import Net
    from .base import Ranks, Solver
    from .loss_watch import LossWatch

_INTERRUPT = 1 << 32  # beside a number of outputs
_ABSENT = -(1 << 63)  # below the bits of any number


class Scores(NamedTuple):
    """Hold the sums of a test over its batches: of every output element, and of the losses.

    detection: holds the outputs in place of `totals`, where they are no means."""

    totals: list[Output]
    loss: float
    detection: DetectionScores | None = None

    def means(self, batches: int) -> tuple[Output, ...]:
        """Return the mean of every output element; of detection the mean average precisions, which log classes."""
        if self.detection is not None:
            return tuple(self.detection.outputs())
        return tuple(total._replace(value=total.value / batches) for total in self.totals)


def why_alone(net: Net) -> str | None:
    """Return why the batches of a test cannot be divided among ranks; None: they can."""
    for node in net.graph.nodes:
        layer = node.layer
        if layer.declares.tests_alone or layer.forward_updates() or layer.after(layer.state(), 1) is None:
            return f'layer "{layer.name}" ({layer.param.type}) must run every batch, in order'
    if net.recurrent_states.shapes():
        return "its layers carry values from one batch to the next"
    return None


class Test:
    """Run one test of a solver.

    Args:
        number: of the test net, which has the weights of the train net.
        losses: watches the losses of that net.
        ranks: those that divide the batches; every one of them must run the test. None: this process runs all.
    """

    def __init__(self, solver: Solver, number: int, losses: LossWatch, ranks: Ranks | None):
        self._solver, self._number, self._losses, self._ranks = solver, number, losses, ranks
        self._net: Net = solver.test_nets[number]
        self._counting = [node.layer for node in self._net.graph.nodes if _counts(node.layer)]
        self._wants_loss = solver.param.test_compute_loss
        of_detection = solver.param.eval_type == "detection"
        detection = DetectionScores(self._net, solver.param, self._net.outputs) if of_detection else None
        self._scores = Scores([], 0.0, detection)

    def run(self, batches: int) -> Scores | None:
        """Return the sums over `batches` batches; None: the solver was asked to stop."""
        if self._ranks is None:
            for batch in range(batches):
                if self._solver.test_stops():
                    return None
                self._add(*self._forward(batch))
            return self._scores
        count, rank = self._solver.solver_count, self._solver.solver_rank
        begun = self._ranks.states_of_root(self._counting)
        for first in range(0, batches, count):
            mine = first + rank
            stop, found, loss = self._solver.test_stops(), list[Output](), 0.0
            if not stop and mine < batches:
                for layer, state in zip(self._counting, begun, strict=True):
                    layer.jump(_ahead(layer, state, mine), count)
                found, loss = self._forward(mine)
            if not self._add_round(self._ranks, stop, found, loss, min(count, batches - first)):
                return None
        for layer, state in zip(self._counting, begun, strict=True):
            layer.jump(_ahead(layer, state, batches), 1)
        return self._scores

    def _forward(self, batch: int) -> tuple[list[Output], float]:
        """Return the outputs and the loss of a batch."""
        solver, net = self._solver, self._net
        if solver.param.debug_info:
            debug.forward(net, show=True)
        else:
            net.test_forward()
        loss = net.loss() if self._wants_loss else 0.0
        if self._scores.detection is not None:
            self._scores.detection.add()
            return [], loss
        found = list(output_elements(net))
        if solver.nan != loss_watch.IGNORE:
            where = f"iteration {solver.iter}, batch {batch} of test net #{self._number}"
            self._losses.warn_of_batch(found, where)
        return found, loss

    def _add(self, found: Sequence[Output], loss: float) -> None:
        """Add the outputs of the next batch."""
        totals = self._scores.totals
        for k, output in enumerate(found):
            if k == len(totals):
                totals.append(output._replace(value=0.0))
            totals[k] = output._replace(value=totals[k].value + output.value)
        self._scores = self._scores._replace(totals=totals, loss=self._scores.loss + loss)

    # -- several ranks -----------------------------------------------------------------------------------------------
    def _add_round(self, ranks: Ranks, stop: bool, found: list[Output], loss: float, count: int) -> bool:
        """Add the batches that `count` ranks have run, in their order. Return False where a rank was asked to stop."""
        (width,) = ranks.largest([_INTERRUPT if stop else len(found)])
        if width >= _INTERRUPT:
            return False
        values = np.array([loss, *(output.value for output in found)], np.float64)
        bits = np.full((count, 1 + width), _ABSENT, np.int64)
        if self._solver.solver_rank < count:
            bits[self._solver.solver_rank, : len(values)] = values.view(np.int64)
        every = np.array(ranks.largest(bits.reshape(-1).tolist()), np.int64).reshape(bits.shape).view(np.float64)
        named = found or self._scores.totals or _outputs(self._net)
        named = [*named, *named[-1:] * (width - len(named))]
        for row in every.tolist():
            self._add([output._replace(value=value) for output, value in zip(named, row[1:], strict=True)], row[0])
        return True


def _outputs(net: Net) -> list[Output]:
    """Return the output elements of a net that has not run."""
    weights = {name: net.graph.values[net.graph.last[name]].loss_weight for name in net.outputs}
    return [Output(name, 0.0, weight) for name, weight in weights.items() for _ in range(net.blobs[name].count)]


def _counts(layer: Layer) -> bool:
    """Return whether forwards change where a layer stands."""
    return layer.after(layer.state(), 1) != layer.state()


def _ahead(layer: Layer, state: dict[str, int], forwards: int) -> dict[str, int]:
    """Return a layer's state after some more forwards."""
    found = layer.after(state, forwards)
    assert found is not None, "`why_alone` has asked"
    return found
