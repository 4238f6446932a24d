"""Charts in plain characters: every value in its place, and nothing but ASCII."""

from __future__ import annotations

import math

import pytest

from pycaffe_lms.viz.text_chart import text_chart

pytestmark = pytest.mark.pure


def test_a_chart_as_it_is_printed():
    """Column c of the line has the value 4 - 0.4 c, and rows are 1 apart."""
    lines = text_chart("loss", [("train", [(0, 4.0), (10, 0.0)]), ("test", [(5, 4.0)])], "iteration", 11, 5)
    assert lines == [
        "loss   * train   o test",
        "4 |**   o",
        "  |  **",
        "2 |    ***",
        "  |       **",
        "0 |         **",
        "  +-----------",
        "   0iteration10",
    ]


def test_values_that_differ_much_have_a_logarithmic_axis():
    points = [(i, 10.0**-i) for i in range(5)]
    lines = text_chart("loss", [("", points)], "iteration", 5, 5)
    assert lines[0] == "loss   logarithmic"
    assert [line.partition("|")[2] for line in lines[1:6]] == ["*", " *", "  *", "   *", "    *"]
    assert [line.partition("|")[0].strip() for line in lines[1:6]] == ["1", "", "0.01", "", "0.0001"]


def test_many_points_in_a_column_are_averaged_and_what_is_not_finite_is_left_out():
    lines = text_chart("x", [("a", [(0, 0.0), (1, 1.0), (1, 3.0), (2, 4.0), (2, math.nan)])], "i", 3, 5)
    assert [line.partition("|")[2] for line in lines[1:6]] == ["  *", "", " *", "", "*"]
    assert text_chart("x", [("a", [(0, math.inf)])], "i") == ["x: no values"]
    one = text_chart("x", [("a", [(3, 2.0)])], "i")
    assert sum("*" in line for line in one[1:]) == 1 and any(line.startswith("2 |*") for line in one)


def test_lines_fit_a_terminal_and_are_ascii():
    points = [(i, 1e-5 * (1 + math.sin(i / 50))) for i in range(10_000)]
    lines = text_chart("loss", [(f"run {k}", points) for k in range(3)], "iteration")
    assert len(lines) == 15 and all(len(line) <= 80 and line.isascii() for line in lines)
