"""What ranks started by the tests of MPI run: `python -m tests.parallel.mpi_work WORK [ARGUMENT]`."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import numpy as np

from pycaffe_lms.backend import get_device
from pycaffe_lms.backend.cuda.communicator import NcclCommunicator
from pycaffe_lms.backend.sim.device import SimDevice
from pycaffe_lms.errors import LostRank
from pycaffe_lms.parallel import communicator
from pycaffe_lms.parallel import roll_call as roll_call_module
from pycaffe_lms.parallel.host import HostCommunicator
from pycaffe_lms.parallel.meeting import Meeting
from pycaffe_lms.parallel.mpi import _SUM, MpiCommunicator, MpiRanks
from pycaffe_lms.parallel.pulse import Neighbours


def operations(ranks: MpiRanks) -> dict:
    """Do each operation on both communicators, on the CPU and on a simulated device whose stream runs late."""
    meeting = Meeting() if ranks.index == 0 else None
    path = ranks.comm.bcast(meeting.path if meeting else None)
    host = HostCommunicator(get_device("cpu"), path, ranks.count, ranks.index)
    found = {}
    for name, device in (("cpu", get_device("cpu")), ("sim", SimDevice(1 << 20))):
        mpi = MpiCommunicator(ranks, device, timeout=600)
        rng = np.random.default_rng(ranks.index)
        given = [rng.normal(size=n).astype(np.float32) * 10.0 ** (4 * ranks.index) for n in ((3, 7), (0,), (2,))]
        given = [g.astype(np.float32) for g in given]
        ours, theirs = [g.copy() for g in given], [g.copy() for g in given]
        mpi.sum(ours)
        late = name == "cpu" or all(np.array_equal(a, b) for a, b in zip(ours, given, strict=True))
        host.sum(theirs)
        largest = mpi.maximum(10 * ranks.index).read(), mpi.maximum(-ranks.index).read()
        same = [a.tobytes() == b.tobytes() for a, b in zip(ours, theirs, strict=True)]
        values = np.full((2, 3), ranks.index, np.float64).T
        mpi.broadcast([values])
        parts = [np.full(r + 1, ranks.index + r, np.float32) for r in range(ranks.count)]
        mpi.reduce_scatter(parts)
        whole = [np.full(r, r if r == ranks.index else -1.0, np.float32) for r in range(ranks.count)]
        mpi.all_gather(whole)
        peer = ranks.index ^ 1
        received = np.zeros(2, np.float32)
        if peer < ranks.count:
            mpi.exchange(peer, np.full(2, ranks.index, np.float32), received)
        device.synchronize()
        found[name] = {
            "queued": late,
            "sums": same,
            "maxima": largest,
            "broadcast": values.tolist(),
            "scattered": parts[ranks.index].tolist(),
            "gathered": [w.tolist() for w in whole],
            "received": received.tolist(),
            "bytes": [v.decode() for v in mpi.gather(b"r" * ranks.index)],
            "host bytes": [v.decode() for v in host.gather(b"r" * ranks.index)],
        }
        mpi.close()
    host.close()
    return found


def different(ranks: MpiRanks) -> str:
    mpi = MpiCommunicator(ranks, get_device("cpu"), timeout=600)
    try:
        mpi.sum([np.zeros(2)]) if ranks.index else mpi.gather(b"12")
    except LostRank as error:
        return str(error)
    return "nothing"


def late(ranks: MpiRanks) -> str:
    """Let the last rank be late for ever."""
    communicator.WARN_S = 0.3
    mpi = MpiCommunicator(ranks, get_device("cpu"), timeout=1.5)
    if ranks.index == ranks.count - 1:
        time.sleep(3)
        return "late"
    try:
        mpi.sum([np.zeros(2)])
    except LostRank as error:
        return str(error)
    return "nothing"


def absent(ranks: MpiRanks) -> str:
    """Let the last rank never make a communicator."""
    if ranks.index == ranks.count - 1:
        time.sleep(3)
        return "absent"
    try:
        MpiCommunicator(ranks, get_device("cpu"), timeout=1.5)
    except LostRank as error:
        return str(error)
    return "nothing"


def half(ranks: MpiRanks) -> str:
    """Let the last rank stop in the middle of a sum: it has answered the first rank only."""
    mpi = MpiCommunicator(ranks, get_device("cpu"), timeout=1.5)
    if ranks.index == ranks.count - 1:
        mpi._swap(_SUM, {0: np.ones(1)}, {})
        time.sleep(3)
        return "half"
    try:
        mpi.sum([np.zeros(ranks.count)])
    except LostRank as error:
        return str(error)
    return "nothing"


def roll_call(ranks: MpiRanks) -> list:
    """Let the last rank be late, stand still while the others ask, and come at last."""
    beats = ranks.roll_call()
    last, here = ranks.count - 1, ranks.index
    beats[here] += 4 if here == last else 5
    nccl = NcclCommunicator.__new__(NcclCommunicator)
    nccl.rank, nccl.size, nccl._beats, nccl._place = here, ranks.count, beats, ranks.place
    if here == last:
        while not all((Path(sys.argv[2]) / f"asked{r}").exists() for r in range(last)):
            time.sleep(0.05)
        beats[here] += 1
        return [list(beats), nccl._missing()]
    roll_call_module._ANSWER_S = 1.0
    found = [list(beats), nccl._missing(), ranks.place(last)]
    (Path(sys.argv[2]) / f"asked{here}").touch()
    while list(beats)[last] < 5:
        pass
    return [*found, list(beats), nccl._missing()]


def neighbours(ranks: MpiRanks) -> str:
    """Let the last rank fall silent until the one after it has noticed; then all say goodbye."""
    beats, told = Neighbours(ranks.comm, ranks.place), Path(sys.argv[2]) / "told"
    last, wrong, silent = ranks.index == ranks.count - 1, "", 0
    while not told.exists():
        if not (last and silent > 20):
            wrong = beats.look(1.0 if last or ranks.index == 0 else 0.0, 3.0) or wrong
        if wrong:
            told.touch()
        silent += 1
        time.sleep(0.05)
    beats.close()
    return wrong


if __name__ == "__main__":
    ranks = MpiRanks()
    works = {w.__name__: w for w in (operations, different, late, absent, half, roll_call, neighbours)}
    found = works[sys.argv[1]](ranks)
    Path(f"{sys.argv[2]}/{ranks.index}.json").write_text(json.dumps(found))
    if sys.argv[1] != "operations":
        while len(list(Path(sys.argv[2]).glob("*.json"))) < ranks.count:
            time.sleep(0.05)
        time.sleep(0.2)  # until the last has closed its file
        ranks.abort(0)  # some ranks left an exchange early: MPI's own end would wait
