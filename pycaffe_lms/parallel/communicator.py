"""Declares what data-parallel training needs of a communication library.

Every rank makes the same calls in the same order.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Protocol

from ..activity import activity
from ..arrays import AnyArray

TIMEOUT_S = 3600.0  # longest wait for another rank: the root also writes snapshots, and may test alone
WARN_S = 30.0  # wait after which a rank logs for which rank it waits; it does so again each time the wait has doubled


class Ticket(Protocol):
    """Hold the result of an exchange that is queued."""

    def read(self) -> int:
        """Wait for the result and return it. Raises LostRank where another rank is gone or does not answer in time."""


class Stopwatch:
    """Add up the seconds within exchanges: `with` blocks that are not nested. The main thread may wait there."""

    def __init__(self) -> None:
        self.seconds = self._since = 0.0

    def __enter__(self) -> None:
        self._since = time.perf_counter()
        self._doing = activity.doing("an exchange with other ranks", bounded=False)
        self._doing.__enter__()

    def __exit__(self, *error: object) -> None:
        self._doing.__exit__(None, None, None)
        self.seconds += time.perf_counter() - self._since


class Communicator(Protocol):
    """Exchange arrays of one rank's device with the other ranks.

    Operations change arrays in place and are queued on the current stream. What goes wrong with other ranks is raised
    as LostRank, by the call itself or by the next one that waits."""

    rank: int
    size: int
    can_capture: bool  # whether what `sum` queues can be recorded with `Device.capture`

    @property
    def exchange_seconds(self) -> float | None:
        """Return how long this rank has been in exchanges, waits for other ranks included; None: the host cannot
        tell."""

    def sum(self, arrays: Sequence[AnyArray]) -> None:
        """Queue the replacement of every array by its sum over all ranks, the same to the bit on each."""

    def average(self, arrays: Sequence[AnyArray]) -> float:
        """Queue the replacement of every array by its mean over all ranks, or by its sum where that is one operation
        less; return the factor that is missing: 1 or 1 / size."""

    def broadcast(self, arrays: Sequence[AnyArray]) -> None:
        """Queue the replacement of every array by that of rank 0."""

    def exchange(self, peer: int, send: AnyArray, receive: AnyArray) -> None:
        """Queue sending `send` to rank `peer` while `receive` is filled with what that rank sends.

        All ranks call it, in pairs, with arrays of one size; `send` and `receive` do not overlap."""

    def reduce_scatter(self, parts: Sequence[AnyArray]) -> None:
        """Queue the replacement of parts[own rank] by its sum over all ranks; the other parts' values are lost."""

    def all_gather(self, parts: Sequence[AnyArray]) -> None:
        """Queue the filling of every parts[r] by that of rank r."""

    def maximum(self, value: int) -> Ticket:
        """Queue the exchange of a number; the ticket's result is the largest over all ranks."""

    def gather(self, value: bytes) -> list[bytes]:
        """Return what every rank gave, in the order of ranks; waits for all."""

    def check(self) -> None:
        """Raise LostRank where an operation has failed, so that arrays hold no results although the device runs what
        was queued behind it. May be called from any thread."""

    def close(self) -> None:
        """Wait for what is queued, then close the connections."""

    def abort(self) -> None:
        """Close the connections at once; what is queued may never run."""
