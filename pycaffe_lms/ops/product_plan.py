"""Plan products of stacks of matrices, whose leading axes broadcast, as few batched products."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from math import prod

Shape = tuple[int, ...]


@dataclass
class _Axis:
    """A leading axis: its size, and elements from one matrix to the next in a, b and y (0: the same matrix)."""

    size: int
    a: int
    b: int
    y: int


@dataclass(frozen=True)
class ProductPlan:
    """Products y[m, n] = op(a)[m, k] op(b)[k, n] that run one after the other, each of `batch` matrices.

    strides: elements between the batch's matrices in a, b and y. starts: of each product, where it begins in a, b and
    y, and whether it adds to y.
    """

    m: int
    n: int
    k: int
    transpose_a: bool
    transpose_b: bool
    batch: int
    strides: tuple[int, int, int]
    starts: tuple[tuple[int, int, int, bool], ...]


def product_plan(a: Shape, b: Shape, y: Shape, transpose_a: bool, transpose_b: bool) -> ProductPlan:
    """Return the plan of y = op(a) op(b), the matrices in the last two axes, `transpose_*` saying what op does.

    The leading axes broadcast as NumPy's do. y has the broadcast shape, or 1 (or no axis) in its place where products
    along the axis are added up.
    """
    m, k = (a[-1], a[-2]) if transpose_a else (a[-2], a[-1])
    n = b[-2] if transpose_b else b[-1]
    axes = _merged(_leading(a, b, y))
    while axes:
        last = axes[-1]
        if not transpose_a and last.b == 0 and (last.a, last.y) == (m * k, m * n):
            m *= last.size  # one tall product
        elif transpose_a and not transpose_b and last.y == 0 and (last.a, last.b) == (k * m, k * n):
            k *= last.size  # one product that adds up
        else:
            break
        axes.pop()
    together = max((x for x in axes if x.y), key=lambda x: x.size, default=_Axis(1, 0, 0, 0))
    others = [x for x in axes if x is not together]
    starts, seen = [], set()
    for index in product(*(range(x.size) for x in others)):
        at = tuple(sum(i * getattr(x, of) for i, x in zip(index, others, strict=True)) for of in "aby")
        starts.append((*at, at[2] in seen))
        seen.add(at[2])
    strides = together.a, together.b, together.y
    return ProductPlan(m, n, k, transpose_a, transpose_b, together.size, strides, tuple(starts))


def broadcast(a: Shape, b: Shape) -> Shape | None:
    """Return the shape that NumPy gives to an operation on these shapes; None where they do not fit."""
    size = max(len(a), len(b))
    a, b = (1,) * (size - len(a)) + a, (1,) * (size - len(b)) + b
    if any(i != j and 1 not in (i, j) for i, j in zip(a, b, strict=True)):
        return None
    return tuple(j if i == 1 else i for i, j in zip(a, b, strict=True))


def _leading(a: Shape, b: Shape, y: Shape) -> list[_Axis]:
    whole = broadcast(a[:-2], b[:-2])
    if whole is None:
        raise AssertionError(f"shapes {a} and {b} do not fit each other")
    rows = []
    for shape in (a, b, y):
        lead = (1,) * (len(whole) - len(shape[:-2])) + shape[:-2]
        rows.append([0 if lead[i] == 1 else prod(lead[i + 1 :]) * prod(shape[-2:]) for i in range(len(whole))])
    return [_Axis(size, *steps) for size, *steps in zip(whole, *rows, strict=True)]


def _merged(axes: list[_Axis]) -> list[_Axis]:
    """Join neighbours that are one axis in all three, and drop axes of size 1."""
    found: list[_Axis] = []
    for axis in (x for x in axes if x.size != 1):
        if found and all(getattr(found[-1], of) == getattr(axis, of) * axis.size for of in "aby"):
            axis = _Axis(found.pop().size * axis.size, axis.a, axis.b, axis.y)
        found.append(axis)
    return found
