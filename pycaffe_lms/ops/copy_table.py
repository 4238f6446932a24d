"""Make the table by which one launch copies many buffers.

The table has int64 words. First comes a row for each buffer: address of the source, address of the target, bytes. Then
comes a word for each block of threads: the buffer's row in the upper half, in the lower half which CHUNK of it the
block copies.
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
