"""The training loop: iterations, display, tests, snapshots, resume. Subclasses say how parameters are updated.

Source: BVLC/caffe, solver.cpp (order of actions, log lines, snapshot rules).
"""

from __future__ import annotations

import logging
import math
import operator
import os
import time
from collections import deque
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext

from numpy.typing import DTypeLike

from ..backend import get_device
from ..backend.device import Device
from ..errors import NonFiniteLoss, SnapshotError, UsageError
from ..formats.prototxt.parser import Lines
from ..lms.config import LMSConfig
from ..lms.runtime.runtime import Runtime
from ..net import weights
from ..net.memory.fit import fit
from ..net.net import Net
from ..net.program.reduction import Reduction
from ..net.tuning import Tuning
from ..proto.caffe_pb2 import SolverParameter
from ..random import CaffeRandom
from ..uncopied import Uncopied
from . import debug, settings
from .autotune import Autotune
from .events import Display, Done, Evaluation, Observer, Output, Start
from .lms_log import IterationLog
from .loss_watch import IGNORE, LossWatch, Policy, check_policy, heed, keep_aside, say_of_batch
from .lr_policy import learning_rate
from .nets import test_requests, train_request
from .ranks import Ranks
from .rules import Rule
from .snapshots import files, snapshot
from .snapshots.outputs import number, output_elements, with_loss
from .snapshots.schedule import Snapshots

_log = logging.getLogger(__name__)

NONE, STOP, SNAPSHOT = "none", "stop", "snapshot"


