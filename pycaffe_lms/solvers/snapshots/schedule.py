"""When a solver's snapshots are written, by whom, and which stay.

The training loop only has values copied to host memory; a thread of its own hashes, writes, flushes and renames, once
the losses before are known to be numbers. One snapshot is on its way at most: the next waits for it. What goes wrong
there is raised between two iterations, or where the training ends, which waits for the thread.
"""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from ...errors import CaffeError, NonFiniteLoss, UsageError
from ...formats.weights.solverstate import Best
from ..events import Output, Snapshot
from . import files as snapshot_files
from . import snapshot
from .files import BEST, HDF5
from .staging import Staging

if TYPE_CHECKING:
    from ..base import Solver

_log = logging.getLogger(__name__)
_SLOW_S = 0.1  # a wait that the log tells


class _Writing(threading.Thread):
    """Writes one snapshot, then removes those that need not stay. It ends before the program does."""

    def __init__(self, copied: snapshot.Copied, base: str, keep: int | None, upto: int | None):
        super().__init__(name="caffe-snapshot", daemon=False)
        self.done = Snapshot(copied.solver.iter, copied.files.model, copied.files.state)
        self.failure: BaseException | None = None
        self._work = copied, base, keep, upto

    def run(self) -> None:
        copied, base, keep, upto = self._work
        del self._work
        try:
            snapshot.write(copied)
            if keep is not None:
                snapshot_files.keep_newest(base, keep, upto)
        except BaseException as failure:  # raised on the training thread
            self.failure = failure


