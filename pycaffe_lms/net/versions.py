"""Versions of a blob: what layers made in place, in memory of its own, of one name."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from ..blob import host_view
from ..memory.states import Ask, State
from ..memory.synced import SyncedMemory
from .graph import Value


def bring(memories: Mapping[int, SyncedMemory], dtype, shown: Value, wanted: Value) -> None:
    """Copy the version that a blob shows to the one that the next layer reads, if anything is there."""
    if shown.data == wanted.data:
        return
    source, target = (memories[v.data] for v in (shown, wanted))
    if source.state is State.UNINITIALIZED:
        return
    source.ask(Ask.READ_CPU)
    target.ask(Ask.OVERWRITE_CPU)
    np.copyto(
        host_view(target, wanted.shape, dtype, wanted.channels_last),
        host_view(source, shown.shape, dtype, shown.channels_last),
    )
