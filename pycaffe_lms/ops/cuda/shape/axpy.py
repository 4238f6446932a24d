"""Scale each row of (rows, dim) by a factor, and add.

Backward makes one pass: a warp for each short row, parts of a long row for blocks of their own
(`cuda/channel_walk.py`).
"""

from __future__ import annotations

import functools

from ....arrays import AnyArray
from ....backend.cuda import launch
from ...records import Grid
from ..basic import copy
from ..channel_walk import add_up, run_walk, walking
from ..per_channel import per_channel, run_per_channel
from ..source import BLOCK_SUM

__all__ = ["axpy_forward", "axpy_backward"]

_FORWARD = per_channel("forward", "out = a * x + y;", channel="a", reads="x, y", writes="out")
_SCALE = per_channel("scale", "dx = a * dout;", channel="a", reads="dout", writes="dx")
_SHORT = 1024  # elements of a row for a warp

# whole warps stay together, because the stride of the loop is a multiple of 32; AHEAD elements of a thread are loaded
# before the first is written
_SHORT_ROWS = (
    BLOCK_SUM
    + """
#define AHEAD 4
extern "C" __global__ void short_rows(const T* a, const T* x, const T* dout, T* da, T* dx, T* dy, long long has_dx,
                                      long long has_dy, long long rows, long long dim) {
  LOOP(i, rows * 32) {
    const long long row = i / 32, end = (row + 1) * dim;
    const T factor = has_dx ? a[row] : (T)0;
    A sum = 0;
    for (long long k = row * dim + i % 32; k < end; k += 32 * AHEAD) {
      T value[AHEAD], slope[AHEAD];
      #pragma unroll
      for (int u = 0; u < AHEAD; ++u) {
        const bool inside = k + 32 * u < end;
        value[u] = inside ? x[k + 32 * u] : (T)0;
        slope[u] = inside ? dout[k + 32 * u] : (T)0;
      }
      #pragma unroll
      for (int u = 0; u < AHEAD; ++u)
        if (k + 32 * u < end) {
          sum += (A)value[u] * slope[u];
          if (has_dx) dx[k + 32 * u] = factor * slope[u];
          if (has_dy) dy[k + 32 * u] = slope[u];
        }
    }
    sum = warp_sum(sum);
    if (i % 32 == 0) da[row] = (T)sum;
  }
}
"""
)


@functools.cache
def _long_rows(data: bool, copies: bool) -> str:
    return walking(
        "long_rows",
        "sum0 += x * dout;" + "dx = a * dout;" * data + "dy = dout;" * copies,
        reads="x, dout",
        writes=", ".join(["dx"] * data + ["dy"] * copies),
        channel="a" * data,
        sums=1,
    )


def axpy_forward(a: AnyArray, x: AnyArray, y: AnyArray, out: AnyArray, grid: Grid) -> None:
    """Compute out = a * x + y, with one factor a per channel."""
    run_per_channel(_FORWARD, "forward", (x, y, out), [a], grid)


def axpy_backward(
    a: AnyArray | None,
    x: AnyArray | None,
    dout: AnyArray,
    da: AnyArray | None,
    dx: AnyArray | None,
    dy: AnyArray | None,
    work: AnyArray | None,
    grid: Grid,
) -> None:
    """Compute da = sum of x * dout over each channel, dx = a * dout, dy = dout."""
    _, rows, dim = grid
    copies = dy is not None and dy.data.ptr != dout.data.ptr
    if da is not None and dim <= _SHORT:
        arrays = (x if dx is None else a, x, dout, da, da if dx is None else dx, dy if copies else da)
        flags = int(dx is not None), int(copies)
        launch(_SHORT_ROWS, "short_rows", da.dtype, rows * 32, *arrays, *flags, rows, dim)
        return
    if da is not None:
        arrays = [x, dout] + [dx] * (dx is not None) + [dy] * copies
        channel = [] if dx is None else [a]
        parts = run_walk(_long_rows(dx is not None, copies), "long_rows", arrays, channel, grid, work)
        add_up(work, 0, da, False, rows, parts)
        return
    if dx is not None:
        run_per_channel(_SCALE, "scale", (dout, dx), [a], grid)
    if copies:
        copy(dout, dy)
