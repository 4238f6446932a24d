"""Finds out which rank the others wait for, where ranks share no memory and their library does not say.

Nothing is exchanged while all ranks answer. One that has waited for long tells all others how many calls it has made,
and so do they: who has made fewer, or says nothing, is the one that is late.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

_ANSWER_S = 5.0  # ranks begin to wait within an iteration of each other, and look about once a second
_TAG = 1


class RollCall:
    """Count the calls of each rank: item r is how many are known of rank r. Each rank sets its own.

    To iterate over the counts is to ask all ranks, for a few seconds. All ranks make one together.

    Args:
        comm: of mpi4py, which must allow calls of several threads.
    """

    def __init__(self, comm: Any):
        self._comm = comm.Dup()  # messages of others stay apart
        self._index = comm.Get_rank()
        self._calls = [0] * comm.Get_size()
        self._sent: list[Any] = []  # requests; they keep their buffers

    def __getitem__(self, rank: int) -> int:
        return self._calls[rank]

    def __setitem__(self, rank: int, calls: int) -> None:
        self._calls[rank] = calls

    def __iter__(self) -> Iterator[int]:
        mine, until = self._calls[self._index], time.monotonic() + _ANSWER_S
        others = [rank for rank in range(len(self._calls)) if rank != self._index]
        self._sent = [request for request in self._sent if not request.Test()]
        self._sent += [self._comm.isend((self._index, mine), rank, _TAG) for rank in others]
        self._listen()
        while min(self._calls) < mine and time.monotonic() < until:
            time.sleep(0.05)
            self._listen()
        return iter(self._calls)

    def _listen(self) -> None:
        while self._comm.iprobe(tag=_TAG):
            rank, calls = self._comm.recv(tag=_TAG)
            self._calls[rank] = calls
