"""What data-parallel training needs of a communication library. Every rank makes the same calls in the same order."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

TIMEOUT_S = 3600.0  # how long a rank waits for another: the root also tests and writes snapshots meanwhile
WARN_S = 30.0  # how long a rank waits before it says for whom; again each time the wait has doubled


class Ticket(Protocol):
    def read(self) -> int:
        """The result; waits for it. Raises LostRank where another rank is gone or does not answer in time."""


class Communicator(Protocol):
    """Of one rank and its device. Arrays are the device's; operations are queued on the current stream, in place.

    Errors that concern other ranks are LostRank, at the call or at the next one that waits."""

    rank: int
    size: int
    can_capture: bool  # whether what `sum` queues can be recorded with `Device.capture`

    def sum(self, arrays: Sequence[Any]) -> None:
        """Every array becomes its sum over all ranks, the same to the bit on each."""

    def broadcast(self, arrays: Sequence[Any]) -> None:
        """Every array becomes what it is on rank 0."""

    def maximum(self, value: int) -> Ticket:
        """Queue the exchange of a number; the ticket's result is the largest of all ranks'."""

    def check(self) -> None:
        """Raises LostRank where an operation has failed, so that its arrays are no results, and the device goes on
        with what was queued behind it. From any thread."""

    def close(self) -> None:
        """Wait for what is queued and part from the others."""

    def abort(self) -> None:
        """Part from the others at once; what is queued may never run."""
