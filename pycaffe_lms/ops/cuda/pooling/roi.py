"""Pool regions (rois), plain and position-sensitive.

Rois are rows of (image, x1, y1, x2, y2), in pixels of a picture; a pixel of the feature map is 1 / scale of them. All
arithmetic on coordinates is in their own type, and the same on every device.
"""

from __future__ import annotations

from ....arrays import AnyArray
from ....backend.cuda import launch
from ..rounded import ROUNDED

__all__ = ["roi_pool_backward", "roi_pool_forward", "psroi_pool_backward", "psroi_pool_forward"]

_HELPERS = """
__device__ inline int nearest(T value) {  // halves away from 0
  const T far = (T)(1 << 20), v = value < -far ? -far : value > far ? far : value;
  const int whole = (int)v;
  const T rest = v - (T)whole;
  return rest >= (T)0.5 ? whole + 1 : rest <= (T)-0.5 ? whole - 1 : whole;
}

__device__ inline int image_of(const T* roi, long long images) {  // -1: none, or not a region
  bool valid = roi[0] > (T)-1 && roi[0] < (T)images;
  for (int i = 1; i < 5; ++i) valid = valid && roi[i] - roi[i] == (T)0;
  return valid ? (int)roi[0] : -1;
}
"""
REGION = ROUNDED + _HELPERS

_SOURCE = (
    REGION
    + """
struct Side {  // the cells of a region along one axis
  int start, size;
  T step;
  __device__ Side(T first, T last, T scale, T pad, long long cells, long long map) {
    if (pad != (T)0) {
      const T more = times(plus(plus(last, -first), (T)1), pad);
      first = plus(first, -more);
      last = plus(last, more);
    }
    start = nearest(times(first, scale));
    const int pixels = nearest(times(last, scale)) - start + 1;
    step = (T)(pixels > 1 ? pixels : 1) / (T)cells;
    size = (int)map;
  }
  __device__ int cut(int at) const { return at < 0 ? 0 : at > size ? size : at; }
  __device__ int first(int cell) const { return cut(start + (int)floor(times((T)cell, step))); }
  __device__ int last(int cell) const { return cut(start + (int)ceil(times((T)(cell + 1), step))); }
};

extern "C" __global__ void forward(const T* x, const T* rois, T* y, int* argmax, long long save, long long total,
                                   double scale, double pad, long long images, long long channels,
                                   long long height, long long width, long long cells_h, long long cells_w) {
  LOOP(i, total) {
    const int p = (int)(i / cells_w % cells_h), q = (int)(i % cells_w);
    const long long c = i / (cells_w * cells_h) % channels;
    const T* roi = rois + i / (cells_w * cells_h * channels) * 5;
    const int image = image_of(roi, images);
    T best = 0;
    int where = -1;
    if (image >= 0) {
      const Side rows(roi[2], roi[4], (T)scale, (T)pad, cells_h, height),
          columns(roi[1], roi[3], (T)scale, (T)pad, cells_w, width);
      const int top = rows.first(p), bottom = rows.last(p), left = columns.first(q), right = columns.last(q);
      const T* map = x + (image * channels + c) * height * width;
      if (top < bottom && left < right) best = (T)-3.402823466385288598e+38;
      for (int h = top; h < bottom; ++h)
        for (int w = left; w < right; ++w) {
          const T value = map[h * width + w];
          if (value > best) { best = value; where = h * (int)width + w; }
        }
    }
    y[i] = best;
    if (save) argmax[i] = where;
  }
}

// One block adds up one plane of dx, region by region; within a region the first of the cells that share a maximum
// adds for all of them, so nobody else writes to that place.
extern "C" __global__ void backward(const T* dy, const T* rois, const int* argmax, T* dx, double scale, double pad,
                                    long long regions, long long images, long long channels, long long height,
                                    long long width, long long cells_h, long long cells_w) {
  const long long cells = cells_h * cells_w, image = blockIdx.x / channels, channel = blockIdx.x % channels;
  T* plane = dx + blockIdx.x * height * width;
  for (long long i = threadIdx.x; i < height * width; i += blockDim.x) plane[i] = 0;
  __syncthreads();
  for (long long r = 0; r < regions; ++r) {
    const T* roi = rois + r * 5;
    if (image_of(roi, images) != image) continue;  // for the whole block
    const Side rows(roi[2], roi[4], (T)scale, (T)pad, cells_h, height),
        columns(roi[1], roi[3], (T)scale, (T)pad, cells_w, width);
    const long long from = (r * channels + channel) * cells;
    for (int cell = threadIdx.x; cell < cells; cell += blockDim.x) {
      const int where = argmax[from + cell];
      if (where < 0) continue;
      // the cells [p0, p1] x [q0, q1] that hold this place
      const int h = where / (int)width, w = where % (int)width, p = cell / (int)cells_w, q = cell % (int)cells_w;
      int p0 = p, p1 = p, q0 = q, q1 = q;
      while (p0 > 0 && rows.last(p0 - 1) > h) --p0;
      while (p1 + 1 < cells_h && rows.first(p1 + 1) <= h) ++p1;
      while (q0 > 0 && columns.last(q0 - 1) > w) --q0;
      while (q1 + 1 < cells_w && columns.first(q1 + 1) <= w) ++q1;
      A sum = 0;
      bool mine = true;
      for (int a = p0; a <= p1 && mine; ++a)
        for (int b = q0; b <= q1; ++b) {
          const int other = a * (int)cells_w + b;
          if (argmax[from + other] != where) continue;
          if (other < cell) { mine = false; break; }
          sum += dy[from + other];
        }
      if (mine) plane[where] += (T)sum;
    }
    __syncthreads();
  }
}
"""
)


