"""Ranks that talk over local sockets: for CPUs and for the simulated device. Rank 0 gathers, combines in the order of
the ranks, and answers; so sums are the same to the bit on every rank and in every run.

Messages carry numbers and raw arrays only, with a header that both sides check, so that ranks which do not do the same
are found out at once. The meeting place is a path in a folder that only the user can enter.
"""

from __future__ import annotations

import contextlib
import shutil
import socket
import struct
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from ..errors import LostRank, UsageError
from .communicator import TIMEOUT_S

_HEADER = struct.Struct("<4sBIQQ")  # magic, operation, rank, number of the operation, bytes that follow
_MAGIC = b"cfr1"
_HELLO, _SUM, _BROADCAST, _MAXIMUM = range(4)
_NAMES = ("hello", "a sum", "a broadcast", "a maximum")


class Meeting:
    """A meeting place for the ranks of one training on this machine; `path` is what every rank is given."""

    def __init__(self) -> None:
        self._folder = tempfile.mkdtemp(prefix="caffe-ranks-")
        self.path = str(Path(self._folder) / "meeting")

    def __enter__(self) -> Meeting:
        return self

    def __exit__(self, *exc) -> None:
        shutil.rmtree(self._folder, ignore_errors=True)


class HostCommunicator:
    """See `communicator.Communicator`. path: of a `Meeting`. timeout: seconds to wait for another rank.

    Raises LostRank where not all ranks come in time."""

    can_capture = True  # of a simulated device: what is queued is queued again

    def __init__(self, device, path: str, size: int, rank: int, *, timeout: float = TIMEOUT_S):
        if not 0 <= rank < size:
            raise UsageError(f"rank {rank} of {size} is out of range", fix=f"ranks are 0 to {size - 1}")
        self._device, self.size, self.rank, self._timeout = device, size, rank, timeout
        self._count = 0
        self._lost: LostRank | None = None
        self._peers: dict[int, socket.socket] = {}
        deadline = time.monotonic() + timeout
        if rank == 0:
            self._listen(path, deadline)
        else:
            self._peers[0] = self._connect(path, deadline)
            self._send(0, _HELLO, b"")

    # -- meeting ------------------------------------------------------------------------------------------------------
    def _listen(self, path: str, deadline: float) -> None:
        with socket.socket(socket.AF_UNIX) as door:
            door.bind(path)
            door.listen(self.size)
            while len(self._peers) < self.size - 1:
                door.settimeout(max(0.01, deadline - time.monotonic()))
                try:
                    peer, _ = door.accept()
                except TimeoutError:
                    missing = sorted(set(range(1, self.size)) - set(self._peers))
                    raise self._fail(f"rank {missing[0]} did not come within {self._timeout:g} s") from None
                peer.settimeout(self._timeout)
                self._peers[-1] = peer
                rank = self._receive(-1, _HELLO, memoryview(b""))
                if rank in self._peers or not 0 < rank < self.size:
                    raise self._fail(f"rank {rank} came twice, or is none of {self.size}")
                self._peers[rank] = self._peers.pop(-1)

    def _connect(self, path: str, deadline: float) -> socket.socket:
        while True:
            peer = socket.socket(socket.AF_UNIX)
            peer.settimeout(self._timeout)
            try:
                peer.connect(path)
                return peer
            except (FileNotFoundError, ConnectionRefusedError):
                peer.close()
                if time.monotonic() > deadline:
                    raise self._fail(f"rank 0 did not come within {self._timeout:g} s") from None
                time.sleep(0.01)

    # -- messages -----------------------------------------------------------------------------------------------------
    def _fail(self, what: str) -> LostRank:
        """Remember it, part from everybody (so that they know), and return it to be raised."""
        self._lost = LostRank(
            f"rank {self.rank} of {self.size}: {what}", fix="see what that rank said, and begin again"
        )
        self.abort()
        return self._lost

    def _send(self, to: int, operation: int, data) -> None:
        try:
            header = _HEADER.pack(_MAGIC, operation, self.rank, self._count, len(data))
            self._peers[to].sendall(header)
            self._peers[to].sendall(data)
        except OSError as error:
            raise self._fail(f"rank {to} is gone ({error})") from None

    def _receive(self, sender: int, operation: int, into: memoryview) -> int:
        """Fill `into`; returns the rank that the sender says it is."""
        header = bytearray(_HEADER.size)
        self._read(sender, memoryview(header))
        magic, theirs, rank, count, nbytes = _HEADER.unpack(header)
        if magic != _MAGIC or theirs > _MAXIMUM:
            raise self._fail(f"what comes from rank {sender} is no message")
        if (theirs, count, nbytes) != (operation, self._count, len(into)):
            raise self._fail(
                f"rank {rank} does {_NAMES[theirs]} of {nbytes} bytes (its operation {count}) where this one does "
                f"{_NAMES[operation]} of {len(into)} (its operation {self._count}): they do not train the same"
            )
        self._read(sender, into)
        return rank

    def _read(self, sender: int, into: memoryview) -> None:
        peer, done = self._peers[sender], 0
        while done < len(into):
            try:
                n = peer.recv_into(into[done:])
            except TimeoutError:
                raise self._fail(f"rank {sender} did not answer within {self._timeout:g} s") from None
            except OSError as error:
                raise self._fail(f"rank {sender} is gone ({error})") from None
            if n == 0:
                raise self._fail(f"rank {sender} is gone (its process ended, or it gave up)")
            done += n

    def _exchange(self, operation: int, mine: np.ndarray, combine: Callable[[np.ndarray, np.ndarray], None]) -> None:
        """combine(mine, theirs) on rank 0, rank after rank; then `mine` is the result everywhere."""
        if self._lost is not None:
            raise self._lost
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

    def close(self) -> None:
        self._device.synchronize()
        self.abort()

    def abort(self) -> None:
        for peer in self._peers.values():
            with contextlib.suppress(OSError):
                peer.close()


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
