"""What operations on scores and labels are told of both."""

from __future__ import annotations

from typing import NamedTuple


class LabelGrid(NamedTuple):
    """Scores seen as (outer, c, inner), with one label for each of the outer * inner positions.

    A label equal to `ignore_label` does not count if `has_ignore`.
    """

    outer: int
    c: int
    inner: int
    has_ignore: bool
    ignore_label: int
