"""Blocks of rows into and out of a wider array: what Concat and Slice are made of."""

from __future__ import annotations

__all__ = ["copy_block_in", "copy_block_out"]


def copy_block_in(x, y, outer, width, total, start):
    """Columns [start, start + width) of y (outer, total) = x (outer, width)."""
    y.reshape(outer, total)[:, start : start + width] = x.reshape(outer, width)


def copy_block_out(x, y, outer, width, total, start):
    """y (outer, width) = columns [start, start + width) of x (outer, total)."""
    y.reshape(outer, width)[...] = x.reshape(outer, total)[:, start : start + width]
