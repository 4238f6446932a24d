"""After an error that does not end the device, the same solver goes on from a snapshot, to the same bits."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from pycaffe_lms.backend.sim.device import SimDevice
from pycaffe_lms.errors import CaffeError, DeviceError
from pycaffe_lms.faults import Faults
from pycaffe_lms.formats.prototxt.parser import parse_solver
from pycaffe_lms.lms.config import LMSConfig
from pycaffe_lms.memory.states import Ask
from pycaffe_lms.memory.synced import SyncedMemory
from pycaffe_lms.solvers import SGDSolver

from ..solvers.helpers import bits, solver_text
from .sweeps import ITERATIONS, NET, SHARES, sweep

LMS = LMSConfig(threshold_kb=1, ahead=1)


class Recovery:
    """Trains with a fault, and from the snapshot after iteration 2 with the same solver."""

    def __init__(self, folder, order: str):
        self._parsed = parse_solver(solver_text(NET, momentum=0.9, snapshot_prefix=f'"{folder}/s"'))
        self._order, self._state = order, f"{folder}/s_iter_2.solverstate"
        counted = Faults()
        solver = self.solver(counted)
        self.made = Counter(counted.counts)  # operations before the first iteration
        solver.step(2)
        solver.snapshot()
        solver.close()
        counted = Faults()
        solver = self.solver(counted)
        solver.step(ITERATIONS)
        self.expected = bits(solver)
        self.counts = counted.counts
        solver.close()

    def solver(self, faults: Faults) -> SGDSolver:
        device = SimDevice(64 << 20, order=self._order, seed=3, faults=faults)
        return SGDSolver(self._parsed.message, lines=self._parsed.lines, device=device, lms=LMS)

    def survive(self, kind: str, n: int) -> str:
        faults = Faults((kind, n))
        solver = self.solver(faults)
        outcome = "went on"
        try:
            solver.step(ITERATIONS)
            found = bits(solver)
        except CaffeError:
            outcome = "ended"
            solver.restore(self._state)
            solver.step(ITERATIONS - 2)
            found = bits(solver)
        assert faults.failed == [(kind, n)] and found == self.expected
        solver.close()
        return outcome


@SHARES
@pytest.mark.parametrize("order", ["latest", "random"])
@pytest.mark.parametrize(("kind", "every"), [("allocation", 1), ("host allocation", 1), ("copy", 9), ("event", 7)])
def test_it_goes_on_from_a_snapshot(tmp_path, order, kind, every, whole):
    """Not after queued work that failed: a GPU of which an operation has failed runs no other in this process."""
    recovery = Recovery(tmp_path, order)
    made = recovery.made[kind]
    tried = lambda n: recovery.survive(kind, made + n)  # noqa: E731
    found = sweep(recovery.counts[kind] - made, tried, every=1 if whole else every, kind=kind, order=order)
    assert found["ended"] > 0


def test_a_copy_whose_event_failed_writes_nothing_later():
    """It is queued; what is put on the host after the error stays."""
    faults = Faults(("event", 2))
    device = SimDevice(1 << 20, order="latest", faults=faults)
    memory = SyncedMemory(16, "x", device)
    memory.ask(Ask.OVERWRITE_CPU)
    memory.host_array((4,), np.float32)[...] = 1
    memory.ask(Ask.WRITE_GPU)
    with pytest.raises(DeviceError, match="event 2"):
        memory.ask(Ask.READ_CPU)
    memory.ask(Ask.OVERWRITE_CPU)
    memory.host_array((4,), np.float32)[...] = 7
    device.synchronize()
    assert memory.host_array((4,), np.float32).tolist() == [7, 7, 7, 7]
