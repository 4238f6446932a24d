"""Ranks that talk over local sockets: for CPUs and for the simulated device. Rank 0 gathers, combines in the order of
the ranks, and answers; so sums are the same to the bit on every rank and in every run.

Messages carry numbers and raw arrays only, with a header that both sides check, so that ranks which do not do the same
are found out at once. The meeting place is a path in a folder that only the user can enter (meeting.py).

A rank that waits for another says so after a while, with the other's process. While rank 0 waits for one rank it tells
the others that it is there, so that none of them takes rank 0 for the one that does not answer.
"""

from __future__ import annotations

import contextlib
import logging
import os
import socket
import struct
import time
from collections.abc import Callable, Sequence

import numpy as np

from ..errors import LostRank, UsageError
from ..faults import Faults
from . import communicator
from .communicator import TIMEOUT_S
from .meeting import leave

_log = logging.getLogger(__name__)
_HEADER = struct.Struct("<4sBIQQ")  # magic, operation, rank, number of the operation, bytes that follow
_PROCESS = struct.Struct("<Q")  # what a hello carries: the process's number
_MAGIC = b"cfr2"
_HELLO, _SUM, _BROADCAST, _MAXIMUM, _WAITING = range(5)
_NAMES = ("hello", "a sum", "a broadcast", "a maximum", "a sign of life")
_SLICE_S = 1.0  # a wait looks around so often


