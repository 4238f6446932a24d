"""Sum arrays over several GPUs through NCCL, as CuPy binds it. One communicator per process and GPU.

A GPU waits for the other ranks without a limit, so a rank that is lost would block the others for ever. Every iteration
ends with `maximum`: a thread measures how long that takes, logs a warning after a while, and aborts the communicator
at the timeout. NCCL does not know which rank is missing. Ranks that share their counts of calls do: the lowest count.

An abort ends kernels that wait, those of recorded graphs too. But NCCL then waits until all graphs that contain its
operations are freed. So a thread calls it, and whoever aborts frees the graphs: `parallel/data_parallel.py`.

NCCL wants all ranks to capture an operation, or none. Here each rank decides alone when it replays: while rank 0 copies
a value to a snapshot it runs step by step. That is safe as long as captured operations use the same buffers of NCCL as
others, so `recorded_alike` keeps it from registering those of the graph.
"""

from __future__ import annotations

import logging
import os
import socket
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol

import numpy as np

from ...arrays import AnyArray, HostArray
from ...errors import DeviceError, LostRank, UsageError
from ..device import Device, Event
from . import nccl, require

_log = logging.getLogger(__name__)
UID_BYTES = 128
_SLOTS = 8  # numbers in flight at once
_PATIENCE_S = 5.0  # at the program's end
_ABORT_S = 1.0  # NCCL ends at once where there are no graphs
_REGISTER = "NCCL_GRAPH_REGISTER"
_AVERAGE = 4  # NCCL's number of its operation avg, for which CuPy has no name


def unique_id() -> bytes:
    """Return a new group's name, 128 bytes. Raises MissingDependency without NCCL."""
    return bytes(number & 0xFF for number in nccl().get_unique_id())


def recorded_alike() -> None:
    """Let ranks that capture an operation and ranks that do not take part in it together.

    Raises UsageError where the environment asks for the opposite."""
    if os.environ.setdefault(_REGISTER, "0") != "0":
        raise UsageError(
            f"{_REGISTER}={os.environ[_REGISTER]}: then all ranks would have to replay a graph at the same time",
            fix=f"unset {_REGISTER}, or leave out capture=True: then iterations run step by step",
        )


def _may_capture(wanted: bool | None, rank: int) -> bool:
    """Return whether sums are recorded. wanted: None where that is to be found out. Raises UsageError."""
    if wanted is False:
        return False
    try:
        recorded_alike()
    except UsageError as error:
        if wanted:
            raise
        level = logging.INFO if rank else logging.WARNING  # one rank is enough on the terminal
        _log.log(level, "Iterations are not recorded as CUDA graphs, which is slower: %s; unset it.", error.message)
        return False
    return True


class Beats(Protocol):
    """Count the calls of each rank, where all ranks see it."""

    def __getitem__(self, rank: int, /) -> int: ...

    def __setitem__(self, rank: int, calls: int, /) -> None: ...

    def __iter__(self) -> Iterator[int]: ...


