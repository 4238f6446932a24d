"""Present a value that is stored in several buffers, or as bfloat16, as one host array in the net's type.

A blob between layers that run in micro-batches is stored in parts, as is a parameter of a layer that runs in blocks of
its outputs; a net may also store a blob as bfloat16. `SplitMemory` represents the whole value, with the parts as its
"device copy": a read on the host gathers them (`_copy_down`), and what is written there is distributed before the next
run (`hand_on`). Host memory exists only while it has the newest value or an exported view.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from ..arrays import HostArray
from ..backend.bfloat16 import BFLOAT16
from ..backend.device import Device, Span, Stream
from ..errors import UsageError
from ..ops.cpu.widened import round_into, widened_copy
from .exported_views import alive
from .states import RESIDENT, Ask, State
from .synced import Part, SyncedMemory

_FOR_USERS = frozenset({Ask.READ_CPU, Ask.WRITE_CPU, Ask.OVERWRITE_CPU})
# HEAD_AT_GPU: the parts are newer. DISCARDED: at least one part was dropped.
_TABLE = RESIDENT | {
    (State.DISCARDED, Ask.OVERWRITE_CPU): RESIDENT[State.UNINITIALIZED, Ask.OVERWRITE_CPU],
    (State.DISCARDED, Ask.OVERWRITE_GPU): RESIDENT[State.UNINITIALIZED, Ask.OVERWRITE_GPU],
}


class SplitMemory(SyncedMemory):
    """Represent a value that is stored in several buffers.

    Args:
        name: the value's, "conv1.data".
        parts: its buffers, in order and without gaps.
        outer: the value is so many pieces, of each of which every part has a share, in order; 1: it is the parts, one
            behind the other.
        half: the parts are bfloat16, and this is float32.
    """

    __slots__ = ("half", "outer", "parts")

    def __init__(self, name: str, device: Device, parts: Sequence[SyncedMemory], *, half: bool = False, outer: int = 1):
        super().__init__(sum(part.nbytes for part in parts) * (2 if half else 1), name, device)
        self.parts, self.half, self.outer = tuple(parts), half, outer
        self.table = _TABLE
        self.follow()

    def manage(self, on: bool) -> None:
        """Do nothing: the parts are managed themselves."""

    def ask(self, ask: Ask, *, span: Span | None = None, stream: Stream = None, part: Part | None = None) -> None:
        """Make a host transition, as SyncedMemory. Raise UsageError if one array on the GPU is requested."""
        if ask not in _FOR_USERS and self.half:
            raise UsageError(
                f'"{self.name}" is stored as bfloat16: there is no array of it in the net\'s type on the GPU',
                fix="use data and diff, which are float32; or run with -math tf32",
            )
        if ask not in _FOR_USERS:
            raise UsageError(
                f'"{self.name}" lies in {len(self.parts)} parts, since its layer runs in parts: there is no one array '
                "of it on the GPU",
                fix="use data and diff, which gather them; or run the layers whole: -lms_split off",
            )
        super().ask(ask)

    def hand_on(self) -> None:
        """Distribute what was written here to the parts, before a run."""
        if self.state is not State.HEAD_AT_CPU:
            return
        for mine, part in self._pieces():
            part.ask(Ask.OVERWRITE_CPU)
            theirs = part.host_bytes.reshape(self.outer, -1)
            if self.half:
                round_into(np.ascontiguousarray(mine).view(np.float32), theirs.view(BFLOAT16))
            else:
                theirs[:] = mine
        self.state = State.SYNCED

    def follow(self) -> None:
        """Take the state of the parts, after a run that wrote them: the host array here is stale."""
        states = {part.state for part in self.parts}
        if State.DISCARDED in states:
            self.state = State.DISCARDED
        else:
            self.state = State.UNINITIALIZED if states == {State.UNINITIALIZED} else State.HEAD_AT_GPU
        if not alive(self.host_held):
            self.host = None

    def _pieces(self) -> Iterator[tuple[HostArray, SyncedMemory]]:
        """Yield (bytes of the host array for a part, as (outer, ...), the part) in order."""
        host, start = self.host_bytes.reshape(self.outer, -1), 0
        for part in self.parts:
            end = start + part.nbytes * (2 if self.half else 1) // self.outer
            yield host[:, start:end], part
            start = end

    def _take_gpu(self, span: Span | None) -> None:
        pass

    def _copy_down(self, stream: Stream, part: Part | None) -> None:
        for mine, buffer in self._pieces():
            buffer.ask(Ask.READ_CPU)
            held = buffer.host_bytes.reshape(self.outer, -1)
            mine[:] = widened_copy(held.view(BFLOAT16)).view(np.uint8) if self.half else held
