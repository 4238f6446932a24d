"""What the automatic mode would leave on the device for good, and what the largest step needs beside it. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from ...lms.layout.inplace_reuse import inplace_reuses, needed_bytes
from ...lms.program import Buffer, Program, Step
from ..build.graph import Graph

HISTORIES = 2  # of a solver: the size of the parameters so many times, at most


def residency_estimate(
    graph: Graph, used: Iterable[Buffer], lasting: Collection[int], steps: Sequence[Step], least: int
) -> tuple[int, int]:
    """(bytes of parameters, gradients, histories and `lasting` buffers, and of all that is not larger than `least`;
    most bytes that one of the steps needs of the others)."""
    used = list(used)
    sizes = {b.id: b.nbytes for b in used}
    params = {b for p in graph.params for b in (p.data, p.diff)}
    moving = {b.id: b for b in used if b.nbytes > least and b.id not in lasting and b.id not in params}
    stays = sum(b.nbytes for b in used if b.id not in moving and not b.call_scratch)
    stays += max((b.nbytes for b in used if b.id not in moving and b.call_scratch), default=0)
    stays += HISTORIES * sum(sizes.get(p.data, 0) for p in graph.learnable)
    program = Program("all", tuple(steps), frozenset())
    pairs = inplace_reuses(program, moving)
    moved = {b: buffer.nbytes for b, buffer in moving.items()}
    return stays, max((needed_bytes(program, s, moved, pairs) for s in range(len(steps))), default=0)
