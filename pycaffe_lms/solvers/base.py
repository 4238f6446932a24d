"""Trains a net: iterations, displays, tests, snapshots, resuming.

`Solver.step` is the loop. Collaborators own the rest: `updates.py` how parameters change, `display.py` what is logged,
`loss_watch.py` losses that are NaN, `snapshots/schedule.py` files, `autotune.py` and `lms_log.py` Large Model Support.
Source: BVLC/caffe, solver.cpp (order of actions, log lines, snapshot rules).
"""

from __future__ import annotations

import logging
import math
import operator
import os
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Any, ClassVar, Protocol

import numpy as np
from numpy.typing import DTypeLike

from ..backend import get_device
from ..backend.device import Device
from ..blob import Blob
from ..errors import NonFiniteLoss, SnapshotError, UsageError
from ..formats.prototxt.parser import Lines
from ..layers.base import Layer
from ..lms.config import LMSConfig
from ..lms.runtime.runtime import Runtime
from ..net import weights
from ..net.memory.fit import fit
from ..net.net import Net
from ..net.program.reduction import Reduction
from ..net.program.tree_reduction import TreeReduction
from ..net.tuning import Tuning
from ..proto.caffe_pb2 import NetParameter, SolverParameter
from ..random import CaffeRandom
from ..uncopied import Uncopied
from . import debug, loss_watch, settings
from .autotune import Autotune
from .display import TrainingDisplay, log_outputs, number
from .events import Done, Evaluation, Observer, Start
from .lms_log import IterationLog
from .loss_watch import LossWatch, Policy
from .lr_policy import Plateau, learning_rate
from .nets import test_requests, train_request
from .rank_report import RankReport
from .rules import Rule
from .snapshots import snapshot
from .snapshots.schedule import Snapshots
from .testing import Test, why_alone
from .update.sharing import Shares, Sharing
from .update.updates import Updates
from .update.virtual_ranks import VirtualRanks

_log = logging.getLogger(__name__)

NONE, STOP, SNAPSHOT = "none", "stop", "snapshot"  # what `action` returns


class Ranks(Protocol):
    """Join a solver to the others of a data-parallel training. `parallel` implements it."""

    def agree(self, wish: bool, what: str = "stop") -> bool:
        """Return whether all ranks stop (or do `what`) after this iteration, since one of them wished to some
        iterations ago. Every rank asks once per iteration. Raises LostRank where another rank is gone."""

    def largest(self, values: Sequence[int]) -> list[int]:
        """Return, for each number of 64 bits, the largest that any rank gives. Every rank asks with as many."""

    def gather(self, value: bytes) -> list[bytes]:
        """Return what every rank gave, in the order of ranks; waits for all."""

    def meet(self) -> None:
        """Queue that the device waits here until those of all ranks have come so far. Every rank calls it."""

    def states_of_root(self, layers: Sequence[Layer]) -> list[dict[str, int]]:
        """Return what `Layer.state` of these layers returns on rank 0."""

    def copy_statistics(self) -> None:
        """Copy what forwards of the train net change in parameters (BatchNorm's averages) from rank 0 to every rank."""

    def check(self) -> None:
        """Raise LostRank where results on the device may come of gradients that were not summed over all ranks. May be
        called from any thread."""


