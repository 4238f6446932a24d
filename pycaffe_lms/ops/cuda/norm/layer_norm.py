"""Normalise rows by their mean and variance, or by their mean square alone, with a factor and shift per column."""

from __future__ import annotations

from ....arrays import AnyArray
from ....backend.cuda import launch
from ...records import Affine, RowMoments, RowNorm, RowNormGradients
from ...sum_parts import norm_parts
from ..channel_walk import add_up
from ..packs import aligned, pack_size
from .rows import run_rows

__all__ = ["layer_norm_backward", "layer_norm_forward"]

# CENTRE: subtract the mean; SCALE, BIAS: there is a factor, a shift per column; ADD: to what is in dx
_ROWS = """
extern "C" __global__ void __launch_bounds__(256) forward(const T* x, T* y, const C* scale, const C* bias, C* mean_of,
                                                          C* inv_std, double eps, long long rows, long long dim) {
  const long long row = ROW;
  if (row >= rows) return;  // whole warps, or whole blocks
  const int packs = (int)(dim / N);
  const Values* from = (const Values*)(x + row * dim);
  Values* to = (Values*)(y + row * dim);
  A mean = 0, squares = 0;
#if CENTRE
  A sum = 0;
  each(packs, [&](int k) {
    Values v[HELD];
    HELD_PACKS(u) v[u] = from[k + u * LANES];
    HELD_PACKS(u) VALUES(j) sum += v[u].v[j];
  });
  mean = (A)(C)(all_of(sum) / dim);
#endif
  each(packs, [&](int k) {
    Values v[HELD];
    HELD_PACKS(u) v[u] = from[k + u * LANES];
    HELD_PACKS(u) VALUES(j) squares += (v[u].v[j] - mean) * (v[u].v[j] - mean);
  });
  const A factor = (A)(C)(1 / sqrt((double)all_of(squares) / dim + eps));
  if (threadIdx.x % LANES == 0) {
    inv_std[row] = (C)factor;
#if CENTRE
    mean_of[row] = (C)mean;
#endif
  }
  each(packs, [&](int k) {
    Values v[HELD];
    HELD_PACKS(u) v[u] = from[k + u * LANES];
    HELD_PACKS(u) {
#if SCALE
      const Columns factors = ((const Columns*)scale)[k + u * LANES];
#endif
#if BIAS
      const Columns shifts = ((const Columns*)bias)[k + u * LANES];
#endif
      VALUES(j) {
        A value = (v[u].v[j] - mean) * factor;
#if SCALE
        value *= factors.v[j];
#endif
#if BIAS
        value += shifts.v[j];
#endif
        v[u].v[j] = (T)value;
      }
      to[k + u * LANES] = v[u];
    }
  });
}
extern "C" __global__ void __launch_bounds__(256) backward(const T* x, const T* dy, T* dx, const C* scale,
                                                           const C* mean_of, const C* inv_std, long long rows,
                                                           long long dim) {
  const long long row = ROW;
  if (row >= rows) return;
  const int packs = (int)(dim / N);
  const Values *values = (const Values*)(x + row * dim), *slopes = (const Values*)(dy + row * dim);
  Values* to = (Values*)(dx + row * dim);
  const A factor = inv_std[row];
#if CENTRE
  const A mean = mean_of[row];
#else
  const A mean = 0;
#endif
#if SCALE
#define FACTORS(u) const Columns factors = ((const Columns*)scale)[k + u * LANES]
#define SLOPE(u, j) ((A)g[u].v[j] * factors.v[j])
#else
#define FACTORS(u)
#define SLOPE(u, j) ((A)g[u].v[j])
#endif
  A sum = 0, dot = 0;
  each(packs, [&](int k) {
    Values v[HELD], g[HELD];
    HELD_PACKS(u) v[u] = values[k + u * LANES];
    HELD_PACKS(u) g[u] = slopes[k + u * LANES];
    HELD_PACKS(u) {
      FACTORS(u);
      VALUES(j) {
        const A slope = SLOPE(u, j);
        sum += slope;
        dot += slope * ((v[u].v[j] - mean) * factor);
      }
    }
  });
  const A level = CENTRE ? all_of(sum) / dim : (A)0, tilt = all_of(dot) / dim;
  each(packs, [&](int k) {
    Values v[HELD], g[HELD];
    HELD_PACKS(u) v[u] = values[k + u * LANES];
    HELD_PACKS(u) g[u] = slopes[k + u * LANES];
#if ADD
    Values old[HELD];
    HELD_PACKS(u) old[u] = to[k + u * LANES];
#define OLD(u, j) (A)old[u].v[j] +
#else
#define OLD(u, j)
#endif
    HELD_PACKS(u) {
      FACTORS(u);
      VALUES(j) g[u].v[j] = (T)(OLD(u, j) (SLOPE(u, j) - level - (v[u].v[j] - mean) * factor * tilt) * factor);
      to[k + u * LANES] = g[u];
    }
  });
}
"""

