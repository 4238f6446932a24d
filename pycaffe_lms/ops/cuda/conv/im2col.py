"""Convolve on a GPU through column matrices and cuBLAS, where cuDNN is not installed or cannot do it.

Covers any number of spatial axes, groups, any stride, pad and dilation. Up to 3 axes go through the kernels here (fewer
are padded with axes of size 1), more go image by image through the Im2col layer's. Forward and data gradient keep
columns as (image, group, row, position), one batched product per group. The weights' gradient keeps them as (group,
row, image, position), so that one product per group sums over all images of a chunk. col2im gathers: each pixel sums
its own taps in order, so results are the same every time.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from ....arrays import AnyArray
from ....backend import cuda
from ...column_plan import ColumnPlan, column_plan
from ...geometry import ConvGeometry
from . import columns as any_axes

_CHUNK_BYTES = 256 << 20
MAX_AXES = 3

SOURCE = """
#define SHAPE long long in_d, long long in_h, long long in_w, long long out_d, long long out_h, long long out_w, \\
    long long k_d, long long k_h, long long k_w, long long s_d, long long s_h, long long s_w, \\
    long long p_d, long long p_h, long long p_w, long long l_d, long long l_h, long long l_w

// one thread per (image, channel, output position): writes its column entries of every tap
extern "C" __global__ void im2col(const T* x, T* columns, long long images, long long channels, long long x_stride,
                                  long long image_stride, long long row_stride, SHAPE) {
  const long long size = out_d * out_h * out_w, taps = k_d * k_h * k_w;
  LOOP(i, images * channels * size) {
    const long long s = i % size, c = (i / size) % channels, n = i / (size * channels);
    const int w0 = (int)(s % out_w) * (int)s_w - (int)p_w;
    const int h0 = (int)(s / out_w % out_h) * (int)s_h - (int)p_h;
    const int d0 = (int)(s / (out_w * out_h)) * (int)s_d - (int)p_d;
    const T* in = x + n * x_stride + c * (in_d * in_h * in_w);
    T* out = columns + n * image_stride + c * taps * row_stride + s;
    for (int a = 0; a < (int)k_d; a++) {
      const int d = d0 + a * (int)l_d;
      for (int b = 0; b < (int)k_h; b++) {
        const int h = h0 + b * (int)l_h;
        const bool inside = d >= 0 && d < (int)in_d && h >= 0 && h < (int)in_h;
        for (int e = 0; e < (int)k_w; e++) {
          const int w = w0 + e * (int)l_w;
          *out = inside && w >= 0 && w < (int)in_w ? in[((long long)d * in_h + h) * in_w + w] : (T)0;
          out += row_stride;
        }
      }
    }
  }
}

// one thread per pixel: the sum of its column entries; columns are (image, channel x tap, position)
extern "C" __global__ void col2im(const T* columns, T* x, long long images, long long channels, long long x_stride,
                                  SHAPE) {
  const long long size = out_d * out_h * out_w, taps = k_d * k_h * k_w, plane = in_d * in_h * in_w;
  LOOP(i, images * channels * plane) {
    const long long pixel = i % plane, c = (i / plane) % channels, n = i / (plane * channels);
    const int w0 = (int)(pixel % in_w) + (int)p_w;
    const int h0 = (int)(pixel / in_w % in_h) + (int)p_h;
    const int d0 = (int)(pixel / (in_w * in_h)) + (int)p_d;
    const T* column = columns + (n * channels + c) * taps * size;
    A sum = 0;
    for (int a = 0; a < (int)k_d; a++) {
      const int d = d0 - a * (int)l_d;
      const bool use_d = d >= 0 && d % (int)s_d == 0 && d / (int)s_d < (int)out_d;
      for (int b = 0; b < (int)k_h; b++) {
        const int h = h0 - b * (int)l_h;
        const bool use_h = use_d && h >= 0 && h % (int)s_h == 0 && h / (int)s_h < (int)out_h;
        for (int e = 0; e < (int)k_w; e++) {
          const int w = w0 - e * (int)l_w;
          if (use_h && w >= 0 && w % (int)s_w == 0 && w / (int)s_w < (int)out_w)
            sum += column[((long long)(d / (int)s_d) * out_h + h / (int)s_h) * out_w + w / (int)s_w];
          column += size;
        }
      }
    }
    x[n * x_stride + c * plane + pixel] = (T)sum;
  }
}

