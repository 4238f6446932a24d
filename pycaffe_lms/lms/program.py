"""Define programs: lists of steps, and the buffers that every step accesses. Pure: no arrays, no layers.

A *buffer* is one SyncedMemory, which several blobs may share. A *step* is the forward or backward of one layer, or the
update of one parameter. A *program* is the whole sequence that will run, so the next use of every buffer is known.
`net/program/programs.py` builds programs from nets.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum, IntEnum
from typing import NewType

PARAM_GRADIENTS = " [params]"  # ends the name of the step of a split backward that computes parameter gradients


BufferId = NewType("BufferId", int)
"""The id of a buffer: its kind, and its number among those of that kind, in order of creation."""
_NUMBER_BITS = 26


class BufferKind(IntEnum):
    """Name what a buffer is for. In sorted ids, kinds follow each other in this order.

    GRAPH: a value, a parameter or scratch of a net's graph; numbered anew whenever the net is reshaped.
    SPLIT: a value that several buffers store; it has no memory of its own.
    EXTERNAL: a solver's history or numbers; it keeps its id when the net is reshaped.
    WIDENED: the float32 form of the bfloat16 buffer of the graph with the same number.
    """

    GRAPH = 0
    SPLIT = 1
    EXTERNAL = 2
    WIDENED = 3


def buffer_id(kind: BufferKind, number: int) -> BufferId:
    """Return the id of buffer `number`, from 0, of a kind."""
    return BufferId(kind << _NUMBER_BITS | number)


def kind_of(buffer: int) -> BufferKind:
    """Return the kind of the buffer with this id."""
    return BufferKind(buffer >> _NUMBER_BITS)


class Mode(Enum):
    """Name the modes of an access: READ only reads, UPDATE reads and changes, OVERWRITE writes every element unread."""

    READ = "read"
    UPDATE = "update"
    OVERWRITE = "overwrite"


@dataclass(frozen=True, slots=True)
class Buffer:
    """Describe a buffer.

    Attributes:
        id: its number, in order of creation.
        name: such as "conv1.data".
        compressed_bytes: bytes of its compressed value, which copies to and from the host move; 0: no compression.
    """

    id: int
    name: str
    nbytes: int
    call_scratch: bool = False  # its content never outlives a step
    compressed_bytes: int = 0

    @property
    def copied(self) -> int:
        """Return the bytes that a copy of it moves over the link."""
        return self.compressed_bytes or self.nbytes


@dataclass(frozen=True, slots=True)
class Access:
    """Describe how a step accesses a buffer."""

    buffer: int
    mode: Mode


@dataclass(frozen=True, slots=True)
class Step:
    """Describe a step.

    Attributes:
        host: the step runs on the host and accesses host copies (a data layer filling its tops).
        reuses: pairs of buffers, the second of which may be written over the first if that one's value ends here: see
            `layout/inplace_reuse.py`.
    """

    name: str
    accesses: tuple[Access, ...]
    host: bool = False
    reuses: tuple[tuple[int, int], ...] = ()

    def device_bytes(self, sizes: Mapping[int, int]) -> int:
        """Return the bytes (by `sizes`) that this step needs on the device at once."""
        return 0 if self.host else sum(sizes.get(b, 0) for b in {a.buffer for a in self.accesses})


@dataclass(frozen=True)
class Program:
    """Hold steps in order. live_out: buffers whose value must survive; others are dead after their last read."""

    name: str
    steps: tuple[Step, ...]
    live_out: frozenset[int]


def first_modes(steps: Iterable[Step]) -> dict[int, Mode]:
    """Return the mode of the first access to each buffer, in the order of these accesses."""
    found: dict[int, Mode] = {}
    for step in steps:
        for a in step.accesses:
            found.setdefault(a.buffer, a.mode)
    return found


def uses_of(program: Program, buffers: Iterable[int]) -> dict[int, list[tuple[int, Mode, bool]]]:
    """Return buffer -> its accesses in order: (step, mode, whether on the host)."""
    found: dict[int, list[tuple[int, Mode, bool]]] = {b: [] for b in buffers}
    for s, step in enumerate(program.steps):
        for a in step.accesses:
            if a.buffer in found:
                found[a.buffer].append((s, a.mode, step.host))
    return found


def unchanged(program: Program, buffers: Iterable[int]) -> list[int]:
    """Return those of `buffers` that no step changes and no host step accesses."""
    changed = {a.buffer for s in program.steps for a in s.accesses if s.host or a.mode is not Mode.READ}
    return [b for b in buffers if b not in changed]


def layer_of(step_name: str) -> str:
    """Return the layer of a step's name: "conv1" of "forward:conv1" and of "backward:conv1 [params]"."""
    pass_name, _, layer = step_name.partition(":")
    return (layer.removesuffix(PARAM_GRADIENTS) if pass_name == "backward" else layer) or step_name


def makes_param_gradients(step_name: str) -> bool:
    """Tell whether a step is the part of a split backward that computes the gradients of the parameters."""
    return step_name.startswith("backward:") and step_name.endswith(PARAM_GRADIENTS)


def merge_accesses(accesses: Iterable[Access]) -> tuple[Access, ...]:
    """Return one access per buffer; different modes of one buffer, as of an in-place layer, make an UPDATE."""
    modes: dict[int, Mode] = {}
    for a in accesses:
        old = modes.get(a.buffer)
        modes[a.buffer] = a.mode if old in (None, a.mode) else Mode.UPDATE
    return tuple(Access(b, m) for b, m in modes.items())
