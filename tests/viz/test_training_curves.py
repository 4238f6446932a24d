"""Curves of training logs: which values they show, and files that hold them."""

from __future__ import annotations

import sys
import xml.etree.ElementTree as ET

import pytest

from pycaffe_lms.errors import DataError, MissingDependency
from pycaffe_lms.formats.training_log import parse_training_log
from pycaffe_lms.viz.training_curves import CHARTS, Curve, curves, draw
from tests.formats.test_training_log import CAFFE

LOG = parse_training_log(CAFFE.splitlines(), 2016)


@pytest.mark.parametrize(
    ("chart", "title", "x", "y"),
    [  # Caffe's numbers
        (0, ("Test accuracy", "Iters"), (0, 200), (0.0919, 0.9)),
        (1, ("Test accuracy", "Seconds"), (1, 62), (0.0919, 0.9)),
        (2, ("Test loss", "Iters"), (0, 200), (2.36417, 0.3)),
        (3, ("Test loss", "Seconds"), (1, 62), (2.36417, 0.3)),
        (4, ("Train learning rate", "Iters"), (0, 100, 200), (0.01, 0.00992565, 9.8e-05)),
        (5, ("Train learning rate", "Seconds"), (1.1, 10, 60), (0.01, 0.00992565, 9.8e-05)),
        (6, ("Train loss", "Iters"), (0, 100, 200, 200), (2.41298, 0.2, 0.1, 0.09)),
        (7, ("Train loss", "Seconds"), (1.1, 10, 60, 61), (2.41298, 0.2, 0.1, 0.09)),
    ],
)
def test_charts(chart, title, x, y):
    assert CHARTS[chart] == title and len(CHARTS) == 8
    assert curves(LOG, "run", chart) == [Curve("run", x, y)]


def renamed(**names):
    text = CAFFE
    for old, new in names.items():
        text = text.replace(f": {old} =", f": {new} =")
    return parse_training_log(text.splitlines(), 2016)


def test_which_outputs_are_drawn():
    assert curves(renamed(accuracy="top5"), "run", 0)[0].y == (0.0919, 0.9)  # counts in no loss
    assert curves(renamed(loss="error"), "run", 2)[0].y == (2.36417, 0.3)  # counts in one
    named = curves(LOG, "run", 0, ["loss", "accuracy"])
    assert [(c.label, c.y[0]) for c in named] == [("run: loss", 2.36417), ("run: accuracy", 0.0919)]


@pytest.mark.parametrize(
    ("without", "chart", "outputs", "words"),
    [
        ("Test net", 0, (), "no test"),
        ("lr =", 4, (), "no train learning rate"),
        ("loss = 0", 0, ("acc",), 'no test output "acc"'),
        ("loss", 2, (), "no output that looks like test loss"),
    ],
)
def test_what_is_not_in_the_log(without, chart, outputs, words):
    log = parse_training_log([line for line in CAFFE.splitlines() if without not in line], 2016)
    with pytest.raises(DataError, match=words) as caught:
        curves(log, "run", chart, outputs)
    assert caught.value.fix


def test_pictures():
    pytest.importorskip("matplotlib")
    lines = [Curve("first", (0, 1, 2), (1.0, 0.5, float("nan"))), Curve("second", (0, 1), (0.1, 0.001))]
    png, svg, pdf = (draw(lines, 4, form) for form in ("png", "svg", "pdf"))
    assert png[:8] == b"\x89PNG\r\n\x1a\n" and pdf[:5] == b"%PDF-"
    assert ET.fromstring(svg).tag.endswith("svg")
    for text in (b"Train learning rate vs. Iters", b"first", b"second"):
        assert text in svg  # comments beside the glyphs
    cv2 = pytest.importorskip("cv2")
    import numpy as np

    pixels = cv2.imdecode(np.frombuffer(png, np.uint8), cv2.IMREAD_COLOR)
    assert pixels.shape == (750, 1200, 3)
    for blue_green_red in ((180, 119, 31), (14, 127, 255)):  # the lines' colours
        assert (pixels == blue_green_red).all(axis=2).sum() > 100


def test_titles_and_axes(monkeypatch):
    figure_class = pytest.importorskip("matplotlib.figure").Figure
    made = []
    monkeypatch.setattr("matplotlib.figure.Figure", lambda **how: made.append(figure_class(**how)) or made[-1])
    for chart in (4, 6):
        draw(curves(LOG, "run", chart), chart, "svg", LOG.net)
    rate, loss = made
    assert rate.get_suptitle() == loss.get_suptitle() == LOG.net == "LeNet"
    assert loss.axes[0].get_ylabel() == "train loss (mean of average_loss iterations)"
    (line,), (low, high) = rate.axes[0].lines, rate.axes[0].get_ylim()
    assert line.get_drawstyle() == "steps-post" and low < min(line.get_ydata()) and max(line.get_ydata()) < high


def test_without_matplotlib(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(MissingDependency, match="drawing curves needs the package matplotlib") as caught:
        draw([Curve("x", (0,), (1,))], 0, "png")
    assert "pycaffe-lms[plot]" in caught.value.fix
