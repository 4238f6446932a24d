"""Convert normalisation, by statistics of training or of the input itself, and layers that scale and shift."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from .site import Precision, Site, converts

_FAMILY = "normalisation"
_STATISTICS = "BatchNormalization Sub Mul ReduceMean Add Sqrt Div"


@converts("BatchNorm", family=_FAMILY, ops=_STATISTICS, note="Caffe's factor is folded into mean and variance")
def batch_norm(site: Site) -> str:
    layer = site.layer
    affine = (3, 4) if layer.scaled else None
    if not layer.use_global:
        return _by_statistics_at_hand(site, layer.eps, affine)
    if site.dtype == np.float16 or layer.outside:
        count = 5 if affine else 3
        return _folded(site, count, lambda m, v, f, *more: (_average(m, f), _average(v, f), *more))
    mean, variance = (
        site.folded("average", (i, 2), _average, name) for i, name in ((0, "running_mean"), (1, "running_var"))
    )
    if len(site.shape) > 1:
        return _by_running_statistics(site, mean, variance, affine)
    inverse = site.folded("inverse", (1, 2), lambda v, f: 1 / np.sqrt(_average(v, f) + layer.eps), "inv_std")
    return _affine(site, site.op("Mul", site.op("Sub", site.x, mean), inverse), affine)


def _average(sums: np.ndarray, factor: np.ndarray) -> np.ndarray:
    """Return a running sum divided by the sum of its weights; 0 where nothing was summed."""
    weight = np.float64(factor.reshape(-1)[0])
    return sums.astype(np.float64) / weight if weight else np.zeros_like(sums)


@converts("BN", family=_FAMILY, ops=_STATISTICS, note="both dialects")
def bn(site: Site) -> str:
    layer = site.layer
    if layer.affine:
        return _affine(site, site.x, (0, 1))
    if not layer.use_global:
        return _by_statistics_at_hand(site, layer.eps, (0, 1))
    if site.dtype == np.float16:
        return _folded(site, 4, lambda scale, shift, mean, variance: (mean, variance, scale, shift))
    mean, variance = (site.weight(i, (layer.channels,), name) for i, name in ((2, "running_mean"), (3, "running_var")))
    return _by_running_statistics(site, mean, variance, (0, 1))


def _folded(site: Site, params: int, sort: Callable[..., tuple[np.ndarray, ...]]) -> str:
    """Write one product and one sum, in whose numbers the statistics are folded: float16 has no small variances, and
    ONNX's operator no eps outside of the root.

    sort: parameters -> mean, variance[, scale, shift].
    """
    shape = (site.layer.channels, *(1,) * (len(site.shape) - 2)) if len(site.shape) > 1 else ()

    def factor(*values: np.ndarray) -> np.ndarray:
        _, variance, *affine = sort(*values)
        variance, eps = variance.astype(np.float64).reshape(shape), site.layer.eps
        outside = site.param.type == "BatchNorm" and site.layer.outside
        found = 1 / (np.sqrt(variance) + eps if outside else np.sqrt(variance + eps))
        return np.asarray(found * affine[0].reshape(shape) if affine else found)

    def shift(*values: np.ndarray) -> np.ndarray:
        mean, _, *affine = sort(*values)
        return np.asarray((affine[1].reshape(shape) if affine else 0) - mean.reshape(shape) * factor(*values))

    scaled = site.op("Mul", site.x, site.folded(f"factor {shape}", range(params), factor, "scale"))
    return site.op("Add", scaled, site.folded(f"shift {shape}", range(params), shift, "bias"))


def _by_running_statistics(site: Site, mean: str, variance: str, affine: tuple[int, int] | None) -> str:
    c = site.layer.channels
    if affine is None:
        scale, shift = site.const(np.ones(c), site.dtype), site.const(np.zeros(c), site.dtype)
    else:
        scale, shift = (site.weight(i, (c,), name) for i, name in zip(affine, ("scale", "bias"), strict=True))
    return site.op("BatchNormalization", site.x, scale, shift, mean, variance, epsilon=site.layer.eps)


def _by_statistics_at_hand(site: Site, eps: float, affine: tuple[int, int] | None) -> str:
    axes = [axis for axis in range(len(site.shape)) if axis != 1]
    centred, variance = _centred(site, site.x, axes)
    y = site.op("Div", centred, site.op("Sqrt", site.op("Add", variance, site.number(eps))))
    return _affine(site, y, affine)


def _centred(site: Site, x: str, axes: list[int]) -> tuple[str, str]:
    """Return (x - mean, variance), both over these axes."""
    centred = site.op("Sub", x, site.reduce("ReduceMean", x, axes, keep=True))
    return centred, site.reduce("ReduceMean", site.op("Mul", centred, centred), axes, keep=True)


def _affine(site: Site, y: str, affine: tuple[int, int] | None) -> str:
    if affine is None:
        return y
    shape = (site.layer.channels, *(1,) * (len(site.shape) - 2))
    scale, shift = (site.weight(i, shape, name) for i, name in zip(affine, ("scale", "bias"), strict=True))
    return site.op("Add", site.op("Mul", y, scale), shift)


@converts("Scale", family=_FAMILY, ops="Mul Add Unsqueeze")
def scale(site: Site) -> str:
    y = site.op("Mul", site.x, _operand(site, "scale"))
    if not site.layer.bias:
        return y
    i = len(site.layer.params) - 1
    return site.op("Add", y, site.weight(i, _spread(site), "bias"))


@converts("Bias", family=_FAMILY, ops="Add Unsqueeze")
def bias(site: Site) -> str:
    return site.op("Add", site.x, _operand(site, "bias"))


def _spread(site: Site) -> tuple[int, ...]:
    """Return the shape of the layer's factor (or shift), with axes of 1 appended so that it broadcasts over x."""
    layer = site.layer
    return (*layer.shape, *(1,) * (len(site.shape) - layer.axis - len(layer.shape) if layer.shape else 0))


