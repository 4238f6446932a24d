"""Estimates how many bytes automatic mode would make resident, and what the largest step needs beside them. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from ...lms.layout.inplace_reuse import inplace_reuses, needed_bytes
from ...lms.program import Buffer, Program, Step
from ..build.graph import Graph

HISTORIES = 2  # most histories that a solver keeps per parameter


def residency_estimate(
    graph: Graph, used: Iterable[Buffer], lasting: Collection[int], steps: Sequence[Step], least: int
) -> tuple[int, int]:
    """Estimate the residency of automatic mode.

    Args:
        used: buffers that the program touches.
        lasting: ids of buffers that outlive an iteration.
        least: buffers of at most this many bytes are resident.

    Returns:
        (bytes of the resident buffers: parameters, gradients, histories, `lasting` and small ones; most bytes of other
        buffers that one step needs).
    """
    used = list(used)
    sizes = {b.id: b.nbytes for b in used}
    params = {b for p in graph.params for b in (p.data, p.diff)}
    moving = {b.id: b for b in used if b.nbytes > least and b.id not in lasting and b.id not in params}
    resident = sum(b.nbytes for b in used if b.id not in moving and not b.call_scratch)
    resident += max((b.nbytes for b in used if b.id not in moving and b.call_scratch), default=0)
    resident += HISTORIES * sum(sizes.get(p.data, 0) for p in graph.learnable)
    program = Program("all", tuple(steps), frozenset())
    pairs = inplace_reuses(program, moving)
    moved = {b: buffer.nbytes for b, buffer in moving.items()}
    return resident, max((needed_bytes(program, s, moved, pairs) for s in range(len(steps))), default=0)
