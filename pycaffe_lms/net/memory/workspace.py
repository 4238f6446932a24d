"""Places the call scratch of a net's layers, which use one piece of memory in turn."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from ...arrays import HostArray
from ...backend.device import Span
from ...lms.program import Buffer
from ...lms.runtime.runtime import Runtime
from ...memory.synced import SyncedMemory
from ..build.graph import Graph


class Workspace:
    """Give the unmanaged call scratch of a net its places in the workspace that all nets of a runtime share.

    Args:
        ids: buffers that lie there. Those of one layer lie side by side, those of different layers at one place.
    """

    def __init__(
        self,
        graph: Graph,
        ids: Collection[int],
        buffers: Mapping[int, Buffer],
        memories: Mapping[int, SyncedMemory],
        runtime: Runtime,
    ):
        self._memories, self._runtime, self._device = memories, runtime, runtime.device
        self._sizes = {b: buffers[b].nbytes for b in ids}
        self.offsets: dict[int, int] = {}
        for node in graph.everyone():
            offset = 0
            for name in node.layer.scratches:
                if (b := node.scratch[name]) in self._sizes:
                    self.offsets[b] = offset
                    offset += self._sizes[b]
        self._on_host: HostArray | None = None  # the workspace where the device is the host
        self._placed: Span | None = None  # the device's workspace that buffers point at
        runtime.need_workspace(self.nbytes)

    @property
    def nbytes(self) -> int:
        """Return the bytes that the layer with most call scratch needs."""
        return max((offset + self._sizes[b] for b, offset in self.offsets.items()), default=0)

    def place(self) -> None:
        """Point the buffers at the workspace, which may have grown for another net."""
        if not self.offsets:
            return
        if self._device.is_host:
            if self._on_host is None:
                self._on_host = self._device.host_take(self.nbytes)
                for b, offset in self.offsets.items():
                    self._memories[b].host = self._on_host[offset : offset + self._sizes[b]]
            return
        whole = self._runtime.workspace()
        if self._placed is not whole:
            self._placed = whole
            for b, offset in self.offsets.items():
                self._memories[b].span = whole.at(offset, self._sizes[b])
