"""Which values may travel in 16 bits (`-lms_compress`). Pure.

Activations and their gradients, as far as they live and die within one program and only layers on the device touch
them. Never parameters, histories, saved choices; nothing that comes from outside (data, labels), that a layer takes
where it gives no gradient (indices, regions, labels), or that somebody may read afterwards: those are exact.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from ...lms.program import Buffer, Mode, Program
from ..build.graph import Graph


def inexact(graph: Graph) -> frozenset[int]:
    """Buffers of activations and gradients of blobs that may lose digits."""
    able, exact = set(), set()
    for value in graph.values:
        maker = graph.nodes[value.producer]
        differentiable = maker.need_backward and maker.layer.no_backward is not None and not value.loss_weight
        differentiable &= not value.half  # it has 16 bits already
        (able if differentiable else exact).update((value.data, value.diff))
    for node in graph.nodes:
        blocked = node.layer.no_backward
        for i, b in enumerate(node.bottoms):
            if blocked is None or i in blocked or i in node.layer.exact:
                exact.add(graph.values[b].data)
    return frozenset(able - exact)


def with_compression(
    program: Program, managed: Mapping[int, Buffer], able: frozenset[int], sizes: Mapping[int, int]
) -> dict[int, Buffer]:
    """The managed buffers of a program, those of `able` to be copied in 16 bits where nothing outside of its device
    work sees them. sizes: bytes of each in 16 bits."""
    seen = set(program.live_out)
    first: dict[int, Mode] = {}
    for step in program.steps:
        for a in step.accesses:
            first.setdefault(a.buffer, a.mode)
            if step.host:
                seen.add(a.buffer)
    seen |= {b for b, mode in first.items() if mode is not Mode.OVERWRITE}
    return {b: replace(buffer, halved=sizes[b]) if b in able - seen else buffer for b, buffer in managed.items()}
