"""Convert values to 16 bits and back, for copies that may lose digits.

Kind "fp16" is IEEE's half: 11 significant bits, up to 65504. Larger finite values become 65504 and are counted; values
below 3e-8 become 0. Kind "bf16" is the upper half of a float32: 8 significant bits, the same range. Both round to
nearest, ties to even, by way of float32; infinities and NaN stay what they are.
"""

from __future__ import annotations

import numpy as np

from ...arrays import HostArray
from .threads import ELEMENTS, parallel

__all__ = ["from_half", "to_half"]

LARGEST = 65504.0
_BLOCK = 1 << 15


def to_half(x: HostArray, half: HostArray, kind: str, saturated: HostArray | int) -> None:
    """Write the values of x in 16 bits to half (uint16).

    `saturated`, an int64, is increased by the number of finite values that were too large (fp16 only).
    """
    found: list[int] = []
    parallel(_to_half, x.size, x.reshape(-1), half.reshape(-1), kind, found, grain=ELEMENTS)
    saturated += sum(found)


def from_half(half: HostArray, x: HostArray, kind: str) -> None:
    """Write the values of half (uint16) to x."""
    parallel(_from_half, x.size, half.reshape(-1), x.reshape(-1), kind, grain=ELEMENTS)


def _to_half(first: int, last: int, x: HostArray, half: HostArray, kind: str, found: list[int]) -> None:
    for start in range(first, last, _BLOCK):
        end = min(start + _BLOCK, last)
        with np.errstate(all="ignore"):
            values = x[start:end].astype(np.float32)
            if kind == "fp16":
                large = np.isfinite(values) & (np.abs(values) > LARGEST)
                if large.any():
                    found.append(int(large.sum()))
                    values[large] = np.copysign(np.float32(LARGEST), values[large])
                half[start:end] = values.astype(np.float16).view(np.uint16)
                continue
        bits = values.view(np.uint32)
        rounded = bits + (np.uint32(0x7FFF) + (bits >> np.uint32(16) & np.uint32(1)))
        rounded = np.where(np.isnan(values), bits | np.uint32(0x400000), rounded)  # a NaN must not become infinite
        half[start:end] = rounded >> np.uint32(16)


def _from_half(first: int, last: int, half: HostArray, x: HostArray, kind: str) -> None:
    part = half[first:last]
    values = part.view(np.float16) if kind == "fp16" else (part.astype(np.uint32) << np.uint32(16)).view(np.float32)
    with np.errstate(invalid="ignore"):  # a NaN stays one in the other type
        x[first:last] = values
