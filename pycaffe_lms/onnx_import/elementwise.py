"""Convert arithmetic on two tensors, of which one may be a constant and one may be smaller.

Scale and Bias hold a constant that is repeated over the other axes. They also take a smaller tensor that is computed.
"""

from __future__ import annotations

import numpy as np

from ..arrays import HostArray
from ..proto.caffe_pb2 import EltwiseParameter
from .site import ImportSite, Shape, converts

_LARGEST = float(np.finfo(np.float32).max)


@converts("Add", "Sub", "Mul", "Div")
def arithmetic(site: ImportSite) -> str:
    out = site.out_shape()
    if site.is_const(1):
        return _with_constant(site, site.op, 0, site.const(1, "operand"), out)
    if site.is_const(0) and site.op in ("Add", "Mul"):
        return _with_constant(site, site.op, 1, site.const(0, "operand"), out)
    if site.is_const(0) and site.const(0, "operand").size == 1:
        value = float(site.const(0, "operand").reshape(-1)[0])
        x = spread(site, site.blob(1), out)
        if site.op == "Sub":
            return site.power(x, scale=-1, shift=value)
        return site.power(site.power(x, power=-1, suffix="/reciprocal"), scale=value)
    a, b = site.blob(0), site.blob(1)
    if site.op == "Sub":
        if site.shape_of(a) == site.shape_of(b) == out:
            return site.layer("Eltwise", [a, b], out, eltwise_param={"coeff": [1.0, -1.0]})
        b = site.power(b, scale=-1, suffix="/negative")
    if site.op == "Div":
        b = site.power(b, power=-1, suffix="/reciprocal")
    return add(site, a, b, out) if site.op in ("Add", "Sub") else multiply(site, a, b, out)


def _with_constant(site: ImportSite, op: str, i: int, values: HostArray, out: Shape) -> str:
    """Write input i op a constant."""
    values = np.asarray(values, np.float64)
    if op == "Sub":
        op, values = "Add", -values
    if op == "Div":
        with np.errstate(divide="ignore"):
            op, values = "Mul", 1 / values
    if not np.isfinite(values).all() or (np.abs(values) > _LARGEST).any():
        site.refuse(
            "its constant is infinite, not a number, or divides by zero", "mask in another way, and export it again"
        )
    x = spread(site, site.blob(i), out)
    if (values == values.flat[0]).all():
        value = float(values.flat[0])
        return site.power(x, shift=value) if op == "Add" else site.power(x, scale=value)
    core, axis = _core(values, out)
    source = site.inputs[1 - i] if core.shape == values.shape and site.op in ("Add", "Mul") else ""
    fields = {"axis": axis, "num_axes": core.ndim}
    if op == "Add":
        return site.layer("Bias", [x], out, [core], sources=[source], bias_param=fields)
    return site.layer("Scale", [x], out, [core], sources=[source], scale_param=fields)


def _core(values: HostArray, out: Shape) -> tuple[HostArray, int]:
    """Return a constant without axes of 1 at its ends, and the axis at which it begins."""
    full = values.reshape((1,) * (len(out) - values.ndim) + values.shape)
    long = [i for i, n in enumerate(full.shape) if n > 1]
    first, last = long[0], long[-1]
    core = full.reshape(full.shape[first : last + 1])
    return np.broadcast_to(core, out[first : last + 1]).copy(), first


def spread(site: ImportSite, x: str, out: Shape) -> str:
    """Repeat a blob where its axes are 1 and those of `out` are not."""
    shape = site.shape_of(x)
    x = site.reshape(x, (1,) * (len(out) - len(shape)) + shape, suffix="/axes")
    for axis, n in enumerate(out):
        if site.shape_of(x)[axis] != n:
            x = site.tile(x, axis, n)
    return x


def add(site: ImportSite, a: str, b: str, out: Shape) -> str:
    """Write a sum."""
    return _both(site, a, b, out, product=False)


def multiply(site: ImportSite, a: str, b: str, out: Shape) -> str:
    """Write a product."""
    return _both(site, a, b, out, product=True)


def _both(site: ImportSite, a: str, b: str, out: Shape, *, product: bool) -> str:
    operation = EltwiseParameter.PROD if product else EltwiseParameter.SUM
    if site.shape_of(b) == out != site.shape_of(a):
        a, b = b, a
    a = spread(site, a, out)
    if site.shape_of(b) == out:
        return site.layer("Eltwise", [a, b], out, eltwise_param={"operation": operation})
    full = (1,) * (len(out) - len(site.shape_of(b))) + site.shape_of(b)
    if full[:1] == out[:1] and all(n == o for n, o in zip(full, out, strict=True) if n > 1):
        last = max((i for i, n in enumerate(full) if n > 1 or i == 0), default=0)
        first = 0
    else:
        long = [i for i, n in enumerate(full) if n > 1]
        first, last = (long[0], long[-1]) if long else (len(out) - 1, len(out) - 1)
    if full[first : last + 1] != out[first : last + 1]:
        return site.layer("Eltwise", [a, spread(site, b, out)], out, eltwise_param={"operation": operation})
    b = site.reshape(b, full[first : last + 1], suffix="/factors")
    if product:
        return site.layer("Scale", [a, b], out, scale_param={"axis": first})
    return site.layer("Bias", [a, b], out, bias_param={"axis": first})


@converts("Sum", "Mean", "Max", "Min")
def many(site: ImportSite) -> str:
    out, n = site.out_shape(), len(site.inputs)
    if site.op in ("Max", "Min") and n == 2 and any(site.is_const(i) for i in (0, 1)):
        i = 0 if site.is_const(0) else 1
        values = site.const(i, "operand")
        if values.size == 1:
            x = spread(site, site.blob(1 - i), out)
            ends = {"min": float(values.reshape(-1)[0]), "max": _LARGEST}
            if site.op == "Min":
                ends = {"min": -_LARGEST, "max": ends["min"]}
            return site.layer("Clip", [x], out, clip_param=ends)
    xs = [spread(site, site.blob(i), out) for i in range(n)]
    if n == 1:
        return xs[0]
    if site.op in ("Sum", "Mean"):
        fields = {"coeff": [1.0 / n] * n} if site.op == "Mean" else {}
        return site.layer("Eltwise", xs, out, eltwise_param=fields)
    if site.op == "Min":
        xs = [site.power(x, scale=-1, suffix="/negative") for x in xs]
    y = site.layer("Eltwise", xs, out, eltwise_param={"operation": EltwiseParameter.MAX})
    return site.power(y, scale=-1) if site.op == "Min" else y


@converts("Pow")
def power(site: ImportSite) -> str:
    exponent = site.const(1, "exponent")
    if exponent.size != 1:
        site.refuse("its exponent has several values", "export the model with one exponent")
    x = spread(site, site.blob(), site.out_shape())
    return site.power(x, power=float(exponent.reshape(-1)[0]))
