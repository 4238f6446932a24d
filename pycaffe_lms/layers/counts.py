"""How many bottoms and tops a layer type takes."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Count:
    """How many bottoms or tops: `least` to `most` (None: no upper end)."""

    least: int
    most: int | None

    def __contains__(self, n: int) -> bool:
        return self.least <= n and (self.most is None or n <= self.most)

    def __str__(self) -> str:
        if self.most is None:
            return f"at least {self.least}"
        return str(self.least) if self.least == self.most else f"{self.least} to {self.most}"


def exactly(n: int) -> Count:
    return Count(n, n)


def at_least(n: int) -> Count:
    return Count(n, None)


def between(least: int, most: int) -> Count:
    return Count(least, most)
