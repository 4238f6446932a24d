"""Normalise, scale, shift, add and rectify batches in single passes, of arrays seen as (n, c, s).

NCHW arrays have s = H * W, channels-last ones n = N * H * W and s = 1. The kernels are in `norm_source.py` and
`norm_statistics.py`.
"""

from __future__ import annotations

from ....arrays import AnyArray
from ....backend.cuda import launch
from ...records import Affine, BatchNorm, FusedNormGradients, Grid, Moments, Rectified
from ...sum_parts import bits_come_free
from ..activation.bits import positive_bits
from ..basic import fill
from ..channel_walk import Walk
from . import norm_source
from .norm_statistics import batch_norm_running, batch_norm_statistics

__all__ = ["batch_norm_statistics", "batch_norm_running", "fused_norm_forward", "fused_norm_backward"]


def _affine(moments: Moments, affine: Affine) -> tuple[AnyArray, AnyArray, AnyArray, AnyArray, int]:
    (mean, inv_std), (gamma, beta) = moments, affine
    has = (gamma is not None) + 2 * (beta is not None)
    return mean, inv_std, mean if gamma is None else gamma, mean if beta is None else beta, has


def fused_norm_forward(
    x: AnyArray,
    r: AnyArray | None,
    y: AnyArray,
    moments: Moments,
    affine: Affine,
    relu: bool,
    grid: Grid,
    bits: AnyArray | None = None,
) -> None:
    """Compute y = (x - mean) * inv_std * gamma + beta + r, then max(y, 0) if `relu`."""
    n, c, s = grid
    if n * s == 0:
        return
    walk = Walk(grid, x.dtype.itemsize)
    at_once = bits is not None and bits_come_free(c, s)
    switches = {"RESIDUAL": int(r is not None), "RELU": int(bool(relu)), "BITS": int(at_once)}
    arrays, words = (x, x if r is None else r, y), moments.mean if bits is None else bits
    walk.run(norm_source.FORWARD, "forward", arrays, words, *_affine(moments, affine), **switches)
    if bits is not None and not at_once:
        positive_bits(y, bits)


def fused_norm_backward(
    x: AnyArray | None,
    dy: AnyArray,
    gradients: FusedNormGradients,
    rectified: Rectified | None,
    moments: Moments,
    affine: Affine,
    work: AnyArray,
    norm: BatchNorm,
) -> None:
    """Compute the gradients of `fused_norm_forward`."""
    (dx, dr, (dgamma, dbeta, add_gamma, add_beta)), (n, c, s) = gradients, norm.grid
    (mean, inv_std), (y, bits) = moments, rectified or (None, None)
    if n * s == 0:  # sums of no elements are 0
        for gradient, add in ((dgamma, add_gamma), (dbeta, add_beta)):
            if gradient is not None and not add:
                fill(gradient, 0)
        return
    mask = 0 if rectified is None else 3 if bits is not None else 2 if y is None else 1
    batch = dx is not None and not norm.use_global
    sums = 2 if batch or dgamma is not None else int(dbeta is not None)
    copies = dr is not None and not (mask == 0 and dr.data.ptr == dy.data.ptr)
    walk = Walk(norm.grid, dy.dtype.itemsize)
    constants, words = _affine(moments, affine), mean if bits is None else bits
    if sums or copies or (dx is not None and not batch):
        reads_x, reads_y = mask == 2 or sums == 2, mask == 1
        arrays = x if reads_x else dy, y if reads_y else dy, dy, dr if copies else dy, dy if dx is None else dx
        switches = {"MASK": mask, "SUMS": sums, "DR": int(copies), "DX": int(dx is not None and not batch)}
        walk.run(norm_source.GRADIENTS, "gradients", arrays, words, work, *constants, **switches)
    if sums:
        has = (1 + 2 * bool(add_beta)) * (dbeta is not None)
        has += (4 + 8 * bool(add_gamma)) * (dgamma is not None) + 16 * batch
        results = mean if dgamma is None else dgamma, mean if dbeta is None else dbeta
        args = work, inv_std, *results, has, float(n * s), c, walk.parts
        launch(norm_source.GRADIENT_SUMS, "gradient_sums", work.dtype, 0, *args, block=256, grid=c)
    if batch:
        if dr is not None:  # dr holds g already, and may have overwritten dy
            dy, mask = dr, 0
        arrays = x, y if mask == 1 else dy, dy, dx
        walk.run(norm_source.APPLY, "apply", arrays, words, work, *constants, MASK=mask)
