"""Says how solvers that train together share the work: the settings, and which elements of a history are whose. Pure.

Source: S. Rajbhandari et al., ZeRO: Memory Optimizations Toward Training Trillion Parameter Models, 2020 (stage 1).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from ...arrays import AnyArray
from ...errors import UsageError
from ...options import MOST, Limit, option, options_of, whole_number

_WHOLE = 32  # a share begins at a multiple of so many elements, where kernels access memory in whole packs


@dataclass(frozen=True)
class Sharing:
    """Hold the settings of `train` for several ranks. Raises UsageError for values that mean nothing."""

    virtual_ranks: int | None = option(
        None,
        flag="virtual_ranks",
        value="V",
        help="train as V ranks on any number of GPUs, each of which computes an equal share of them, one after the "
        "other: 1, 2, 4 .. V GPUs give the same bits; V is a power of two",
        parse=whole_number,
        limits=(
            Limit(
                lambda v: 0 < v <= MOST and v & (v - 1) == 0,
                "{flag} {value} is no power of two",
                fix="give 1, 2, 4, 8, 16 ..",
            ),
        ),
    )

    shard_history: bool = option(
        False,
        flag="shard_history",
        choices=("on", "off"),
        bare="on",
        default="off",
        help="with several GPUs, each keeps and updates its share of the histories (ZeRO, stage 1), which take 1/N of "
        "the memory; snapshots are whole",
        parse=lambda text, flag: text == "on",
    )

    def __post_init__(self) -> None:
        for name, described in options_of(Sharing).items():
            described.check(getattr(self, name))

    def check(self, processes: int) -> None:
        """Raise UsageError where so many processes cannot share the work like this."""
        if self.virtual_ranks is not None and self.virtual_ranks % processes:
            raise UsageError(
                f"-virtual_ranks {self.virtual_ranks} cannot be divided among {processes} ranks",
                fix="use a number of GPUs that divides it: 1, 2, 4 ..",
            )


class Gathers(Protocol):
    """Gather arrays from all ranks: what shares need of a communicator (see `parallel/communicator.py`)."""

    can_capture: bool

    def all_gather(self, parts: Sequence[AnyArray]) -> None:
        """Queue the filling of every parts[r] by that of rank r."""


class Shares:
    """Say which elements of an array belong to which rank. `communicator` is set once the ranks are joined.

    Args:
        rank, size: this rank and the number of ranks.
    """

    def __init__(self, rank: int, size: int):
        self.rank, self.size = rank, size
        self.communicator: Gathers | None = None

    def bounds(self, n: int) -> list[int]:
        """Return where the shares of `n` elements begin, and `n`; of few elements some shares are empty."""
        return [*(n * r // self.size // _WHOLE * _WHOLE for r in range(self.size)), n]

    def own(self, n: int) -> tuple[int, int]:
        """Return where this rank's share of `n` elements begins, and its elements."""
        start, end = self.bounds(n)[self.rank : self.rank + 2]
        return start, end - start

    def parts(self, flat: AnyArray) -> list[AnyArray]:
        """Return the shares of an array of one axis, as views."""
        bounds = self.bounds(flat.size)
        return [flat[a:b] for a, b in zip(bounds, bounds[1:], strict=False)]

    def gather(self, flat: AnyArray) -> None:
        """Queue the filling of an array of one axis with the shares of all ranks."""
        if self.communicator is None:
            raise UsageError(
                "with -shard_history a solver cannot train before it is joined to the other ranks",
                fix="call bcast() and add_callback(nccl) first",
            )
        self.communicator.all_gather(self.parts(flat))
