"""Memory of the values that lie in several buffers, because layers run in parts of the batch, or as bfloat16.

See also: `folding.py` (which values), `memory/split_memory.py` (such a memory).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ...memory import exported_views
from ...memory.split_memory import SplitMemory
from ..passes.micro_batch import SplitValue


def stand_for(values: Sequence[SplitValue], memories: dict, device, old: Iterable[SplitMemory]) -> list[SplitMemory]:
    """Memory of each value, also put into `memories`; the old one where it stands for the same buffers."""
    before = {memory.name: memory for memory in old}
    for value in values:
        parts = tuple(memories[b] for b in value.buffers)
        memory = before.get(value.name)
        if memory is None or memory.parts != parts:
            memory = SplitMemory(value.name, device, parts, half=value.half)
        memories[value.id] = memory
    return [memories[value.id] for value in values]


def hand_on(parted: Sequence[SplitMemory]) -> None:
    """Give buffers what was written to values that they make up."""
    exported_views.before_run(parted, ())
    for memory in parted:
        memory.hand_on()