def _operand(site: Site, name: str) -> str:
    spread, given = _spread(site), site.layer.shape
    if site.layer.learned:
        return site.weight(0, spread, name)
    behind = range(len(given), len(spread))
    return site.unsqueeze(site.bottoms[1], list(behind)) if behind else site.bottoms[1]


@converts("Axpy", family=_FAMILY, ops="Mul Add Reshape")
def axpy(site: Site) -> str:
    a, x, y = site.bottoms
    ndim = len(site.bottom_shapes[1])
    if len(site.bottom_shapes[0]) != ndim:
        a = site.reshape(a, (0, 0, *(1,) * (ndim - 2)))
    return site.op("Add", site.op("Mul", a, x), y)


@converts("MVN", family=_FAMILY, ops="Reshape ReduceMean Sub Mul Sqrt Add Div", precision=Precision.SINGLE)
def mvn(site: Site) -> str:
    options = site.param.mvn_param
    x = site.x if len(site.shape) == 4 else site.to_top(site.x, first_kept=True)
    axes = [1, 2, 3] if options.across_channels else [2, 3]
    if not site.layer.variance:
        return site.op("Sub", x, site.reduce("ReduceMean", x, axes, keep=True))
    centred, variance = _centred(site, x, axes)
    return site.op("Div", centred, site.op("Add", site.op("Sqrt", variance), site.number(site.layer.eps)))


@converts("Normalize", family=_FAMILY, ops="ReduceSumSquare Add Sqrt Div Mul", precision=Precision.SINGLE)
def normalize(site: Site) -> str:
    layer, ndim = site.layer, len(site.shape)
    axes = list(range(1, ndim)) if layer.across else [1]
    norm = site.op("Sqrt", site.affine(site.reduce("ReduceSumSquare", site.x, axes, keep=True), 1, layer.eps))
    shape = () if layer.shared else (layer.channels, *(1,) * (ndim - 2))
    return site.op("Mul", site.op("Div", site.x, norm), site.weight(0, shape, "scale"))


@converts(
    "LayerNorm", family=_FAMILY, ops="LayerNormalization ReduceMean Sub Mul Add Sqrt Div", note="one operator since 17"
)
def layer_norm(site: Site) -> str:
    layer, axes = site.layer, list(range(site.layer.axis, len(site.shape)))
    affine = [site.weight(i) for i in range(len(layer.params))]
    if site.opset >= 17:
        scale = affine or [site.const(np.ones(layer.shape), site.dtype)]
        return site.op("LayerNormalization", site.x, *scale, axis=layer.axis, epsilon=layer.options.eps)
    if site.dtype == np.float16:
        site.refuse("has squares that float16 cannot hold", "export with opset 17 or newer, or in float32")
    centred, variance = _centred(site, site.x, axes)
    y = site.op("Div", centred, site.op("Sqrt", site.op("Add", variance, site.number(layer.options.eps))))
    for op, values in zip(("Mul", "Add"), affine, strict=False):
        y = site.op(op, y, values)
    return y


@converts(
    "RMSNorm",
    family=_FAMILY,
    ops="RMSNormalization Mul ReduceMean Add Sqrt Div",
    note="one operator since 23",
    precision=Precision.SINGLE,
)
def rms_norm(site: Site) -> str:
    layer, axes = site.layer, range(site.layer.axis, len(site.shape))
    if site.opset >= 23:
        scale = site.weight(0) if layer.params else site.const(np.ones(layer.shape), site.dtype)
        return site.op("RMSNormalization", site.x, scale, axis=layer.axis, epsilon=layer.options.eps)
    mean = site.reduce("ReduceMean", site.op("Mul", site.x, site.x), axes, True)
    y = site.op("Div", site.x, site.op("Sqrt", site.op("Add", mean, site.number(layer.options.eps))))
    return site.op("Mul", y, site.weight(0)) if layer.params else y
