"""Who is managed: `-lms N`, `-lms_frac f`, and a layer's own `lms_param`. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from .config import LMSConfig
from .program import Buffer


@dataclass(frozen=True)
class Managed:
    """ids: managed buffers. resident_bytes: what stays on the device for good. demanded: bytes of these buffers."""

    ids: frozenset[int]
    resident_bytes: int
    demanded: int


def choose_managed(
    buffers: Iterable[Buffer],
    config: LMSConfig,
    capacity: int,
    *,
    demanded: int = 0,
    asked: Mapping[int, bool] | None = None,
) -> Managed:
    """Walk the buffers in creation order. One is managed if LMS is on, it is larger than `threshold_kb` KB, and the
    bytes demanded so far, itself included, exceed `frac` of `capacity` bytes. `demanded`: met before (other nets).
    asked: for buffers of layers with an lms_param, whether to manage them (SWAP) or not (KEEP), whatever their size.

    Layer-local scratch is counted like any buffer; unmanaged scratch shares one workspace, so only the largest stays.
    """
    quota = config.frac * capacity
    ids: set[int] = set()
    resident = mine = 0
    for buffer in buffers:
        mine += buffer.nbytes
        wanted = buffer.nbytes > config.min_bytes and demanded + mine > quota
        if asked is not None:
            wanted = asked.get(buffer.id, wanted)
        if config.enabled and wanted:
            ids.add(buffer.id)
        elif not buffer.call_scratch:
            resident += buffer.nbytes
    return Managed(frozenset(ids), resident, mine)
