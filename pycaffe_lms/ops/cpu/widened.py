"""Let operations take bfloat16 arrays: compute in float32 between a widening and a rounding, for all in one place."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

import numpy as np

from ...arrays import HostArray
from ...backend.bfloat16 import BFLOAT16
from .half import from_half, to_half


def widened_copy(half: HostArray) -> HostArray:
    """Return the values of a bfloat16 array as float32."""
    values = np.empty(half.shape, np.float32)
    from_half(half, values, "bf16")
    return values


def round_into(values: HostArray, half: HostArray) -> None:
    """Write values to half, rounded to bfloat16: to nearest, ties to even."""
    to_half(values, half, "bf16", 0)


@functools.cache  # reading 160 signatures takes milliseconds, which every device would spend
def widened(function: Callable[..., None]) -> Callable[..., None]:
    """Return the operation for bfloat16 arrays too: it computes in float32, and rounds what it wrote once.

    Arrays in the same memory stay in the same memory. Arrays that were only read are written back unchanged, since
    rounding changes no value that was bfloat16 before.
    """
    signature = inspect.signature(function)
    exact = [i for i, name in enumerate(signature.parameters) if name == "mask"]

    @functools.wraps(function)
    def run(*args: Any, **kwargs: Any) -> None:
        if kwargs:
            args = signature.bind(*args, **kwargs).args
        if not any(map(_holds, [a for i, a in enumerate(args) if i not in exact] if exact else args)):
            function(*args)
            return
        copies = _Copies()
        function(*[a if i in exact else copies.wide(a) for i, a in enumerate(args)])
        copies.round()

    return run


def _holds(argument: object) -> bool:
    if isinstance(argument, np.ndarray):
        return bool(argument.dtype == BFLOAT16)
    return isinstance(argument, (list, tuple)) and any(map(_holds, argument))


class _Copies:
    """Hold float32 copies of bfloat16 arrays, by the address and size of these."""

    def __init__(self) -> None:
        self._of: dict[tuple[int, int], tuple[HostArray, HostArray]] = {}

    def wide(self, argument: Any) -> Any:
        """Return an argument with copies in place of bfloat16 arrays."""
        if not _holds(argument):
            return argument
        if isinstance(argument, (list, tuple)):
            inside = map(self.wide, argument)
            return argument._make(inside) if hasattr(argument, "_make") else type(argument)(inside)
        key = argument.ctypes.data, argument.size
        if key not in self._of:
            self._of[key] = argument, widened_copy(argument)
        return self._of[key][1].reshape(argument.shape)

    def round(self) -> None:
        """Round the copies' values into the arrays."""
        for half, values in self._of.values():
            if half.flags.writeable:
                round_into(values, half)
