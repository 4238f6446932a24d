"""Sizes and ranges of convolutions and poolings, against counting."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pycaffe_lms.ops.column_plan import column_plan
from pycaffe_lms.ops.geometry import (
    ConvGeometry,
    PoolGeometry,
    conv_output_size,
    pool_output_size,
    tap_range,
)

pytestmark = pytest.mark.pure
small = st.integers(1, 9)


@given(small, small, small, st.integers(0, 5), st.integers(1, 4))
def test_conv_output_size_counts_the_places_of_the_kernel(size, kernel, stride, pad, dilation):
    reach = dilation * (kernel - 1) + 1
    places = [at for at in range(0, size + 2 * pad, stride) if at + reach <= size + 2 * pad]
    assert conv_output_size(size, kernel, stride, pad, dilation) == len(places)


@pytest.mark.parametrize(
    "size, kernel, stride, pad, ceil, expected",
    [
        (227, 3, 2, 0, True, 113),
        (55, 3, 2, 0, True, 27),
        (112, 3, 2, 0, True, 56),
        (112, 3, 2, 0, False, 55),
        (6, 3, 2, 1, True, 4),
        (4, 5, 1, 0, True, 0),
        (4, 5, 2, 0, True, 1),
        (4, 5, 2, 0, False, 0),
    ],
)
def test_pool_output_size(size, kernel, stride, pad, ceil, expected):
    assert pool_output_size(size, kernel, stride, pad, ceil) == expected


@given(small, small, small, st.integers(-12, 12))
def test_tap_range_is_where_the_tap_is_inside(size, outputs, stride, offset):
    inside = [o for o in range(outputs) if 0 <= o * stride + offset < size]
    first, last = tap_range(size, outputs, stride, offset)
    assert list(range(first, last)) == inside


def test_divisors_count_near_padding_fully_and_far_padding_to_its_border():
    g = PoolGeometry(1, (6, 6), (4, 4), (3, 3), (2, 2), (1, 1))
    assert g.divisors(0) == [3, 3, 3, 2]


def test_divisors_of_what_is_inside():
    inside = PoolGeometry(1, (5, 5), (4, 4), (3, 3), (2, 2), (1, 1), inside=True)  # windows -1..1, 1..3, 3..5, 5..7
    assert inside.divisors(0) == [2, 3, 2, 1]


def test_more_axes_are_the_same_convolution():
    g = ConvGeometry(2, 4, 6, 2, (9,), (4,), (3,), (2,), (0,), (1,)).with_axes(3)
    assert (g.in_spatial, g.kernel, g.stride, g.pad) == ((1, 1, 9), (1, 1, 3), (1, 1, 2), (0, 0, 0))
    assert (g.rows, g.out_size, g.axes, g.pointwise) == (6, 4, 3, False)
    assert g.with_axes(2) == g


@given(st.integers(0, 7), st.integers(1, 3), st.integers(1, 6), st.integers(1, 3), st.integers(0, 20_000))
def test_chunks_cover_everything_once_within_the_limit(batch, group, size, kernel, budget):
    out = size + 1 if kernel == 2 else size
    kernel, pad = (kernel, kernel), ((kernel) // 2,) * 2
    g = ConvGeometry(batch, 2 * group, 3 * group, group, (size,) * 2, (out,) * 2, kernel, (1, 1), pad, (1, 1))
    plan = column_plan(g, 4, budget)
    seen = [(n, i) for n0, n1, g0, g1 in plan.chunks() for n in range(n0, n1) for i in range(g0, g1)]
    assert sorted(seen) == [(n, i) for n in range(batch) for i in range(group)]
    least = 0 if g.pointwise else 4 * g.rows * g.out_size
    assert plan.workspace_bytes <= max(budget, least)
    assert plan.images == 1 or plan.groups == group
