"""One value that lives in several buffers, each a stretch of it: what a user reads and writes as a whole, on the host.

Where a net runs some layers in parts of the batch, a blob between them is never in one place; a parameter of a layer
in blocks of its outputs neither. This stands for it: its "device copy" are the buffers of the parts. A read on the host
gathers them; what is written there is handed on to them before the net runs again. Nobody who does not look pays for
it: memory on the host is there only while it holds the newest value, or somebody holds a view of it.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..errors import UsageError
from .held import alive
from .states import RESIDENT, Ask, State
from .synced import SyncedMemory

_FOR_USERS = frozenset({Ask.READ_CPU, Ask.WRITE_CPU, Ask.OVERWRITE_CPU})
# HEAD_AT_GPU: the parts are newer. DISCARDED: one of them at least was dropped.
_TABLE = RESIDENT | {
    (State.DISCARDED, Ask.OVERWRITE_CPU): RESIDENT[State.UNINITIALIZED, Ask.OVERWRITE_CPU],
    (State.DISCARDED, Ask.OVERWRITE_GPU): RESIDENT[State.UNINITIALIZED, Ask.OVERWRITE_GPU],
}


class PartedMemory(SyncedMemory):
    """parts: in order, without a gap. name: the value's, "conv1.data"."""

    __slots__ = ("parts",)

    def __init__(self, name: str, device, parts: Sequence[SyncedMemory]):
        super().__init__(sum(part.nbytes for part in parts), name, device)
        self.parts = tuple(parts)
        self.table = _TABLE
        self.follow()

    def manage(self, on: bool) -> None:
        """The parts are managed, or not."""

    def ask(self, ask: Ask, *, span=None, stream=None) -> None:
        """As SyncedMemory, for host asks; raises UsageError where one array on the GPU is wanted."""
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
        for start, part in self._stretches():
            part.ask(Ask.OVERWRITE_CPU)
            part.host[: part.nbytes] = self.host[start : start + part.nbytes]
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
        start = 0
        for part in self.parts:
            yield start, part
            start += part.nbytes

    def _take_gpu(self, span, stream) -> None:
        pass

    def _copy_down(self, span, stream) -> None:
        for start, part in self._stretches():
            part.ask(Ask.READ_CPU)
            self.host[start : start + part.nbytes] = part.host[: part.nbytes]
