"""Resize pictures as pycaffe does, whichever libraries are installed.

Nearest and linear interpolation have the two coordinate mappings of pycaffe; splines come from SciPy.
Source of the behaviour: BVLC/caffe, python/caffe/io.py; scikit-image, transform.resize (mode "constant", no
anti-aliasing); SciPy, ndimage.zoom.
"""

from __future__ import annotations

import os
from collections.abc import Sequence

import numpy as np

from ...errors import ArrayError, MissingDependency

MAX_VALUES = 1 << 30
"""Most values a resized picture may have."""


def resize_image(im: np.ndarray, new_dims: Sequence[int], interp_order: int = 1) -> np.ndarray:
    """Resize a picture of shape (H, W, K) to `new_dims` = (h, w): float32 (h, w, K).

    interp_order: 0 nearest, 1 linear, 2 to 5 splines of that order, which need SciPy.

    K of 1 or 3: the centre of output pixel i is at (i + 0.5) H/h - 0.5. Beyond the edges is the smallest value of the
    picture, so that edges of an enlarged picture fade towards it. No low-pass filter is applied. Any other K: output
    pixel i is at i (H - 1)/(h - 1), so that corners fall on corners.

    Raises: ArrayError (a ValueError) for another shape, sizes that are not positive, or an unknown order;
    MissingDependency for a spline without SciPy.
    """
    im = as_picture(im)
    if im.ndim != 3 or im.size == 0:
        raise ArrayError(
            f"a picture has the shape (height, width, channels), not {im.shape}", fix="add an axis: im[..., None]"
        )
    height, width = _sizes(new_dims, im.shape[2])
    if interp_order not in range(6):
        raise ArrayError(f"interp_order {interp_order!r} is none of 0, 1, 2, 3, 4, 5")
    im = im.astype(np.float64)
    centred = im.shape[2] in (1, 3)
    low = im.min() if centred else 0.0
    values = im - low  # beyond the edges is 0 from here on
    if interp_order > 1:
        values = _spline(values, (height, width), interp_order, centred)
    else:
        for axis, size in enumerate((height, width)):
            values = _resample(values, axis, size, interp_order, centred)
    return (values + low).astype(np.float32)


def as_picture(given: object) -> np.ndarray:
    """Return `given` as an array of real numbers. Raises: ArrayError; for the name of a file it says how to read it."""
    if isinstance(given, (str, bytes, os.PathLike)):
        raise ArrayError(f"{given!r} is no picture", fix=f"read it first: caffe.io.load_image({given!r})")
    array = np.asarray(given)
    if array.dtype.kind not in "biuf":
        raise ArrayError(f"{type(given).__name__} of {array.dtype} is no picture", fix="give an array (H, W, K)")
    return array


def _sizes(new_dims: Sequence[int], channels: int) -> tuple[int, int]:
    dims = tuple(int(d) for d in new_dims)
    if len(dims) != 2 or min(dims) <= 0 or dims[0] * dims[1] * channels > MAX_VALUES:
        raise ArrayError(f"a picture cannot be resized to {dims}", fix="give (height, width), both above 0")
    return dims


def _resample(values: np.ndarray, axis: int, size: int, order: int, centred: bool) -> np.ndarray:
    """Interpolate along one axis, with zeros outside."""
    old = values.shape[axis]
    if old == size:
        return values
    out = np.arange(size, dtype=np.float64)
    if centred:
        at = (out + 0.5) * (old / size) - 0.5
    else:
        at = out * ((old - 1) / (size - 1)) if size > 1 else out
    if order == 0:
        nearest = np.clip(np.floor(at + 0.5).astype(np.intp), 0, old - 1)
        return np.asarray(values.take(nearest, axis))
    left = np.floor(at).astype(np.intp)
    along = [1] * values.ndim
    along[axis] = size
    total = np.zeros(())
    for taps, weights in ((left, 1 - (at - left)), (left + 1, at - left)):
        weights = np.where((taps >= 0) & (taps < old), weights, 0.0).reshape(along)
        total = total + values.take(np.clip(taps, 0, old - 1), axis) * weights
    return total


def _spline(values: np.ndarray, dims: tuple[int, int], order: int, centred: bool) -> np.ndarray:
    try:
        from scipy import ndimage
    except ImportError:
        raise MissingDependency(
            "scipy", f"resizing with interp_order {order}", "'pycaffe-lms[spline]'", "use interp_order 0 or 1"
        ) from None
    zoom = (dims[0] / values.shape[0], dims[1] / values.shape[1], 1)
    if not centred:
        return np.asarray(ndimage.zoom(values, zoom, order=order))
    resized = ndimage.zoom(values, zoom, order=order, mode="grid-constant", grid_mode=True)
    return np.asarray(resized.clip(0, values.max()))  # splines overshoot
