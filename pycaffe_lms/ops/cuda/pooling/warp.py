"""Sample maps bilinearly where a flow leads: y at (row, column) is x at (row + v, column + u).

Places are computed in the type of the arrays, weights and sums in float64. An input's gradient is a sum over the
outputs that come from beside it; a list of them, in order, is made first, so that sums are the same in every run.
"""

from __future__ import annotations

from ....arrays import AnyArray
from ....backend.cuda import launch
from ...records import Warping

__all__ = ["warp_backward", "warp_backward_flow", "warp_forward"]

_SOURCE = """
struct Place {  // of the output at position p of item n
  bool inside;
  long long left, right, top, bottom;
  double across, down;
  __device__ Place(const T* flow, long long n, long long p, long long height, long long width, bool whole) {
    const long long size = height * width;
    const T x = (T)(p % width) + flow[2 * n * size + p], y = (T)(p / width) + flow[(2 * n + 1) * size + p];
    inside = x >= 0 && y >= 0 && (whole ? x <= width - 1 && y <= height - 1 : x < width && y < height);
    if (!inside) return;
    left = (long long)floor((double)x);
    top = (long long)floor((double)y);
    across = (double)x - (double)left;
    down = (double)y - (double)top;
    right = across > 0 || !whole ? left + 1 : left;
    bottom = down > 0 || !whole ? top + 1 : top;
    if (right > width - 1) right = width - 1;
    if (bottom > height - 1) bottom = height - 1;
  }
};

extern "C" __global__ void forward(const T* x, const T* flow, T* y, long long n, long long channels, long long height,
                                   long long width, long long whole, double fill) {
  const long long size = height * width;
  LOOP(i, n) {
    const long long plane = i / size;
    const Place at(flow, plane / channels, i % size, height, width, whole);
    if (!at.inside) {
      y[i] = (T)fill;
      continue;
    }
    const T* above = x + plane * size + at.top * width;
    const T* below = x + plane * size + at.bottom * width;
    const double upper = (1 - at.across) * (double)above[at.left] + at.across * (double)above[at.right];
    const double lower = (1 - at.across) * (double)below[at.left] + at.across * (double)below[at.right];
    y[i] = (T)((1 - at.down) * upper + at.down * lower);
  }
}

// One block for each item. Outputs are sorted by the input above and left of their place, each one's in order: work
// holds for each input where its outputs end, then their positions, then the input of each output.
extern "C" __global__ void sources(const T* flow, unsigned* work, long long height, long long width, long long whole) {
  __shared__ unsigned of[256], sums[256];
  const long long n = blockIdx.x, size = height * width, t = threadIdx.x;
  unsigned *end = work + 3 * n * size, *list = end + size, *source = list + size;
  const unsigned none = 0xffffffffu;
  for (long long p = t; p < size; p += 256) {
    end[p] = 0;
    const Place at(flow, n, p, height, width, whole);
    source[p] = at.inside ? (unsigned)(at.top * width + at.left) : none;
  }
  __syncthreads();
  for (int pass = 0; pass < 2; ++pass) {  // count, then place
    for (long long start = 0; start < size; start += 256) {
      of[t] = start + t < size ? source[start + t] : none;
      __syncthreads();
      const unsigned own = of[t];
      unsigned before = 0, first = 0;
      bool last = own != none;
      if (own != none) {
        for (int s = 0; s < t; ++s) before += of[s] == own;
        for (int s = t + 1; s < 256; ++s) last = last && of[s] != own;
        first = end[own];
        if (pass) list[first + before] = (unsigned)(start + t);
      }
      __syncthreads();
      if (last) end[own] = first + before + 1;
      __syncthreads();
    }
    if (pass) break;
    // from counts to where the outputs of each input begin
    const long long each = (size + 255) / 256, from = t * each, to = from + each < size ? from + each : size;
    unsigned sum = 0;
    for (long long p = from; p < to; ++p) sum += end[p];
    sums[t] = sum;
    __syncthreads();
    unsigned begin = 0;
    for (int s = 0; s < t; ++s) begin += sums[s];
    for (long long p = from; p < to; ++p) {
      const unsigned number = end[p];
      end[p] = begin;
      begin += number;
    }
    __syncthreads();
  }
}

extern "C" __global__ void backward(const T* flow, const T* dy, const unsigned* work, T* dx, long long n,
                                    long long channels, long long height, long long width, long long whole) {
  const long long size = height * width;
  LOOP(i, n) {
    const long long plane = i / size, q = i % size, h = q / width, w = q % width, item = plane / channels;
    const unsigned *end = work + 3 * item * size, *list = end + size;
    double sum = 0;
    for (long long up = h > 0 ? h - 1 : 0; up <= h; ++up)
      for (long long beside = w > 0 ? w - 1 : 0; beside <= w; ++beside) {
        const long long source = up * width + beside;
        for (unsigned k = source ? end[source - 1] : 0; k < end[source]; ++k) {
          const Place at(flow, item, list[k], height, width, whole);
          const double across = (at.left == w ? 1 - at.across : 0) + (at.right == w ? at.across : 0);
          const double down = (at.top == h ? 1 - at.down : 0) + (at.bottom == h ? at.down : 0);
          if (across > 0 && down > 0) sum += across * down * (double)dy[plane * size + list[k]];
        }
      }
    dx[i] = (T)sum;
  }
}

extern "C" __global__ void backward_flow(const T* x, const T* flow, const T* dy, T* dflow, long long n,
                                         long long channels, long long height, long long width, long long whole) {
  const long long size = height * width;
  LOOP(i, n) {
    const long long item = i / size, p = i % size;
    const Place at(flow, item, p, height, width, whole);
    double du = 0, dv = 0;
    if (at.inside) {
      // at whole pixels: half of the difference between both neighbours, or to the one that there is
      const bool middle = whole && at.across == 0, centre = whole && at.down == 0;
      const long long first_column = middle && at.left > 0 ? at.left - 1 : at.left;
      const long long last_column = middle ? at.left + 1 < width ? at.left + 1 : at.left : at.right;
      const long long first_row = centre && at.top > 0 ? at.top - 1 : at.top;
      const long long last_row = centre ? at.top + 1 < height ? at.top + 1 : at.top : at.bottom;
      for (long long c = 0; c < channels; ++c) {
        const T* map = x + (item * channels + c) * size;
        const double slope = (double)dy[(item * channels + c) * size + p];
        const double above = (double)map[at.top * width + last_column] - (double)map[at.top * width + first_column];
        const double below =
            (double)map[at.bottom * width + last_column] - (double)map[at.bottom * width + first_column];
        du += (middle ? 0.5 : 1.0) * ((1 - at.down) * above + at.down * below) * slope;
        const double before = (double)map[last_row * width + at.left] - (double)map[first_row * width + at.left];
        const double behind = (double)map[last_row * width + at.right] - (double)map[first_row * width + at.right];
        dv += (centre ? 0.5 : 1.0) * ((1 - at.across) * before + at.across * behind) * slope;
      }
    }
    dflow[2 * item * size + p] = (T)du;
    dflow[(2 * item + 1) * size + p] = (T)dv;
  }
}
"""