# A block adds up 32 V neighbouring columns over the rows of one part: eight threads for each V, added in order.
_COLUMNS = """
template <typename E> struct __align__(V * sizeof(E)) Few { E v[V]; };
#define EACH(j) _Pragma("unroll") for (int j = 0; j < V; ++j)
extern "C" __global__ void __launch_bounds__(256) columns(const T* x, const T* dy, const C* mean_of, const C* inv_std,
                                                          C* work, long long wants_scale, long long wants_bias,
                                                          long long centre, long long rows, long long dim,
                                                          long long parts) {
  __shared__ A shared[2][V][256];
  const int lane = threadIdx.x % 32, line = threadIdx.x / 32;
  const long long groups = (dim + 32 * V - 1) / (32 * V), part = blockIdx.x / groups;
  const long long column = (blockIdx.x % groups * 32 + lane) * V, share = (rows + parts - 1) / parts;
  const long long end = part * share + share < rows ? part * share + share : rows;
  A dots[V] = {}, sums[V] = {};
  if (column < dim) {
    #pragma unroll 4
    for (long long row = part * share + line; row < end; row += 8) {
      const Few<T> g = *(const Few<T>*)(dy + row * dim + column), a = *(const Few<T>*)(x + row * dim + column);
      const A factor = inv_std[row], middle = centre ? (A)mean_of[row] : (A)0;
      EACH(j) {
        if (wants_scale) dots[j] += (A)g.v[j] * ((a.v[j] - middle) * factor);
        sums[j] += g.v[j];
      }
    }
  }
  EACH(j) {
    shared[0][j][threadIdx.x] = dots[j];
    shared[1][j][threadIdx.x] = sums[j];
  }
  __syncthreads();
  if (line > 0 || column >= dim) return;
  EACH(j) {
    for (int i = 1; i < 8; ++i) {
      dots[j] += shared[0][j][lane + 32 * i];
      sums[j] += shared[1][j][lane + 32 * i];
    }
    if (wants_scale) work[(column + j) * parts + part] = (C)dots[j];
    if (wants_bias) work[((wants_scale ? dim : 0) + column + j) * parts + part] = (C)sums[j];
  }
}
"""


def layer_norm_forward(x: AnyArray, affine: Affine, y: AnyArray, moments: RowMoments, norm: RowNorm) -> None:
    """Compute y = (x - mean) * inv_std * scale + bias per row, inv_std = 1 / sqrt(variance + eps)."""
    rows, dim, eps = norm
    mean, inv_std = moments
    if rows * dim == 0:
        return
    scale, bias, mean_of = (inv_std if a is None else a for a in (*affine, mean))
    switches = {"CENTRE": mean is not None, "SCALE": affine.scale is not None, "BIAS": affine.bias is not None}
    switches["ADD"] = False
    args = (scale, bias, mean_of, inv_std, float(eps))
    columns = [a for a in affine if a is not None]
    switched = {name: int(on) for name, on in switches.items()}
    run_rows(_ROWS, "forward", (x, y), (rows, dim), *args, columns=columns, **switched)


def layer_norm_backward(
    x: AnyArray | None,
    scale: AnyArray | None,
    dy: AnyArray,
    gradients: RowNormGradients,
    moments: RowMoments,
    work: AnyArray,
    norm: RowNorm,
) -> None:
    """Compute the gradients of scale, bias and x, called dx; each may be None. dx may be dy, unless it is added to."""
    rows, dim, _ = norm
    mean, inv_std = moments
    mean_of, (dx, (ds, db, add_scale, add_bias), add_x) = inv_std if mean is None else mean, gradients
    if dim == 0:
        return
    if ds is not None or db is not None:
        parts = norm_parts(rows, dim, 1) if rows else 0
        wants = int(ds is not None), int(db is not None), int(mean is not None)
        args = (dy if x is None else x, dy, mean_of, inv_std, work, *wants, rows, dim, parts)
        few = min(4 // dy.dtype.itemsize, pack_size(dy.dtype, dim)) if aligned(*args[:2]) else 1
        columns = 32 * max(1, few)
        source = f"#define V {max(1, few)}\n{_COLUMNS}"
        launch(source, "columns", dy.dtype, 0, *args, block=256, grid=(dim + columns - 1) // columns * parts)
        for which, (out, add) in enumerate((g, a) for g, a in ((ds, add_scale), (db, add_bias)) if g is not None):
            add_up(work, which, out, add, dim, parts)
    if dx is not None and rows:
        switches = {"CENTRE": mean is not None, "SCALE": scale is not None, "BIAS": False, "ADD": add_x}
        switched = {name: int(on) for name, on in switches.items()}
        factor = inv_std if scale is None else scale
        columns = () if scale is None else (scale,)
        run_rows(_ROWS, "backward", (x, dy, dx), (rows, dim), factor, mean_of, inv_std, columns=columns, **switched)
