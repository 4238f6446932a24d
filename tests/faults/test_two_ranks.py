"""Two ranks, of which one meets a fault: both end, each with an error, and rank 0's files lead to the same bits."""

from __future__ import annotations

import os
import re
import threading
import time
from pathlib import Path

import pytest

from pycaffe_lms.backend.sim.device import SimDevice
from pycaffe_lms.errors import CaffeError, LostRank
from pycaffe_lms.faults import DEVICE, FILES, RANKS, Faults, in_files
from pycaffe_lms.lms.config import LMSConfig
from pycaffe_lms.parallel.data_parallel import DataParallel
from pycaffe_lms.parallel.host import HostCommunicator
from pycaffe_lms.parallel.meeting import Meeting

from ..parallel.ranks import TIMEOUT_S, rank_solver
from ..solvers.helpers import solver_text
from .sweeps import ITERATIONS, NET, sweep

LMS = LMSConfig(threshold_kb=1, ahead=1)


class Pair:
    """Trains two ranks, each in a thread, in `folder`, with a snapshot after every second iteration."""

    def __init__(self, folder: Path, form: str = "BINARYPROTO"):
        self.folder, self.form = folder, form
        self.text = solver_text(
            NET, momentum=0.9, max_iter=ITERATIONS, snapshot=2, snapshot_format=form, snapshot_prefix=f'"{folder}/s"'
        )
        self.counted = [Faults(), Faults()]
        errors = self.train(self.counted, self.counted[0])
        assert errors == [None, None]
        self.expected = self.files()
        ending = ".h5" * (form == "HDF5")
        kinds = [f"{kind}{ending}" for kind in ("caffemodel", "solverstate")]
        assert set(self.expected) == {f"s_iter_{k}.{kind}" for k in (2, 4, 6) for kind in kinds}
        self._resumed: set[frozenset[str]] = set()

    def files(self) -> dict[str, bytes]:
        return {p.name: p.read_bytes() for p in self.folder.iterdir()}

    def train(self, faults, files: Faults, resume: str | None = None) -> list[BaseException | None]:
        """What came of each rank; none is left afterwards."""
        errors: list[BaseException | None] = [None, None]

        def rank(index: int, path: str, ready: threading.Barrier) -> None:
            solver = None
            try:
                device = SimDevice(64 << 20, order="random", seed=index, faults=faults[index])
                solver = rank_solver(self.text, index, 2, device=device, lms=LMS)
                ready.wait(TIMEOUT_S)
                ranks = HostCommunicator(device, path, 2, index, timeout=TIMEOUT_S, faults=faults[index])
                parallel = DataParallel(solver, ranks)
                try:
                    parallel.bcast()
                    parallel.join(layer_wise=True)
                    solver.solve(resume)
                except BaseException:
                    parallel.abort()
                    raise
                parallel.close()
            except BaseException as error:
                errors[index] = error
            finally:
                ready.abort()  # where a rank fails before they meet, its parent ends the others
                if solver is not None and errors[index] is None:
                    solver.close()

        began = time.monotonic()
        with Meeting() as meeting, in_files(files):
            ready = threading.Barrier(2)
            threads = [threading.Thread(target=rank, args=(i, meeting.path, ready), daemon=True) for i in (0, 1)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join(TIMEOUT_S)
                assert not thread.is_alive(), "a rank hangs"
        assert time.monotonic() - began < TIMEOUT_S / 2  # nobody waited for a rank that is gone
        return errors

    def survive(self, kind: str, n: int, rank: int, lasting: bool) -> str:
        """Train with one fault, and from what it left to the end. Returns "went on" or "ended"."""
        for name in self.files():
            os.unlink(self.folder / name)
        faults = [Faults(), Faults()]
        planned = Faults((kind, n), lasting=lasting)
        faults[rank] = Faults() if kind in FILES else planned
        errors = self.train(faults, planned if kind in FILES else Faults())
        assert planned.failed == [(kind, n)], "the operation was not reached"
        left = self.files()
        for name, content in left.items():
            assert content == self.expected.get(name), f"{name} is not that of the training that nothing befell"
        if errors == [None, None]:
            assert left == self.expected
            return "went on"
        self._check(errors, rank)
        if frozenset(left) not in self._resumed:
            self._resumed.add(frozenset(left))
            states = sorted(name for name in left if ".solverstate" in name)
            again = self.train((Faults(), Faults()), Faults(), f"{self.folder}/{states[-1]}" if states else None)
            assert again == [None, None] and self.files() == self.expected
        return "ended"

    def _check(self, errors: list[BaseException | None], rank: int) -> None:
        """The rank that met the fault says what failed; the other that it lost it, unless it had all that it needs."""
        for error in errors:
            if error is not None and not isinstance(error, CaffeError | threading.BrokenBarrierError):
                raise error
        assert isinstance(errors[rank], CaffeError) and errors[rank].exit_code == 1 and errors[rank].fix
        assert re.search(r"the simulated device failed|cannot give|on purpose", errors[rank].message)
        assert errors[1 - rank] is None or isinstance(errors[1 - rank], LostRank | threading.BrokenBarrierError)


TRIED = 3
"""Of each kind about so many operations, where not all are tried; which ones PYCAFFE_LMS_SEED chooses."""


@pytest.fixture(scope="module")
def pairs(tmp_path_factory):
    """Two ranks by the form of their snapshots; each set of files that tests leave is resumed from once."""
    made: dict[str, Pair] = {}

    def pair(form: str) -> Pair:
        if form == "HDF5":
            pytest.importorskip("h5py")
        if form not in made:
            made[form] = Pair(tmp_path_factory.mktemp(form), form)
        return made[form]

    return pair


def survive(pair: Pair, kinds, rank: int, lasting: bool, whole: bool, caplog) -> None:
    """Let operations of these kinds fail on this rank."""
    for kind in kinds:
        count = pair.counted[rank].counts[kind]
        tried = lambda n, kind=kind: pair.survive(kind, n, rank, lasting)  # noqa: E731
        every = 1 if whole else max(1, count // TRIED)
        sweep(count, tried, every=every, kind=kind, ranks=2, rank=rank, form=pair.form, lasting=lasting)
    assert "Traceback" not in caplog.text


def sweeps(*by_default: tuple[str, bool, bool]):
    """Parametrize form, lasting and whole: with these, and with whole sweeps of all others if asked for."""
    thorough = [(form, lasting, True) for form in ("BINARYPROTO", "HDF5") for lasting in (False, True)]
    cases = [pytest.param(*case, id=_id(*case)) for case in by_default]
    cases += [pytest.param(*c, id=_id(*c), marks=pytest.mark.thorough) for c in thorough if c not in by_default]
    return pytest.mark.parametrize(("form", "lasting", "whole"), cases)


def _id(form: str, lasting: bool, whole: bool) -> str:
    return f"{'whole' if whole else 'some'}, {'from then on' if lasting else 'once'}, {form}"


@pytest.mark.parametrize("rank", [0, 1])
@sweeps(("BINARYPROTO", False, False), ("HDF5", True, False))
def test_the_device_of_a_rank_fails(pairs, caplog, rank, form, lasting, whole):
    survive(pairs(form), DEVICE, rank, lasting, whole, caplog)


@pytest.mark.parametrize("rank", [0, 1])
@sweeps(("BINARYPROTO", False, True))
def test_a_rank_goes(pairs, caplog, rank, form, lasting, whole):
    survive(pairs(form), RANKS, rank, lasting, whole, caplog)


@sweeps(("BINARYPROTO", False, False))
def test_the_disk_of_rank_0_fails(pairs, caplog, form, lasting, whole):
    survive(pairs(form), FILES, 0, lasting, whole, caplog)
