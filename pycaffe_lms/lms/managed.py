"""Choose the managed buffers by `-lms N`, `-lms_frac f` and the `lms_param` of layers.

Pure. Managed buffers are placed and copied by a plan (`planner/choose.py`); all others stay on the device.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from .config import LMSConfig
from .program import Buffer


@dataclass(frozen=True)
class Managed:
    """Hold the choice of managed buffers.

    Attributes:
        ids: managed buffers.
        resident_bytes: bytes of the unmanaged buffers, call scratch excluded; they stay on the device.
        demanded: bytes of all buffers.
    """

    ids: frozenset[int]
    resident_bytes: int
    demanded: int

    def joined_by(self, other: Managed) -> Managed:
        """Return the choice with other buffers added."""
        return Managed(self.ids | other.ids, self.resident_bytes + other.resident_bytes, self.demanded + other.demanded)

    def without(self, other: Managed) -> Managed:
        """Return the choice with some of its buffers removed."""
        return Managed(self.ids - other.ids, self.resident_bytes - other.resident_bytes, self.demanded - other.demanded)


def choose_managed(
    buffers: Iterable[Buffer],
    config: LMSConfig,
    capacity: int,
    *,
    demanded: int = 0,
    asked: Mapping[int, bool] | None = None,
) -> Managed:
    """Choose the managed buffers, in order of creation.

    A buffer is managed if LMS is on, it is larger than `config.min_bytes`, and the bytes demanded so far, its own
    included, exceed `config.frac` of `capacity`. Call scratch counts as demanded like any buffer; unmanaged scratch
    shares one workspace and is not in `resident_bytes`.

    Args:
        capacity: bytes of device memory, or the budget.
        demanded: bytes of buffers of other nets, created before.
        asked: buffer -> whether to manage it (SWAP) or not (KEEP) at any size, as the `lms_param` of its layer says.
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