class Solver(Uncopied):
    """param: a SolverParameter (current generation). file: its path, for errors and the default snapshot prefix.

    device, lms: where and how the nets run; all of them share one Runtime. action: polled once per iteration and test
    batch, returns NONE, STOP or SNAPSHOT (signal handlers). solver_count, solver_rank: of how many that train together
    this is which; only rank 0 displays, tests and writes snapshots by itself. `observers` are told what happens: see
    `events.py`. nan: where a loss is NaN or infinite, "stop" raises NonFiniteLoss, "warn" logs it, "ignore" does not
    look, a function gets it. Raises CaffeErrors; what cannot fit the device is refused before the first iteration.
    """

    instead_of_copying = "call snapshot(), and restore() what it wrote with another solver of the prototxt"
    rule: Rule  # how parameters are updated, and from which settings
    net_class = Net

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
    ):
        self.param, self.file = param, file
        self.solver_count, self.solver_rank = solver_count, solver_rank
        self.ranks: Ranks | None = None  # set where this is one of several that train together
        self.iter = 0
        self.current_step = 0
        self.callbacks: list[tuple[Callable[[], None], Callable[[], None]]] = []
        self.observers: list[Observer] = []
        self.snapshots = Snapshots()
        # Entered for every iteration, tests aside. Unlike a callback it changes nothing of what runs.
        self.around_iteration: Callable[[], AbstractContextManager] = nullcontext
        self._action = action or (lambda: NONE)
        self._stop = self._nan = self._wants_stop = False
        self._end = 0
        self.asks_loss = False  # set by who reads `mean_loss` while `step` runs
        self._smooth: deque[float] = deque(maxlen=max(1, param.average_loss))
        self._shown: tuple[tuple[Output, ...], int, float] | None = None  # of a display, its rate missing so far
        self._display: Display | None = None  # of this iteration
        lines = lines or Lines()
        self._check(lines)
        self.runtime = Runtime(device or get_device("cpu"), lms or LMSConfig())
        self.runtime.expect_ranks(solver_count, root=self.is_root)
        self._random = CaffeRandom(param.random_seed + solver_rank if param.random_seed >= 0 else None)
        common = {
            "runtime": self.runtime,
            "random": self._random,
            "dtype": dtype,
            "tuning": tuning or Tuning(),
            "solver_count": solver_count,
            "solver_rank": solver_rank,
        }
        train = train_request(param, file, lines)
        _log.info(train.said)
        self.net = self.net_class(train.message, lines=train.lines, file=train.file, **common)
        self.test_nets: list[Net] = []
        for request in test_requests(param, file, lines):
            _log.info(request.said)
            net = self.net_class(request.message, lines=request.lines, file=request.file, forward_only=True, **common)
            self.test_nets.append(net)
        for names in param.weights:
            for name in filter(None, (n.strip() for n in names.split(","))):
                self.load_weights(name)
        self.lms_log = IterationLog(self.runtime)
        self.nan: Policy = "stop"
        self.losses, *self._test_losses = map(LossWatch, (self.net, *self.test_nets))
        self._set_up()
        fit(self.runtime, self._prepare)
        self._autotune = Autotune(self.net)
        _log.info("Solver scaffolding done.")

    # -- set up -----------------------------------------------------------------------------------------
    def _check(self, lines: Lines) -> None:
        p = self.param
        settings.check_file(p, self.rule, self.file, lines)
        try:
            if p.snapshot and self.is_root:
                files.check(self)
        except SnapshotError as error:
            error.at(file=self.file, line=lines.field("snapshot_prefix" if p.snapshot_prefix else "snapshot"))
            raise

    def _set_up(self) -> None:
        """Make the update's buffers and steps."""
        raise AssertionError("a solver type says how it updates")

    def _prepare(self) -> None:
        """Plan everything that will run, and refuse what cannot fit, before anything runs."""
        for net in self.test_nets:
            net.share_with(self.net)
        with self.net.placed():
            self.runtime.check_resident()
        self._prepare_programs()
        for net in self.test_nets:
            net.prepare_test()

    def load_weights(self, path: str) -> None:
        """Copy weights by layer name into the train net and every test net."""
        _log.info("Finetuning from %s", path)
        for net in (self.net, *self.test_nets):
            weights.copy_from(net, path)

    # -- the loop -----------------------------------------------------------------------------------------
    def solve(self, resume: str | None = None) -> None:
        """Train to max_iter, with tests, displays and snapshots."""
        _log.info("Solving %s", self.net.name)
        p = self.param
        _log.info("Learning Rate Policy: %s", p.lr_policy)
        if p.snapshot_after_train and self.is_root:
            files.check(self)
        if resume is not None:
            self.restore(resume)
        for observer in self.observers:
            observer.on_start(Start(self.iter, p.max_iter))
        try:
            self.step(p.max_iter - self.iter)
        except NonFiniteLoss:
            keep_aside(self)
            raise
        if not self.is_root:
            self._tell_done(None)
            return
        if p.snapshot_after_train and (not p.snapshot or self.iter % p.snapshot):
            self.snapshot()
        if self._stop:
            _log.info("Optimization stopped early.")
            self._tell_done(None)
            return
        loss = None
        if self._displays:
            self.net.test_forward()  # by hand it would need more memory than was planned for
            self._smooth.append(self.net.loss())
            loss = self.mean_loss
            _log.info("Iteration %d, loss = %s", self.iter, number(loss))
            self._note_pass()
            self.heed_losses()
        if p.test_interval and self.iter % p.test_interval == 0:
            self.test_all()
        self._tell_done(loss)
        _log.info("Optimization Done.")

    def _tell_done(self, loss: float | None) -> None:
        for observer in self.observers:
            observer.on_done(Done(self.iter, loss, stopped=self._stop))

    def step(self, n: int) -> None:
        """n iterations: test, forward and backward (iter_size times), update, display, snapshot.

        Raises SolverError for settings in `param` that have become impossible, UsageError for an n that is no integer.
        """
        p = self.param
        try:
            end = self._end = self.iter + operator.index(n)
        except TypeError:
            raise UsageError(f"step: {n!r} is no number of iterations", fix="give an integer") from None
        settings.check(p, self.rule)
        check_policy(self.nan)
        if self.runtime.open_plan_file():  # ranks that somebody else joins
            self.net.memory.forget_plans()
            self._prepare_programs()
        self._stop = self._wants_stop = False
        self._smooth.clear()
        self._clock = time.monotonic()
        self._displayed = self.iter
        self.snapshots.prepare(self, end)
        with self.snapshots.behind(self):
            self._loop(end)

    def _loop(self, end: int) -> None:
        p = self.param
        while self.iter < end:
            due = self.is_root and p.test_interval and self.iter % p.test_interval == 0
            if due and (self.iter > 0 or p.test_initialization):
                self.heed_losses()
                self.test_all()
                if self._stop:
                    return
            for on_start, _ in self.callbacks:
                on_start()
            with self.around_iteration(), self._autotune.around(self._replan), self.lms_log.iteration():
                self._iterate()
            self.lms_log.iterated(self._displays)
            if self._display is not None:
                display, self._display = self._display, None
                for observer in self.observers:
                    observer.on_display(display)
            wait = self._loss_counts
            self.iter += 1
            action = self._action()
            self.heed_losses(wait or action != NONE)
            self.snapshots.poll(self)
            if (p.snapshot and self.iter % p.snapshot == 0 and self.is_root) or action == SNAPSHOT:
                self.snapshots.due(self)
            if self._agreed(action == STOP):
                self._stop = self._wants_stop = True
                return

    def _rate(self) -> float:
        before = self.current_step
        rate = learning_rate(self.param, self.iter, self.current_step)
        self.current_step = rate.current_step
        if self.param.lr_policy == "multistep" and rate.current_step != before:
            _log.info("MultiStep Status: Iteration %d, step = %d", self.iter, self.current_step)
        return rate.rate

    @property
    def lr(self) -> float:
        """The current learning rate; as in Caffe, reading it may advance a multistep policy."""
        return self._rate()

    def train_with(self, ranks: Ranks, reduction: Reduction) -> None:
        """From now on this is one of several ranks, whose gradients `reduction` averages."""
        self.ranks, self.net.reduction = ranks, reduction
        self.runtime.open_plan_file()
        self.net.memory.forget_plans()
        self._prepare_programs()

    @property
    def is_root(self) -> bool:
        """Whether this is the solver that speaks and writes for all that train together."""
        return self.solver_rank == 0

    def _agreed(self, stop: bool) -> bool:
        """Whether to stop here: several ranks do it after the same iteration, soon after one of them is asked to."""
        if self.ranks is None:
            return stop
        self._wants_stop |= stop
        return self.ranks.agree(self._wants_stop)

    @property
    def _displays(self) -> bool:
        return self.is_root and bool(self.param.display) and self.iter % self.param.display == 0

    def _iterate(self) -> None:
        """Gradients, `_note_loss`, then the update with `_log_rate`."""
        raise AssertionError("a solver type says how it updates")

    @property
    def settled(self) -> bool:
        """Whether Large Model Support will keep the plans that it has, as long as shapes stay."""
        return self._autotune.done

    def statistics(self) -> dict:
        """What Large Model Support did: `Net.statistics` of the train net (the test nets' programs are in it), and
        "iterations" since the start or `reset_statistics`, tests aside."""
        return {"iterations": self.lms_log.iterations} | self.net.statistics()

    def reset_statistics(self) -> None:
        """Let `statistics` count from zero; peaks start from what is on the device now."""
        self.lms_log.reset()

    def _replan(self) -> list[str]:
        """Plan the train net's programs anew, now that times are known; says what came of it."""
        return []

    def _prepare_programs(self) -> None:
        """Plan what the train net will run."""
        raise AssertionError("a solver type says how it updates")

    def _note_loss(self, loss: float) -> None:
        """Take the loss of this iteration into the window, and display it with the outputs when it is time."""
        self._smooth.append(loss)
        if not self._displays:
            return
        now = time.monotonic()
        seconds = max(now - self._clock, 1e-9)
        speed = (self.iter - self._displayed) / seconds
        _log.info(
            "Iteration %d (%s iter/s, %ss/%d iters), loss = %s",
            self.iter,
            number(speed),
            number(seconds),
            self.param.display,
            number(self.mean_loss),
        )
        outputs = tuple(output_elements(self.net))
        self._shown = (outputs, self.iter - self._displayed, seconds)
        self._clock, self._displayed = now, self.iter
        for k, (name, value, weight) in enumerate(outputs):
            _log.info("    Train net output #%d: %s", k, with_loss(name, value, weight))

    def _log_rate(self, rate: float) -> None:
        if not self._displays:
            return
        _log.info("Iteration %d, lr = %s", self.iter, number(rate))
        if self._shown is not None:
            (outputs, iterations, seconds), self._shown = self._shown, None
            self._display = Display(self.iter, self.mean_loss, rate, outputs, iterations, seconds)

    @property
    def _loss_counts(self) -> bool:
        """Whether somebody may ask for this iteration's loss: reading it waits for the device."""
        p, window = self.param, max(1, self.param.average_loss)
        displayed = self.is_root and bool(p.display) and -self.iter % p.display < window
        return displayed or self._end - self.iter <= window or p.debug_info or bool(self.callbacks) or self.asks_loss

    @property
    def mean_loss(self) -> float:
        """The mean of the last average_loss losses since `step` was called; NaN before there is one. Within `step`, it
        is that of every iteration only where `asks_loss` is set, or display or callbacks need it."""
        return sum(self._smooth) / len(self._smooth) if self._smooth else math.nan

    # -- tests --------------------------------------------------------------------------------------------
    def test_all(self) -> None:
        """Test every test net; stops between batches when asked to."""
        for i in range(len(self.test_nets)):
            if self._wants_stop:
                return
            self.test(i)

    def test(self, i: int = 0) -> list[tuple[str, float]]:
        """Mean of every output element of test net i over test_iter[i] batches; logged and returned as (name, mean)."""
        _log.info("Iteration %d, Testing net (#%d)", self.iter, i)
        net, batches = self.test_nets[i], self.param.test_iter[i]
        net.share_with(self.net)
        totals: list[list] = []
        loss = 0.0
        for batch in range(batches):
            action = self._action()
            if action == SNAPSHOT:
                self.snapshots.due(self)
            elif action == STOP:
                self._stop, self._wants_stop = self.ranks is None, True
                _log.info("Test interrupted.")
                return []
            if self.param.debug_info:
                debug.forward(net, show=True)
            else:
                net.test_forward()
            loss += net.loss() if self.param.test_compute_loss else 0.0
            found = list(output_elements(net))
            if self.nan != IGNORE:
                say_of_batch(self._test_losses[i], found, f"iteration {self.iter}, batch {batch} of test net #{i}")
            for k, (name, value, weight) in enumerate(found):
                if k == len(totals):
                    totals.append([name, 0.0, weight])
                totals[k][1] += value
        if self.param.test_compute_loss:
            _log.info("Test loss: %s", number(loss / batches if batches > 0 else math.nan))
        means = tuple(Output(name, total / batches, weight) for name, total, weight in totals)
        for k, (name, mean, weight) in enumerate(means):
            _log.info("    Test net output #%d: %s", k, with_loss(name, mean, weight))
        mean_loss = loss / batches if self.param.test_compute_loss and batches > 0 else None
        for observer in self.observers:
            observer.on_test(Evaluation(self.iter, i, means, mean_loss, batches))
        self.snapshots.tested(self, i, means)
        return [(name, mean) for name, mean, _ in means]

    def _note_pass(self) -> None:
        """The losses of the forward that was queued last are to be looked at."""
        if self.nan != IGNORE:
            self.losses.note(self.iter)

    def heed_losses(self, wait: bool = True) -> None:
        """Do what `nan` says of the losses that have arrived. wait: of all passes so far."""
        heed(self, self.losses.look(wait))

    # -- snapshots ------------------------------------------------------------------------------------------
    def snapshot(self, wait: bool = True) -> None:
        """Write model and solver state, each whole or not at all. wait=False: behind the caller; what goes wrong is
        raised by the next iteration or snapshot, by `snapshots.finish` or `close`."""
        self.snapshots.write(self, wait=wait)

    def restore(self, path: str | os.PathLike) -> None:
        """Continue from a .solverstate (.h5): iteration, weights, history, and where data and random numbers stood."""
        self.runtime.device.synchronize()  # work of an iteration that failed would write over what is restored
        snapshot.restore(self, os.fspath(path))

    def restore_latest(self) -> str | None:
        """Continue from the newest snapshot of the prefix that is whole; returns its state file, None for none."""
        self.runtime.device.synchronize()
        return snapshot.restore_latest(self)

    def history_blobs(self) -> list:
        """Solver history in file order: slot by slot, parameters in learnable order."""
        raise AssertionError("a solver type says how it updates")

    def close(self) -> None:
        self.snapshots.close(self)
        for net in (self.net, *self.test_nets):
            net.close()
