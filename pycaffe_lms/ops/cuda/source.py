"""Hold pieces of CUDA C++ that several families share, and prepare divisions without a divide instruction."""

from __future__ import annotations

BLOCK_MAX = """
__device__ A block_max(A value) {  // over 256 threads; every thread gets the largest, where none is NaN
  __shared__ A part[256];
  part[threadIdx.x] = value;
  __syncthreads();
  for (int half = 128; half > 0; half >>= 1) {
    if (threadIdx.x < half) {
      A other = part[threadIdx.x + half];
      if (other > part[threadIdx.x]) part[threadIdx.x] = other;
    }
    __syncthreads();
  }
  A best = part[0];
  __syncthreads();
  return best;
}
"""
BLOCK_SUM = """
template <typename S> __device__ S block_sum(S value) {  // a fixed tree over 256 threads; every thread gets the sum
  __shared__ S part[256];
  part[threadIdx.x] = value;
  __syncthreads();
  for (int half = 128; half > 0; half >>= 1) {
    if (threadIdx.x < half) part[threadIdx.x] += part[threadIdx.x + half];
    __syncthreads();
  }
  S total = part[0];
  __syncthreads();
  return total;
}
template <typename S> __device__ S warp_sum(S value) {  // likewise over the 32 threads of a warp
  for (int half = 16; half > 0; half >>= 1) value += __shfl_xor_sync(0xffffffffu, value, half);
  return value;
}
"""

DIVIDE = """
__device__ long long quotient(long long i, long long d, long long magic, long long shift) {
  return magic ? (long long)(((unsigned long long)(unsigned)i * (unsigned)magic) >> shift) : i / d;  // both fit 32 bits
}
"""


def divider(d: int, n: int) -> tuple[int, int, int]:
    """Return (d, magic, shift) for `quotient`, exact for 0 <= i < n; above 2^31 magic is 0 (plain division)."""
    d = max(1, d)
    if n > 1 << 31:
        return d, 0, 0
    shift = 31 + (d - 1).bit_length()
    return d, ((1 << shift) + d - 1) // d, shift
