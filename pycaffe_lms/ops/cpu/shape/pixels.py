"""Finish pictures of bytes that a data layer cropped: mirror them, subtract the mean, and scale."""

from __future__ import annotations

import numpy as np

from ....arrays import HostArray

__all__ = ["finish_pixels"]


def finish_pixels(pixels: HostArray, places: HostArray, mean: HostArray, scale: float, y: HostArray) -> None:
    """Compute y = (pixels - mean) * scale, of mirrored pictures from right to left.

    Args:
        pixels: uint8, (B, C, h, w), as y.
        places: int32, (B, 3): whether a picture is mirrored, and the first row and column of its crop.
        mean: of y's type, (C, H, W) of the pictures before they were cropped, or (C, 1, 1).
    """
    height, width = pixels.shape[2:]
    for picture, (mirrored, top, left), target in zip(pixels, places, y, strict=True):
        cropped = mean if mean.shape[1:] == (1, 1) else mean[:, top : top + height, left : left + width]
        target = target[:, :, ::-1] if mirrored else target
        np.subtract(picture, cropped, out=target, dtype=target.dtype, casting="same_kind")
        if scale != 1:
            target *= target.dtype.type(scale)