def warp_forward(x: AnyArray, flow: AnyArray, y: AnyArray, how: Warping) -> None:
    """Compute y (N, C, H, W) = x at the places where the flow (N, 2, H, W; columns, then rows) leads."""
    args = (x, flow, y, y.size, *x.shape[1:], int(how.whole_pixels), float(how.fill))
    launch(_SOURCE, "forward", y.dtype, y.size, *args)


def warp_backward(flow: AnyArray, dy: AnyArray, dx: AnyArray, work: AnyArray, how: Warping) -> None:
    """Compute dx = for each input, the sum of dy * its weight."""
    sizes, whole = dx.shape[2:], int(how.whole_pixels)
    launch(_SOURCE, "sources", dx.dtype, 0, flow, work, *sizes, whole, block=256, grid=dx.shape[0])
    launch(_SOURCE, "backward", dx.dtype, dx.size, flow, dy, work, dx, dx.size, dx.shape[1], *sizes, whole)


def warp_backward_flow(x: AnyArray, flow: AnyArray, dy: AnyArray, dflow: AnyArray, how: Warping) -> None:
    """Compute the gradient of the flow, 0 where it leads outside."""
    n = dflow.size // 2
    args = (x, flow, dy, dflow, n, *x.shape[1:], int(how.whole_pixels))
    launch(_SOURCE, "backward_flow", dflow.dtype, n, *args)
