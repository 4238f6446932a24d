"""Add up losses on a GPU: every block writes a part, and one block adds the parts in a fixed order."""

from __future__ import annotations

from typing import Any

from ....arrays import AnyArray
from ....backend.cuda import launch
from ...sum_parts import LOSS_BLOCKS
from ..source import BLOCK_SUM

_BLOCKS = f"#define LOSS_BLOCKS {LOSS_BLOCKS}\n"

LOSS_PARTS = (
    _BLOCKS
    + BLOCK_SUM
    + """
__device__ void write_parts(double sum, double count, double* work) {
  sum = block_sum(sum);
  count = block_sum(count);
  if (threadIdx.x == 0) {
    work[blockIdx.x] = sum;
    work[LOSS_BLOCKS + blockIdx.x] = count;
  }
}
"""
)

WRITE_PARTS = "write_parts(sum, count, work);"  # how a kernel of `elementwise.totals` ends

_TOTAL = (
    _BLOCKS
    + BLOCK_SUM
    + """
__device__ double total_of(const double* work, long long parts) {
  double sum = 0;
  for (long long p = threadIdx.x; p < parts; p += 256) sum += work[p];
  return block_sum(sum);
}
extern "C" __global__ void scaled_total(const double* work, T* loss, double scale, long long parts) {
  double sum = total_of(work, parts);
  if (threadIdx.x == 0) loss[0] = (T)(sum * scale);
}
extern "C" __global__ void divided_total(const double* work, T* loss, double* norm, double normalizer,
                                         long long parts) {
  double sum = total_of(work, parts);
  double count = total_of(work + LOSS_BLOCKS, parts);
  if (threadIdx.x == 0) {
    if (normalizer >= 0) count = normalizer;
    norm[0] = count < 1 ? 1 : count;
    loss[0] = (T)(sum / norm[0]);
  }
}
"""
)


def scaled_loss(
    source: str, name: str, n: int, args: tuple[Any, ...], loss: AnyArray, work: AnyArray, scale: float
) -> None:
    """Compute loss = scale * the sum of what kernel `name` adds up over n elements; `args` are its arguments."""
    parts = _parts(source, name, n, args, loss)
    launch(_TOTAL, "scaled_total", loss.dtype, 0, work, loss, float(scale), parts, block=256, grid=1)


def divided_loss(
    source: str,
    name: str,
    n: int,
    args: tuple[Any, ...],
    loss: AnyArray,
    norm: AnyArray,
    work: AnyArray,
    normalizer: float,
) -> None:
    """Compute norm[0] and loss = the sum of what kernel `name` adds up over n elements / norm[0].

    norm[0] = max(1, normalizer), or max(1, the kernel's count) if normalizer < 0.
    """
    parts = _parts(source, name, n, args, loss)
    launch(_TOTAL, "divided_total", loss.dtype, 0, work, loss, norm, float(normalizer), parts, block=256, grid=1)


def _parts(source: str, name: str, n: int, args: tuple[Any, ...], loss: AnyArray) -> int:
    parts = min(LOSS_BLOCKS, max(1, (n + 1023) // 1024))
    launch(source, name, loss.dtype, 0, *args, block=256, grid=parts)
    return parts
