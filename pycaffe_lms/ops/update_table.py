"""Make the table by which one launch updates many parameters.

The table has int64 words, real numbers by their bits. First comes a row for each parameter: addresses of parameter,
gradient and history, elements, lr_mult, decay_mult, whether there is a gradient (else it counts as zero, whatever lies
there), and the address of a second history (0: none). Then comes a word for each block of threads: the parameter's row
in the upper half, in the lower half which CHUNK of it the block updates.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..arrays import HostArray

CHUNK = 8192  # elements per block
ROW = 8  # words


def table_words(sizes: Sequence[int]) -> int:
    """Return the words of the table for parameters of these numbers of elements."""
    return ROW * len(sizes) + sum(_chunks(n) for n in sizes)


def make_table(
    addresses: Sequence[Sequence[int]],
    sizes: Sequence[int],
    lr_mults: Sequence[float],
    decay_mults: Sequence[float],
    has_gradient: Sequence[bool],
) -> HostArray:
    """Return the table.

    `addresses` lists those of all parameters, all gradients, all histories and, if any, all second histories.
    """
    rows = np.zeros((len(sizes), ROW), np.int64)
    columns = (0, 1, 2, 7)[: len(addresses)]
    for column, numbers in zip((*columns, 3), (*addresses, sizes), strict=True):
        rows[:, column] = numbers
    rows[:, 4] = np.asarray(lr_mults, np.float64).view(np.int64)
    rows[:, 5] = np.asarray(decay_mults, np.float64).view(np.int64)
    rows[:, 6] = has_gradient
    counts = [_chunks(n) for n in sizes]
    blocks = [(row << 32) + np.arange(n, dtype=np.int64) for row, n in enumerate(counts)]
    return np.concatenate([rows.reshape(-1), *blocks])


def _chunks(n: int) -> int:
    return -(-n // CHUNK)
