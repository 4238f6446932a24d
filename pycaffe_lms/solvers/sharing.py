"""Declares how solvers that train together share the work, and checks it against their number. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from ..errors import UsageError
from ..options import MOST, Limit, option, options_of, whole_number


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