class NcclCommunicator:
    """Implement `parallel/communicator.py` for GPUs.

    Args:
        device: a CudaDevice.
        uid: the result of `unique_id` in one of the ranks.
        timeout: seconds to wait for other ranks.
        capture: let CUDA graphs of iterations contain operations; None: unless NCCL_GRAPH_REGISTER forbids it, of which
            the log tells.
        warn: seconds of a wait until it is logged; again each time the wait has doubled.
        beats: one number for every rank, 0 at first, in memory that all ranks share, or what asks the others: with it
            messages name the rank that does not answer.
        place: returns where a rank runs; None: on this host.

    Raises:
        MissingDependency: NCCL is not installed.
        UsageError: another device, an invalid uid, or what NCCL_GRAPH_REGISTER forbids is asked for.
        LostRank: not all ranks come in time.
        DeviceError: NCCL fails.
    """

    exchange_seconds = None  # exchanges run on the GPU, beside what the host does
    _place: Callable[[int], str] | None = None

    def __init__(
        self,
        device: Device,
        uid: bytes,
        size: int,
        rank: int,
        *,
        timeout: float,
        capture: bool | None = None,
        warn: float = 30.0,
        beats: Beats | None = None,
        place: Callable[[int], str] | None = None,
    ):
        self._nccl = nccl()
        self.can_capture = _may_capture(capture, rank)
        if device.name != "cuda":
            raise UsageError(
                f"NCCL needs a GPU, the solver is on the {device.describe()}",
                fix="call caffe.set_mode_gpu() and caffe.set_device(...) before the solver is made",
            )
        if not isinstance(uid, bytes) or len(uid) != UID_BYTES:
            raise UsageError("the uid is none", fix="give every rank the bytes of one call of NCCL.new_uid()")
        if not 0 <= rank < size:
            raise UsageError(f"rank {rank} of {size} is out of range", fix=f"ranks are 0 to {size - 1}")
        self._device, self.size, self.rank, self._timeout = device, size, rank, timeout
        self._warn, self._beats, self._place = warn, beats, place
        self._types = {"float32": self._nccl.NCCL_FLOAT32, "float64": self._nccl.NCCL_FLOAT64}
        self._comm = self._meet(uid)
        cupy = require()
        with device.active():
            # not from the pool: a budget may leave nothing there
            self._numbers = cupy.ndarray(
                (_SLOTS,), np.int64, memptr=cupy.cuda.MemoryPointer(cupy.cuda.Memory(8 * _SLOTS), 0)
            )
        self._host = device.host_take(16 * _SLOTS, pinned=True).view(np.int64).reshape(2, _SLOTS)
        self._next = 0
        self._watch = _Watch(self._comm, timeout, warn, self._say, self._missing)
        self._at_exit = weakref.finalize(self, _part, self._comm, device)

    def _meet(self, uid: bytes) -> Any:
        """Return NCCL's communicator, once every rank has come. NCCL waits without a limit, so a thread calls it."""
        found: list[Any] = []

        def work() -> None:
            try:
                with self._device.active():
                    found.append(self._join(uid))
            except Exception as error:  # to be raised by the caller
                found.append(error)

        thread = threading.Thread(target=work, name="caffe-nccl-join", daemon=True)
        self._beat()
        thread.start()
        waited, warn = 0.0, self._warn
        while thread.is_alive() and waited < self._timeout:
            if waited:
                self._say(waited)
            thread.join(min(warn, self._timeout) - waited)
            waited, warn = min(warn, self._timeout), 2 * warn
        if not found:
            raise LostRank(
                f"rank {self.rank} of {self.size}: not all ranks came within {self._timeout:g} s; missing: "
                f"{self._missing()}",
                fix="start as many processes as set_solver_count says, each with its own rank and GPU",
            )
        if isinstance(found[0], Exception):
            raise DeviceError(
                f"NCCL cannot join rank {self.rank} of {self.size}: {found[0]}",
                fix="give every rank a GPU of its own; NCCL_DEBUG=INFO says more",
            ) from found[0]
        return found[0]

    def _beat(self) -> None:
        if self._beats is not None:
            self._beats[self.rank] += 1

    def _missing(self) -> str:
        """Return the names of the ranks that have made fewer calls than this one, where that is known."""
        behind = [] if self._beats is None else [r for r, n in enumerate(self._beats) if n < self._beats[self.rank]]
        if behind and self._place is not None:
            return f"{', '.join(f'rank {r} ({self._place(r)})' for r in behind)} of {self.size}"
        names = f"rank {', '.join(map(str, behind))}" if behind else "another rank"
        return f"{names} of {self.size} on {socket.gethostname()}"

    def _say(self, waited: float) -> None:
        doing = "; rank 0 may be testing or writing a snapshot" if self.rank else ""
        _log.warning(
            "Rank %d of %d has waited %.0f s for %s%s. It waits up to %g s.",
            self.rank,
            self.size,
            waited,
            self._missing(),
            doing,
            self._timeout,
        )

    def _join(self, uid: bytes) -> Any:
        if isinstance(self._nccl.get_unique_id(), bytes):  # CuPy 14; before, a tuple of C's chars
            return self._nccl.NcclCommunicator(self.size, uid, self.rank)
        signed = tuple(b - 256 if b > 127 else b for b in uid)
        try:
            return self._nccl.NcclCommunicator(self.size, signed, self.rank)
        except OverflowError:  # C's char has no sign on this machine
            return self._nccl.NcclCommunicator(self.size, tuple(uid), self.rank)

    # -- operations ---------------------------------------------------------------------------------------------------
    def sum(self, arrays: Sequence[AnyArray]) -> None:
        """Queue arrays = their sums over all ranks, on the current stream, as one call."""
        self._reduce(arrays, self._nccl.NCCL_SUM)

    def average(self, arrays: Sequence[AnyArray]) -> float:
        """Queue arrays = their means over all ranks, as one call, where size is a power of two; else their sums.

        NCCL multiplies each rank's numbers by 1 / size before it adds them. With a power of two that rounds nothing but
        subnormal numbers, so bits are those of a sum that is multiplied. Returns the factor that is missing."""
        whole = self.size & (self.size - 1) == 0
        self._reduce(arrays, _AVERAGE if whole else self._nccl.NCCL_SUM)
        return 1.0 if whole else 1 / self.size

    def _reduce(self, arrays: Sequence[AnyArray], operation: int) -> None:
        comm, stream = self._open(), _current_stream()
        self._nccl.groupStart()
        try:
            for a in arrays:
                comm.allReduce(a.data.ptr, a.data.ptr, a.size, self._types[str(a.dtype)], operation, stream)
        finally:
            self._nccl.groupEnd()

    def broadcast(self, arrays: Sequence[AnyArray]) -> None:
        """Queue arrays = those of rank 0."""
        comm, stream = self._open(), _current_stream()
        for a in arrays:
            comm.broadcast(a.data.ptr, a.data.ptr, a.size, self._types[str(a.dtype)], 0, stream)

    def exchange(self, peer: int, send: AnyArray, receive: AnyArray) -> None:
        """Queue sending one array and receiving another, both at once, on the current stream."""
        comm, stream = self._open(), _current_stream()
        self._nccl.groupStart()
        try:
            comm.send(send.data.ptr, send.size, self._types[str(send.dtype)], peer, stream)
            comm.recv(receive.data.ptr, receive.size, self._types[str(receive.dtype)], peer, stream)
        finally:
            self._nccl.groupEnd()

    def reduce_scatter(self, parts: Sequence[AnyArray]) -> None:
        """Queue parts[own rank] = its sum over all ranks: one call where parts follow each other, else one for each."""
        comm, stream, add = self._open(), _current_stream(), self._nccl.NCCL_SUM
        own, kind = parts[self.rank], self._types[str(parts[0].dtype)]
        if _follow_each_other(parts):
            comm.reduceScatter(parts[0].data.ptr, own.data.ptr, own.size, kind, add, stream)
            return
        self._nccl.groupStart()
        try:
            for root, part in enumerate(parts):
                if part.size:
                    comm.reduce(part.data.ptr, part.data.ptr, part.size, kind, add, root, stream)
        finally:
            self._nccl.groupEnd()

    def all_gather(self, parts: Sequence[AnyArray]) -> None:
        """Queue every parts[r] = that of rank r: one call where parts follow each other, else one for each."""
        comm, stream = self._open(), _current_stream()
        own, kind = parts[self.rank], self._types[str(parts[0].dtype)]
        if _follow_each_other(parts):
            comm.allGather(own.data.ptr, parts[0].data.ptr, own.size, kind, stream)
            return
        self._nccl.groupStart()
        try:
            for root, part in enumerate(parts):
                if part.size:
                    comm.broadcast(part.data.ptr, part.data.ptr, part.size, kind, root, stream)
        finally:
            self._nccl.groupEnd()

    def maximum(self, value: int) -> _NcclTicket:
        """Queue the exchange of a number on the compute stream; read the result no more than 7 calls later."""
        comm, device = self._open(), self._device
        slot, self._next = self._next, (self._next + 1) % _SLOTS
        runtime, stream = require().cuda.runtime, device.compute.ptr
        number = self._numbers.data.ptr + 8 * slot
        self._host[0, slot] = value
        sent, back = (self._host[row, slot : slot + 1] for row in (0, 1))
        runtime.memcpyAsync(number, sent.ctypes.data, 8, runtime.memcpyHostToDevice, stream)
        comm.allReduce(number, number, 1, self._nccl.NCCL_INT64, self._nccl.NCCL_MAX, stream)
        runtime.memcpyAsync(back.ctypes.data, number, 8, runtime.memcpyDeviceToHost, stream)
        event = device.record(device.compute)
        self._beat()
        self._watch.expect(event)
        return _NcclTicket(self, event, back)

    def gather(self, value: bytes) -> list[bytes]:
        """Return what every rank gave, in the order of ranks; waits for all."""
        sizes = np.zeros(self.size, np.int64)
        sizes[self.rank] = len(value)
        self._add_up(sizes)
        ends = np.cumsum(sizes)
        data = np.zeros(ends[-1] + 1, np.uint8)
        data[ends[self.rank] - len(value) : ends[self.rank]] = np.frombuffer(value, np.uint8)
        self._add_up(data)
        return [part.tobytes() for part in np.split(data[:-1], ends[:-1])]

    def _add_up(self, host: HostArray) -> None:
        """Replace int64 or uint8 in host memory by their sums over all ranks; wait for them."""
        comm, device, runtime = self._open(), self._device, require().cuda.runtime
        kind = self._nccl.NCCL_INT64 if host.dtype == np.int64 else self._nccl.NCCL_UINT8
        with device.lock, device.active():
            memory, stream = require().cuda.Memory(host.nbytes), device.compute.ptr  # not from the pool, as above
            runtime.memcpyAsync(memory.ptr, host.ctypes.data, host.nbytes, runtime.memcpyHostToDevice, stream)
            comm.allReduce(memory.ptr, memory.ptr, host.size, kind, self._nccl.NCCL_SUM, stream)
            runtime.memcpyAsync(host.ctypes.data, memory.ptr, host.nbytes, runtime.memcpyDeviceToHost, stream)
            event = device.record(device.compute)
        self._beat()
        self._watch.expect(event)
        event.synchronize()
        self.check()

    def _open(self) -> Any:
        self.check()
        return self._comm

    def check(self) -> None:
        """Raise LostRank if the communicator was aborted or has failed."""
        if self._watch.gave_up:
            raise LostRank(
                f"rank {self.rank} of {self.size}: {self._watch.missing} did not answer within {self._timeout:g} s",
                fix="see whether it is stopped, swapped out or waits for a file system, and resume from the last "
                "snapshot; -timeout says how long ranks wait (longer than a test or a snapshot of rank 0 takes)",
            )
        if self._watch.aborting:
            raise LostRank(f"rank {self.rank} of {self.size}: it has left the others", fix="begin again")
        try:
            self._comm.check_async_error()
        except self._nccl.NcclError as error:
            raise LostRank(
                f"rank {self.rank} of {self.size}: NCCL has failed: {error}",
                fix="see what the other ranks said; NCCL_DEBUG=INFO says more",
            ) from error

    def close(self) -> None:
        """Wait for queued work and leave the group."""
        self._device.synchronize()
        self._watch.stop()
        self._at_exit.detach()
        self._comm.destroy()

    def abort(self) -> None:
        """Leave the group: kernels that wait for other ranks end at once. NCCL's memory is freed once no recorded graph
        contains its operations any more."""
        self._watch.stop()
        self._at_exit.detach()
        self._watch.abort()


