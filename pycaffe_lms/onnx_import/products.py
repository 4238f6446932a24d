"""Convert convolutions and matrix products."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from .elementwise import add
from .site import ImportSite, Shape, converts


def pads_of(
    site: ImportSite, sizes: Sequence[int], windows: Sequence[int], stride: Sequence[int]
) -> tuple[list[int], list[int]]:
    """Return the padding in front of and behind each spatial axis. windows: with dilation."""
    axes, auto = len(sizes), site.attr("auto_pad", "NOTSET")
    if auto in ("SAME_UPPER", "SAME_LOWER"):
        totals = [max(0, (-(-n // s) - 1) * s + k - n) for n, k, s in zip(sizes, windows, stride, strict=True)]
        less, more = [t // 2 for t in totals], [t - t // 2 for t in totals]
        return (less, more) if auto == "SAME_UPPER" else (more, less)
    pads = list(site.attr("pads", [0] * (2 * axes))) if auto == "NOTSET" else [0] * (2 * axes)
    if len(pads) != 2 * axes or min(pads, default=0) < 0:
        site.refuse(f"it has pads {pads}", f"export it with {2 * axes} pads of 0 or more")
    return pads[:axes], pads[axes:]


def per_axis(site: ImportSite, name: str, axes: int) -> list[int]:
    """Return an attribute with a number from 1 on for each spatial axis."""
    values = list(site.attr(name, [1] * axes))
    if len(values) != axes or min(values, default=1) < 1:
        site.refuse(f"it has {name} {values}", f"export it with {axes} numbers from 1 on")
    return values


def cut_to(site: ImportSite, y: str, starts: Sequence[int], shape: Shape) -> str:
    """Cut spatial axes to a shape, from these places on."""
    for axis, start in enumerate(starts, 2):
        if start or site.shape_of(y)[axis] != shape[axis]:
            y = site.cut(y, axis, start, start + shape[axis])
    return y


def _conv_fields(
    site: ImportSite, w: Shape, pad: Sequence[int], stride: Sequence[int], dilation: Sequence[int]
) -> dict[str, Any]:
    fields: dict[str, Any] = {"kernel_size": _short(w[2:])}
    for name, values, usual in (("pad", pad, 0), ("stride", stride, 1), ("dilation", dilation, 1)):
        if any(v != usual for v in values):
            fields[name] = _short(values)
    return fields


def _short(values: Sequence[int]) -> list[int]:
    return [int(values[0])] if len(set(values)) == 1 else [int(v) for v in values]


def _weights(site: ImportSite) -> tuple[list[np.ndarray], list[str]]:
    """Return weight and bias, where there is one, and their names."""
    arrays = [site.const(1, "weight")]
    if site.has(2):
        arrays.append(site.const(2, "bias"))
    if arrays[0].ndim != len(site.shape()) or arrays[0].ndim < 3:
        site.refuse(
            f"its input has shape {site.shape()}, and its weight {arrays[0].shape}", "export the model with a batch"
        )
    return arrays, site.inputs[1:3]


@converts("Conv")
def conv(site: ImportSite) -> str:
    arrays, sources = _weights(site)
    w, x, axes = arrays[0].shape, site.shape(), len(site.shape()) - 2
    stride, dilation = per_axis(site, "strides", axes), per_axis(site, "dilations", axes)
    windows = [d * (k - 1) + 1 for k, d in zip(w[2:], dilation, strict=True)]
    front, _ = pads_of(site, x[2:], windows, stride)
    out, pad, starts, full = site.out_shape(), [], [], []
    for n, k, s, p, o in zip(x[2:], windows, stride, front, out[2:], strict=True):
        skipped = 0  # outputs in front that only the wider padding makes
        while (n + 2 * (p + skipped * s) - k) // s + 1 < skipped + o:
            skipped += 1
        pad.append(p + skipped * s)
        starts.append(skipped)
        full.append((n + 2 * pad[-1] - k) // s + 1)
    fields = {"num_output": w[0], **_conv_fields(site, w, pad, stride, dilation)}
    group = site.attr("group", 1)
    if group != 1:
        fields["group"] = group
    if len(arrays) == 1:
        fields["bias_term"] = False
    shape = (x[0], w[0], *full)
    y = site.layer("Convolution", [site.blob()], shape, arrays, sources=sources, convolution_param=fields)
    return cut_to(site, y, starts, out)


@converts("ConvTranspose")
def conv_transpose(site: ImportSite) -> str:
    arrays, sources = _weights(site)
    w, x, axes, out = arrays[0].shape, site.shape(), len(site.shape()) - 2, site.out_shape()
    stride, dilation = per_axis(site, "strides", axes), per_axis(site, "dilations", axes)
    windows = [d * (k - 1) + 1 for k, d in zip(w[2:], dilation, strict=True)]
    whole = [s * (n - 1) + k for n, k, s in zip(x[2:], windows, stride, strict=True)]
    if "output_shape" in {a.name for a in site.node.attribute} or site.attr("auto_pad", "NOTSET") != "NOTSET":
        extra = list(site.attr("output_padding", [0] * axes))
        total = [n + e - o for n, e, o in zip(whole, extra, out[2:], strict=True)]
        upper = site.attr("auto_pad", "NOTSET") == "SAME_UPPER"
        front = [t // 2 if upper else t - t // 2 for t in total]
    else:
        front, _ = pads_of(site, x[2:], windows, stride)
    pad = [max(0, min(p, (n - p - o))) for n, p, o in zip(whole, front, out[2:], strict=True)]
    if any(p < 0 or p + o > n for n, p, o in zip(whole, front, out[2:], strict=True)):
        site.refuse("its output_padding adds places that no window reaches", "export it with a smaller output_padding")
    group = site.attr("group", 1)
    channels = w[1] * group
    fields = {"num_output": channels, **_conv_fields(site, w, pad, stride, dilation)}
    if group != 1:
        fields["group"] = group
    if len(arrays) == 1:
        fields["bias_term"] = False
    shape = (x[0], channels, *(n - 2 * p for n, p in zip(whole, pad, strict=True)))
    y = site.layer("Deconvolution", [site.blob()], shape, arrays, sources=sources, convolution_param=fields)
    return cut_to(site, y, [p - q for p, q in zip(front, pad, strict=True)], out)


@converts("Gemm")
def gemm(site: ImportSite) -> str:
    alpha, beta = site.attr("alpha", 1.0), site.attr("beta", 1.0)
    out = site.out_shape()
    if site.is_const(1) and not site.attr("transA", 0):
        w = site.const(1, "weight")
        w = w if site.attr("transB", 0) else w.T
        bias = []
        if site.has(2) and site.is_const(2) and _is_bias(site.shape(2), out):
            bias = [np.broadcast_to(beta * site.const(2, "bias").reshape(-1), (out[1],))]
        exact = alpha == 1 and bool(site.attr("transB", 0))
        same = [site.inputs[1] if exact else "", site.inputs[2] if bias and beta == 1 else ""]
        y = _inner_product(site, site.blob(), 1, alpha * w, bias, out, same)
        if bias or not site.has(2):
            return y
    else:
        y = _matmul(site, site.blob(0), site.blob(1), bool(site.attr("transA", 0)), bool(site.attr("transB", 0)), out)
        y = site.power(y, scale=alpha, suffix="/alpha") if alpha != 1 else y
    if not site.has(2):
        return y
    c = site.blob(2)
    return add(site, y, site.power(c, scale=beta, suffix="/beta") if beta != 1 else c, out)


def _is_bias(shape: Shape, out: Shape) -> bool:
    return len(shape) <= 2 and all(n in (1, out[1]) if i == 0 else n == 1 for i, n in enumerate(reversed(shape)))


def _inner_product(
    site: ImportSite,
    x: str,
    axis: int,
    w: np.ndarray,
    bias: Sequence[np.ndarray],
    out: Shape,
    sources: Sequence[str] = (),
) -> str:
    fields: dict[str, Any] = {"num_output": w.shape[0]}
    if not bias:
        fields["bias_term"] = False
    if axis != 1:
        fields["axis"] = axis
    return site.layer("InnerProduct", [x], out, [w, *bias], sources=sources, inner_product_param=fields)


def _matmul(site: ImportSite, a: str, b: str, turn_a: bool, turn_b: bool, out: Shape) -> str:
    fields = {name: True for name, turned in (("transpose_a", turn_a), ("transpose_b", turn_b)) if turned}
    return site.layer("MatMul", [a, b], out, matmul_param=fields)


@converts("MatMul")
def matmul(site: ImportSite) -> str:
    out, (a, b) = site.out_shape(), (site.shape(0), site.shape(1))
    if site.is_const(1) and len(b) == 2 and len(a) >= 2:
        return _inner_product(site, site.blob(), len(a) - 1, site.const(1, "weight").T, [], out)
    if len(a) < 2 or len(b) < 2:
        x = site.reshape(site.blob(0), (1, *a) if len(a) == 1 else a, suffix="/row")
        y = site.reshape(site.blob(1), (*b, 1) if len(b) == 1 else b, suffix="/column")
        full = (*out[: len(out) - (len(b) > 1)], *((1,) if len(a) == 1 else ()), *(out[-1:] if len(b) > 1 else (1,)))
        return site.reshape(_matmul(site, x, y, False, False, full), out, suffix="/product")
    return _matmul(site, site.blob(0), site.blob(1), False, False, out)


@converts("Gather")
def gather(site: ImportSite) -> str:
    axis = site.axis(site.attr("axis", 0), len(site.shape()))
    if site.is_const(0) and not site.is_const(1) and len(site.shape()) == 2 and axis == 0:
        table = site.const(0, "table")
        fields = {"num_output": table.shape[1], "input_dim": table.shape[0], "bias_term": False}
        return site.layer(
            "Embed", [site.blob(1)], site.out_shape(), [table], sources=site.inputs[:1], embed_param=fields
        )
    at = site.const(1, "indices")
    size = site.shape()[axis]
    chosen = [int(i) % size for i in at.reshape(-1) if -size <= i < size]
    if len(chosen) != at.size or not chosen:
        site.refuse(f"its indices are not all within {size}", "export the model again")
    if chosen != list(range(chosen[0], chosen[0] + len(chosen))):
        site.refuse("its indices are not one after the other", "write it with slices in the model, and export it again")
    y = site.blob() if len(chosen) == size else site.cut(site.blob(), axis, chosen[0], chosen[-1] + 1)
    return site.reshape(y, site.out_shape())
