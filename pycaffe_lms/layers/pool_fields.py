"""Reads `pooling_param`: kernel, stride and pad per spatial axis, and how the last partial window counts.

Covers: one value for all axes, `_h`/`_w` pairs, the forks' `_shape` fields and `ceil_mode`, and their checks.
Does not cover: sizes of outputs (`pooling.py`).
"""

from __future__ import annotations

from .base import Layer
from .spatial import Ints, shape_field


def pool_windows(layer: Layer, pool, axes: int) -> tuple[Ints | None, Ints, Ints]:
    """(kernel, stride, pad) of `axes` values each; kernel None: the whole input. Raises LayerParamError."""
    stride, pad = _per_axis(layer, pool, "stride", axes, 1), _per_axis(layer, pool, "pad", axes, 0)
    if pool.global_pooling:
        given = [f for f in ("kernel_size", "kernel_h", "kernel_w", "kernel_shape") if pool.HasField(f)]
        if given:
            raise layer.error(f"has global_pooling and {' and '.join(given)}", fix=f"remove {' and '.join(given)}")
        if any(pad) or any(s != 1 for s in stride):
            raise layer.error("global_pooling takes no pad, and stride 1 only", fix="remove pad and stride")
        return None, stride, pad
    kernel = _per_axis(layer, pool, "kernel", axes, None)
    for field, values in (("kernel", kernel), ("stride", stride)):
        if 0 in values:
            raise layer.error(f"a pooling {field} is 0", fix=f"give a {field} of at least 1")
    if any(p >= k for p, k in zip(pad, kernel, strict=True)):
        raise layer.error(f"pad {pad} is not smaller than kernel {kernel}", fix="use a smaller pad or a larger kernel")
    return kernel, stride, pad


def rounds_up(layer: Layer, pool) -> bool:
    """Whether a last partial window counts: `round_mode`, or the forks' `ceil_mode`. Raises LayerParamError."""
    up = pool.round_mode == pool.CEIL
    if not pool.HasField("ceil_mode"):
        return up
    if pool.HasField("round_mode") and pool.ceil_mode != up:
        raise layer.error(
            f"has round_mode {'CEIL' if up else 'FLOOR'} and ceil_mode {str(pool.ceil_mode).lower()}",
            fix="keep either round_mode or ceil_mode",
        )
    return pool.ceil_mode


def _per_axis(layer: Layer, pool, field: str, axes: int, default: int | None) -> Ints:
    """The values of one field. `default` None: the field must be given."""
    square, shape = "kernel_size" if field == "kernel" else field, f"{field}_shape"
    pair = [name for name in (f"{field}_h", f"{field}_w") if pool.HasField(name)]
    spellings = [[name] for name in (square, shape) if pool.HasField(name)] + [pair] * bool(pair)
    if len(spellings) > 1:
        one, two = (" and ".join(names) for names in spellings[:2])
        raise layer.error(f"has both {one} and {two}", fix=f"keep either {one} or {two}")
    if not spellings:
        if default is None:
            raise layer.error(
                "has no kernel size", fix="add pooling_param { kernel_size: ... } or global_pooling: true"
            )
        return (default,) * axes
    if not pair:
        return shape_field(layer, pool, shape, axes) if pool.HasField(shape) else (getattr(pool, square),) * axes
    if axes != 2:
        raise layer.error(
            f"{' and '.join(pair)} need a bottom with 2 spatial axes, but it has {axes}",
            fix=f"use {square} for all axes, or {shape} with a value for each",
        )
    if len(pair) < 2:
        missing = f"{field}_w" if pair[0].endswith("_h") else f"{field}_h"
        raise layer.error(f"has {pair[0]} but no {missing}", fix=f"add {missing}, or use {square} for both")
    return tuple(getattr(pool, name) for name in pair)
