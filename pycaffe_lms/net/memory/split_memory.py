"""Makes the split memory of a net: one per value that is stored in micro-batches, in blocks, or as bfloat16.

See also: `../passes/micro_batch.py` (which values), `../../memory/split_memory.py` (the class).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ...memory import exported_views
from ...memory.split_memory import SplitMemory
from ..passes.micro_batch import SplitValue


def make_split_memories(
    values: Sequence[SplitValue], memories: dict, device, old: Iterable[SplitMemory]
) -> list[SplitMemory]:
    """Return the split memory of each value and add it to `memories`; reuse an `old` one of the same buffers."""
    before = {memory.name: memory for memory in old}
    for value in values:
        parts = tuple(memories[b] for b in value.buffers)
        memory = before.get(value.name)
        if memory is None or memory.parts != parts:
            memory = SplitMemory(value.name, device, parts, half=value.half)
        memories[value.id] = memory
    return [memories[value.id] for value in values]


def hand_on(memories: Sequence[SplitMemory]) -> None:
    """Copy what the user wrote to split values into the buffers that store them."""
    exported_views.before_run(memories, ())
    for memory in memories:
        memory.hand_on()
