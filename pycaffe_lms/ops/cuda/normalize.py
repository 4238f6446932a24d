"""Division by the L2 norm: arrays seen as (n, c, s), one norm for each (n, s), or one for each n (`across`).

`squares` holds the sums of x^2, (n, s) or (n); `scale` has c elements, or 1 for all channels.
"""

from __future__ import annotations

from ...backend.cuda import launch
from ..parts import reduction_parts
from .basic import fill
from .channels import WALK, stage_two
from .source import BLOCK_SUM, DIVIDE, divider

__all__ = ["normalize_forward", "normalize_backward_data", "normalize_backward_scale"]

_SUMS = (
    BLOCK_SUM
    + WALK
    + DIVIDE
    + """
// what is added up: x^2, or scale * x * dy
__device__ A term(const T* x, const T* dy, const T* scale, long long i, long long channel, long long dots) {
  return dots ? (A)scale[channel] * x[i] * dy[i] : (A)x[i] * x[i];
}
// one norm for a row of `dim` elements: one block for each part of a row
extern "C" __global__ void row_parts(const T* x, const T* dy, const T* scale, T* work, long long dots, long long dim,
                                     long long each, long long parts, long long s, long long magic, long long shift) {
  long long row = blockIdx.x / parts, share = (dim + parts - 1) / parts, at = blockIdx.x % parts * share;
  long long end = at + share < dim ? at + share : dim;
  A sum = 0;
  for (long long i = at + threadIdx.x; i < end; i += 256)
    sum += term(x, dy, scale, row * dim + i, each ? quotient(i, s, magic, shift) : 0, dots);
  sum = block_sum(sum);
  if (threadIdx.x == 0) work[blockIdx.x] = sum;
}
// one norm for each place: one block for 32 places of an image, 8 threads for each of them
extern "C" __global__ void places(const T* x, const T* dy, const T* scale, T* out, long long dots, long long c,
                                  long long each, long long s, long long blocks) {
  __shared__ A part[256];
  long long image = blockIdx.x / blocks, place = blockIdx.x % blocks * 32 + threadIdx.x % 32;
  A sum = 0;
  if (place < s)
    for (long long k = threadIdx.x / 32; k < c; k += 8)
      sum += term(x, dy, scale, (image * c + k) * s + place, each ? k : 0, dots);
  part[threadIdx.x] = sum;
  __syncthreads();
  if (threadIdx.x >= 32 || place >= s) return;
  for (int other = 1; other < 8; ++other) sum += part[threadIdx.x + 32 * other];
  out[image * s + place] = (T)sum;
}
// gradient of the scale: sums over images and `inner` for each of `dim` channels (1: all channels at once)
extern "C" __global__ void scale_parts(const T* x, const T* dy, const T* squares, T* work, double eps, long long n,
                                       long long dim, long long inner, long long s, long long across,
                                       long long parts) {
  A sum = 0;
  for (Walk w(n, dim, inner, blockIdx.x / parts, blockIdx.x % parts, parts); w.more(); w.next()) {
    long long norm = across ? w.image : w.image * s + (inner == s ? w.pos : w.pos % s);
    sum += (A)x[w.index()] * dy[w.index()] / sqrt((A)squares[norm] + (A)eps);
  }
  sum = block_sum(sum);
  if (threadIdx.x == 0) work[blockIdx.x] = sum;
}
"""
)

_APPLY = (
    DIVIDE
    + """
#define PLACE long long plane = quotient(i, s, s_magic, s_shift), image = quotient(plane, c, c_magic, c_shift),       \\
                        channel = plane - image * c, norm = across ? image : image * s + i - plane * s
#define SIZES long long each, long long across, long long total, long long s, long long s_magic, long long s_shift,   \\
              long long c, long long c_magic, long long c_shift
extern "C" __global__ void forward(const T* x, const T* scale, const T* squares, T* y, double eps, SIZES) {
  LOOP(i, total) {
    PLACE;
    y[i] = x[i] * (T)(scale[each ? channel : 0] / sqrt((A)squares[norm] + (A)eps));
  }
}
extern "C" __global__ void backward(const T* x, const T* scale, const T* dy, const T* squares, const T* dots, T* dx,
                                    double eps, SIZES) {
  LOOP(i, total) {
    PLACE;
    A sum = (A)squares[norm] + (A)eps;
    dx[i] = (T)((scale[each ? channel : 0] * dy[i] - x[i] * (dots[norm] / sum)) / sqrt(sum));
  }
}
"""
)


def _sums(x, dy, scale, out, work, dots, n, c, s, across):
    """out = sums of x^2, or of scale * x * dy (`dots`), over what one norm is of."""
    each = int(scale.size > 1)
    if x.size == 0:
        fill(out, 0)
    elif across or s == 1:
        parts = reduction_parts(1, n, c * s)
        args = (x, dy, scale, work, dots, c * s, each, parts, *divider(s, c * s))
        launch(_SUMS, "row_parts", x.dtype, 0, *args, block=256, grid=n * parts)
        stage_two(work, 0, out, 0, 1.0, False, n, parts)
    else:
        blocks = (s + 31) // 32
        launch(_SUMS, "places", x.dtype, 0, x, dy, scale, out, dots, c, each, s, blocks, block=256, grid=n * blocks)


def _sizes(scale, n, c, s, across):
    total = n * c * s
    return int(scale.size > 1), int(across), total, *divider(s, total), *divider(c, total)


def normalize_forward(x, scale, y, squares, work, eps, n, c, s, across):
    """y = scale * x / sqrt(squares + eps); writes squares. `work` is for the GPU's partial sums: n * parts elements."""
    _sums(x, x, scale, squares, work, 0, n, c, s, across)
    sizes = _sizes(scale, n, c, s, across)
    launch(_APPLY, "forward", y.dtype, y.size, x, scale, squares, y, float(eps), *sizes)


def normalize_backward_data(x, scale, dy, dx, squares, dots, work, eps, n, c, s, across):
    """dx = (scale * dy - x * dots / (squares + eps)) / sqrt(squares + eps), dots = sums of scale * x * dy (written).

    `work` is for the GPU's partial sums: n * parts elements.
    """
    _sums(x, dy, scale, dots, work, 1, n, c, s, across)
    sizes = _sizes(scale, n, c, s, across)
    launch(_APPLY, "backward", dx.dtype, dx.size, x, scale, dy, squares, dots, dx, float(eps), *sizes)


def normalize_backward_scale(x, dy, dscale, accumulate, squares, work, eps, n, c, s, across):
    """dscale (+)= sums of x * dy / sqrt(squares + eps) per channel, or over everything where dscale has one element.

    `work` is for the GPU's partial sums: c * parts elements.
    """
    if x.size == 0:
        if not accumulate:
            fill(dscale, 0)
        return
    dim, inner = (1, c * s) if dscale.size == 1 else (c, s)
    parts = reduction_parts(n, dim, inner)
    args = (x, dy, squares, work, float(eps), n, dim, inner, s, int(across), parts)
    launch(_SUMS, "scale_parts", x.dtype, 0, *args, block=256, grid=dim * parts)
    stage_two(work, 0, dscale, 0, 1.0, accumulate, dim, parts)
