"""Choose rows by a selector on the GPU. One block finds where rows go; the copies are one pass over memory."""

from __future__ import annotations

from ....arrays import AnyArray
from ....backend.cuda import launch
from ..moves import move, moving, unit_of
from ..source import DIVIDE, divider

__all__ = ["filter_backward", "filter_forward", "filter_positions"]

_THREADS = 256

_POSITIONS = r"""
extern "C" __global__ void filter_positions(const T* selector, int* positions, long long n) {
  __shared__ int before[256];
  const long long each = (n + 255) / 256, begin = threadIdx.x * each;
  const long long end = begin + each < n ? begin + each : n;
  int count = 0;
  for (long long i = begin; i < end; ++i) count += selector[i] != T(0);
  before[threadIdx.x] = count;
  __syncthreads();
  for (int step = 1; step < 256; step *= 2) {  // inclusive sums of the threads' counts
    const int add = threadIdx.x >= step ? before[threadIdx.x - step] : 0;
    __syncthreads();
    before[threadIdx.x] += add;
    __syncthreads();
  }
  int next = before[threadIdx.x] - count;
  for (long long i = begin; i < end; ++i) positions[i] = selector[i] != T(0) ? next++ : -1;
}
"""

_PARAMS = "const int* positions, long long row, long long magic, long long shift"
_ROW = "const long long r = quotient(i, row, magic, shift), place = positions[r];"
_PLACE = "place < 0 ? -1 : place * row + i - r * row;"
_FORWARD = moving("filter_forward", f"{_ROW} to = {_PLACE}", params=_PARAMS, helpers=DIVIDE)
_BACKWARD = moving("filter_backward", f"{_ROW} from = {_PLACE}", params=_PARAMS, helpers=DIVIDE)


def filter_positions(selector: AnyArray, positions: AnyArray) -> None:
    """Write to positions[i] how many rows before row i are selected, or -1 where selector[i] is 0."""
    n = positions.size
    launch(_POSITIONS, "filter_positions", selector.dtype, n, selector, positions, n, block=_THREADS, grid=min(n, 1))


def filter_forward(x: AnyArray, positions: AnyArray, y: AnyArray) -> None:
    """Copy every selected row i: y[positions[i]] = x[i]."""
    _move(_FORWARD, "filter_forward", x, y, x.size, x.shape[0], positions)


def filter_backward(dy: AnyArray, positions: AnyArray, dx: AnyArray) -> None:
    """Set dx[i] = dy[positions[i]] for every selected row i, and to 0 for the others."""
    _move(_BACKWARD, "filter_backward", dy, dx, dx.size, dx.shape[0], positions)


def _move(source: str, name: str, x: AnyArray, y: AnyArray, size: int, rows: int, positions: AnyArray) -> None:
    row = size // max(1, rows)
    unit = unit_of(x, y, row)
    move(source, name, x, y, unit, size // unit, positions, *divider(row // unit, size // unit))
