"""Decides when a solver's snapshots are written and which are kept, and writes them beside the training.

The training loop only copies values to host memory; a thread hashes, writes, flushes and renames, once the losses
before are known to be finite. At most one snapshot is being written: the next one waits for it. An error of the thread
is raised between two iterations, or at the end of the training, which waits for the thread.
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
from . import snapshot
from .files import BEST, NAN, SnapshotNames, keep_newest
from .staging import Staging

if TYPE_CHECKING:
    from ..base import Solver

_log = logging.getLogger(__name__)
_SLOW_S = 0.1  # a longer wait is logged


class _Writing(threading.Thread):
    """Write one snapshot, then remove those that are not kept. The program waits for it before it exits.

    base: prefix and kind of the file names. keep, upto: see `keep_newest`; None: remove none."""

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
                keep_newest(base, keep, upto)
        except BaseException as failure:  # raised on the training thread
            self.failure = failure


class Snapshots:
    """Write the snapshots of one solver.

    keep: number of the newest snapshots that are kept; None: all. best: the best test so far, see `keep_best`. names:
    where the files go.
    """

    def __init__(self, solver: Solver):
        self._solver = solver
        self.names = SnapshotNames(solver.param, solver.file)
        self.keep: int | None = None
        self.best: Best | None = None
        self._best_of: tuple[int, str, bool] | None = None  # test net, output, whether larger is better
        self._staging: Staging | None = None
        self._writing: _Writing | None = None
        self._behind = False  # within `behind`
        self._due = False  # within `due`

    def check(self, kind: str = "") -> None:
        """Check that snapshots can be written: see `SnapshotNames.check`."""
        self.names.check(max(self._solver.iter, self._solver.param.max_iter), kind)

    def keep_best(self, wanted: str) -> None:
        """Keep the snapshot of the best test so far too, as <prefix>_best_iter_<N>.

        wanted: an output of one element of a test net, such as "accuracy". The largest mean is the best, of a loss the
        smallest; "error:min" and "iou:max" choose. Raises UsageError for anything else, SnapshotError where it could
        not be written."""
        solver = self._solver
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
        if net.blobs[name].count != 1 and solver.param.eval_type != "detection":
            raise UsageError(f'the output "{name}" has {net.blobs[name].count} elements, a score has one')
        loss = bool(net.graph.values[net.graph.last[name]].loss_weight)
        self._best_of = nets[0], name, side == "max" or not side and not loss
        if solver.is_root:
            self.check(BEST)

    @property
    def keeps_best(self) -> bool:
        """Return whether a test may be followed by a snapshot."""
        return self._best_of is not None

    def tested(self, net: int, means: Sequence[Output]) -> None:
        """Write a snapshot, and remove the last best one, where the test that is over is the best so far."""
        if self._best_of is None or self._best_of[0] != net:
            return
        _, name, larger = self._best_of
        value = next(mean.value for mean in means if mean.name == name)
        known = self.best.value if self.best is not None and self.best.output == name else None
        if math.isnan(value) or known is not None and not (value > known if larger else value < known):
            return
        self.best = Best(name, value, self._solver.iter)
        _log.info("Iteration %d, %s = %.6g is the best so far", self._solver.iter, name, value)
        self.write(wait=not self._behind, kind=BEST)

    def prepare(self, end: int) -> None:
        """Allocate the memory of a snapshot, where one is due before iteration `end`."""
        solver = self._solver
        every = solver.param.snapshot
        if solver.is_root and (every and solver.iter // every < end // every or self._best_of is not None):
            self._memory().reserve({id(m): m.nbytes for m in snapshot.memories(solver)}.values())

    def due(self) -> None:
        """Call `solver.snapshot`, which users may replace; within `behind` without waiting for the files."""
        self._due = self._behind
        try:
            self._solver.snapshot()
        finally:
            self._due = False

    def write(self, *, wait: bool, kind: str = "") -> None:
        """Write a snapshot of the solver as it is now. wait: until both files are whole, unless called through `due`.

        kind: "", BEST or NAN. Raises SnapshotError or WeightsError, also where the snapshot before it failed."""
        solver = self._solver
        start = time.perf_counter()
        wait = wait and not self._due
        self.finish()
        waited = time.perf_counter() - start
        if waited > _SLOW_S:
            _log.info("Waited %.2f s for the snapshot before", waited)
        files = self.names.of(solver.iter, kind)
        form = "HDF5" if self.names.hdf5 else "binary proto"
        _log.info("Snapshotting to %s file %s", form, files.model)
        _log.info("Snapshotting solver state to %s file %s", form, files.state)
        files.make_folder()
        copied = snapshot.copy(solver, files, self._memory(), self.best)
        base = self.names.prefix + kind
        keep, upto = (1, None) if kind == BEST else (self.keep, solver.iter)
        self._writing = _Writing(copied, base, keep, upto)
        if wait:
            self.finish()
        else:
            self.poll()

    def keep_aside(self) -> None:
        """Write a snapshot under a name from which nothing resumes by itself: PREFIX_nan_iter_N. Log where it fails."""
        try:
            self.write(wait=True, kind=NAN)
        except CaffeError as error:
            _log.warning("no snapshot of this state: %s", error)

    def poll(self) -> None:
        """Start to write once the losses before are known; tell the observers once both files are whole.

        Raises the error of a snapshot that failed."""
        writing = self._writing
        if writing is None:
            return
        if writing.ident is None:
            if self._solver.losses.known(writing.done.iteration):
                writing.start()
        elif not writing.is_alive():
            self.finish()

    def finish(self) -> None:
        """Wait until no snapshot is being written.

        Raises the error of one that failed, and NonFiniteLoss where it is not written because a loss before it is NaN
        or infinite."""
        writing = self._writing
        if writing is None:
            return
        if writing.ident is None:
            try:
                self._solver.heed_losses()
            except NonFiniteLoss as error:
                self._forget(error)
                raise
            writing.start()
        writing.join()
        self._writing = None
        if writing.failure is not None:
            raise writing.failure
        for observer in self._solver.observers:
            observer.on_snapshot(writing.done)

    @contextmanager
    def behind(self) -> Iterator[None]:
        """Within: write snapshots beside the caller's work. At the end all are whole; where the caller fails, errors
        of snapshots are logged."""
        before, self._behind = self._behind, True
        try:
            yield
        except BaseException as error:
            self._behind = before
            self._forget(error)
            try:
                self.finish()
            except CaffeError as other:
                _log.error("%s", other)
            raise
        self._behind = before
        self.finish()

    def _forget(self, error: BaseException) -> None:
        """Drop a snapshot whose writing has not started where `error` is about a loss before it."""
        writing = self._writing
        if writing is None or writing.ident is not None or not isinstance(error, NonFiniteLoss):
            return
        if error.iteration is not None and error.iteration < writing.done.iteration:
            self._writing = None

    def close(self) -> None:
        """Wait for the thread and free the memory. Raises the error of a snapshot that failed."""
        self._staging = None
        self.finish()

    def _memory(self) -> Staging:
        if self._staging is None:
            runtime = self._solver.runtime
            limit = runtime.config.host_limit
            left = None if limit is None or runtime.device.is_host else max(0, limit - runtime.slab.nbytes)
            self._staging = Staging(runtime.device, left, spare=not runtime.device.is_host and not runtime.active)
        return self._staging
