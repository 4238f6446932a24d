"""Cut a convolution through column matrices into chunks whose workspace stays within a limit. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from .geometry import ConvGeometry


@dataclass(frozen=True, slots=True)
class ColumnPlan:
    """Plan a convolution in chunks: `images` at a time with all groups, or one image with `groups` groups at a time.

    The workspace of several images holds their column matrices, then their outputs as (group, outputs, images *
    positions). The workspace of one image holds its columns only, and nothing where the image already is its column
    matrix.
    """

    geometry: ConvGeometry
    images: int
    groups: int
    workspace_bytes: int

    def chunks(self) -> Iterator[tuple[int, int, int, int]]:
        """Yield (first image, last image, first group, last group) of every chunk; the last ones are excluded."""
        batch, group = self.geometry.batch, self.geometry.group
        for n in range(0, batch, self.images):
            for g in range(0, group, self.groups):
                yield n, min(n + self.images, batch), g, min(g + self.groups, group)


def column_plan(geometry: ConvGeometry, itemsize: int, budget: int, wide: int | None = None) -> ColumnPlan:
    """Plan chunks whose workspace stays within `budget` bytes, if the columns of one image and one group do.

    Args:
        itemsize: bytes of an element.
        wide: positions per image from which a pointwise convolution takes one image at a time, without columns;
            None: never.
    """
    g = geometry
    group_columns = g.rows * g.out_size * itemsize
    image_bytes = group_columns * g.group + g.out_channels * g.out_size * itemsize
    images = min(g.batch, budget // image_bytes)
    if images > 1 and not (g.pointwise and wide is not None and g.out_size >= wide):
        return ColumnPlan(g, images, g.group, images * image_bytes)
    if g.pointwise:
        return ColumnPlan(g, 1, g.group, 0)
    groups = max(1, min(g.group, budget // group_columns))
    return ColumnPlan(g, 1, groups, groups * group_columns)
