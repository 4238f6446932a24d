"""Finish pictures of bytes that a data layer cropped: mirror them, subtract the mean, and scale."""

from __future__ import annotations

from ....arrays import AnyArray
from ..elementwise import elementwise, run
from ..source import DIVIDE, divider

__all__ = ["finish_pixels"]

_SOURCE = elementwise(
    "finish_pixels",
    """
      const long long row = quotient(i, w, w_magic, w_shift), plane = quotient(row, h, h_magic, h_shift);
      const long long picture = quotient(plane, c, c_magic, c_shift);
      const int* place = places + 3 * picture;
      const long long column = place[0] ? w - 1 - (i - row * w) : i - row * w;
      const long long channel = plane - picture * c;
      const long long at = mean_w > 1 || mean_h > 1
        ? (channel * mean_h + place[1] + row - plane * h) * mean_w + place[2] + column : channel;
      y = ((T)pixels[row * w + column] - mean[at]) * (T)scale;
    """,
    writes="y",
    params="const unsigned char* pixels, const int* places, const T* mean, "
    "long long c, long long c_magic, long long c_shift, long long h, long long h_magic, long long h_shift, "
    "long long w, long long w_magic, long long w_shift, long long mean_h, long long mean_w, double scale",
    helpers=DIVIDE,
)


def finish_pixels(pixels: AnyArray, places: AnyArray, mean: AnyArray, scale: float, y: AnyArray) -> None:
    """Compute y = (pixels - mean) * scale, of mirrored pictures from right to left."""
    n, (channels, height, width) = y.size, y.shape[1:]
    sides = *divider(channels, n), *divider(height, n), *divider(width, n)
    run(_SOURCE, "finish_pixels", (y,), pixels, places, mean, *sides, *mean.shape[1:], float(scale))