class Solver(Uncopied):
    """Train a net; `SGDSolver` and its subclasses set the rule by which parameters are updated.

    Args:
        param: a SolverParameter (current generation).
        file, lines: where it was read, for errors and the default snapshot prefix.
        device, lms: where and how the nets run; all of them share one Runtime.
        action: polled once per iteration and test batch; returns NONE, STOP or SNAPSHOT (signal handlers).
        solver_count, solver_rank: number of solvers that train together, and which of them this is. Only rank 0
            displays and writes snapshots by itself; tests are divided among ranks (`testing.py`).
        virtual_ranks: train as so many ranks, of which each of the `solver_count` solvers computes an equal share, one
            after the other: a power of two. Any number of solvers that divides it gives the same bits. None: as many
            ranks as solvers.
        shard_history: each solver keeps and updates its share of the histories (ZeRO, stage 1). Then all must call
            `snapshot`, after which gradients have lost their values; rank 0 writes.
        change_net: called with every net's message before it is built, and returns what is built; layers keep their
            indices.

    `observers` are told what happens: see `events.py`. `nan` says what happens where a loss is NaN or infinite: "stop"
    raises NonFiniteLoss, "warn" logs it, "ignore" does not look, a function is called with it.

    Raises:
        CaffeError: settings or nets are wrong, or what will run cannot fit the device.
    """

    instead_of_copying = "call snapshot(), and restore() what it wrote with another solver of the prototxt"
    rule: ClassVar[Rule]  # how parameters are updated, and from which settings
    net_class: ClassVar[type[Net]] = Net

    def __init__(
        self,
        param: SolverParameter,
        *,
        file: str | None = None,
        lines: Lines | None = None,
        device: Device | None = None,
        lms: LMSConfig | None = None,
        action: Callable[[], str] | None = None,
        dtype: DTypeLike = "float32",
        tuning: Tuning | None = None,
        solver_count: int = 1,
        solver_rank: int = 0,
        virtual_ranks: int | None = None,
        shard_history: bool = False,
        change_net: Callable[[NetParameter], NetParameter] = lambda message: message,
    ):
        self.param, self.file = param, file
        self.solver_count, self.solver_rank = solver_count, solver_rank
        self.sharing = Sharing(virtual_ranks, shard_history)
        self.sharing.check(solver_count)
        self.shares = Shares(solver_rank, solver_count) if shard_history and solver_count > 1 else None
        self._wants_snapshot = False
        self.ranks: Ranks | None = None  # set where this is one of several that train together
        self.iter = 0
        self.current_step = 0
        self.plateau = Plateau(param.plateau_winsize, param.average_loss) if param.lr_policy == "plateau" else None
        self.callbacks: list[tuple[Callable[[], None], Callable[[], None]]] = []
        self.observers: list[Observer] = []
        self.snapshots = Snapshots(self)
        # Entered for every iteration, tests aside. Unlike a callback it changes nothing of what runs.
        self.around_iteration: Callable[[], AbstractContextManager[object]] = nullcontext
        self.on_stop: Callable[[], None] = lambda: None  # called when training stops because a rank was asked to
        self._action = action or (lambda: NONE)
        self._stop = self._nan = self._wants_stop = False
        self._end = 0
        self._testers: Ranks | None = None  # set while all ranks test together
        self._tested_alone = set[int]()  # test nets of which it was logged
        self.asks_loss = False  # set while something reads `mean_loss` after every iteration of `step`
        self._display = TrainingDisplay(param, self.is_root)
        lines = lines or Lines()
        self._check(lines)
        if self.shares is not None:
            settings.check_sharded(param, lms, file, lines)
        self.runtime = Runtime(device or get_device("cpu"), lms or LMSConfig())
        self.runtime.expect_ranks(solver_count, root=self.is_root)
        ranks = virtual_ranks or solver_count
        first = solver_rank * (ranks // solver_count)
        build = partial(
            self.net_class,
            runtime=self.runtime,
            random=CaffeRandom(param.random_seed + first if param.random_seed >= 0 else None),
            dtype=dtype,
            tuning=tuning or Tuning(),
            solver_count=ranks,
            solver_rank=first,
        )
        train = train_request(param, file, lines)
        _log.info(train.said)
        self.net: Net = build(change_net(train.message), lines=train.lines, file=train.file)
        self.virtual = VirtualRanks(self.net, ranks, solver_count) if virtual_ranks else None
        test_nets = []
        for request in test_requests(param, file, lines):
            _log.info(request.said)
            test_nets.append(
                build(change_net(request.message), lines=request.lines, file=request.file, forward_only=True)
            )
        self.test_nets: Sequence[Net] = test_nets
        for names in param.weights:
            for name in filter(None, (n.strip() for n in names.split(","))):
                self.load_weights(name)
        self.lms_log = IterationLog(self.runtime)
        self.rank_report = RankReport(self)
        self.nan: Policy = loss_watch.STOP
        self.losses, *self._test_losses = map(LossWatch, (self.net, *self.test_nets))
        self.updates = Updates(self.net, self.rule, param, self.callbacks, self.virtual, self.shares)
        if self.virtual is not None:
            self.net.reduction = TreeReduction(self.runtime, None, False, self.virtual.tree)
        self._prepare()
        self._autotune = Autotune(self.net)
        _log.info("Solver scaffolding done.")

    # -- set up -----------------------------------------------------------------------------------------
    def _check(self, lines: Lines) -> None:
        p = self.param
        settings.check_file(p, self.rule, self.file, lines)
        try:
            if p.snapshot and self.is_root:
                self.snapshots.check()
        except SnapshotError as error:
            error.at(file=self.file, line=lines.field("snapshot_prefix" if p.snapshot_prefix else "snapshot"))
            raise

    def _prepare(self) -> None:
        """Plan everything that will run, and refuse what cannot fit, before anything runs."""
        for net in self.test_nets:
            net.share_with(self.net)
        fit(self.runtime, [self.updates.need(), *(net.test_need() for net in self.test_nets)])

    def load_weights(self, path: str) -> None:
        """Copy weights by layer name into the train net and every test net. Raises WeightsError, also for a file that
        has nothing for the train net."""
        _log.info("Finetuning from %s", path)
        for net in (self.net, *self.test_nets):
            weights.copy_from(net, path, must_match=net is self.net)
        if self.virtual is not None:
            self.virtual.begin_anew()

    # -- the loop -----------------------------------------------------------------------------------------
    def solve(self, resume: str | os.PathLike[str] | None = None) -> None:
        """Train to max_iter, with tests, displays and snapshots. resume: a .solverstate to continue from."""
        _log.info("Solving %s", self.net.name)
        p = self.param
        _log.info("Learning Rate Policy: %s", p.lr_policy)
        if p.snapshot_after_train and self.is_root:
            self.snapshots.check()
        if resume is not None:
            self.restore(resume)
        for observer in self.observers:
            observer.on_start(Start(self.iter, p.max_iter))
        try:
            self.step(p.max_iter - self.iter)
        except NonFiniteLoss:
            if self.is_root:
                self.snapshots.keep_aside()
            raise
        self._gather_history()  # on all ranks, since the root may snapshot below
        if not self.is_root:
            if self._stop:
                self._tell_done(None)
                return
            if p.display and self.iter % p.display == 0 and self.net.graph.exchanging:
                self.net.test_forward()  # with rank 0, which displays the loss
            if self.ranks is not None and p.test_interval and self.iter % p.test_interval == 0:
                self._test_together()
            self._tell_done(None)
            return
        if p.snapshot_after_train and (not p.snapshot or self.iter % p.snapshot):
            self.snapshot()
        if self._stop:
            _log.info("Optimization stopped early.")
            self._tell_done(None)
            return
        loss = None
        if self._display.due(self.iter):
            self.net.test_forward()  # `forward_range` would need more memory than was planned for
            self._display.add_loss(self.net.loss())
            loss = self.mean_loss
            _log.info("Iteration %d, loss = %s", self.iter, number(loss))
            self._note_pass()
            self.heed_losses()
        if p.test_interval and self.iter % p.test_interval == 0:
            self._test_together()
        self._tell_done(loss)
        _log.info("Optimization Done.")

    def _tell_done(self, loss: float | None) -> None:
        for observer in self.observers:
            observer.on_done(Done(self.iter, loss, stopped=self._stop))

    def step(self, n: int) -> None:
        """Run n iterations: test, forward and backward (iter_size times), update, display, snapshot.

        Raises SolverError if settings in `param` were changed to values that are not allowed, UsageError for an n that
        is not an integer.
        """
        p = self.param
        try:
            end = self._end = self.iter + operator.index(n)
        except TypeError:
            raise UsageError(f"step: {n!r} is not a number of iterations", fix="give an integer") from None
        settings.check(p, self.rule)
        loss_watch.check_policy(self.nan)
        if self.runtime.open_plan_file():  # now, where the ranks are not joined by `train_with`
            self._plan_again()
        self._stop = self._wants_stop = False
        self._display.begin(self.iter)
        self.snapshots.prepare(end)
        with self.snapshots.behind():
            self._loop(end)

    def _loop(self, end: int) -> None:
        p = self.param
        while self.iter < end:
            self._begin_iteration(self.iter + 1 == end)
            due = p.test_interval and self.iter % p.test_interval == 0 and (self.iter > 0 or p.test_initialization)
            if due and self.snapshots.keeps_best:
                self._gather_history()
            if due and (self.is_root or self.ranks is not None):
                self.heed_losses()
                self._test_together()
                if self._stop:
                    return
            for on_start, _ in self.callbacks:
                on_start()
            with self.around_iteration(), self._autotune.around(self.updates.replan), self.lms_log.iteration():
                self._iterate()
            self.lms_log.iterated(self._display.due(self.iter))
            display = self._display.take()
            if display is not None:
                for observer in self.observers:
                    observer.on_display(display)
            wait = self._loss_counts
            self.iter += 1
            action = self._action()
            self.heed_losses(wait or action != NONE)
            self.snapshots.poll()
            if self._snapshot_due(action == SNAPSHOT):
                self.snapshots.due()
            if self._agreed(action == STOP):
                self._stop = self._wants_stop = True
                self.on_stop()
                return

    def _begin_iteration(self, last: bool) -> None:
        """Do what comes before everything else in an iteration. last: of a call of `step`."""

    def _snapshot_due(self, wish: bool) -> bool:
        """Return whether to write a snapshot after this iteration. wish: a signal asks for one."""
        due = bool(self.param.snapshot) and self.iter % self.param.snapshot == 0
        if self.shares is None:
            return (due and self.is_root) or wish
        assert self.ranks is not None, "an iteration has run"
        self._wants_snapshot |= wish
        if self.ranks.agree(self._wants_snapshot, "snapshot"):
            due, self._wants_snapshot = True, False
        if due:
            self._gather_history()
        return due and self.is_root

    def _gather_history(self) -> None:
        """Gather histories that are divided among the ranks, once in an iteration. All ranks call it."""
        if self.updates.divided is not None:
            self.updates.divided.gather(self.iter)

    def _iterate(self) -> None:
        """Run the passes of one iteration, then the update."""
        updates, n, loss = self.updates, self.param.iter_size, 0.0
        if updates.divided is not None:
            updates.divided.forget()
        updates.follow_net()
        fused = updates.fused
        if fused:  # the counter of a multistep policy advances below, where it does in Caffe
            updates.set_numbers(learning_rate(self.param, self.iter, self.current_step).rate, self.iter)
        else:
            updates.clear()
        for i in range(updates.passes):
            if self.virtual is not None:
                self.virtual.turn_to(i // n)
            updates.follow_net()  # every batch may have another shape
            key, first, tail = updates.kind(i)
            reduce = i == updates.passes - 1
            if self.param.debug_info:
                show, find_nan = self._display.due(self.iter), not self._nan
                done = debug.iteration(self.net, first, tail, key=key, show=show, find_nan=find_nan, reduce=reduce)
            else:
                done = self.net.iteration(first, tail, key=key, reduce=reduce)
            if tail and not done:
                updates.run_tail(i)
            self._note_pass()
            if self._loss_counts and i < n:  # of several virtual ranks the first is shown
                loss += self.net.loss()
                if i == n - 1:
                    self._nan = math.isnan(loss)
                    self._display.add_loss(loss / n)
                    if self.plateau is not None:
                        self.plateau.add(self._of_root(loss / n))
                    self._display.show_loss(self.iter, self.net)
        if self.virtual is not None:
            self.virtual.turn_to(0)
        if fused:
            self._display.show_rate(self.iter, self._rate())
            return
        for _, on_gradients_ready in self.callbacks:
            on_gradients_ready()
        self._update()

    def _update(self) -> None:
        rate = self._rate()
        self._display.show_rate(self.iter, rate)
        self.updates.run_apart(rate, self.iter)

    def apply_update(self) -> None:
        """Update parameters once with the gradients that are there now."""
        self.updates.follow_net()
        self._update()
        self.iter += 1

    def _rate(self) -> float:
        """Return the learning rate, advancing the counter of a multistep policy."""
        before = self.current_step
        if self.plateau is not None and self.iter >= max(self.param.warmup_iter, self.param.rampup_interval):
            self.current_step = self.plateau.step(self.iter, self.current_step)
        rate = learning_rate(self.param, self.iter, self.current_step)
        self.current_step = rate.current_step
        if self.param.lr_policy == "multistep" and rate.current_step != before:
            _log.info("MultiStep Status: Iteration %d, step = %d", self.iter, self.current_step)
        if self.plateau is not None and rate.current_step != before:
            _log.info("Plateau Status: Iteration %d, step = %d", self.iter, self.current_step)
        return rate.rate

    def _of_root(self, loss: float) -> float:
        """Return the loss of rank 0."""
        if self.ranks is None:
            return loss
        bits = int(np.float64(loss).view(np.int64)) if self.is_root else -(1 << 63)  # below those of any number
        (found,) = self.ranks.largest([bits])
        return float(np.int64(found).view(np.float64))

    @property
    def lr(self) -> float:
        """Return the current learning rate; as in Caffe, reading it may advance a multistep policy."""
        return self._rate()

    @property
    def _loss_counts(self) -> bool:
        """Return whether this iteration's loss must be read, which waits for the device."""
        asked = self.param.debug_info or bool(self.callbacks) or self.asks_loss or self.plateau is not None
        return asked or self._display.needs_loss(self.iter, self._end)

    @property
    def mean_loss(self) -> float:
        """Return the mean of the last average_loss losses since `step` was called; NaN before there is one.

        Within `step` it follows every iteration only where `asks_loss` is set, or callbacks or the display need it."""
        return self._display.mean_loss

    @property
    def last_loss(self) -> float:
        """Return the loss of the last iteration whose loss was read, as `mean_loss` says; NaN before there is one."""
        return self._display.last_loss

    @property
    def last_rate(self) -> float:
        """Return the learning rate of the last iteration; NaN before there is one."""
        return self._display.last_rate

    # -- ranks and Large Model Support --------------------------------------------------------------------
    @property
    def is_root(self) -> bool:
        """Return whether this solver logs, tests and writes snapshots for all that train together."""
        return self.solver_rank == 0

    def train_with(self, ranks: Ranks, reduction: Reduction) -> None:
        """Train as one of several ranks from now on. reduction: averages the gradients."""
        self.ranks, self.net.reduction = ranks, reduction
        self._autotune.join(ranks)
        self.runtime.open_plan_file()
        self._plan_again()

    def _plan_again(self) -> None:
        self.net.memory.forget_plans()
        fit(self.runtime, [self.updates.need()])

    def _agreed(self, stop: bool) -> bool:
        """Return whether to stop here. Ranks stop after the same iteration, soon after one of them is asked to."""
        if self.ranks is None:
            return stop
        self._wants_stop |= stop
        return self.ranks.agree(self._wants_stop)

    @property
    def settled(self) -> bool:
        """Return whether Large Model Support will keep its plans as long as shapes stay the same."""
        return self._autotune.done

    def statistics(self) -> dict[str, Any]:
        """Return what Large Model Support did: `Net.statistics` of the train net, which includes the test nets'
        programs, and "iterations" since the start or `reset_statistics`, tests aside."""
        return {"iterations": self.lms_log.iterations} | self.net.statistics()

    def reset_statistics(self) -> None:
        """Restart the counts of `statistics` from zero, and peaks from what is on the device now."""
        self.lms_log.reset()

    # -- tests --------------------------------------------------------------------------------------------
    def _test_together(self) -> None:
        """Call `test_all` on every rank at once: the ranks divide the batches of the tests among them."""
        self._testers = self.ranks
        try:
            self.test_all()
        finally:
            self._testers = None

    def test_all(self) -> None:
        """Test every test net; stop between batches when asked to."""
        for i in range(len(self.test_nets)):
            if self._wants_stop and self._testers is None:
                return
            self.test(i)  # with other ranks, which may not know of a wish to stop yet

    def test(self, i: int = 0) -> list[tuple[str, float]]:
        """Test net i over test_iter[i] batches; log and return (name, mean) of every output element.

        Called by the training loop of several ranks, they divide the batches among them, if the net allows that. Others
        than the root log nothing then, and of a net that does not allow it they return nothing.
        """
        net, batches, ranks = self.test_nets[i], self.param.test_iter[i], self._testers
        why = None if ranks is None else why_alone(net)
        if why is not None and not self.is_root:
            return []
        said = _log.info if self.is_root else _log.debug
        said("Iteration %d, Testing net (#%d)", self.iter, i)
        if why is not None and i not in self._tested_alone:
            self._tested_alone.add(i)
            said("Test net (#%d) runs on rank 0 alone: %s.", i, why)
        if ranks is not None and why is None:
            ranks.copy_statistics()
        net.share_with(self.net)
        scores = Test(self, i, self._test_losses[i], ranks if why is None else None).run(batches)
        if scores is None:
            self._stop, self._wants_stop = self.ranks is None, True
            said("Test interrupted.")
            return []
        loss = scores.loss
        if self.param.test_compute_loss:
            said("Test loss: %s", number(loss / batches if batches > 0 else math.nan))
        means = scores.means(batches)
        if self.is_root:
            log_outputs("Test", means)
        mean_loss = loss / batches if self.param.test_compute_loss and batches > 0 else None
        for observer in self.observers:
            observer.on_test(Evaluation(self.iter, i, means, mean_loss, batches))
        if self.is_root:
            self.snapshots.tested(i, means)
        return [(output.name, output.value) for output in means]

    def test_stops(self) -> bool:
        """Return whether a test must stop before its next batch; write a snapshot where one is asked for."""
        action = self._action()
        if action == SNAPSHOT and self.shares is not None:
            self._wants_snapshot = True  # the other ranks must take part
        elif action == SNAPSHOT:
            self.snapshots.due()
        return action == STOP or self._wants_stop

    # -- losses that are not finite -------------------------------------------------------------------------
    def _note_pass(self) -> None:
        """Let the losses of the forward that was queued last be looked at."""
        if self.nan != loss_watch.IGNORE:
            self.losses.note(self.iter)

    def heed_losses(self, wait: bool = True) -> None:
        """Do what `nan` says about losses that have arrived. wait: for those of all passes so far.

        Of several ranks only the root raises NonFiniteLoss; the others log it."""
        error = self.losses.look(wait)
        if error is None:
            return
        if callable(self.nan):
            self.nan(error)
        elif self.nan == loss_watch.STOP and self.is_root:
            raise error
        else:
            loss_watch.warn(error)

    # -- snapshots ------------------------------------------------------------------------------------------
    def snapshot(self, wait: bool = True) -> None:
        """Write model and solver state. If writing fails, no incomplete file is left.

        wait: until both are written; else a failure is raised by the next iteration or snapshot, by `snapshots.finish`
        or `close`."""
        self._gather_history()
        if self.is_root or self.shares is None:
            self.snapshots.write(wait=wait)

    def restore(self, path: str | os.PathLike[str]) -> None:
        """Continue from a .solverstate (.h5): iteration, weights, histories, positions of data and random numbers."""
        self.runtime.device.synchronize()  # work of an iteration that failed would write over what is restored
        snapshot.restore(self, os.fspath(path))

    def restore_latest(self) -> str | None:
        """Continue from the newest snapshot of the prefix that is whole; return its state file, None for none."""
        self.runtime.device.synchronize()
        return snapshot.restore_latest(self)

    def history_blobs(self) -> list[Blob | tuple[int, ...]]:
        """Return histories in file order: see `Updates.history_blobs`."""
        return self.updates.history_blobs()

    def close(self) -> None:
        """Finish the snapshot that is being written; close the nets."""
        self.snapshots.close()
        for net in (self.net, *self.test_nets):
            net.close()