class HostCommunicator:
    """See `communicator.Communicator`. path: of a `Meeting`. timeout: seconds to wait for another rank.
    faults: which exchanges fail, for tests.

    Raises LostRank where not all ranks come in time."""

    can_capture = True  # of a simulated device: what is queued is queued again

    def __init__(
        self, device, path: str, size: int, rank: int, *, timeout: float = TIMEOUT_S, faults: Faults | None = None
    ):
        if not 0 <= rank < size:
            raise UsageError(f"rank {rank} of {size} is out of range", fix=f"ranks are 0 to {size - 1}")
        self._device, self.size, self.rank, self._timeout = device, size, rank, timeout
        self._warn, self._faults = communicator.WARN_S, faults
        self._slice = min(_SLICE_S, timeout / 4, self._warn / 4)
        self._processes: dict[int, int] = {}  # numbers of the other ranks' processes
        self._count = 0
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
        with socket.socket(socket.AF_UNIX) as door:
            door.bind(path)
            door.listen(self.size)
            door.settimeout(self._slice)
            patience = _Patience(self)
            while len(self._peers) < self.size - 1:
                missing = min(set(range(1, self.size)) - set(self._peers))
                try:
                    peer, _ = door.accept()
                except TimeoutError:
                    patience.look(missing, "come")
                    continue
                peer.settimeout(self._slice)
                self._peers[-1] = peer
                rank = self._greet(-1)
                if rank in self._peers or not 0 < rank < self.size:
                    raise self._fail(f"rank {rank} came twice, or is none of {self.size}")
                self._peers[rank] = self._peers.pop(-1)
                self._send(rank, _HELLO, _PROCESS.pack(os.getpid()))

    def _greet(self, peer: int) -> int:
        """Receive a hello; returns the rank that the sender says it is."""
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
        """Remember it, part from everybody (so that they know), and return it to be raised."""
        self._lost = LostRank(f"rank {self.rank} of {self.size}: {what}", fix=fix)
        self.abort()
        return self._lost

    def _place(self, rank: int) -> str:
        """Where a rank runs, as far as that is known."""
        host = f"on {socket.gethostname()}"
        return f"process {self._processes[rank]} {host}" if rank in self._processes else host

    def _send(self, to: int, operation: int, data) -> None:
        self._write(to, _HEADER.pack(_MAGIC, operation, self.rank, self._count, len(data)))
        self._write(to, data)

    def _receive(self, sender: int, operation: int, into: memoryview) -> int:
        """Fill `into`; returns the rank that the sender says it is."""
        header = bytearray(_HEADER.size)
        theirs = _WAITING
        while theirs == _WAITING:
            self._read(sender, memoryview(header))
            magic, theirs, rank, count, nbytes = _HEADER.unpack(header)
            if magic != _MAGIC or theirs > _WAITING:
                raise self._fail(f"what comes from rank {sender} is no message")
        if (theirs, count, nbytes) != (operation, self._count, len(into)):
            raise self._fail(
                f"rank {rank} does {_NAMES[theirs]} of {nbytes} bytes (its operation {count}) where this one does "
                f"{_NAMES[operation]} of {len(into)} (its operation {self._count}): they do not train the same"
            )
        self._read(sender, into)
        return rank

    def _write(self, to: int, data) -> None:
        peer, left = self._peers[to], memoryview(data)
        while left:
            left = left[self._ready(to, lambda left=left: peer.send(left)) :]

    def _read(self, sender: int, into: memoryview) -> None:
        peer = self._peers[sender]
        while into:
            n = self._ready(sender, lambda into=into: peer.recv_into(into))
            if n == 0:
                raise self._fail(f"rank {sender} is gone (its process ended, or it gave up)")
            into = into[n:]

    def _ready(self, rank: int, step: Callable[[], int]) -> int:
        """Return what `step` returns, tried again for as long as the other rank lets it wait."""
        patience = None
        while True:
            try:
                return step()
            except TimeoutError:
                patience = patience or _Patience(self)
                patience.look(rank, "answer")
            except OSError as error:
                raise self._fail(f"rank {rank} is gone ({error})") from None

    def _reassure(self, but: int) -> None:
        """As rank 0: tell the other ranks that it waits for one, and is there."""
        message = _HEADER.pack(_MAGIC, _WAITING, self.rank, 0, 0)
        for rank, peer in self._peers.items():
            if rank > 0 and rank != but and self.rank == 0:
                with contextlib.suppress(OSError):  # a rank that does not read is the next to be waited for
                    peer.send(message, socket.MSG_DONTWAIT)

    def _exchange(self, operation: int, mine: np.ndarray, combine: Callable[[np.ndarray, np.ndarray], None]) -> None:
        """combine(mine, theirs) on rank 0, rank after rank; then `mine` is the result everywhere."""
        if self._lost is not None:
            raise self._lost
        if self._faults is not None and self._faults.strikes("rank"):
            raise self._fail("it failed on purpose")
        self._count += 1
        data = memoryview(mine).cast("B")
        if self.rank:
            self._send(0, operation, data)
            self._receive(0, operation, data)
            return
        theirs = np.empty_like(mine)
        for rank in range(1, self.size):
            self._receive(rank, operation, memoryview(theirs).cast("B"))
            combine(mine, theirs)
        for rank in range(1, self.size):
            self._send(rank, operation, data)

    # -- operations ---------------------------------------------------------------------------------------------------
    def sum(self, arrays: Sequence[np.ndarray]) -> None:
        self._queue(self._together, _SUM, list(arrays), _add)

    def broadcast(self, arrays: Sequence[np.ndarray]) -> None:
        self._queue(self._together, _BROADCAST, list(arrays), _ignore)

    def maximum(self, value: int) -> _HostTicket:
        box = np.array([value], np.int64)
        self._queue(self._exchange, _MAXIMUM, box, _larger)
        device = self._device
        return _HostTicket(device, box, None if device.is_host else device.record(device.compute))

    def _queue(self, function, *args) -> None:
        if self._device.is_host:
            function(*args)
        else:
            self._device.queue(function, *args)

    def _together(self, operation: int, arrays: list[np.ndarray], combine) -> None:
        """Arrays of one type as one message."""
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
        """Nothing: behind an exchange that failed neither the CPU nor a simulated device goes on."""

    def close(self) -> None:
        try:
            self._device.synchronize()
        finally:  # where that fails the others must not wait for this rank
            self.abort()

    def abort(self) -> None:
        for peer in self._peers.values():
            with contextlib.suppress(OSError):
                peer.close()


class _Patience:
    """One wait for another rank: says that it goes on, lets rank 0 reassure the others, and ends it in time."""

    def __init__(self, waiting: HostCommunicator):
        self._waiting, self._since = waiting, time.monotonic()
        self._warn = waiting._warn
        self._reassure = 0.0

    def look(self, rank: int, what: str) -> None:
        """Called every now and then. what: "come" or "answer". Raises LostRank when the time is over."""
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


class _HostTicket:
    def __init__(self, device, box: np.ndarray, event):
        self._device, self._box, self._event = device, box, event

    def read(self) -> int:
        if self._event is not None:
            self._device.wait_host(self._event)
        return int(self._box[0])


def _add(mine: np.ndarray, theirs: np.ndarray) -> None:
    mine += theirs


def _larger(mine: np.ndarray, theirs: np.ndarray) -> None:
    np.maximum(mine, theirs, out=mine)


def _ignore(mine: np.ndarray, theirs: np.ndarray) -> None: ...
