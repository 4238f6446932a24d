"""Normalise rows by their mean and variance, or by their mean square alone, with a factor and shift per column."""

from __future__ import annotations

import numpy as np

from ....arrays import HostArray
from ...records import Affine, RowMoments, RowNorm, RowNormGradients
from ..channels import row_slices, write_gradient

__all__ = ["layer_norm_backward", "layer_norm_forward"]


def layer_norm_forward(x: HostArray, affine: Affine, y: HostArray, moments: RowMoments, norm: RowNorm) -> None:
    """Compute y = (x - mean) * inv_std * scale + bias per row, inv_std = 1 / sqrt(variance + eps).

    Where `moments.mean` is None the mean counts as 0: then inv_std is that of the mean square. Both are written.
    """
    rows, dim, eps = norm
    x, y = x.reshape(rows, dim), y.reshape(rows, dim)
    mean, inv_std = moments
    for part in row_slices(rows, dim) if dim else ():
        centred = x[part]
        if mean is not None:
            mean[part] = x[part].mean(axis=1)
            centred = x[part] - mean[part, None]
        inv_std[part] = 1 / np.sqrt(np.square(centred).mean(axis=1, dtype=np.float64) + eps)
        np.multiply(centred, inv_std[part, None], out=y[part])
        if affine.scale is not None:
            y[part] *= affine.scale.reshape(dim)
        if affine.bias is not None:
            y[part] += affine.bias.reshape(dim)


def layer_norm_backward(
    x: HostArray | None,
    scale: HostArray | None,
    dy: HostArray,
    gradients: RowNormGradients,
    moments: RowMoments,
    work: HostArray,
    norm: RowNorm,
) -> None:
    """Compute the gradients of scale, bias and x, called dx; each may be None. dx may be dy, unless it is added to.

    With g = dy * scale and v = (x - mean) * inv_std: dx = inv_std * (g - mean(g) - v * mean(g * v)), without the term
    mean(g) where `moments.mean` is None. x is read for dx and the gradient of scale. `work` holds the GPU's partial
    sums: dim * parts elements per gradient.
    """
    rows, dim, _ = norm
    mean, inv_std = moments
    dx, affine, add_x = gradients
    dy = dy.reshape(rows, dim)
    total_scale, total_bias = np.zeros(dim, np.float64), np.zeros(dim, np.float64)
    for part in row_slices(rows, dim) if dim else ():
        if affine.bias is not None:
            total_bias += dy[part].sum(axis=0, dtype=np.float64)
        if dx is None and affine.scale is None:
            continue
        v = x.reshape(rows, dim)[part]
        v = (v if mean is None else v - mean[part, None]) * inv_std[part, None]
        if affine.scale is not None:
            total_scale += np.einsum("rd,rd->d", dy[part], v, dtype=np.float64)
        if dx is None:
            continue
        g = dy[part] if scale is None else dy[part] * scale.reshape(dim)
        rest = g - v * (g * v).mean(axis=1, keepdims=True)
        if mean is not None:
            rest -= g.mean(axis=1, keepdims=True)
        target = dx.reshape(rows, dim)[part]
        if add_x:
            target += rest * inv_std[part, None]
        else:
            np.multiply(rest, inv_std[part, None], out=target)
    if affine.scale is not None:
        write_gradient(affine.scale, total_scale, affine.add_scale)
    if affine.bias is not None:
        write_gradient(affine.bias, total_bias, affine.add_bias)
