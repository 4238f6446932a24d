"""Blocks of rows into and out of a wider array: what Concat and Slice are made of."""

from __future__ import annotations

from ...backend.cuda import launch
from .source import DIVIDE, divider

__all__ = ["copy_block_in", "copy_block_out"]

_SOURCE = (
    DIVIDE
    + """
extern "C" __global__ void copy_in(const T* x, T* y, long long n, long long width, long long magic, long long shift,
                                   long long total, long long start) {
  LOOP(i, n) {
    long long row = quotient(i, width, magic, shift);
    y[row * total + start + i - row * width] = x[i];
  }
}
extern "C" __global__ void copy_out(const T* x, T* y, long long n, long long width, long long magic, long long shift,
                                    long long total, long long start) {
  LOOP(i, n) {
    long long row = quotient(i, width, magic, shift);
    y[i] = x[row * total + start + i - row * width];
  }
}
"""
)


def copy_block_in(x, y, outer, width, total, start):
    """Columns [start, start + width) of y (outer, total) = x (outer, width)."""
    n = outer * width
    launch(_SOURCE, "copy_in", y.dtype, n, x, y, n, *divider(width, n), total, start)


def copy_block_out(x, y, outer, width, total, start):
    """y (outer, width) = columns [start, start + width) of x (outer, total)."""
    n = outer * width
    launch(_SOURCE, "copy_out", y.dtype, n, x, y, n, *divider(width, n), total, start)
