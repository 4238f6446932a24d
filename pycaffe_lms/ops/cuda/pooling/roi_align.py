"""Sample regions (rois) at points between pixels, and average the samples of each cell."""

from __future__ import annotations

from ....arrays import AnyArray
from ....backend.cuda import launch
from ...records import Samples, Sampling
from .roi import REGION

__all__ = ["roi_align_backward", "roi_align_forward", "roi_warp_corners"]

_SOURCE = (
    REGION
    + f"enum {{ GRID = {int(Sampling.GRID)}, SPREAD = {int(Sampling.SPREAD)}, WARP = {int(Sampling.WARP)} }};"
    + """
struct Side {  // the samples of a region along one axis; a cell has `number` of them
  int kind, size, cells;
  double start, step, number;
  __device__ Side(double low, double high, double scale, double pad_ratio, long long how, long long each,
                  long long all, long long map) {
    kind = (int)how;
    size = (int)map;
    cells = (int)all;
    double half = 0, parts = (double)all;
    if (kind == GRID) {
      const double pad = times(plus(plus(high, -low), 1.0), pad_ratio);
      low = plus(low, -pad);
      high = plus(high, pad);
      half = 0.5;
      parts -= 1;
    } else if (kind == SPREAD) {
      high = plus(high, 1.0);
    }
    start = near(plus(times(low, scale), -half));
    double end = near(plus(times(high, scale), -half));
    if (kind == WARP) {
      start = trunc(start + (start < 0 ? -0.5 : 0.5));
      end = trunc(end + (end < 0 ? -0.5 : 0.5));
    }
    double length = plus(end, -start);
    const double least = kind == WARP ? 0.0 : kind == SPREAD ? 0.1 : 1.0;
    if (kind != GRID && !(length > least)) length = least;
    step = length / parts;
    number = length > 0 || kind == WARP ? each ? (double)each : ceil(step) : 0.0;
  }
  __device__ double near(double v) const { return v < -1048576.0 ? -1048576.0 : v > 1048576.0 ? 1048576.0 : v; }
  __device__ double inside(double at) const { return at > size - 1.0 ? size - 1.0 : at > 0 ? at : 0.0; }
  __device__ double place(int cell, int i) const {  // from 0 to size - 1; -1: the sample does not count
    double at = plus(start, times((double)cell, step));
    if (kind == GRID || kind == WARP) {
      if (at < -0.5 || at > size - 0.5) return -1;
    } else if (kind == SPREAD) {
      const double end = inside(plus(times(cell + 1.0, step), start));
      at = inside(at);
      if (end <= at) return -1;
      at = plus(at, times(i + 1.0, step / (number + 1)));
      if (at >= end) return -1;
    } else {
      at = plus(at, times(i + 0.5, step) / number);
      if (at < -1.0 || at > size) return -1;
    }
    return inside(at);
  }
  // samples of a cell that can lie between two places; those beyond the map's border count for the border
  __device__ void counted(int cell, double from, double to, int& first, int& last) const {
    first = 0;
    last = size > 0 ? (int)number : 0;
    if (kind == GRID || kind == SPREAD || kind == WARP || last == 0) return;
    const double gap = step / number, base = start + cell * step;
    const double a = floor((from - base) / gap - 1.5), b = ceil((to - base) / gap + 1.5);
    first = (int)(a < 0 ? 0 : a > number ? number : a);
    last = (int)(b < 0 ? 0 : b > number ? number : b);
  }
  __device__ void cells_near(int at, int& first, int& last) const {  // that can have samples beside the pixel `at`
    if (!(step > 0)) {  // all cells lie on one place
      first = 0;
      last = cells;
      return;
    }
    const double from = at == 0 ? -2.0 : at - 2.0, to = at == size - 1 ? size + 1.0 : at + 2.0;
    const double a = floor((from - start) / step) - 1, b = ceil((to - start) / step) + 1;
    first = (int)(a < 0 ? 0 : a > cells ? cells : a);
    last = (int)(b < 0 ? 0 : b > cells ? cells : b);
  }
  __device__ double weight(int cell, int at) const {  // of the pixel `at` in the cell
    int first, last;
    counted(cell, at == 0 ? -1.0 : at - 1.0, at == size - 1 ? (double)size : at + 1.0, first, last);
    double sum = 0;
    for (int i = first; i < last; ++i) {
      const double where = place(cell, i);
      if (where < 0) continue;
      const int low = (int)where;
      if (low == at) sum += 1 - (where - low);
      else if (low + 1 == at) sum += where - low;
    }
    return sum / number;
  }
};
#define SIDES \\
  const Side rows(roi[2], roi[4], scale, pad_ratio, kind, each, cells_h, height), \\
      columns(roi[1], roi[3], scale, pad_ratio, kind, each, cells_w, width)

extern "C" __global__ void forward(const T* x, const T* rois, T* y, long long total, double scale, double pad_ratio,
                                   long long kind, long long each, long long images, long long channels,
                                   long long height, long long width, long long outputs, long long cells_h,
                                   long long cells_w) {
  LOOP(k, total) {
    const int p = (int)(k / cells_w % cells_h), q = (int)(k % cells_w);
    const long long c = k / (cells_w * cells_h) % outputs;
    const T* roi = rois + k / (cells_w * cells_h * outputs) * 5;
    const int image = image_of(roi, images);
    double sum = 0;
    if (image >= 0) {
      SIDES;
      const long long channel = kind == SPREAD ? (c * cells_h + p) * cells_w + q : c;
      const T* map = x + (image * channels + channel) * height * width;
      int i0, i1, j0, j1;
      rows.counted(p, -1.0, (double)height, i0, i1);
      columns.counted(q, -1.0, (double)width, j0, j1);
      for (int i = i0; i < i1; ++i) {
        const double h = rows.place(p, i);
        if (h < 0) continue;
        const int top = (int)h, below = top + 1 < height ? top + 1 : top;
        for (int j = j0; j < j1; ++j) {
          const double w = columns.place(q, j);
          if (w < 0) continue;
          const int left = (int)w, right = left + 1 < width ? left + 1 : left;
          const double part = h - top, rest = w - left;
          sum += (1 - part) * ((1 - rest) * (double)map[top * width + left] + rest * (double)map[top * width + right]);
          sum += part * ((1 - rest) * (double)map[below * width + left] + rest * (double)map[below * width + right]);
        }
      }
      if (rows.number > 0 && columns.number > 0) sum /= rows.number * columns.number;
    }
    y[k] = (T)sum;
  }
}

// one thread for each pixel of the map, which adds up the cells of all regions that it has a weight in
extern "C" __global__ void backward(const T* dy, const T* rois, T* dx, long long total, long long regions, double scale,
                                    double pad_ratio, long long kind, long long each, long long images,
                                    long long channels, long long height, long long width, long long outputs,
                                    long long cells_h, long long cells_w) {
  LOOP(k, total) {
    const int h = (int)(k / width % height), w = (int)(k % width);
    const long long channel = k / (width * height) % channels, image = k / (width * height * channels);
    const int own_p = (int)(channel / cells_w % cells_h), own_q = (int)(channel % cells_w);
    const long long d = kind == SPREAD ? channel / (cells_h * cells_w) : channel;
    double sum = 0;
    for (long long r = 0; r < regions; ++r) {
      const T* roi = rois + r * 5;
      if (image_of(roi, images) != image) continue;
      SIDES;
      if (!(rows.number > 0 && columns.number > 0)) continue;
      int p0 = own_p, p1 = own_p + 1, q0 = own_q, q1 = own_q + 1;
      if (kind != SPREAD) {
        rows.cells_near(h, p0, p1);
        columns.cells_near(w, q0, q1);
      }
      for (int p = p0; p < p1; ++p) {
        const double part = rows.weight(p, h);
        if (part == 0) continue;
        for (int q = q0; q < q1; ++q)
          sum += part * columns.weight(q, w) * (double)dy[((r * outputs + d) * cells_h + p) * cells_w + q];
      }
    }
    dx[k] = (T)sum;
  }
}

// one thread for each region, number of it and channel
extern "C" __global__ void corners(const T* x, const T* dy, const T* rois, T* work, long long total, double scale,
                                   double pad_ratio, long long kind, long long each, long long images,
                                   long long channels, long long height, long long width, long long cells_h,
                                   long long cells_w) {
  LOOP(k, total) {
    const long long c = k % channels, r = k / (channels * 5);
    const int number = (int)(k / channels % 5);  // image, x1, y1, x2, y2
    const T* roi = rois + r * 5;
    const int image = image_of(roi, images);
    double sum = 0;
    if (image >= 0 && number > 0) {
      SIDES;
      const bool vertical = number % 2 == 0;
      const Side &own = vertical ? rows : columns;
      const T* map = x + (image * channels + c) * height * width;
      for (int p = 0; p < cells_h; ++p) {
        const double h = rows.place(p, 0);
        if (h < 0) continue;
        const int top = (int)h, below = top + 1 < height ? top + 1 : top;
        for (int q = 0; q < cells_w; ++q) {
          const double w = columns.place(q, 0);
          const int cell = vertical ? p : q;
          if (w < 0 || plus(own.start, times((double)cell, own.step)) < 0) continue;
          const int left = (int)w, right = left + 1 < width ? left + 1 : left;
          const double a = map[top * width + left], b = map[top * width + right], d = map[below * width + left],
                       e = map[below * width + right], part = vertical ? w - left : h - top;
          const double slope = vertical ? (1 - part) * (d - a) + part * (e - b) : (1 - part) * (b - a) + part * (e - d);
          const double of_end = own.step > 0 ? cell / (double)own.cells : 0.0;
          const double g = slope * (double)dy[((r * channels + c) * cells_h + p) * cells_w + q];
          sum += number > 2 ? g * of_end : g * (1 - of_end);
        }
      }
    }
    work[k] = (T)(sum * scale);
  }
}
"""
)


