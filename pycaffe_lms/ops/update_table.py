"""The table by which one launch updates many parameters: a row for each, and for each block its row and its part.

int64 words, reals by their bits. A row: addresses of parameter, gradient and history, elements, lr_mult, decay_mult,
whether there is a gradient (else it is zero, whatever lies there), and the address of a second history (0: none).
Behind the rows a word per block: the row in the upper half, which CHUNK of the parameter in the lower.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..arrays import HostArray

CHUNK = 8192  # elements per block
ROW = 8  # words


def table_words(sizes: Sequence[int]) -> int:
    """Words of the table for parameters of these numbers of elements."""
    return ROW * len(sizes) + sum(_chunks(n) for n in sizes)


def make_table(
    addresses: Sequence[Sequence[int]],
    sizes: Sequence[int],
    lr_mults: Sequence[float],
    decay_mults: Sequence[float],
    has_gradient: Sequence[bool],
) -> HostArray:
    """The table. addresses: of all parameters, of all gradients, of all histories, of all second histories if any."""
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
