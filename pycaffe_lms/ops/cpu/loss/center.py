"""Compute how class centres shall move towards the features of their classes."""

from __future__ import annotations

import numpy as np

from ....arrays import HostArray

__all__ = ["center_moves"]


def center_moves(index: HostArray, x: HostArray, centers: HostArray, moves: HostArray, m: int, n: int) -> None:
    """Write to moves (m, n) centers - x, each row divided by 1 + the number of rows with the same index.

    index: m labels, which are truncated. centers: of each row, the centre of its class.
    """
    labels = np.trunc(index.reshape(m).astype(np.float64))
    _, group, sizes = np.unique(labels, return_inverse=True, return_counts=True)
    moves = moves.reshape(m, n)
    np.subtract(centers.reshape(m, n), x.reshape(m, n), out=moves)
    moves /= (sizes[group.reshape(m)] + 1).astype(moves.dtype)[:, None]
