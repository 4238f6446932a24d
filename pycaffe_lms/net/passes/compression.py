"""Compression (`-lms_compress`): which values may be copied between device and host in 16 bits. Pure.

These are activations and their gradients that live within one program and are accessed only on the device. All else
stays exact: parameters, histories, saved choices (masks, indices), data from outside, bottoms without a gradient
(indices, regions, labels), and what may be read after the program.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from ...lms.program import Buffer, Mode, Program, first_modes
from ..build.graph import Graph


def inexact(graph: Graph) -> frozenset[int]:
    """Return the buffers of activations and gradients that may lose precision."""
    able, exact = set[int](), set[int]()
    for value in graph.values:
        maker = graph.nodes[value.producer]
        differentiable = maker.need_backward and maker.layer.declares.no_backward is not None and not value.loss_weight
        differentiable &= not value.half  # it has 16 bits already
        (able if differentiable else exact).update((value.data, value.diff))
    for node in graph.nodes:
        blocked = node.layer.declares.no_backward
        for i, b in enumerate(node.bottoms):
            if blocked is None or i in blocked or i in node.layer.declares.full_precision:
                exact.add(graph.values[b].data)
    return frozenset(able - exact)


def with_compression(
    program: Program, managed: Mapping[int, Buffer], able: frozenset[int], sizes: Mapping[int, int]
) -> dict[int, Buffer]:
    """Return the managed buffers of a program, with compression for those of `able` that only its steps on the device
    access.

    Args:
        able: buffers that may lose precision, from `inexact`.
        sizes: bytes of each buffer in 16 bits.
    """
    hosted = {a.buffer for step in program.steps if step.host for a in step.accesses}
    read_first = {b for b, mode in first_modes(program.steps).items() if mode is not Mode.OVERWRITE}
    inside = able - program.live_out - hosted - read_first
    return {b: replace(buffer, compressed_bytes=sizes[b]) if b in inside else buffer for b, buffer in managed.items()}
