"""Add the data gradient of 1x1 convolutions of channels-last arrays to what is there.

cuBLAS computes the products; with strides they go to workspace, and from there to their places, some images at a time.
"""

from __future__ import annotations

from collections.abc import Iterator

from ....arrays import AnyArray
from ....backend import cuda
from ...geometry import ConvGeometry
from ..packs import PACK, packs_of

_CHUNK_BYTES = 64 << 20

# one pack of N channels of an output's position after the other
_SCATTER = (
    PACK
    + """
extern "C" __global__ void scatter_add(const T* from, T* to, long long packs, unsigned per, unsigned out_h,
                                       unsigned out_w, long long in_h, long long in_w, long long s_h, long long s_w) {
  LOOP(i, packs) {
    const unsigned row = (unsigned)(i / per), pack = (unsigned)(i - (long long)row * per);
    const unsigned line = row / out_w, w = row - line * out_w, n = line / out_h, h = line - n * out_h;
    Values* target = (Values*)to + ((n * in_h + h * s_h) * in_w + w * s_w) * per + pack;
    Values sum = *target;
    const Values more = ((const Values*)from)[i];
    for (int k = 0; k < N; k++) sum.v[k] = (C)sum.v[k] + (C)more.v[k];
    *target = sum;
  }
}
"""
)


def workspace_bytes(g: ConvGeometry, itemsize: int) -> int | None:
    """Return the bytes of workspace that `add` needs; None where it cannot do this convolution."""
    if not (g.channels_last and g.taps_one and g.group == 1 and g.batch):
        return None
    if g.pointwise:
        return 0
    if g.axes != 2 or g.batch * g.out_size >= 1 << 32:
        return None
    return _images(g, itemsize) * g.out_size * g.channels * itemsize


def add(g: ConvGeometry, dy: AnyArray, w: AnyArray, dx: AnyArray, work: AnyArray | None) -> None:
    """Add w (O, C) applied to dy (N, *out, O) to every stride-th position of dx (N, *in, C)."""
    rows, c, o = g.out_size, g.channels, g.out_channels
    if g.pointwise:
        cuda.gemm(False, False, g.batch * rows, c, o, 1.0, dy, w, 1.0, dx)
        return
    made, dx, dy = work.view(dx.dtype), dx.reshape(-1), dy.reshape(-1)
    for first, last in _chunks(g, dx.dtype.itemsize):
        count, to = (last - first) * rows, dx[first * g.in_size * c :]
        cuda.gemm(False, False, count, c, o, 1.0, dy[first * rows * o :], w, 0.0, made)
        size = packs_of(c, dx, made, to)
        source, packs = f"#define N {size}\n{_SCATTER}", count * c // size
        cuda.launch(
            source, "scatter_add", dx.dtype, packs, made, to, packs, c // size, *g.out_spatial, *g.in_spatial, *g.stride
        )


def _images(g: ConvGeometry, itemsize: int) -> int:
    """Return how many images are worked on at once."""
    return max(1, min(g.batch, _CHUNK_BYTES // (g.out_size * g.channels * itemsize)))


def _chunks(g: ConvGeometry, itemsize: int) -> Iterator[tuple[int, int]]:
    images = _images(g, itemsize)
    return ((n, min(n + images, g.batch)) for n in range(0, g.batch, images))
