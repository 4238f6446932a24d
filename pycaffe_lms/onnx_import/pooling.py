"""Convert pooling, means over axes, and LRN."""

from __future__ import annotations

import numpy as np

from ..ops.geometry import pool_output_size
from .products import cut_to, pads_of, per_axis
from .site import ImportSite, converts


@converts("MaxPool", "AveragePool")
def pool(site: ImportSite) -> str:
    x, out, axes = site.shape(), site.out_shape(), len(site.shape()) - 2
    if axes < 1:
        site.refuse(f"its input has shape {x}", "export the model with a batch")
    kernel, stride = per_axis(site, "kernel_shape", axes), per_axis(site, "strides", axes)
    if per_axis(site, "dilations", axes) != [1] * axes:
        site.refuse("it has dilations", "export it with dilations of 1")
    front, behind = pads_of(site, x[2:], kernel, stride)
    up = (
        bool(site.attr("ceil_mode", 0))
        or any(  # more padding behind is what partial windows read
            pool_output_size(n, k, s, p, False) < o
            for n, k, s, p, o in zip(x[2:], kernel, stride, front, out[2:], strict=True)
        )
    )
    pad, starts, full = [], [], []
    for n, k, s, p, o in zip(x[2:], kernel, stride, front, out[2:], strict=True):
        skipped = 0
        while pool_output_size(n, k, s, p + skipped * s, up) < skipped + o:
            skipped += 1
            if p + skipped * s >= k:
                site.refuse(
                    f"its pads {front} and {behind} are too unequal for kernel {kernel}", "export it with equal pads"
                )
        pad.append(p + skipped * s)
        starts.append(skipped)
        count = pool_output_size(n, k, s, pad[-1], up)
        full.append(count)
    if any(pad):  # as the layer does: no window begins behind the input and its padding
        full = [c - ((c - 1) * s >= n + p) for c, n, s, p in zip(full, x[2:], stride, pad, strict=True)]
    if any(f < start + o for f, start, o in zip(full, starts, out[2:], strict=True)):
        site.refuse("its last window lies wholly in the padding", "export it with ceil_mode 0")
    average = site.op == "AveragePool"
    fields: dict[str, object] = {"pool": int(average)}
    if not up:
        fields["round_mode"] = 1
    names = ("kernel", "stride", "pad")
    for name, values, usual in zip(names, (kernel, stride, pad), (None, 1, 0), strict=True):
        if all(v == usual for v in values):
            continue
        if len(set(values)) == 1:
            fields["kernel_size" if name == "kernel" else name] = values[0]
        else:
            fields[f"{name}_shape"] = {"dim": values}
    y = site.layer("Pooling", [site.blob()], (*x[:2], *full), pooling_param=fields)
    y = cut_to(site, y, starts, out)
    if not average:
        return y
    factors = np.ones(out[2:])
    every = zip(x[2:], out[2:], kernel, stride, pad, front, behind, starts, strict=True)
    for axis, (n, o, k, s, p, before, after, skipped) in enumerate(every):
        first = (np.arange(o) + skipped) * s - p
        ours = np.minimum(first + k, n + p) - first
        inside = np.minimum(first + k, n) - np.maximum(first, 0)
        padded = np.minimum(first + k, n + after) - np.maximum(first, -before)
        theirs = padded if site.attr("count_include_pad", 0) else inside
        factors *= (ours / theirs).reshape([-1 if i == axis else 1 for i in range(axes)])
    if (factors == 1).all():
        return y
    return site.layer(
        "Scale", [y], out, [factors], fixed=True, suffix="/divisor", scale_param={"axis": 2, "num_axes": axes}
    )


@converts("GlobalAveragePool", "GlobalMaxPool")
def global_pool(site: ImportSite) -> str:
    return _whole(site, site.op == "GlobalAveragePool")


def _whole(site: ImportSite, average: bool) -> str:
    shape = (*site.shape()[:2], *(1,) * (len(site.shape()) - 2))
    fields = {"pool": int(average), "global_pooling": True}
    return site.layer("Pooling", [site.blob()], shape, pooling_param=fields)


@converts("ReduceMean", "ReduceSum", "ReduceMax", "ReduceL1", "ReduceSumSquare")
def reduce(site: ImportSite) -> str:
    shape, out = site.shape(), site.out_shape()
    ndim = len(shape)
    given = site.numbers(1, "axes")
    if not given and site.attr("noop_with_empty_axes", 0):
        return site.blob()
    axes = sorted({site.axis(a, ndim) for a in given}) if given else list(range(ndim))
    if ndim > 2 and axes == list(range(2, ndim)) and site.op in ("ReduceMean", "ReduceMax"):
        return site.reshape(_whole(site, site.op == "ReduceMean"), out, suffix="/shape")
    if site.op == "ReduceMax":
        site.refuse(f"it takes the maximum over axes {axes}", "take it over all spatial axes")
    rest = [i for i in range(ndim) if i not in axes]
    x = site.permute(site.blob(), [*rest, *axes], suffix="/order")
    kind = {"ReduceSum": 1, "ReduceL1": 2, "ReduceSumSquare": 3, "ReduceMean": 4}[site.op]
    y = site.layer("Reduction", [x], [shape[i] for i in rest], reduction_param={"operation": kind, "axis": len(rest)})
    return site.reshape(y, out, suffix="/shape")


@converts("LRN")
def lrn(site: ImportSite) -> str:
    names = {"alpha": ("alpha", 1e-4), "beta": ("beta", 0.75), "k": ("bias", 1.0)}
    fields: dict[str, object] = {ours: site.attr(theirs, usual) for ours, (theirs, usual) in names.items()}
    size = site.attr("size", 1)
    if size % 2 == 0:
        site.refuse(f"it has size {size}", "use an odd size")
    return site.layer("LRN", [site.blob()], site.shape(), lrn_param={"local_size": size, **fields})
