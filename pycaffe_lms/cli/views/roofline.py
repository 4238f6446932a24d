"""Measure how fast the GPU can be at all: bytes to and from its memory, products in float32 and in bfloat16.

It takes a fraction of a second. No layer can take less than the longer of bytes / bandwidth and operations / peak.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ...backend.bfloat16 import BFLOAT16
from ...backend.device import Device, Span
from ...errors import OutOfDeviceMemory
from ...ops import ops_of

COPY_BYTES = 256 << 20
MATRIX = 8192  # rows and columns: 256 MiB of float32


@dataclass(frozen=True)
class Roofline:
    """Hold the limits of a GPU. half_flops_per_s: of products in bfloat16; None: not measured."""

    bytes_per_s: float
    flops_per_s: float
    half_flops_per_s: float | None = None

    def ms(self, nbytes: float, flops: float, half: bool = False) -> float:
        """Return the least milliseconds for so many bytes moved and operations done. half: on bfloat16."""
        rate = self.half_flops_per_s if half and self.half_flops_per_s else self.flops_per_s
        return 1e3 * max(nbytes / self.bytes_per_s, flops / rate)


def measure(
    device: Device, copy_bytes: int = COPY_BYTES, matrix: int = MATRIX, *, half: bool = False
) -> Roofline | None:
    """Return the limits, measured by a copy within device memory and products of square matrices: of float32 in the
    math mode in force and, with `half`, of bfloat16. None if there is not enough memory for them."""
    spans: list[Span] = []
    try:
        for _ in range(2):
            spans.append(device.take(max(copy_bytes, 4 * matrix * matrix)))
        first, second = spans
        return _measure(device, first, second, copy_bytes, matrix, half)
    except OutOfDeviceMemory:
        return None
    finally:
        device.synchronize()
        for span in spans:
            device.give(span)


def _measure(device: Device, first: Span, second: Span, copy_bytes: int, n: int, half: bool) -> Roofline:
    ops: Any = ops_of(device)
    values = np.random.default_rng(1).standard_normal(n * n, dtype=np.float32)  # a GPU is faster on constants
    with device.active():
        device.copy_up(first.at(0, values.nbytes), values.view(np.uint8))
        source, target = (device.array(s, (copy_bytes // 4,), np.float32) for s in (first, second))
        copy = _seconds(device, lambda: ops.copy(source, target))
        x, y = (device.array(s, (n, n), np.float32) for s in (first, second))
        product = _seconds(device, lambda: ops.inner_product.forward(x, x, None, y, n, n, n, False))
        found = Roofline(2 * copy_bytes / copy, 2 * n**3 / product)
        if not half:
            return found
        a, b = (device.array(s, (n, n), BFLOAT16) for s in (first, second))
        ops.copy(y, a)  # products of the same numbers
        product = _seconds(device, lambda: ops.inner_product.forward(a, a, None, b, n, n, n, False))
    return replace(found, half_flops_per_s=2 * n**3 / product)


def _seconds(device: Device, run: Callable[[], None], rounds: int = 7) -> float:
    """Return the median time of one `run`, after two to warm up."""
    for _ in range(2):
        run()
    marks = [device.timed_event()]
    for _ in range(rounds):
        run()
        marks.append(device.timed_event())
    return statistics.median(device.elapsed_ms(a, b) for a, b in zip(marks, marks[1:], strict=False)) / 1e3
