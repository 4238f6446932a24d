"""The window of channels around each channel, as the kernels of LRN see it."""

from __future__ import annotations

WIDEST_IN_REGISTERS = 63  # the widest window that kernels for channels behind the other axes take


def effective_width(size: int, channels: int) -> int:
    """An odd window that sees what one of `size` sees: it never needs to reach past the other end of the channels."""
    return min(size, 2 * channels - 1) if channels else 1
