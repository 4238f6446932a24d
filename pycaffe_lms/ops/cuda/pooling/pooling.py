"""Pool on a GPU. Backward passes gather: each input sums over the windows that hold it, in row-major order.

`geometry` is a PoolGeometry; x and dx are (planes, *in_spatial), y and dy (planes, *out_spatial). A mask holds each
maximum's row-major place in its window (see `ops/geometry.py`). The kernels are in `pooling_source.py`.
"""

from __future__ import annotations

import functools
from typing import Any

from ....arrays import AnyArray
from ....backend import cuda
from ...geometry import C_TYPES, Ints, PoolGeometry, place_dtype
from ..elementwise import elementwise, run
from ..packs import aligned
from ..source import DIVIDE, divider
from .pooling_source import PLANES, WINDOWS

__all__ = ["average_pool_backward", "average_pool_forward", "max_pool_backward", "max_pool_forward"]

_UNROLLED = 5  # the widest window whose size is a constant of the kernel; wider ones often depend on the image's size
_AHEAD = 8  # loads under way together in wider windows
_SHORT = 512  # planes up to this size are a warp's work each

_SPREAD = elementwise(
    "spread",
    "dx = (T)(dy[quotient(i, size, magic, shift)] / (A)size);",
    writes="dx",
    params="const T* dy, long long size, long long magic, long long shift",
    helpers=DIVIDE,
)


def max_pool_forward(
    x: AnyArray, y: AnyArray, mask: AnyArray | None, top_mask: AnyArray | None, geometry: PoolGeometry
) -> None:
    """Compute y = the maximum of each window: the first one in row-major order, never a NaN."""
    g = geometry
    outputs = (
        y,
        y if mask is None else mask,
        y if top_mask is None else top_mask,
    )  # y stands in for masks that are not wanted
    flags = int(mask is not None), int(top_mask is not None)
    _forward("max_pool_forward", x, *outputs, *flags, y=y, g=g, mask=mask)


def max_pool_backward(dy: AnyArray, mask: AnyArray, dx: AnyArray, geometry: PoolGeometry) -> None:
    """Compute dx = for each input, the sum of dy over the windows whose maximum it was."""
    _backward("max_pool_backward", dy, mask, dx, g=geometry, mask=mask)


def average_pool_forward(x: AnyArray, y: AnyArray, geometry: PoolGeometry) -> None:
    """Compute y = the sum of each window's pixels / its size with padding (see PoolGeometry.divisors)."""
    g = geometry
    if not _whole_planes(g):
        _forward("average_pool_forward", x, y, y=y, g=g)
        return
    size = g.in_spatial[0] * g.in_spatial[1]
    if size <= _SHORT:
        cuda.launch(PLANES, "short_planes", x.dtype, y.size * 32, x, y, y.size, size)
    elif y.size:
        cuda.launch(PLANES, "long_planes", x.dtype, 0, x, y, size, block=256, grid=y.size)


def average_pool_backward(dy: AnyArray, dx: AnyArray, geometry: PoolGeometry) -> None:
    """Compute dx = for each input, the sum of dy / the window's size over the windows that hold it."""
    g = geometry
    if _whole_planes(g):
        run(_SPREAD, "spread", (dx,), dy, *divider(g.in_spatial[0] * g.in_spatial[1], dx.size))
    else:
        _backward("average_pool_backward", dy, dx, g=g)


def _whole_planes(g: PoolGeometry) -> bool:
    """Return whether one window without padding holds the whole plane."""
    return (
        g.out_spatial == (1, 1) and g.pad == (0, 0) and all(k >= n for k, n in zip(g.kernel, g.in_spatial, strict=True))
    )


def _forward(name: str, *args: Any, y: AnyArray, g: PoolGeometry, mask: AnyArray | None = None) -> None:
    numbers = (y.size, *_shape(g), *divider(g.out_spatial[1], y.size), *divider(g.out_spatial[0], y.size))
    cuda.launch(_of(g, mask), name, y.dtype, y.size, *args, *numbers)


def _backward(name: str, *arrays: AnyArray, g: PoolGeometry, mask: AnyArray | None = None) -> None:
    dx, (height, width) = arrays[-1], g.in_spatial
    quads = (width + 3) // 4
    n = g.planes * height * quads
    whole = int(width % 4 == 0 and aligned(dx))
    numbers = (n, *_shape(g), whole, *divider(quads, n), *divider(height, n))
    cuda.launch(_of(g, mask), name, dx.dtype, n, *arrays, *numbers)


def _of(g: PoolGeometry, mask: AnyArray | None) -> str:
    return _source(g.kernel, g.stride, g.pad, g.inside, C_TYPES[place_dtype(g) if mask is None else mask.dtype])


@functools.cache
def _source(kernel: Ints, stride: Ints, pad: Ints, inside: bool, places: str) -> str:
    """Return the kernels for one form of window; `places` is the type of a mask."""
    names = [a + b for a in ("K", "S", "P") for b in ("_H", "_W")]
    fixed = max(kernel) <= _UNROLLED
    values = [*kernel, *stride, *pad] if fixed else [f"((int){name.lower()})" for name in names]
    cover = (kernel[1] + 2) // stride[1] + 1  # outputs in a row that hold one of four neighbouring inputs
    ahead = {"AHEAD_X": kernel[1], "AHEAD_Y": min(cover, _AHEAD)} if fixed else {"AHEAD_X": _AHEAD, "AHEAD_Y": _AHEAD}
    constants = {**dict(zip(names, values, strict=True)), **ahead, "UNROLL": kernel[0] if fixed else 1, "M": places}
    constants["INSIDE"] = int(inside)
    return "".join(f"#define {name} {value}\n" for name, value in constants.items()) + WINDOWS


def _shape(g: PoolGeometry) -> tuple[int, ...]:
    return (*g.in_spatial, *g.out_spatial, *g.kernel, *g.stride, *g.pad)
