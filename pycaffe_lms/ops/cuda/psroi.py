"""Position-sensitive pooling of regions: (image, x1, y1, x2, y2), in the coordinates of a picture that is the feature
map / scale. All arithmetic on coordinates is in their own type, and the same on every device."""

from __future__ import annotations

from ...backend.cuda import launch
from .roi import REGION

__all__ = ["psroi_pool_backward", "psroi_pool_forward"]

_SOURCE = (
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


def psroi_pool_forward(x, rois, y, scale):
    """y (R, D, g, g) = the average of channel (d * g + p) * g + q of x (N, D * g * g, H, W) in cell (p, q); 0 for a
    cell of nothing.

    Corners are kept within 2^20, rounded (halves away from 0), then scaled, the far ones after 1 was added; a region
    is at least 0.1 x 0.1. A cell goes from the floor of its start to the ceiling of its end, cut to the map. A region
    whose image (cut to an integer) is not in the batch, or that is not finite, is empty.
    """
    args = (x, rois, y, y.size, float(scale), *x.shape, y.shape[2])
    launch(_SOURCE, "forward", y.dtype, y.size, *args)


def psroi_pool_backward(dy, rois, dx, scale):
    """dx = for each input, the sum over the cells that hold it of dy / the cell's size, region by region."""
    args = (dy, rois, dx, float(scale), dy.shape[0], *dx.shape, dy.shape[2])
    launch(_SOURCE, "backward", dx.dtype, 0, *args, block=64, grid=dx.shape[0] * dx.shape[1])