def roi_align_forward(x: AnyArray, rois: AnyArray, y: AnyArray, samples: Samples) -> None:
    """Compute y (R, C, cells_h, cells_w) = the average of the samples of x (N, C, H, W) in each cell of each region."""
    args = (x, rois, y, y.size, *_numbers(samples), *x.shape, *y.shape[1:])
    launch(_SOURCE, "forward", y.dtype, y.size, *args)


def roi_align_backward(dy: AnyArray, rois: AnyArray, dx: AnyArray, samples: Samples) -> None:
    """Compute dx = for each input, the sum of dy times the weight that it has in each cell, region by region."""
    args = (dy, rois, dx, dx.size, dy.shape[0], *_numbers(samples), *dx.shape, *dy.shape[1:])
    launch(_SOURCE, "backward", dx.dtype, dx.size, *args)


def roi_warp_corners(x: AnyArray, dy: AnyArray, rois: AnyArray, work: AnyArray, samples: Samples) -> None:
    """Compute work (R, 5, C) = for each channel the sum over cells of dy times the slope of their samples."""
    args = (x, dy, rois, work, work.size, *_numbers(samples), *x.shape, *dy.shape[2:])
    launch(_SOURCE, "corners", work.dtype, work.size, *args)


def _numbers(samples: Samples) -> tuple[float, float, int, int]:
    return float(samples.scale), float(samples.pad_ratio), int(samples.kind), samples.number
