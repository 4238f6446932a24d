"""Connects ranks over local sockets, for CPUs and the simulated device.

Rank 0 receives from every rank, combines in the order of the ranks, and sends the result, so that sums are the same to
the bit on every rank and in every run. Messages carry numbers and raw arrays only, with a header that both sides check,
so that ranks which do different operations are noticed at once. Ranks meet at a path in a folder that only the user can
enter (`meeting.py`).

A rank that waits for another logs that after a while, and names the other's process. While rank 0 waits for one rank it
sends signs of life to the others, so that none of them takes rank 0 for the one that does not answer.
"""

from __future__ import annotations

import contextlib
import logging
import os
import socket
import struct
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..arrays import HostArray
from ..backend.device import Device
from ..backend.sim.device import SimDevice
from ..errors import LostRank, UsageError
from ..faults import Faults
from . import communicator
from .communicator import TIMEOUT_S, Stopwatch
from .meeting import leave

_log = logging.getLogger(__name__)
_HEADER = struct.Struct("<4sBIQQ")  # magic, operation, rank, number of the operation, bytes that follow
_PROCESS = struct.Struct("<Q")  # what a hello carries: the number of the sender's process
_RANK = struct.Struct("<Q")
_MAGIC = b"cfr2"
_HELLO, _SUM, _BROADCAST, _MAXIMUM, _EXCHANGE, _PEER, _GATHER, _WAITING = range(8)
_NAMES = (
    "hello",
    "a sum",
    "a broadcast",
    "a maximum",
    "an exchange",
    "the choice of a peer",
    "a gathering",
    "a sign of life",
)
_SLICE_S = 1.0  # a wait is interrupted so often, to look whether it lasts too long


