"""A transposition in the fewest axes: axes of size 1 vanish, axes that stay neighbours in order become one."""

from __future__ import annotations

from math import prod


def merge_axes(shape: tuple[int, ...], order: tuple[int, ...]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """(shape, order) of an equal transposition. Where nothing moves they are ((n,), (0,)).

    merge_axes((2, 3, 4, 5), (0, 2, 3, 1)) == ((2, 3, 20), (0, 2, 1))
    """
    runs: list[list[int]] = []  # bottom axes that stand behind each other in both
    for axis in order:
        if shape[axis] == 1:
            continue
        if runs and all(shape[a] == 1 for a in range(runs[-1][-1] + 1, axis)) and axis > runs[-1][-1]:
            runs[-1].append(axis)
        else:
            runs.append([axis])
    if not runs:
        return (1,), (0,)
    ranks = sorted(range(len(runs)), key=lambda i: runs[i])
    sizes = tuple(prod(shape[a] for a in runs[i]) for i in ranks)
    return sizes, tuple(ranks.index(i) for i in range(len(runs)))


def inverse(order: tuple[int, ...]) -> tuple[int, ...]:
    """The order that takes a transposition back."""
    return tuple(order.index(axis) for axis in range(len(order)))
