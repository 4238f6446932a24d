"""Decide which convolutions go through Winograd's transforms, and in which tiles. Pure.

A tile of outputs x outputs values of y needs points x points products per channel, points = outputs + kernel - 1, where
a plain sum needs outputs x outputs x kernel x kernel.
See: Lavin, Gray, "Fast Algorithms for Convolutional Neural Networks", 2015.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import prod

from .geometry import ConvGeometry, Ints

_OUTPUTS = {3: 4}  # outputs of a tile along an axis, by the kernel's size; 5x5 in tiles of 2x2 gained nothing
LANES = 16  # channels that are transformed together
_CHANNELS = 32  # least channels of a group on both sides: the products are too thin with fewer
_TILES = 96  # least tiles of all images, for which transforming the weights pays
_GAIN = 1.8  # least ratio of the products saved
_CHUNK_BYTES = 8 << 20  # bytes of transformed values at a time; more where the weights are large


@dataclass(frozen=True, slots=True)
class WinogradPlan:
    """Plan Winograd's transforms, `images` at a time, one group at a time.

    The workspace holds a group's transformed weights twice (sums of several chunks are added to the second), then the
    transformed inputs and outputs of a chunk.
    """

    geometry: ConvGeometry
    outputs: int
    images: int
    workspace_bytes: int

    @property
    def points(self) -> int:
        """Return the values of a transformed tile along an axis."""
        return self.outputs + self.geometry.kernel[0] - 1

    @staticmethod
    def plane(numbers: int) -> int:
        """Return the distance of two points' matrices; a power of two would put them into the same set of a cache."""
        return numbers + LANES

    def tiles(self, spatial: Ints) -> Ints:
        """Return the tiles along both axes of results of that size."""
        return tuple(-(-size // self.outputs) for size in spatial)

    def chunks(self) -> Iterator[tuple[int, int]]:
        """Yield (first image, last image) of every chunk; the last ones are excluded."""
        for n in range(0, self.geometry.batch, self.images):
            yield n, min(n + self.images, self.geometry.batch)


def winograd_plan(geometry: ConvGeometry, itemsize: int, limit: int) -> WinogradPlan | None:
    """Return a plan whose workspace stays within `limit` bytes; None where column matrices are better."""
    g = geometry
    square = g.axes == 2 and g.kernel[0] == g.kernel[1] and g.kernel[0] in _OUTPUTS
    if not square or g.stride != (1, 1) or g.dilation != (1, 1) or g.channels_last or max(g.pad) >= g.kernel[0]:
        return None
    if min(g.group_channels, g.group_outputs) < _CHANNELS or g.group_channels % LANES or g.group_outputs % LANES:
        return None
    plan = WinogradPlan(g, _OUTPUTS[g.kernel[0]], 1, 0)
    area, tiles = plan.points**2, prod(plan.tiles(g.out_spatial))
    if g.batch * tiles < _TILES or g.out_size * prod(g.kernel) < _GAIN * tiles * area:
        return None
    tiles = max(tiles, prod(plan.tiles(g.in_spatial)))
    weights = 2 * area * plan.plane(g.group_channels * g.group_outputs) * itemsize + 2 * area * plan.plane(0) * itemsize
    image = area * tiles * (g.group_channels + g.group_outputs) * itemsize
    images = min(g.batch, min(limit - weights, max(image, _CHUNK_BYTES, weights)) // image)
    if images < 1:
        return None
    return WinogradPlan(g, plan.outputs, images, weights + images * image)