class HostCommunicator:
    """Implement `communicator.Communicator` over sockets.

    Args:
        path: that of a `Meeting`.
        timeout: seconds to wait for another rank.
        faults: which exchanges fail, for tests.

    Raises:
        LostRank: not all ranks come in time.
    """

    can_capture = True  # a launch on a simulated device queues the exchanges again

    def __init__(
        self,
        device: Device,
        path: str,
        size: int,
        rank: int,
        *,
        timeout: float = TIMEOUT_S,
        faults: Faults | None = None,
    ):
        if not 0 <= rank < size:
            raise UsageError(f"rank {rank} of {size} is out of range", fix=f"ranks are 0 to {size - 1}")
        self._device, self.size, self.rank, self._timeout = device, size, rank, timeout
        self._warn, self._faults = communicator.WARN_S, faults
        self._slice = min(_SLICE_S, timeout / 4, self._warn / 4)
        self._processes: dict[int, int] = {}  # rank -> number of its process
        self._count = 0  # of exchanges
        self._exchanging = Stopwatch()
        self._lost: LostRank | None = None
        self._peers: dict[int, socket.socket] = {}
        if rank == 0:
            self._listen(path)
            leave(path)
        else:
            self._peers[0] = self._connect(path)
            self._send(0, _HELLO, _PROCESS.pack(os.getpid()))
            self._greet(0)

    # -- meeting ------------------------------------------------------------------------------------------------------
    def _listen(self, path: str) -> None:
        with socket.socket(socket.AF_UNIX) as listening:
            listening.bind(path)
            listening.listen(self.size)
            listening.settimeout(self._slice)
            patience = _Patience(self)
            while len(self._peers) < self.size - 1:
                missing = min(set(range(1, self.size)) - set(self._peers))
                try:
                    peer, _ = listening.accept()
                except TimeoutError:
                    patience.look(missing, "come")
                    continue
                peer.settimeout(self._slice)
                self._peers[-1] = peer
                rank = self._greet(-1)
                if rank in self._peers or not 0 < rank < self.size:
                    raise self._fail(f"rank {rank} connected twice, or is not below {self.size}")
                self._peers[rank] = self._peers.pop(-1)
                self._send(rank, _HELLO, _PROCESS.pack(os.getpid()))

    def _greet(self, peer: int) -> int:
        """Receive a hello; return the rank that the sender claims."""
        process = bytearray(_PROCESS.size)
        rank = self._receive(peer, _HELLO, memoryview(process))
        (self._processes[rank],) = _PROCESS.unpack(process)
        return rank

    def _connect(self, path: str) -> socket.socket:
        patience = _Patience(self)
        while True:
            peer = socket.socket(socket.AF_UNIX)
            peer.settimeout(self._slice)
            try:
                peer.connect(path)
                return peer
            except (FileNotFoundError, ConnectionRefusedError):
                peer.close()
                patience.look(0, "come")
                time.sleep(0.01)

    # -- messages -----------------------------------------------------------------------------------------------------
    def _fail(self, what: str, fix: str = "see what that rank said, and begin again") -> LostRank:
        """Remember the failure, close all connections so that the others notice, and return the error to raise."""
        self._lost = LostRank(f"rank {self.rank} of {self.size}: {what}", fix=fix)
        self.abort()
        return self._lost

    def _place(self, rank: int) -> str:
        """Return where a rank runs, as far as that is known."""
        host = f"on {socket.gethostname()}"
        return f"process {self._processes[rank]} {host}" if rank in self._processes else host

    def _send(self, to: int, operation: int, data: bytes | memoryview) -> None:
        self._write(to, _HEADER.pack(_MAGIC, operation, self.rank, self._count, len(data)))
        self._write(to, data)

    def _receive(self, sender: int, operation: int, into: memoryview) -> int:
        """Fill `into`; return the rank that the sender claims."""
        header = bytearray(_HEADER.size)
        theirs, rank = _WAITING, sender
        while theirs == _WAITING:
            self._read(sender, memoryview(header))
            magic, theirs, rank, count, nbytes = _HEADER.unpack(header)
            if magic != _MAGIC or theirs > _WAITING:
                raise self._fail(f"rank {sender} sent something that is not a message")
        if (theirs, count, nbytes) != (operation, self._count, len(into)):
            raise self._fail(
                f"rank {rank} does {_NAMES[theirs]} of {nbytes} bytes (its operation {count}) where this one does "
                f"{_NAMES[operation]} of {len(into)} (its operation {self._count}): they do not train the same"
            )
        self._read(sender, into)
        return rank

    def _write(self, to: int, data: bytes | memoryview) -> None:
        left = memoryview(data)
        while left:
            left = left[self._ready(to, self._peers[to].send, left) :]

    def _read(self, sender: int, into: memoryview) -> None:
        while into:
            n = self._ready(sender, self._peers[sender].recv_into, into)
            if n == 0:
                raise self._fail(f"rank {sender} is gone (its process ended, or it gave up)")
            into = into[n:]

    def _ready(self, rank: int, step: Callable[[memoryview], int], data: memoryview) -> int:
        """Call `step(data)` again until it does not time out; return what it returns, a number of bytes."""
        patience = None
        while True:
            try:
                return step(data)
            except TimeoutError:
                patience = patience or _Patience(self)
                patience.look(rank, "answer")
            except OSError as error:
                raise self._fail(f"rank {rank} is gone ({error})") from None

    def _reassure(self, but: int) -> None:
        """Send signs of life from rank 0 to all ranks but the one that it waits for."""
        message = _HEADER.pack(_MAGIC, _WAITING, self.rank, 0, 0)
        for rank, peer in self._peers.items():
            if rank > 0 and rank != but and self.rank == 0:
                with contextlib.suppress(OSError):  # a rank that does not read is the next that rank 0 waits for
                    peer.send(message, socket.MSG_DONTWAIT)

    def _begin(self) -> None:
        """Count one more operation. Raises LostRank where an earlier one failed."""
        if self._lost is not None:
            raise self._lost
        if self._faults is not None and self._faults.strikes("rank"):
            raise self._fail("it failed on purpose")
        self._count += 1

    def _exchange(self, operation: int, mine: HostArray, combine: np.ufunc | None) -> None:
        """Set mine = combine(mine, theirs) on rank 0 for rank after rank, then copy it to every rank's `mine`."""
        self._begin()
        data = _raw(mine)
        if self.rank:
            self._send(0, operation, data)
            self._receive(0, operation, data)
            return
        theirs = np.empty_like(mine)
        for rank in range(1, self.size):
            self._receive(rank, operation, _raw(theirs))
            if combine is not None:
                combine(mine, theirs, out=mine)
        for rank in range(1, self.size):
            self._send(rank, operation, data)

    def _swap(self, peer: int, send: HostArray, receive: HostArray) -> None:
        """Set receive = `send` of rank `peer`. Rank 0 passes arrays on."""
        self._begin()
        sent = np.ascontiguousarray(send)
        into = np.empty_like(sent)
        if self.rank:
            self._send(0, _PEER, _RANK.pack(peer))
            self._send(0, _EXCHANGE, _raw(sent))
            self._receive(0, _EXCHANGE, _raw(into))
            np.copyto(receive, into)
            return
        peers, found = {0: peer}, {0: sent}
        for rank in range(1, self.size):
            number = bytearray(_RANK.size)
            self._receive(rank, _PEER, memoryview(number))
            (peers[rank],) = _RANK.unpack(number)
            found[rank] = np.empty_like(sent)
            self._receive(rank, _EXCHANGE, _raw(found[rank]))
        for rank, other in peers.items():
            if peers.get(other) != rank:
                raise self._fail(f"rank {rank} exchanges with rank {other}, which does not: they do not train the same")
        for rank in range(1, self.size):
            self._send(rank, _EXCHANGE, _raw(found[peers[rank]]))
        np.copyto(receive, found[peer])

    def _collect(self, parts: list[HostArray]) -> None:
        """Fill every part by that of its rank."""
        self._begin()
        flat = np.concatenate([part.reshape(-1) for part in parts])
        ends = np.cumsum([part.size for part in parts])
        own = [flat[end - part.size : end] for end, part in zip(ends, parts, strict=True)]
        if self.rank:
            self._send(0, _GATHER, _raw(own[self.rank]))
            self._receive(0, _GATHER, _raw(flat))
        else:
            for rank in range(1, self.size):
                self._receive(rank, _GATHER, _raw(own[rank]))
            for rank in range(1, self.size):
                self._send(rank, _GATHER, _raw(flat))
        for part, values in zip(parts, own, strict=True):
            np.copyto(part, values.reshape(part.shape))

    # -- operations ---------------------------------------------------------------------------------------------------
    @property
    def exchange_seconds(self) -> float:
        """Return how long this rank has been in exchanges, waits for other ranks included."""
        return self._exchanging.seconds

    def sum(self, arrays: Sequence[HostArray]) -> None:
        self._queue(self._together, _SUM, list(arrays), np.add)

    def average(self, arrays: Sequence[HostArray]) -> float:
        self.sum(arrays)
        return 1 / self.size

    def broadcast(self, arrays: Sequence[HostArray]) -> None:
        self._queue(self._together, _BROADCAST, list(arrays), None)

    def exchange(self, peer: int, send: HostArray, receive: HostArray) -> None:
        self._queue(self._swap, peer, send, receive)

    def reduce_scatter(self, parts: Sequence[HostArray]) -> None:
        self.sum(parts)

    def all_gather(self, parts: Sequence[HostArray]) -> None:
        self._queue(self._collect, list(parts))

    def maximum(self, value: int) -> HostTicket:
        box = np.array([value], np.int64)
        self._queue(self._exchange, _MAXIMUM, box, np.maximum)
        device = self._device
        return HostTicket(device, box, None if device.is_host else device.record(device.compute))

    def gather(self, value: bytes) -> list[bytes]:
        """Return what every rank gave, in the order of ranks; waits for all."""
        self._device.synchronize()  # what is queued comes first, as on the other ranks
        sizes = np.zeros(self.size, np.int64)
        sizes[self.rank] = len(value)
        self._run(self._exchange, _SUM, sizes, np.add)
        ends = np.cumsum(sizes)
        data = np.zeros(ends[-1], np.uint8)
        data[ends[self.rank] - len(value) : ends[self.rank]] = np.frombuffer(value, np.uint8)
        self._run(self._exchange, _SUM, data, np.add)
        return [part.tobytes() for part in np.split(data, ends[:-1])]

    def _queue(self, function: Callable[..., None], *args: object) -> None:
        if isinstance(self._device, SimDevice):
            self._device.queue(self._run, function, *args)
        else:
            self._run(function, *args)

    def _run(self, function: Callable[..., None], *args: object) -> None:
        """Run an exchange, and count its time."""
        with self._exchanging:
            function(*args)

    def _together(self, operation: int, arrays: list[HostArray], combine: np.ufunc | None) -> None:
        """Exchange arrays of one type as one message."""
        arrays = [a for a in arrays if a.size]
        if not arrays:
            return
        flat = np.concatenate([a.reshape(-1) for a in arrays])
        self._exchange(operation, flat, combine)
        start = 0
        for a in arrays:
            np.copyto(a, flat[start : start + a.size].reshape(a.shape))
            start += a.size

    def check(self) -> None:
        """Do nothing: neither the CPU nor a simulated device goes on behind an exchange that failed."""

    def close(self) -> None:
        try:
            self._device.synchronize()
        finally:  # where that fails the others must not wait for this rank
            self.abort()

    def abort(self) -> None:
        for peer in self._peers.values():
            with contextlib.suppress(OSError):
                peer.close()


