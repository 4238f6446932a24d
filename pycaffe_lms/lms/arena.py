"""Offsets for residences: each occupies [offset, offset + size) of one arena during [start, end]. Pure.

Largest first, each at the lowest gap that is free over its whole life (the greedy rule that inference runtimes use);
a second try packs in order of time. The better result counts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Lifetime:
    """`size` bytes (already aligned) from step `start` to step `end`, both included."""

    start: int
    end: int
    size: int


@dataclass(frozen=True)
class Packing:
    offsets: tuple[int, ...]
    peak: int  # bytes the arena needs
    max_live: int  # most bytes alive at once: no packing can do better

    @property
    def loss(self) -> float:
        """Share of the peak that packing wastes."""
        return 0.0 if self.max_live == 0 else self.peak / self.max_live - 1.0


def max_live_bytes(lifetimes: Sequence[Lifetime]) -> int:
    """Most bytes alive in any one step."""
    change: dict[int, int] = {}
    for life in lifetimes:
        change[life.start] = change.get(life.start, 0) + life.size
        change[life.end + 1] = change.get(life.end + 1, 0) - life.size
    live = peak = 0
    for step in sorted(change):
        live += change[step]
        peak = max(peak, live)
    return peak


def pack(lifetimes: Sequence[Lifetime]) -> Packing:
    """Choose offsets so that no two residences that are alive together overlap."""
    live = max_live_bytes(lifetimes)
    by_size = sorted(range(len(lifetimes)), key=lambda i: (-lifetimes[i].size, lifetimes[i].start, i))
    best = _place(lifetimes, by_size)
    if best[1] > live:
        by_time = sorted(range(len(lifetimes)), key=lambda i: (lifetimes[i].start, -lifetimes[i].size, i))
        best = min(best, _place(lifetimes, by_time), key=lambda result: result[1])
    return Packing(tuple(best[0]), best[1], live)


def _place(lifetimes: Sequence[Lifetime], order: Sequence[int]) -> tuple[list[int], int]:
    offsets = [0] * len(lifetimes)
    alive: dict[int, list[int]] = {}  # step -> residences placed so far
    peak = 0
    for i in order:
        life = lifetimes[i]
        neighbours = {j for step in range(life.start, life.end + 1) for j in alive.get(step, ())}
        taken = sorted((offsets[j], offsets[j] + lifetimes[j].size) for j in neighbours)
        best, best_gap, end = None, None, 0
        for lo, hi in taken:
            gap = lo - end
            if gap >= life.size and (best_gap is None or gap < best_gap):
                best, best_gap = end, gap
            end = max(end, hi)
        offsets[i] = end if best is None else best
        peak = max(peak, offsets[i] + life.size)
        for step in range(life.start, life.end + 1):
            alive.setdefault(step, []).append(i)
    return offsets, peak
