"""Makes a solver one of several ranks: same weights at the start, gradients averaged in every iteration.

Source of the behaviour: BVLC/caffe, parallel.cpp (NCCL).
"""

from __future__ import annotations

import weakref
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..arrays import AnyArray
from ..errors import GraphError, UsageError
from ..lms.program import Access, Mode, Step
from ..net.program.programs import HostedStep
from ..net.program.reduction import Reduction, digest
from ..net.program.scatter_reduction import ScatterReduction
from ..net.program.tree_reduction import TreeReduction

if TYPE_CHECKING:
    from ..layers.base import Layer
    from ..net.build.graph import Param
    from ..net.net import Net
    from ..solvers.base import Solver
    from .communicator import Communicator, Ticket

IN_FLIGHT = 4  # exchanges of numbers
_HALF = 1 << 32
_REPORT, _YES = 1, 2  # what a rank says in `agree`; the larger one counts
LAG = 2  # iterations: how far a rank may be ahead of the slowest, and after how many a wish to stop is obeyed


class DataParallel:
    """Join a solver to the ranks of its communicator, as rank `solver.solver_rank` of `solver.solver_count`.

    Call `bcast()`, then `solver.add_callback(this)`; also `solver.net.after_backward(this)` to sum gradients layer by
    layer, beside the backward (`solver.param.layer_wise_reduce` says whether the file asks for that). From then on
    every rank must step the same number of iterations. The gradient of an iteration is the mean over all ranks (after
    the last of iter_size passes), before callbacks, clipping and decay see it.

    Raises:
        UsageError: solver and communicator are not of the same rank.
        LostRank: another rank is gone.
    """

    def __init__(self, solver: Solver, communicator: Communicator):
        wanted, found = (solver.solver_rank, solver.solver_count), (communicator.rank, communicator.size)
        if wanted != found:
            raise UsageError(
                f"the solver is rank {wanted[0]} of {wanted[1]}, the communicator {found[0]} of {found[1]}",
                fix="call set_solver_count and set_solver_rank before the solver is made",
            )
        self._solver, self._communicator = solver, communicator
        self._tickets: dict[str, deque[Ticket]] = {}
        self._closed = False
        weakref.finalize(self, _drop_recordings, weakref.ref(solver.net))

    def bcast(self) -> None:
        """Copy the parameters of rank 0 to every rank. Data layers that divide one shuffled order get its
        seed. Histories are not copied: restore every rank from the snapshot.

        Raises GraphError where the ranks' nets differ, LostRank where another rank is gone."""
        net = self._solver.net
        steps = net.arrangement.whole_backward(accumulate=False)
        exchanging = [node.name for node in net.run_graph.exchanging]
        number = digest(net.run_graph, steps, net.dtype.itemsize, self._solver.sharing, exchanging)
        largest, smallest = self._queued(number).read(), -self._queued(-number).read()
        if largest != smallest:
            self.abort()
            raise GraphError(
                f'net "{net.name}": the ranks train different nets', fix="give every rank the same solver and net"
            ).at(file=net.file)
        net.run_steps("broadcast", [self._broadcast_step(p) for p in net.run_graph.learnable])
        layers = [node.layer for node in net.graph.nodes if node.layer.seed_of_root]
        for layer, state in zip(layers, self.states_of_root(layers), strict=True):
            layer.set_state(layer.state() | {"seed": state["seed"]})
        if self._solver.virtual is not None:
            self._solver.virtual.begin_anew()

    def states_of_root(self, layers: Sequence[Layer]) -> list[dict[str, int]]:
        """Return what `Layer.state` of these layers returns on rank 0."""
        numbers = [number for layer in layers for number in layer.state().values()]
        halves = [half for number in numbers for half in divmod(number, _HALF)]
        theirs = self.largest(halves if self._solver.is_root else [-1] * len(halves))
        found = iter(high * _HALF + low for high, low in zip(theirs[::2], theirs[1::2], strict=True))
        return [{key: next(found) for key in layer.state()} for layer in layers]

    def _broadcast_step(self, param: Param) -> HostedStep:
        net = self._solver.net
        step = Step(f"broadcast:{net.run_graph.param_name(param)}", (Access(param.data, Mode.UPDATE),))

        def run() -> None:
            array = net.memory.executor.array(param.data, param.shape, net.dtype, net.device.is_host)
            self._communicator.broadcast([array])

        return HostedStep(step, run)

    def _queued(self, value: int) -> Ticket:
        device = self._solver.net.device
        with device.lock, device.active():
            return self._communicator.maximum(value)

    def join(self, *, layer_wise: bool) -> None:
        """Average the solver's gradients over all ranks from now on. layer_wise: see `net/program/reduction.py`."""
        net, before = self._solver.net, self._solver.net.reduction
        layer_wise = layer_wise or (before is not None and before.layer_wise)
        solver, ranks = self._solver, self._communicator
        if solver.virtual is not None:
            reduction: Reduction = TreeReduction(net.runtime, ranks, layer_wise, solver.virtual.tree)
        elif solver.shares is not None:
            updates = solver.updates
            reduction = ScatterReduction(
                net.runtime, ranks, layer_wise, solver.shares.parts, whole=lambda: not updates.fused
            )
        else:
            reduction = Reduction(net.runtime, ranks, layer_wise)
        solver.updates.join(ranks)
        for node in net.graph.exchanging:
            node.layer.join(_LayerExchange(ranks, reduction))
        solver.train_with(self, reduction)

    def agree(self, wish: bool, what: str = "stop") -> bool:
        """Return whether all ranks stop (or do `what`) here, because one wished to LAG iterations ago. Call it once per
        iteration."""
        tickets, report = self._tickets.setdefault(what, deque()), self._solver.rank_report
        lag, said = 0 if self._solver.net.device.is_host else LAG, _YES if wish else 0
        if what == "stop" and report.wanted(lag):  # one exchange of a number is enough for both
            said = max(said, _REPORT)
        tickets.append(self._queued(said))
        answer = 0
        if len(tickets) > lag:
            answer = tickets.popleft().read()
            if what == "stop":  # all ranks have come here
                report.iterated(self._exchange_seconds())
        if answer == _REPORT:
            report.display(self.gather)
        if answer == _YES:
            tickets.clear()  # on every rank: what they still say is the same wish
        return answer == _YES

    def _exchange_seconds(self) -> float | None:
        """Return how long exchanges have kept this rank from other work, as far as its host or its device can tell."""
        reduction = self._solver.net.reduction
        if self._communicator.exchange_seconds is None and reduction is not None and reduction.exposed is not None:
            return reduction.exposed.read()
        return self._communicator.exchange_seconds

    def gather(self, value: bytes) -> list[bytes]:
        """Return what every rank gave, in the order of ranks; waits for all."""
        return self._communicator.gather(value)

    def meet(self) -> None:
        """Queue that the device waits here until those of all ranks have come so far. Every rank calls it."""
        self._queued(0)

    def largest(self, values: Sequence[int]) -> list[int]:
        """Return, for each number of 64 bits, the largest that any rank gives. Every rank asks with as many."""
        for tickets in self._tickets.values():  # each is good for a few calls alone
            for _ in range(len(tickets)):
                tickets.append(_Answer(tickets.popleft().read()))
        found: list[int] = []
        waiting: deque[Ticket] = deque()
        for value in values:
            waiting.append(self._queued(value))
            if len(waiting) == IN_FLIGHT:
                found.append(waiting.popleft().read())
        return found + [ticket.read() for ticket in waiting]

    def copy_statistics(self) -> None:
        """Copy what forwards of the train net change in parameters (BatchNorm's averages) from rank 0 to every rank."""
        net = self._solver.net
        graph = net.graph
        changed = {graph.params[n.params[i]].data for n in graph.nodes for i in n.layer.forward_updates()}
        steps = [self._broadcast_step(p) for p in net.run_graph.learnable if p.data in changed]
        if steps:
            net.run_steps("broadcast of statistics", steps)

    def check(self) -> None:
        """Raise LostRank where results on the device may come of a sum that failed; never after `close`, when all ranks
        had finished. May be called from any thread."""
        if not self._closed:
            self._communicator.check()

    def close(self) -> None:
        """Close the connections once all ranks have finished, or at once where that fails. The solver cannot train any
        more."""
        try:
            for tickets in self._tickets.values():
                while tickets:
                    tickets.popleft().read()
            self._solver.snapshots.finish()  # it asks `check`
            self._solver.net.memory.forget_plans()  # CUDA graphs hold what the communicator must free
            for node in self._solver.net.graph.exchanging:
                node.layer.join(None)
            self._communicator.close()
            self._closed = True
        except BaseException:
            self.abort()
            raise

    def abort(self) -> None:
        """Close the connections at once, so that the other ranks notice."""
        self._communicator.abort()
        self._solver.net.memory.forget_plans()  # what CUDA graphs hold can be freed now


class _LayerExchange:
    """Exchange the arrays of layers on the compute stream, behind the sums of gradients that were queued before."""

    def __init__(self, communicator: Communicator, reduction: Reduction):
        self._communicator, self._reduction = communicator, reduction
        self.rank, self.size, self.can_capture = communicator.rank, communicator.size, communicator.can_capture

    def sum(self, arrays: Sequence[AnyArray]) -> None:
        self._reduction.wait()
        with self._reduction.timed():
            self._communicator.sum(arrays)

    def all_gather(self, parts: Sequence[AnyArray]) -> None:
        self._reduction.wait()
        with self._reduction.timed():
            self._communicator.all_gather(parts)


@dataclass(frozen=True)
class _Answer:
    """Hold the result of a ticket that was read."""

    value: int

    def read(self) -> int:
        """Return it."""
        return self.value


def _drop_recordings(net: weakref.ref[Net]) -> None:
    """Drop CUDA graphs before the communicator is freed, since they hold what it must free."""
    found = net()
    if found is not None:
        found.memory.forget_plans()
