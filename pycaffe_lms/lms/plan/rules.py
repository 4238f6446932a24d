"""How evictions are decided, what they must keep to, and what was decided. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field


class DoesNotFit(Exception):
    """The program cannot run in this memory in this way."""


@dataclass(frozen=True)
class Rules:
    """copies: values that could be made again may leave by a copy instead. replays: they may be made again. chain:
    which share of the steps that would be made again together counts in a step's price. density: for a hundred steps
    that can be made again, in how many parts the forward is cut; in each, what is alive at its narrowest place is
    rather kept or copied than made again, see `checkpoints.py`. room: share of the memory that is used up here; the
    rest is for copies that come early. excess: which share counts of the bytes that somebody's leaving sets free beyond
    those that are short. dear: (buffer, whether it is made again or copied) -> seconds that this is taken to cost more
    than it seems."""

    copies: bool = True
    replays: bool = True
    chain: float = 0.5
    density: float = 0.0
    room: float = 1.0
    excess: float = 1.0
    dear: Mapping[tuple[int, bool], float] = field(default_factory=dict)

    def __str__(self) -> str:
        if not self.replays:
            return "copies"
        more = f", checkpoints {self.density:g}" if self.density else ""
        more += ", prices found by trying" if self.dear else ""
        return f"{'copies and replays' if self.copies else 'replays where they can be'}, chain {self.chain:g}{more}"


@dataclass(frozen=True)
class Constraints:
    """What is not the follower's to choose. uncopied: buffers that are never copied. again: steps of the program that
    make values again -> the forward they repeat."""

    uncopied: Collection[int] = ()
    again: Mapping[int, int] = field(default_factory=dict)


@dataclass
class Evictions:
    """What was found. order: steps and replays as they run. left: (buffer, position in `order` of its last use) of the
    stays that end there although the value is wanted again. stall: seconds that copies were predicted to be late.
    evicted: how often memory was short."""

    order: list[tuple[int, bool]] = field(default_factory=list)
    left: set[tuple[int, int]] = field(default_factory=set)
    stall: float = 0.0
    evicted: int = 0