class Snapshots:
    """Of one solver, which is given to each method.

    keep: how many of the newest snapshots stay; None: all.
    """

    def __init__(self) -> None:
        self.keep: int | None = None
        self.best: Best | None = None  # so far
        self._best_of: tuple[int, str, bool] | None = None  # test net, output, whether larger is better
        self._staging: Staging | None = None
        self._writing: _Writing | None = None
        self._behind = False  # within `behind`
        self._due = False  # within `due`

    def keep_best(self, solver: Solver, wanted: str) -> None:
        """Keep the snapshot of the best test so far, too, as <prefix>_best_iter_<N>. wanted: an output of one element
        of a test net, "accuracy": the largest mean is the best, of a loss the smallest; "error:min", "iou:max" say it.

        Raises UsageError for other words, SnapshotError where it could not be written."""
        name, _, side = wanted.partition(":")
        nets = [i for i, net in enumerate(solver.test_nets) if name in net.outputs]
        there = sorted({o for net in solver.test_nets for o in net.outputs})
        if not nets or side not in ("", "min", "max") or ":" in wanted and not side:
            raise UsageError(
                f'no best snapshot by "{wanted}": '
                + ("a score is OUTPUT, OUTPUT:min or OUTPUT:max" if nets else f'no test net has an output "{name}"'),
                fix=f"the outputs of the test nets are {', '.join(there)}" if there else "give the solver a test net",
            )
        net = solver.test_nets[nets[0]]
        if net.blobs[name].count != 1:
            raise UsageError(f'the output "{name}" has {net.blobs[name].count} elements, a score has one')
        loss = bool(net.graph.values[net.graph.last[name]].loss_weight)
        self._best_of = nets[0], name, side == "max" or not side and not loss
        if solver.is_root:
            snapshot_files.check(solver, BEST)

    def tested(self, solver: Solver, net: int, means: Sequence[Output]) -> None:
        """A test is over: where it is the best so far, a snapshot of it is written and the last best one removed."""
        if self._best_of is None or self._best_of[0] != net:
            return
        _, name, larger = self._best_of
        value = next(mean.value for mean in means if mean.name == name)
        known = self.best.value if self.best is not None and self.best.output == name else None
        if math.isnan(value) or known is not None and not (value > known if larger else value < known):
            return
        self.best = Best(name, value, solver.iter)
        _log.info("Iteration %d, %s = %.6g is the best so far", solver.iter, name, value)
        self.write(solver, wait=not self._behind, kind=BEST)

    def prepare(self, solver: Solver, end: int) -> None:
        """Take the memory of a snapshot, where one is due before iteration `end`."""
        every = solver.param.snapshot
        if solver.is_root and (every and solver.iter // every < end // every or self._best_of is not None):
            self._memory(solver).reserve({id(m): m.nbytes for m in snapshot.memories(solver)}.values())

    def due(self, solver: Solver) -> None:
        """Call `solver.snapshot`, which users may replace, for the training; within `behind` nobody waits for it."""
        self._due = self._behind
        try:
            solver.snapshot()
        finally:
            self._due = False

    def write(self, solver: Solver, *, wait: bool, kind: str = "") -> None:
        """Write a snapshot as the solver is now. wait: until both files are whole, unless it is `due`.

        Raises SnapshotError, WeightsError, of the one before it too."""
        start = time.perf_counter()
        wait = wait and not self._due
        self.finish(solver)
        waited = time.perf_counter() - start
        if waited > _SLOW_S:
            _log.info("Waited %.2f s for the snapshot before", waited)
        files = snapshot_files.names(solver, solver.iter, kind)
        form = "HDF5" if solver.param.snapshot_format == HDF5 else "binary proto"
        _log.info("Snapshotting to %s file %s", form, files.model)
        _log.info("Snapshotting solver state to %s file %s", form, files.state)
        snapshot_files.make_folder(files)
        copied = snapshot.copy(solver, files, self._memory(solver), self.best)
        base = snapshot_files.prefix(solver) + kind
        keep, upto = (1, None) if kind == BEST else (self.keep, solver.iter)
        self._writing = _Writing(copied, base, keep, upto)
        if wait:
            self.finish(solver)
        else:
            self.poll(solver)

    def poll(self, solver: Solver) -> None:
        """Begin to write where the losses before are known by now; tell the observers of a snapshot that is whole by
        now. Raises what went wrong with it."""
        writing = self._writing
        if writing is None:
            return
        if writing.ident is None:
            if solver.losses.known(writing.done.iteration):
                writing.start()
        elif not writing.is_alive():
            self.finish(solver)

    def finish(self, solver: Solver) -> None:
        """Wait until no snapshot is on its way. Raises what went wrong with it, and NonFiniteLoss where it is not
        written because a loss before it is no number."""
        writing = self._writing
        if writing is None:
            return
        if writing.ident is None:
            try:
                solver.heed_losses()
            except NonFiniteLoss as error:
                self._forget(error)
                raise
            writing.start()
        writing.join()
        self._writing = None
        if writing.failure is not None:
            raise writing.failure
        for observer in solver.observers:
            observer.on_snapshot(writing.done)

    @contextmanager
    def behind(self, solver: Solver) -> Iterator[None]:
        """Within: snapshots are written behind the caller. At the end all are whole; where the caller fails, what goes
        wrong with them besides is in the log."""
        before, self._behind = self._behind, True
        try:
            yield
        except BaseException as error:
            self._behind = before
            self._forget(error)
            try:
                self.finish(solver)
            except CaffeError as other:
                _log.error("%s", other)
            raise
        self._behind = before
        self.finish(solver)

    def _forget(self, error: BaseException) -> None:
        """A snapshot that is not begun is not written where a loss before it is no number."""
        writing = self._writing
        if writing is None or writing.ident is not None or not isinstance(error, NonFiniteLoss):
            return
        if error.iteration is not None and error.iteration < writing.done.iteration:
            self._writing = None

    def close(self, solver: Solver) -> None:
        """Wait for the thread; give the memory back. Raises what went wrong with the last snapshot."""
        self._staging = None
        self.finish(solver)

    def _memory(self, solver: Solver) -> Staging:
        if self._staging is None:
            limit, runtime = solver.runtime.config.host_limit, solver.runtime
            left = None if limit is None or runtime.device.is_host else max(0, limit - runtime.slab.nbytes)
            self._staging = Staging(runtime.device, left, spare=not runtime.device.is_host and not runtime.active)
        return self._staging
