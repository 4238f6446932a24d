"""The access list: what every step of a program touches. Pure: names and numbers, no arrays, no layers.

A *buffer* is one SyncedMemory; several blobs may live in it. A *step* is one layer pass (or one parameter's update).
A *program* is the whole sequence that will run, so the next use of every buffer is known.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum

PARAMS_HALF = " [params]"  # ends the name of a backward that leaves the bottoms' gradients to the next step


class Mode(Enum):
    """READ leaves the value; UPDATE reads and changes it; OVERWRITE writes every element, whatever was there."""

    READ = "read"
    UPDATE = "update"
    OVERWRITE = "overwrite"


@dataclass(frozen=True, slots=True)
class Buffer:
    """One buffer: its number (order of creation), name ("conv1.data") and size. halved: bytes of its value in 16 bits,
    in which it is copied to the host and back; 0: it is copied as it is."""

    id: int
    name: str
    nbytes: int
    call_scratch: bool = False  # its content never outlives a step
    halved: int = 0

    @property
    def copied(self) -> int:
        """Bytes that a copy of it moves over the link."""
        return self.halved or self.nbytes


@dataclass(frozen=True, slots=True)
class Access:
    buffer: int
    mode: Mode


@dataclass(frozen=True, slots=True)
class Step:
    """`host`: the step runs on the host and touches host copies (a data layer filling its tops). reuses: pairs of
    buffers, of which the second may be written where the first is read, where that ends here: see `handover.py`."""

    name: str
    accesses: tuple[Access, ...]
    host: bool = False
    reuses: tuple[tuple[int, int], ...] = ()

    def device_bytes(self, sizes: Mapping[int, int]) -> int:
        """Bytes of `sizes` that this step needs on the device at once."""
        return 0 if self.host else sum(sizes.get(b, 0) for b in {a.buffer for a in self.accesses})


@dataclass(frozen=True)
class Program:
    """Steps in order, and the buffers whose value must survive them (all others are dead after their last read)."""

    name: str
    steps: tuple[Step, ...]
    live_out: frozenset[int]


def unchanged(program: Program, buffers: Iterable[int]) -> list[int]:
    """Of `buffers`, those that all steps only read, and on the device."""
    changed = {a.buffer for s in program.steps for a in s.accesses if s.host or a.mode is not Mode.READ}
    return [b for b in buffers if b not in changed]


def layer_of(step_name: str) -> str:
    """ "forward:conv1" -> "conv1", and so is "backward:conv1 [params]"."""
    pass_name, _, layer = step_name.partition(":")
    return (layer.removesuffix(PARAMS_HALF) if pass_name == "backward" else layer) or step_name


def is_params_half(step_name: str) -> bool:
    """Whether a step makes the gradients of a layer's parameters alone, and another one those of its bottoms."""
    return step_name.startswith("backward:") and step_name.endswith(PARAMS_HALF)


def merge_accesses(accesses: Iterable[Access]) -> tuple[Access, ...]:
    """One access per buffer: read + write is UPDATE. An OVERWRITE and a READ of one buffer in one step is an UPDATE
    (an in-place layer), because the old value is needed."""
    modes: dict[int, Mode] = {}
    for a in accesses:
        old = modes.get(a.buffer)
        modes[a.buffer] = a.mode if old in (None, a.mode) else Mode.UPDATE
    return tuple(Access(b, m) for b, m in modes.items())
