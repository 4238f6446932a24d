"""One value that lives in several buffers, each a stretch of it, or as bfloat16: what a user reads and writes as a
whole, in the net's type, on the host.

Where a net runs some layers in parts of the batch, a blob between them is never in one place; a parameter of a layer
in blocks of its outputs neither. A net may also store a blob as bfloat16. This stands for it: its "device copy" are the
buffers of the parts. A read on the host gathers them; what is written there is handed on to them before the net runs
again. Nobody who does not look pays for it: memory on the host is there only while it holds the newest value, or
somebody holds a view of it.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..backend.bfloat16 import BFLOAT16
from ..errors import UsageError
from ..ops.cpu.widened import round_into, widened_copy
from .exported_views import alive
from .states import RESIDENT, Ask, State
from .synced import SyncedMemory

_FOR_USERS = frozenset({Ask.READ_CPU, Ask.WRITE_CPU, Ask.OVERWRITE_CPU})
# HEAD_AT_GPU: the parts are newer. DISCARDED: one of them at least was dropped.
_TABLE = RESIDENT | {
    (State.DISCARDED, Ask.OVERWRITE_CPU): RESIDENT[State.UNINITIALIZED, Ask.OVERWRITE_CPU],
    (State.DISCARDED, Ask.OVERWRITE_GPU): RESIDENT[State.UNINITIALIZED, Ask.OVERWRITE_GPU],
}


class SplitMemory(SyncedMemory):
    """parts: in order, without a gap. name: the value's, "conv1.data". half: they hold bfloat16, and this float32."""

    __slots__ = ("half", "parts")

    def __init__(self, name: str, device, parts: Sequence[SyncedMemory], *, half: bool = False):
        super().__init__(sum(part.nbytes for part in parts) * (2 if half else 1), name, device)
        self.parts, self.half = tuple(parts), half
        self.table = _TABLE
        self.follow()

    def manage(self, on: bool) -> None:
        """The parts are managed, or not."""

    def ask(self, ask: Ask, *, span=None, stream=None) -> None:
        """As SyncedMemory, for host asks; raises UsageError where one array on the GPU is wanted."""
        if ask not in _FOR_USERS and self.half:
            raise UsageError(
                f'"{self.name}" is stored as bfloat16: there is no array of it in the net\'s type on the GPU',
                fix="use data and diff, which are float32; or run with -math tf32",
            )
        if ask not in _FOR_USERS:
            raise UsageError(
                f'"{self.name}" lies in {len(self.parts)} parts, for its layer runs so: there is no one array of it on '
                "the GPU",
                fix="use data and diff, which gather them; or run the layers whole: -lms_split off",
            )
        super().ask(ask)

    def hand_on(self) -> None:
        """Before a run: the parts get what was written here."""
        if self.state is not State.HEAD_AT_CPU:
            return
        for mine, part in self._stretches():
            part.ask(Ask.OVERWRITE_CPU)
            if self.half:
                round_into(mine.view(np.float32), part.host[: part.nbytes].view(BFLOAT16))
            else:
                part.host[: part.nbytes] = mine
        self.state = State.SYNCED

    def follow(self) -> None:
        """After a run that wrote the parts: what is here is old."""
        states = {part.state for part in self.parts}
        if State.DISCARDED in states:
            self.state = State.DISCARDED
        else:
            self.state = State.UNINITIALIZED if states == {State.UNINITIALIZED} else State.HEAD_AT_GPU
        if not alive(self.host_held):
            self.host = None

    def _stretches(self):
        """(the bytes here that stand for a part, the part), in order."""
        start = 0
        for part in self.parts:
            end = start + part.nbytes * (2 if self.half else 1)
            yield self.host[start:end], part
            start = end

    def _take_gpu(self, span, stream, _part) -> None:
        pass

    def _copy_down(self, span, stream, _part) -> None:
        for mine, part in self._stretches():
            part.ask(Ask.READ_CPU)
            held = part.host[: part.nbytes]
            mine[:] = widened_copy(held.view(BFLOAT16)).view(np.uint8) if self.half else held
