"""Lets scripts read the blobs of a solver's nets although blobs share device memory between iterations.

What a script will read is not known beforehand. So in the last iteration of the first call of `step` or `solve` every
value has memory of its own, if there is enough. Values and gradients that the script reads before the next call stay
readable from then on; all others share memory, as in the command line's training. A read of one that was lost raises
DiscardedRead once, and it stays from the next iteration on. No number depends on any of it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

from ..errors import OutOfDeviceMemory
from ..memory.exported_views import alive, device_side_held
from ..memory.states import State
from ..memory.synced import SyncedMemory
from ..net.arrangement import Kept
from ..net.net import Net

_log = logging.getLogger(__name__)


class ReadBlobs:
    """Follow what is read of the nets of one solver, which are packed and share a runtime.

    Args:
        plan: plans what will run next; raises OutOfDeviceMemory where there is no room for it.
    """

    def __init__(self, nets: Sequence[Net], plan: Callable[[], None]):
        self._nets, self._plan, self._runtime = nets, plan, nets[0].runtime
        self._open = False  # every value has memory of its own
        self._learnt = False

    def begin(self, *, last: bool) -> None:
        """Prepare an iteration. last: of a call of `step`."""
        if self._open:
            self._close()
        elif self._learnt:
            for net in self._nets:
                wanted = _wanted(net, lost=True)
                if _said(net, wanted):
                    net.keep_only(wanted)
        elif last:
            self._learnt = self._open = True
            self._give_own_memory()

    def _give_own_memory(self) -> None:
        """Give each value memory of its own, if there is enough."""
        for net in self._nets:
            net.own_blobs.reads = {(name, which) for name, which in net.own_blobs.reads if _held(net, name, which)}
            net.set_packed(False)
        self._runtime.free_arena()
        try:
            self._plan()
        except OutOfDeviceMemory as error:
            _log.info("Blobs share device memory from the first iteration on: %s", error.message)
            self._close()

    def _close(self) -> None:
        """Let values share memory, but for those that were read."""
        self._open = False
        for net in self._nets:
            wanted = _wanted(net, lost=False)
            _said(net, wanted)
            net.set_packed(True, wanted)
        self._runtime.device.trim()


def _wanted(net: Net, *, lost: bool) -> Kept:
    """Return what was read of a net since this was asked last, and would be lost in an iteration.

    lost: only what was lost when it was read, or is exported as an array now.
    """
    reads, net.own_blobs.reads = net.own_blobs.reads, set()
    wanted = Kept()
    if reads:
        lose = net.arrangement.lost_if_packed()
        for name, which in reads:
            if name in getattr(lose, which) and (not lost or _held(net, name, which) or _is_lost(net, name, which)):
                getattr(wanted, which).add(name)
    return wanted


def _memory(net: Net, name: str, which: str) -> SyncedMemory:
    blob = net.blobs[name]
    memory = blob.data_memory if which == "data" else blob.diff_memory
    assert memory is not None, "every blob of a net has one"
    return memory


def _held(net: Net, name: str, which: str) -> bool:
    """Return whether a user holds an array of a blob's values or gradients."""
    memory = _memory(net, name, which)
    return alive(memory.host_held) or device_side_held(memory)


def _is_lost(net: Net, name: str, which: str) -> bool:
    return _memory(net, name, which).state is State.DISCARDED


def _said(net: Net, kept: Kept) -> bool:
    """Log what stays readable. Returns whether there is anything."""
    said = [f"{which} of {', '.join(sorted(names))}" for which, names in vars(kept).items() if names]
    if said:
        text = "Net %s: these were read from Python, and stay readable from now on: %s. net.keep does so beforehand."
        _log.info(text, net.name, "; ".join(said))
    return bool(said)
