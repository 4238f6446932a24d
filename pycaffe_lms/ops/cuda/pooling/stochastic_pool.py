"""Pool stochastically on a GPU over any number of axes: one thread per output, or per input in backward.

`geometry` is a PoolGeometry without padding; x and dx are (planes, *in_spatial), the others (planes, *out_spatial).
Random numbers are Philox's, as in `cuda/activation/dropout.py` with its `key`: output i takes lane i % 4 of block
key[2] + i // 4. Running sums are added in the arrays' type in row-major order, on every device, so that all choose the
same elements.
"""

from __future__ import annotations

from ....arrays import AnyArray
from ...geometry import PoolGeometry
from ..activation.dropout import PHILOX
from .windows import launch

__all__ = ["stochastic_pool_forward", "stochastic_pool_mean_backward", "stochastic_pool_mean_forward"]

SOURCE = """
// a random number in (0, 1], a multiple of 2^-24
__device__ inline T share(long long i, unsigned long long seed, unsigned long long offset, long long first_block) {
  const long long block = first_block + i / 4;
  unsigned c[4] = {(unsigned)block, (unsigned)(block >> 32), (unsigned)offset, (unsigned)(offset >> 32)};
  philox(c, (unsigned)seed, (unsigned)(seed >> 32));
  const int lane = (int)(i % 4);
  const unsigned bits = lane == 0 ? c[0] : lane == 1 ? c[1] : lane == 2 ? c[2] : c[3];
  return (T)((bits >> 8) + 1) * (T)5.9604644775390625e-8;
}

extern "C" __global__ void choose(const T* x, T* y, M* mask, long long use_mask, const unsigned long long* key,
                                  long long n, SHAPE) {
  NUMBERS;
  const unsigned long long seed = key[0], offset = key[1];
  const long long first_block = (long long)key[2];
  LOOP(i, n) {
    int first[AXES], last[AXES], self[AXES], where = -1;
    const T* plane = x + window(i, in, out, kernel, stride, pad, first, last) * volume(in);
    T sum = 0;
    each(first, last, [&](const int* at) { sum += plane[flat(at, in)]; });
    const T level = sum * share(i, seed, offset, first_block);
    T running = 0, value = 0;
    bool missing = true;  // until its element is found, a window holds the last one looked at
    each(first, last, [&](const int* at) {
      if (missing) {
        where = flat(at, in);
        value = plane[where];
        running += value;
        missing = !(running >= level);
      }
    });
    y[i] = value;
    if (use_mask) {
      locate(i, out, self);
      mask[i] = (M)(where < 0 ? -1 : place_of(where, self, in, kernel, stride, pad));
    }
  }
}

extern "C" __global__ void mean(const T* x, T* y, T* total, long long use_total, long long n, SHAPE) {
  NUMBERS;
  LOOP(i, n) {
    int first[AXES], last[AXES];
    const T* plane = x + window(i, in, out, kernel, stride, pad, first, last) * volume(in);
    T sum = 0, squares = 0;
    each(first, last, [&](const int* at) {
      const T value = plane[flat(at, in)];
      sum += value;
      squares += value * value;
    });
    y[i] = sum > 0 ? squares / sum : (T)0;
    if (use_total) total[i] = sum;
  }
}

extern "C" __global__ void mean_gradient(const T* dy, const T* x, const T* y, const T* total, T* dx, long long n,
                                         SHAPE) {
  NUMBERS;
  LOOP(i, n) {
    int first[AXES], last[AXES];
    const long long start = cover(i, in, out, kernel, stride, pad, first, last) * volume(out);
    const T twice = 2 * x[i];
    A sum = 0;
    each(first, last, [&](const int* at) {
      const long long o = start + flat(at, out);
      if (total[o] > 0) sum += dy[o] / total[o] * (twice - y[o]);
    });
    dx[i] = (T)sum;
  }
}
"""


def stochastic_pool_forward(
    x: AnyArray, y: AnyArray, mask: AnyArray | None, key: AnyArray, geometry: PoolGeometry
) -> None:
    """Compute y = the first element of each window at which the running sum reaches a random share of the whole sum."""
    args = x, y, y if mask is None else mask, int(mask is not None), key  # y stands in for a mask that is not wanted
    launch(geometry, SOURCE, "choose", y, *args, mask=mask, helpers=PHILOX)


def stochastic_pool_mean_forward(x: AnyArray, y: AnyArray, total: AnyArray | None, geometry: PoolGeometry) -> None:
    """Compute y = the sum of each window's squares / its sum, 0 where that is not positive; `total` gets the sum."""
    launch(geometry, SOURCE, "mean", y, x, y, y if total is None else total, int(total is not None), helpers=PHILOX)


def stochastic_pool_mean_backward(
    dy: AnyArray, x: AnyArray, y: AnyArray, total: AnyArray, dx: AnyArray, geometry: PoolGeometry
) -> None:
    """Compute dx = for each input, the sum of dy (2 x - y) / total over the windows that hold it and have total > 0."""
    launch(geometry, SOURCE, "mean_gradient", dx, dy, x, y, total, dx, helpers=PHILOX)
