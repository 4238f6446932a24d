"""Convert pooling, of which Caffe counts the outputs at the far border by its own rule, SPP and LRN.

ONNX gets the number of outputs through the padding: at the far end, as much as the last window extends beyond the input
(`ceil_mode` follows another rule). Where Caffe divides an average by less than the whole window, a constant factor is
multiplied.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from .site import Precision, Site, converts

_LOWEST = float(np.finfo(np.float32).min)  # Caffe's maximum of nothing, in float64 too


@converts(
    "Pooling",
    "NdPooling",
    family="vision",
    ops="MaxPool AveragePool GlobalMaxPool GlobalAveragePool Pad Mul Div Greater Where Mod Cast",
    note="the exact number and size of Caffe's windows at every border, through explicit padding; STOCHASTIC as "
    "in TEST; the second top (places of maxima) too",
)
def pooling(site: Site) -> str | list[str]:
    layer = site.layer
    if len(layer.stride) > 3:
        site.refuse(f"pools over {len(layer.stride)} axes, and no runtime over more than 3", "pool in several layers")
    everything = layer.kernel is None
    window = Window(site.shape[2:], site.top_shapes[0][2:], layer.kernel or site.shape[2:], layer.stride, layer.pad)
    if layer.random:
        return _by_probability(site, window)
    if not layer.max:
        return site.op("GlobalAveragePool", site.x) if everything else average(site, site.x, window, layer.inside)
    if len(site.top_shapes) == 1:
        return site.op("GlobalMaxPool", site.x) if everything else maximum(site, site.x, window)
    best, places = site.ops("MaxPool", site.x, outputs=2, **window.attributes())
    plane = site.cast(site.op("Mod", places, site.const(int(np.prod(site.shape[2:])))), site.dtype)
    return [_with_empty(site, best, window, _LOWEST), _with_empty(site, plane, window, -1)]


class Window:
    """Hold sizes per spatial axis: input, output, kernel, stride, padding in Caffe, and padding at the `far` end.

    With a stride above the kernel, Caffe's last window may begin behind the input. ONNX has no such empty window:
    `outputs` leaves it out, and `empty` is 1 for its axis.
    """

    def __init__(
        self,
        inputs: Sequence[int],
        outputs: Sequence[int],
        kernel: Sequence[int],
        stride: Sequence[int],
        pad: Sequence[int],
    ):
        self.inputs, self.kernel, self.stride, self.pad = tuple(inputs), tuple(kernel), tuple(stride), tuple(pad)
        starts = [(out - 1) * s - p for out, s, p in zip(outputs, stride, pad, strict=True)]
        self.empty = tuple(int(start >= n) for start, n in zip(starts, inputs, strict=True))
        self.outputs = tuple(out - empty for out, empty in zip(outputs, self.empty, strict=True))
        each = zip(self.inputs, self.outputs, self.kernel, self.stride, self.pad, strict=True)
        self.far = tuple(max(0, (out - 1) * s + k - n - p) for n, out, k, s, p in each)

    def attributes(self) -> dict[str, list[int]]:
        """Return the attributes of ONNX's pooling operators."""
        return {"kernel_shape": list(self.kernel), "strides": list(self.stride), "pads": [*self.pad, *self.far]}

    def factors(self) -> np.ndarray | None:
        """Return the size of the whole window / the size that Caffe divides by, for every output; None where all are 1.

        Caffe's window ends at the border of its padding at the latest.
        """
        result = np.ones((1, 1, *self.outputs))
        each = zip(self.inputs, self.outputs, self.kernel, self.stride, self.pad, strict=True)
        for axis, (n, out, k, s, p) in enumerate(each):
            starts = np.arange(out) * s - p
            sizes = np.minimum(starts + k, n + p) - starts
            result *= (k / sizes).reshape([-1 if i == axis else 1 for i in range(len(self.outputs))])
        return None if (result == 1).all() else result


def maximum(site: Site, x: str, window: Window) -> str:
    y = site.op("MaxPool", x, **window.attributes())
    return _with_empty(site, y, window, _LOWEST)


def average(site: Site, x: str, window: Window, inside: bool = False) -> str:
    """Write averages; inside: of the places inside the input, else of Caffe's windows."""
    if inside:
        y = site.op("AveragePool", x, **window.attributes(), count_include_pad=0)
        return _with_empty(site, y, window, 0)
    y, factors = _mean(site, x, window), window.factors()
    if factors is not None:
        y = site.op("Mul", y, site.const(factors, site.dtype))
    return _with_empty(site, y, window, 0)


def _mean(site: Site, x: str, window: Window) -> str:
    """Write the sum of each window divided by the size of the whole window."""
    return site.op("AveragePool", x, **window.attributes(), count_include_pad=1)


def _with_empty(site: Site, y: str, window: Window, value: float) -> str:
    """Append `value`, what Caffe gives for a window without values, where there are such windows."""
    if not any(window.empty):
        return y
    pads = [0] * (2 + len(window.pad)) + [0, 0, *window.empty]
    return site.op("Pad", y, site.const(pads), site.number(value), mode="constant")


def _by_probability(site: Site, window: Window) -> str:
    """Write the average of stochastic pooling: sum of x^2 / sum of x, 0 where the latter is not positive."""
    if site.layer.phase == 0:
        site.refuse("has phase TRAIN, in which it is random", "remove `phase: TRAIN`")
    squares, sums = (_mean(site, x, window) for x in (site.op("Mul", site.x, site.x), site.x))
    zero = site.number(0)
    y = site.op("Where", site.op("Greater", sums, zero), site.op("Div", squares, sums), zero)
    return _with_empty(site, y, window, 0)


@converts("SPP", family="vision", ops="MaxPool AveragePool Flatten Concat")
def spp(site: Site) -> str:
    pool = maximum if site.layer.max else average
    parts = []
    for level in range(site.layer.height):
        bins, sizes = 1 << level, site.shape[2:]
        kernel = [-(-size // bins) for size in sizes]
        pad = [(k * bins - size + 1) // 2 for k, size in zip(kernel, sizes, strict=True)]
        parts.append(pool(site, site.x, Window(sizes, (bins, bins), kernel, kernel, pad)))
    if len(parts) == 1:
        return parts[0]
    return site.op("Concat", *(site.op("Flatten", part, axis=1) for part in parts), axis=1)


@converts("LRN", family="normalisation", ops="LRN Mul AveragePool Add Pow", precision=Precision.SINGLE)
def lrn(site: Site) -> str:
    layer = site.layer
    if layer.across:
        return site.op("LRN", site.x, size=layer.lrn.size, alpha=layer.lrn.alpha, beta=layer.lrn.beta, bias=layer.lrn.k)
    half, sizes = layer.lrn.size // 2, site.shape[2:]
    window = Window(sizes, sizes, (layer.lrn.size,) * 2, (1, 1), (half, half))
    mean = _mean(site, site.op("Mul", site.x, site.x), window)
    scale = site.op("Pow", site.affine(mean, layer.lrn.alpha, 1), site.number(-layer.lrn.beta))
    return site.op("Mul", site.x, scale)
