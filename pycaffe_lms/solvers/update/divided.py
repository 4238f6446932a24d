"""Gathers histories that are divided among ranks into whole ones, for a snapshot, and divides those of a snapshot.

Every rank takes part. A history is made whole in the memory of its parameter's gradient, so none is needed for it.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ...errors import SnapshotError
from ...layers.base import count
from ...lms.program import Access, Mode, Step
from ...net.build.graph import Param
from ...net.net import Net
from ...net.program.programs import HostedStep
from ...ops import ops_of
from .sharing import Shares
from .slots import Histories


class DividedHistory:
    """Gather and divide the histories of a net's parameters. Both lose the values of gradients.

    Args:
        histories: this rank's shares.
        slots: number of histories of each parameter.
        shares: which elements are whose.
    """

    def __init__(self, net: Net, histories: Histories, slots: int, shares: Shares):
        self._net, self._histories, self._slots, self._shares = net, histories, slots, shares
        self._iteration = -1  # after which `_whole` was gathered
        self._whole: list[np.ndarray] = []

    def gather(self, iteration: int) -> None:
        """Gather the histories after this iteration on rank 0, unless that is done. All ranks call it."""
        if self._iteration == iteration:
            return
        self.forget()
        root, params = self._shares.rank == 0, self._net.graph.learnable
        for slot, p in ((slot, p) for slot in range(self._slots) for p in params):
            if self._histories.has(p):
                self._move(p, slot, gather=True)
                self._whole += [self._net.own_blobs.of_param(p).read_diff().copy()] if root else []
            elif root:
                self._whole.append(np.zeros(p.shape, self._net.dtype))
        self._iteration = iteration

    def whole(self, iteration: int) -> list[np.ndarray]:
        """Return whole histories in file order, on rank 0. Raises SnapshotError where none were gathered after this
        iteration."""
        if self._iteration != iteration:
            raise SnapshotError(
                "parts of the histories are on other ranks (-shard_history)",
                fix="call solver.snapshot() on every rank",
            )
        return self._whole

    def forget(self) -> None:
        """Drop what was gathered."""
        self._iteration, self._whole = -1, []

    def spread(self, whole: Sequence[np.ndarray]) -> None:
        """Set this rank's shares of these histories, in file order."""
        self.forget()
        params = self._net.graph.learnable
        for k, values in enumerate(whole):
            param = params[k % len(params)]
            if self._histories.has(param):
                self._net.own_blobs.of_param(param).diff = values.reshape(param.shape)
                self._move(param, k // len(params), gather=False)

    def _move(self, param: Param, slot: int, *, gather: bool) -> None:
        """Copy this rank's share of a history to its place in the gradient's memory and gather the others there, or
        copy it back."""
        net, shares = self._net, self._shares
        ((piece, slots),) = self._histories.pieces([param])
        kept, size = slots[slot], count(piece.shape)
        start, n = shares.own(size)

        def run() -> None:
            executor, host = net.memory.executor, net.device.is_host
            flat = executor.array(piece.diff, (size,), net.dtype, host)
            if n:
                own, mine = flat[start : start + n], executor.array(kept, (n,), net.dtype, host)
                ops_of(net.device).copy(*((mine, own) if gather else (own, mine)))
            if gather:
                shares.gather(flat)

        read, written = (kept, piece.diff) if gather else (piece.diff, kept)
        key = f"{'gather' if gather else 'spread'} history {slot} of parameter {piece.index}"
        step = Step(
            f"{key}:{net.run_graph.param_name(piece)}", (Access(read, Mode.READ), Access(written, Mode.OVERWRITE))
        )
        net.run_steps(key, [HostedStep(step, run)])
