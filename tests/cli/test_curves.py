"""-plot: the learning curves, and their picture."""

from __future__ import annotations

import math
import sys
import xml.etree.ElementTree as ElementTree

import pytest

from pycaffe_lms.cli.live import curves


def test_panels():
    records = [
        {"kind": "test", "iteration": 0, "net": 0, "loss": None, "outputs": {"acc": 0.1, "loss": 2.0}},
        {"kind": "train", "iteration": 0, "loss": 2.5, "lr": 0.1, "outputs": {"loss": 2.4, "p": [1.0, 2.0]}},
        {"kind": "test", "iteration": 2, "net": 1, "loss": 0.5, "outputs": {"acc": None}},
        {"kind": "train", "iteration": 2, "loss": 1.5, "lr": 0.01, "outputs": {"loss": 1.4, "p": [3.0, 4.0]}},
    ]
    shown = curves.panels(records)
    assert list(shown) == ["loss", "acc", "p", "learning rate"]
    assert shown["loss"] == {"train": [(0, 2.5), (2, 1.5)], "test": [(0, 2.0)], "test 1, mean": [(2, 0.5)]}
    assert list(shown["loss"])[0] == "train"
    assert shown["p"] == {"train, 0": [(0, 1.0), (2, 3.0)], "train, 1": [(0, 2.0), (2, 4.0)]}
    assert shown["learning rate"] == {"": [(0, 0.1), (2, 0.01)]}
    assert shown["acc"]["test"] == [(0, 0.1)] and math.isnan(shown["acc"]["test 1"][0][1])


def test_a_picture(train, tmp_path):
    pytest.importorskip("matplotlib")
    code, log = train("-plot", "curves.svg")
    assert code == 0 and "Plotted the learning curves to curves.svg" in log
    root = ElementTree.parse(tmp_path / "curves.svg").getroot()
    assert root.tag.endswith("svg")
    assert train("-plot", "curves.png")[0] == 0
    assert (tmp_path / "curves.png").read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"


def test_what_is_drawn():
    """The lines of the figure have the points, one panel above the other."""
    figure_class = pytest.importorskip("matplotlib.figure").Figure
    shown = {"loss": {"train": [(0, 2.0), (5, 1.0)], "test": [(0, 3.0)]}, "learning rate": {"": [(0, 0.1)]}}
    figure = curves.draw(figure_class, shown, "lenet", "train: each")
    assert figure.axes[0].get_title() == "train: each" and len({line.get_color() for line in figure.axes[0].lines}) == 2
    low, high = figure.axes[1].get_ylim()
    assert low == 0 and high >= 1.1 * 0.1  # the rate is clear of the frame
    drawn = [{line.get_label(): line.get_xydata().tolist() for line in axes.lines} for axes in figure.axes]
    assert drawn[0] == {"train": [[0, 2], [5, 1]], "test": [[0, 3]]}
    assert list(drawn[1].values()) == [[[0, 0.1]]]
    assert [axes.get_ylabel() for axes in figure.axes] == ["loss", "learning rate"]
    assert figure.axes[-1].get_xlabel() == "iteration" and figure.get_suptitle() == "lenet"


def test_a_resumed_run_is_drawn_from_its_beginning(train, monkeypatch):
    pytest.importorskip("matplotlib")
    train("-metrics", "m.jsonl")
    seen, real = [], curves.draw
    monkeypatch.setattr(curves, "draw", lambda figure, shown, *text: seen.append(shown) or real(figure, shown, *text))
    resume = ("-snapshot", "s_iter_3.solverstate")
    assert train("-metrics", "m.jsonl", "-plot", "p.png", *resume)[0] == train("-plot", "p.png", *resume)[0] == 0
    assert [[x for x, _ in shown["loss"]["train"]] for shown in seen] == [[0, 2, 4], [4]]
    assert [[x for x, _ in shown["acc"]["test"]] for shown in seen] == [[0, 3, 6], [3, 6]]


def test_nothing_to_draw_is_said(train, tmp_path):
    pytest.importorskip("matplotlib")
    code, log = train("-plot", "p.png", display=0, test_iter=None, test_interval=0)
    assert code == 0 and "-plot p.png: not written, for nothing was displayed" in log
    assert not (tmp_path / "p.png").exists()


def test_the_net_is_the_title_and_train_is_explained(train, monkeypatch):
    pytest.importorskip("matplotlib")
    seen, real = [], curves.draw
    monkeypatch.setattr(curves, "draw", lambda figure, shown, *text: seen.append(text) or real(figure, shown, *text))
    assert train("-plot", "p.png", average_loss=3)[0] == train("-plot", "p.png")[0] == 0
    words = ["mean loss of the last 3 iterations", "loss of the iteration's batch"]
    assert [caption for _, caption in seen] == [f"train: {word}; test: mean of 2 batches" for word in words]
    assert {title for title, _ in seen} == {"small"}
    assert curves.explained(1, []) == "train: loss of the iteration's batch"


def test_the_loss_in_plain_characters_on_request_and_in_a_terminal(train, tmp_path, monkeypatch):
    code, log = train("-plot", "-")
    assert code == 0 and "small: loss   * train" in log and " iteration " in log
    assert not (tmp_path / "-").exists()
    assert "* train" not in train()[1]  # stderr is no terminal here
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    assert "* train" in train()[1] and "* train" not in train("-progress", "log")[1]