class _NcclTicket:
    """Wait for a number that `maximum` exchanges, and read it."""

    def __init__(self, communicator: NcclCommunicator, event: Event, back: HostArray):
        self._communicator, self._event, self._back = communicator, event, back

    def read(self) -> int:
        self._event.synchronize()
        self._communicator.check()
        return int(self._back[0])


class _Watch:
    """Abort a communicator when an event takes longer than `timeout` seconds, so that waits for it end.

    Args:
        say(seconds): called when a wait has taken `warn` seconds, and each time it has doubled.
        missing(): returns the names of the ranks that have not come.
    """

    def __init__(
        self, comm: Any, timeout: float, warn: float, say: Callable[[float], None], missing: Callable[[], str]
    ):
        self._comm, self._timeout, self._warn, self._say, self._missing = comm, timeout, warn, say, missing
        self._events: deque[tuple[Event, float]] = deque()
        self._stopped = threading.Event()
        self.gave_up = False
        self.missing = ""  # the ranks that had not come when it gave up
        self._aborting: threading.Thread | None = None
        self._lock = threading.Lock()
        threading.Thread(target=self._run, name="caffe-nccl-watch", daemon=True).start()

    def expect(self, event: Event) -> None:
        self._events.append((event, time.monotonic()))

    def stop(self) -> None:
        self._stopped.set()

    def abort(self) -> None:
        """Abort the communicator, once, in a thread; wait until that is done, or until graphs must be freed first."""
        with self._lock:
            if self._aborting is None:
                self._aborting = _abort(self._comm)
        self._aborting.join(_ABORT_S)

    @property
    def aborting(self) -> bool:
        """Return whether `abort` was called."""
        return self._aborting is not None

    def _run(self) -> None:
        warn = self._warn
        while not self._stopped.wait(min(1.0, self._timeout / 4, self._warn / 4)):
            while self._events and self._events[0][0].done:
                self._events.popleft()
                warn = self._warn
            waited = time.monotonic() - self._events[0][1] if self._events else 0.0
            if waited > self._timeout:
                self.missing = self._missing()
                self.gave_up = True
                self.abort()
                return
            if waited > warn:
                warn *= 2
                self._say(waited)


def _current_stream() -> int:
    address: int = require().cuda.get_current_stream().ptr
    return address


def _follow_each_other(parts: Sequence[AnyArray]) -> bool:
    """Tell whether arrays of one size lie in memory one behind the other."""
    start, step = parts[0].data.ptr, parts[0].nbytes
    return step > 0 and all(p.nbytes == step and p.data.ptr == start + i * step for i, p in enumerate(parts))


def _part(comm: Any, device: Device) -> None:
    """Abort the communicator at the end of a program that did not close it: others may be gone, so wait briefly."""
    until = time.monotonic() + _PATIENCE_S
    with device.active():
        done = device.record(device.compute)
    while not done.done and time.monotonic() < until:
        time.sleep(0.01)
    _abort(comm).join(_ABORT_S)  # a traceback may keep a graph


def _abort(comm: Any) -> threading.Thread:
    """Abort a communicator in a thread, which waits until no graph needs it; return the thread."""
    thread = threading.Thread(target=comm.abort, name="caffe-nccl-abort", daemon=True)
    thread.start()
    return thread