// (images, rows, size) -> (rows, images, size)
extern "C" __global__ void by_row(const T* x, T* y, long long images, long long rows, long long size) {
  LOOP(i, images * rows * size) {
    const long long s = i % size, r = (i / size) % rows, n = i / (size * rows);
    y[(r * images + n) * size + s] = x[i];
  }
}
"""


def plan(geometry: ConvGeometry, itemsize: int, workspace_limit: int) -> ColumnPlan:
    """Plan chunks within `workspace_limit` bytes, if the columns of one image and one group fit."""
    budget = min(workspace_limit, _CHUNK_BYTES)
    if geometry.axes <= MAX_AXES:
        return column_plan(geometry, itemsize, budget)
    one = replace(geometry, batch=min(1, geometry.batch))
    return replace(column_plan(one, itemsize, budget), geometry=geometry)


def forward(plan: ColumnPlan, x: AnyArray, w: AnyArray, y: AnyArray, work: AnyArray | None) -> None:
    """Compute y = w * x, without bias."""
    g = plan.geometry
    for n0, n1, g0, g1 in _chunks(plan):
        columns, stride = _columns_by_image(g, x, work, n0, n1, g0, g1)
        for i in range(g0, g1):
            a, b, c = _weights(g, w, i), columns[(i - g0) * g.rows * g.out_size :], _outputs(g, y, n0, i)
            sizes = g.group_outputs, g.out_size, g.rows
            cuda.gemm_batched(False, False, *sizes, 1.0, a, 0, b, stride, 0.0, c, g.out_channels * g.out_size, n1 - n0)


def backward_data(plan: ColumnPlan, dy: AnyArray, w: AnyArray, dx: AnyArray, work: AnyArray | None) -> None:
    """Compute dx from dy; every element is written."""
    g = plan.geometry
    for n0, n1, g0, g1 in _chunks(plan):
        if g.pointwise:
            columns, stride = _inputs(g, dx, n0, g0), g.channels * g.in_size
        else:
            columns, stride = work.view(dx.dtype), (g1 - g0) * g.rows * g.out_size
        for i in range(g0, g1):
            a, b, c = _weights(g, w, i), _outputs(g, dy, n0, i), columns[(i - g0) * g.rows * g.out_size :]
            sizes = g.rows, g.out_size, g.group_outputs
            cuda.gemm_batched(True, False, *sizes, 1.0, a, 0, b, g.out_channels * g.out_size, 0.0, c, stride, n1 - n0)
        if not g.pointwise:
            images, channels = n1 - n0, (g1 - g0) * g.group_channels
            if g.axes > MAX_AXES:
                any_axes.im2col_backward(columns, _inputs(g, dx, n0, g0), replace(g, batch=images, channels=channels))
                continue
            numbers = images, channels, g.channels * g.in_size, *_shape(g)
            threads = images * channels * g.in_size
            cuda.launch(SOURCE, "col2im", dx.dtype, threads, columns, _inputs(g, dx, n0, g0), *numbers)


def backward_filter(
    plan: ColumnPlan, x: AnyArray, dy: AnyArray, dw: AnyArray, work: AnyArray | None, accumulate: bool
) -> None:
    """Write to dw, or add if `accumulate`, the gradient of the weights."""
    g = plan.geometry
    if g.batch == 0 and not accumulate:
        dw.fill(0)
    for n0, n1, g0, g1 in plan.chunks():
        images = n1 - n0
        if images == 1:
            columns, _ = _columns_by_image(g, x, work, n0, n1, g0, g1)
            values = _outputs(g, dy, n0, g0)
        else:
            columns = work.view(dy.dtype)
            values = columns[images * g.group * g.rows * g.out_size :]
            _im2col(g, x, columns, n0, n1, g0, g1, image_stride=g.out_size, row_stride=images * g.out_size)
            total = images * g.out_channels * g.out_size
            source = _outputs(g, dy, n0, 0)
            cuda.launch(SOURCE, "by_row", dy.dtype, total, source, values, images, g.out_channels, g.out_size)
        positions = images * g.out_size
        for i in range(g0, g1):
            a, b = values[(i - g0) * g.group_outputs * positions :], columns[(i - g0) * g.rows * positions :]
            beta = 1.0 if accumulate or n0 else 0.0
            cuda.gemm(False, True, g.group_outputs, g.rows, positions, 1.0, a, b, beta, _weights(g, dw, i))


def _chunks(plan: ColumnPlan) -> Iterable[tuple[int, int, int, int]]:
    """Return the plan's chunks; pointwise passes need no columns, so they take all images at once."""
    g = plan.geometry
    if not g.pointwise:
        return plan.chunks()
    return [(0, g.batch, 0, g.group)] if g.batch else []


def _columns_by_image(
    g: ConvGeometry, x: AnyArray, work: AnyArray | None, n0: int, n1: int, g0: int, g1: int
) -> tuple[AnyArray, int]:
    """Return (columns (image, group, row, position), elements between two images); x where it is its own columns."""
    if g.pointwise:
        return _inputs(g, x, n0, g0), g.channels * g.in_size
    columns, stride = work.view(x.dtype), (g1 - g0) * g.rows * g.out_size
    _im2col(g, x, columns, n0, n1, g0, g1, image_stride=stride, row_stride=g.out_size)
    return columns, stride


def _im2col(
    g: ConvGeometry,
    x: AnyArray,
    columns: AnyArray,
    n0: int,
    n1: int,
    g0: int,
    g1: int,
    image_stride: int,
    row_stride: int,
) -> None:
    images, channels = n1 - n0, (g1 - g0) * g.group_channels
    if g.axes > MAX_AXES:  # image by image, so both strides are those of (image, channel x tap, position)
        any_axes.im2col_forward(_inputs(g, x, n0, g0), columns, replace(g, batch=images, channels=channels))
        return
    numbers = images, channels, g.channels * g.in_size, image_stride, row_stride, *_shape(g)
    cuda.launch(SOURCE, "im2col", x.dtype, images * channels * g.out_size, _inputs(g, x, n0, g0), columns, *numbers)


def _shape(g: ConvGeometry) -> tuple[int, ...]:
    g = g.with_axes(MAX_AXES)
    return (*g.in_spatial, *g.out_spatial, *g.kernel, *g.stride, *g.pad, *g.dilation)


def _weights(g: ConvGeometry, w: AnyArray, group: int) -> AnyArray:
    return w.reshape(-1)[group * g.group_outputs * g.rows :]


def _inputs(g: ConvGeometry, x: AnyArray, image: int, group: int) -> AnyArray:
    return x.reshape(-1)[(image * g.channels + group * g.group_channels) * g.in_size :]


def _outputs(g: ConvGeometry, y: AnyArray, image: int, group: int) -> AnyArray:
    return y.reshape(-1)[(image * g.out_channels + group * g.group_outputs) * g.out_size :]