def roi_pool_forward(
    x: AnyArray, rois: AnyArray, y: AnyArray, argmax: AnyArray | None, scale: float, pad: float = 0.0
) -> None:
    """Compute y (R, C, ph, pw) = the maximum of x (N, C, H, W) in each cell of each region; 0 for an empty cell."""
    save = argmax is not None
    args = (x, rois, y, argmax if save else y, int(save), y.size, float(scale), float(pad), *x.shape, *y.shape[2:])
    launch(_SOURCE, "forward", y.dtype, y.size, *args)


def roi_pool_backward(
    dy: AnyArray, rois: AnyArray, argmax: AnyArray, dx: AnyArray, scale: float, pad: float = 0.0
) -> None:
    """Compute dx = for each input, the sum of dy over the cells whose maximum it was, region by region."""
    planes, cells = dx.shape[0] * dx.shape[1], dy.shape[2] * dy.shape[3]
    block = min(256, (cells + 31) // 32 * 32)
    args = (dy, rois, argmax, dx, float(scale), float(pad), dy.shape[0], *dx.shape, *dy.shape[2:])
    launch(_SOURCE, "backward", dx.dtype, 0, *args, block=block, grid=planes)


_PSROI_SOURCE = (
    REGION
    + """
struct Cells {  // of a region along one axis
  int size;
  T start, step;
  __device__ Cells(T first, T last, T scale, long long cells, long long map) {
    start = times((T)nearest(first), scale);
    const T length = plus(times((T)(nearest(last) + 1), scale), -start);
    step = (length > (T)0.1 ? length : (T)0.1) / (T)cells;
    size = (int)map;
  }
  __device__ int cut(T at) const { return at > (T)size ? size : at > 0 ? (int)at : 0; }
  __device__ int first(int cell) const { return cut(floor(plus(times((T)cell, step), start))); }
  __device__ int last(int cell) const { return cut(ceil(plus(times((T)(cell + 1), step), start))); }
};

extern "C" __global__ void forward(const T* x, const T* rois, T* y, long long total, double scale, long long images,
                                   long long channels, long long height, long long width, long long cells) {
  LOOP(i, total) {
    const int p = (int)(i / cells % cells), q = (int)(i % cells);
    const long long outputs = channels / (cells * cells), d = i / (cells * cells) % outputs;
    const T* roi = rois + i / channels * 5;  // a region has as many outputs as the map has channels
    const int image = image_of(roi, images);
    A sum = 0;
    if (image >= 0) {
      const Cells rows(roi[2], roi[4], (T)scale, cells, height), columns(roi[1], roi[3], (T)scale, cells, width);
      const int top = rows.first(p), bottom = rows.last(p), left = columns.first(q), right = columns.last(q);
      const T* map = x + (image * channels + (d * cells + p) * cells + q) * height * width;
      for (int h = top; h < bottom; ++h)
        for (int w = left; w < right; ++w) sum += map[h * width + w];
      if (top < bottom && left < right) sum /= (A)((bottom - top) * (right - left));
    }
    y[i] = (T)sum;
  }
}

// one block adds up one plane of dx, region by region; within a region every place is one thread's
extern "C" __global__ void backward(const T* dy, const T* rois, T* dx, double scale, long long regions,
                                    long long images, long long channels, long long height, long long width,
                                    long long cells) {
  const long long image = blockIdx.x / channels, channel = blockIdx.x % channels;
  const int p = (int)(channel / cells % cells), q = (int)(channel % cells);
  T* plane = dx + blockIdx.x * height * width;
  for (long long i = threadIdx.x; i < height * width; i += blockDim.x) plane[i] = 0;
  __syncthreads();
  for (long long r = 0; r < regions; ++r) {
    const T* roi = rois + r * 5;
    if (image_of(roi, images) != image) continue;  // for the whole block
    const Cells rows(roi[2], roi[4], (T)scale, cells, height), columns(roi[1], roi[3], (T)scale, cells, width);
    const int top = rows.first(p), left = columns.first(q), wide = columns.last(q) - left;
    const int places = wide > 0 ? (rows.last(p) - top) * wide : 0;
    if (places <= 0) continue;
    const T share = (T)(dy[r * channels + channel] / (A)places);
    for (int i = threadIdx.x; i < places; i += blockDim.x) plane[(top + i / wide) * width + left + i % wide] += share;
    __syncthreads();
  }
}
"""
)


def psroi_pool_forward(x: AnyArray, rois: AnyArray, y: AnyArray, scale: float) -> None:
    """Compute y (R, D, g, g): the average of channel (d * g + p) * g + q of x (N, D * g * g, H, W) in cell (p, q)."""
    args = (x, rois, y, y.size, float(scale), *x.shape, y.shape[2])
    launch(_PSROI_SOURCE, "forward", y.dtype, y.size, *args)


def psroi_pool_backward(dy: AnyArray, rois: AnyArray, dx: AnyArray, scale: float) -> None:
    """Compute dx = for each input, the sum of dy / the cell's size over the cells that hold it, region by region."""
    args = (dy, rois, dx, float(scale), dy.shape[0], *dx.shape, dy.shape[2])
    launch(_PSROI_SOURCE, "backward", dx.dtype, 0, *args, block=64, grid=dx.shape[0] * dx.shape[1])
