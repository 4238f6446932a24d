"""How fast the GPU can be at all: bytes to and from its memory, and float32 products, measured in a fraction of a
second. Nothing can take less than the longer of (bytes / bandwidth, operations / peak)."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from ...errors import OutOfDeviceMemory
from ...ops import ops_of

COPY_BYTES = 256 << 20
MATRIX = 8192  # rows and columns: 256 MiB of float32


@dataclass(frozen=True)
class Roofline:
    bytes_per_s: float
    flops_per_s: float

    def ms(self, nbytes: float, flops: float) -> float:
        """The least milliseconds for that much."""
        return 1e3 * max(nbytes / self.bytes_per_s, flops / self.flops_per_s)


def measure(device, copy_bytes: int = COPY_BYTES, matrix: int = MATRIX) -> Roofline | None:
    """By a copy within device memory and by one product of square matrices, as the math mode has it. None where there
    is not enough memory for that."""
    spans = []
    try:
        for _ in range(2):
            spans.append(device.take(max(copy_bytes, 4 * matrix * matrix)))
        return _measure(device, *spans, copy_bytes, matrix)
    except OutOfDeviceMemory:
        return None
    finally:
        device.synchronize()
        for span in spans:
            device.give(span)


def _measure(device, first, second, copy_bytes: int, n: int) -> Roofline:
    ops = ops_of(device)
    values = np.random.default_rng(1).standard_normal(n * n, dtype=np.float32)  # a GPU is faster on constants
    with device.active():
        device.copy_up(first.at(0, values.nbytes), values.view(np.uint8))
        source, target = (device.array(s, (copy_bytes // 4,), np.float32) for s in (first, second))
        copy = _seconds(device, lambda: ops.copy(source, target))
        x, y = (device.array(s, (n, n), np.float32) for s in (first, second))
        product = _seconds(device, lambda: ops.inner_product_forward(x, x, None, y, n, n, n, False))
    return Roofline(2 * copy_bytes / copy, 2 * n**3 / product)


def _seconds(device, run: Callable[[], None], rounds: int = 7) -> float:
    """Median time of one `run`, after two to warm up."""
    for _ in range(2):
        run()
    marks = [device.timed_event()]
    for _ in range(rounds):
        run()
        marks.append(device.timed_event())
    return statistics.median(device.elapsed_ms(a, b) for a, b in zip(marks, marks[1:], strict=False)) / 1e3
