"""The table by which one launch copies many buffers: a row for each, and for each block its row and its part.

int64 words. A row: addresses of source and target, bytes. Behind the rows a word per block: the row in the upper half,
which CHUNK of it in the lower.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..arrays import HostArray

CHUNK = 1 << 15  # bytes per block
ROW = 3  # words


def table_words(sizes: Sequence[int]) -> int:
    """Return the words of the table for buffers of these numbers of bytes."""
    return ROW * len(sizes) + sum(-(-n // CHUNK) for n in sizes)


def make_table(sources: Sequence[int], targets: Sequence[int], sizes: Sequence[int]) -> HostArray:
    """Return the table for buffers at these addresses, of so many bytes each."""
    rows = np.stack([np.asarray(column, np.int64) for column in (sources, targets, sizes)], axis=1)
    blocks = [(row << 32) + np.arange(-(-n // CHUNK), dtype=np.int64) for row, n in enumerate(sizes)]
    return np.concatenate([rows.reshape(-1), *blocks])