def _raw(array: HostArray) -> memoryview:
    """Return the bytes of a contiguous array."""
    return array.reshape(-1).view(np.uint8).data


class _Patience:
    """Watch one wait for another rank: log that it lasts, let rank 0 send signs of life, and end it in time."""

    def __init__(self, waiting: HostCommunicator):
        self._waiting, self._since = waiting, time.monotonic()
        self._warn = waiting._warn
        self._reassure = 0.0

    def look(self, rank: int, what: str) -> None:
        """Take note that the wait goes on. what: "come" or "answer". Raises LostRank when it has lasted too long."""
        w, waited = self._waiting, time.monotonic() - self._since
        if waited > w._timeout:
            raise w._fail(
                f"rank {rank} did not {what} within {w._timeout:g} s ({w._place(rank)})",
                fix="see whether it is stopped, swapped out or waits for a file system, and resume from the last "
                "snapshot; -timeout says how long ranks wait (longer than a test or a snapshot of rank 0 takes)",
            )
        if waited > self._warn:
            self._warn *= 2
            doing = " It may be testing or writing a snapshot." if rank == 0 and what == "answer" else ""
            _log.warning(
                "Rank %d of %d has waited %.0f s for rank %d to %s (%s).%s It waits up to %g s.",
                w.rank,
                w.size,
                waited,
                rank,
                what,
                w._place(rank),
                doing,
                w._timeout,
            )
        if waited > self._reassure:
            self._reassure = waited + min(w._timeout, w._warn) / 4
            w._reassure(but=rank)


class HostTicket:
    """Implement `communicator.Ticket`. box: the result (1,), once `event` has happened; event: None on the CPU."""

    def __init__(self, device: Device, box: HostArray, event: Any):
        self._device, self._box, self._event = device, box, event

    def read(self) -> int:
        if self._event is not None:
            self._device.wait_host(self._event)
        return int(self._box[0])
