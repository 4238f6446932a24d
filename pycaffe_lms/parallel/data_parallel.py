"""A solver as one of several ranks: same weights at the start, gradients averaged in every iteration.

Source of the behaviour: BVLC/caffe, parallel.cpp (NCCL).
"""

from __future__ import annotations

import weakref
from collections import deque
from typing import TYPE_CHECKING

from ..errors import GraphError, UsageError
from ..lms.program import Access, Mode, Step
from ..net.program.programs import HostedStep
from ..net.program.reduction import Reduction, digest

if TYPE_CHECKING:
    from ..net.build.graph import Param
    from ..net.net import Net
    from ..solvers.base import Solver
    from .communicator import Communicator, Ticket

LAG = 2  # iterations: how far a rank may be ahead of the slowest, and how long a wish to stop takes


class DataParallel:
    """Joins a solver to the ranks of its communicator, as rank `solver.solver_rank` of `solver.solver_count`.

    `bcast()`, then `solver.add_callback(this)`; and `solver.net.after_backward(this)` to sum gradients layer by layer,
    beside the backward (solver.param.layer_wise_reduce says whether the file wants that). From then on every rank must
    do the same: step the same number of iterations. The gradient of an iteration is the mean over all ranks (after the
    last of iter_size passes), before callbacks, clipping and decay see it.
    Raises UsageError where solver and communicator are not of the same rank, LostRank where another rank is gone.
    """

    def __init__(self, solver: Solver, communicator: Communicator):
        wanted, found = (solver.solver_rank, solver.solver_count), (communicator.rank, communicator.size)
        if wanted != found:
            raise UsageError(
                f"the solver is rank {wanted[0]} of {wanted[1]}, the communicator {found[0]} of {found[1]}",
                fix="call set_solver_count and set_solver_rank before the solver is made",
            )
        self._solver, self._communicator = solver, communicator
        self._tickets: deque[Ticket] = deque()
        self._closed = False
        weakref.finalize(self, _drop_recordings, weakref.ref(solver.net))

    def bcast(self) -> None:
        """Give every rank the parameters of rank 0 (not the history: restore every rank from the snapshot).

        Raises GraphError where the ranks' nets differ, LostRank where another rank is gone."""
        net = self._solver.net
        builder, n = net.builder, len(net.graph.nodes) - 1
        steps = builder.backward(n, 0, builder.loss_diffs(), accumulate=False)
        number = digest(net.run_graph, steps, net.dtype.itemsize)
        largest, smallest = self._maximum(number), -self._maximum(-number)
        if largest != smallest:
            self.abort()
            raise GraphError(
                f'net "{net.name}": the ranks train different nets', fix="give every rank the same solver and net"
            ).at(file=net.file)
        net.run_steps("broadcast", [self._broadcast_step(p) for p in net.run_graph.learnable])

    def _broadcast_step(self, param: Param) -> HostedStep:
        net = self._solver.net
        step = Step(f"broadcast:{net.run_graph.param_name(param)}", (Access(param.data, Mode.UPDATE),))

        def run() -> None:
            array = net.memory.executor.array(param.data, param.shape, net.dtype, net.device.is_host)
            self._communicator.broadcast([array])

        return HostedStep(step, run)

    def _maximum(self, value: int) -> int:
        return self._queued(value).read()

    def _queued(self, value: int) -> Ticket:
        device = self._solver.net.device
        with device.lock, device.active():
            return self._communicator.maximum(value)

    def join(self, *, layer_wise: bool) -> None:
        """From now on the solver's gradients are means over all ranks. layer_wise: see `net/program/reduction.py`."""
        net, before = self._solver.net, self._solver.net.reduction
        layer_wise = layer_wise or (before is not None and before.layer_wise)
        self._solver.train_with(self, Reduction(net, self._communicator, layer_wise))

    def agree(self, wish: bool) -> bool:
        """Once per iteration: whether all ranks stop here, because one wished to LAG iterations ago."""
        self._tickets.append(self._queued(int(wish)))
        lag = 0 if self._solver.net.device.is_host else LAG
        stop = len(self._tickets) > lag and bool(self._tickets.popleft().read())
        if stop:
            self._tickets.clear()  # the same wish once more; on every rank
        return stop

    def check(self) -> None:
        """Raises LostRank where what the device has done may rest on a sum that failed; not after `close`, when all
        had come to their end. From any thread."""
        if not self._closed:
            self._communicator.check()

    def close(self) -> None:
        """Part from the other ranks when all have come to their end. The solver cannot train any more. Where that
        fails, part from them at once."""
        try:
            while self._tickets:
                self._tickets.popleft().read()
            self._solver.snapshots.finish(self._solver)  # it asks `check`
            self._solver.net.memory.forget_plans()  # recordings hold what the communicator must give back
            self._communicator.close()
            self._closed = True
        except BaseException:
            self.abort()
            raise

    def abort(self) -> None:
        """Part from the other ranks at once, so that they notice."""
        self._communicator.abort()


def _drop_recordings(net: weakref.ref[Net]) -> None:
    """At the program's end, before the communicator goes: they hold what it must give back."""
    found = net()
    if found is not None:
        found.memory.forget_plans()
