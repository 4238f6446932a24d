"""Sum the gradient of a bias per channel on a GPU, for convolutions and inner products.

Every sum has a fixed order: one block per channel (or per 32 channels), each thread its own elements in order, then a
tree. Threads add in double: a float would lose digits over a batch of large images. A block per channel is little work
for a GPU where channels are few; with a workspace `bias_relu.backward` sums faster.
"""

from __future__ import annotations

from ....arrays import AnyArray
from ....backend import cuda
from ...records import Grid

SUM_BLOCK = 1024
COLUMN_BLOCK = 256

SOURCE = """
// one block per channel; SUM_BLOCK threads
extern "C" __global__ void channel_sum(const T* dy, C* db, long long outer, long long channels, long long inner,
                                       long long accumulate) {
  __shared__ double part[1024];
  const long long c = blockIdx.x, total = outer * inner;
  const long long step_o = blockDim.x / inner, step_i = blockDim.x % inner;
  long long o = threadIdx.x / inner, i = threadIdx.x % inner;
  double sum = 0;
  #pragma unroll 4
  for (long long j = threadIdx.x; j < total; j += blockDim.x) {
    sum += dy[(o * channels + c) * inner + i];
    o += step_o;
    i += step_i;
    if (i >= inner) { i -= inner; o++; }
  }
  part[threadIdx.x] = sum;
  __syncthreads();
  for (int half = blockDim.x / 2; half > 0; half /= 2) {
    if (threadIdx.x < half) part[threadIdx.x] += part[threadIdx.x + half];
    __syncthreads();
  }
  if (threadIdx.x == 0) db[c] = (C)(accumulate ? db[c] + part[0] : part[0]);
}

// inner == 1: one block per 32 channels, so that neighbouring threads read neighbouring channels; COLUMN_BLOCK threads
extern "C" __global__ void column_sum(const T* dy, C* db, long long rows, long long channels, long long accumulate) {
  __shared__ double part[8][32];
  const int lane = threadIdx.x % 32, first = threadIdx.x / 32;
  const long long c = blockIdx.x * 32LL + lane;
  double sum = 0;
  if (c < channels)
    for (long long r = first; r < rows; r += 8) sum += dy[r * channels + c];
  part[first][lane] = sum;
  __syncthreads();
  if (first == 0 && c < channels) {
    for (int r = 1; r < 8; r++) sum += part[r][lane];
    db[c] = (C)(accumulate ? db[c] + sum : sum);
  }
}
"""


def conv_bias_gradient(dy: AnyArray, db: AnyArray, grid: Grid, accumulate: bool) -> None:
    """Write to db (channels), or add if `accumulate`, dy summed over outer and inner."""
    (outer, channels, inner), add = grid, int(accumulate)
    if inner == 1:
        blocks = (channels + 31) // 32
        cuda.launch(SOURCE, "column_sum", dy.dtype, 0, dy, db, outer, channels, add, grid=blocks, block=COLUMN_BLOCK)
    else:
        cuda.launch(
            SOURCE, "channel_sum", dy.dtype, 0, dy, db, outer, channels, inner, add, grid=channels, block=SUM_BLOCK
        )
