"""`pycaffe-lms draw_net`: the flags reach the picture."""

from __future__ import annotations

import re
import shutil
import sys
import xml.etree.ElementTree as ET

import pytest

from pycaffe_lms.cli.main import main
from tests.test_draw import NET

pytest.importorskip("pydot")
needs_graphviz = pytest.mark.skipif(shutil.which("dot") is None, reason="Graphviz is not installed")


@pytest.fixture
def draw(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "net.prototxt").write_text(NET)

    def run(picture, *argv):
        code = main(["draw_net", "net.prototxt", picture, *argv])
        path = tmp_path / picture
        return code, path.read_bytes() if path.exists() else None

    return run


def test_flags(draw):
    plain = draw("a.dot", "-blobs")[1].decode()
    assert "rankdir=LR" in plain and "lr mult" not in plain and "acc" in plain and "mnist_Data" in plain
    assert "rankdir=TB" in draw("a.dot", "-blobs", "--rankdir", "TB")[1].decode()
    assert "lr mult: 1.0, 2.0" in draw("a.dot", "-blobs", "--display_lrm")[1].decode()
    train, test = (draw("a.dot", "-blobs", "--phase", phase)[1].decode() for phase in ("TRAIN", "TEST"))
    assert "acc_Accuracy" not in train and "acc_Accuracy" in test
    assert "Batch 64" in train and "Batch 100" in test and "Batch 100" not in train


def test_flags_of_the_overview(draw):
    plain = draw("a.dot")[1].decode()
    assert "rankdir=TB" in plain and "lr_mult" not in plain and "<B>acc</B>" in plain
    assert "rankdir=LR" in draw("a.dot", "--rankdir", "LR")[1].decode()
    assert "lr_mult 1, 2<" in draw("a.dot", "--display_lrm")[1].decode()
    train, test = (draw("a.dot", "--phase", phase)[1].decode() for phase in ("TRAIN", "TEST"))
    assert "<B>acc</B>" not in train and "<B>acc</B>" in test
    assert "batch 64" in train and "batch 100" in test and "batch 100" not in train


@needs_graphviz
def test_pictures(draw):
    assert draw("a.png")[1][:8] == b"\x89PNG\r\n\x1a\n"
    assert draw("a.pdf")[1][:5] == b"%PDF-"
    texts = [t.text for t in ET.fromstring(draw("a.svg", "-blobs")[1]).iter("{http://www.w3.org/2000/svg}text")]
    assert {"conv1", "(Convolution)", "kernel size: 5", "(Pooling AVE)"} <= set(texts)


@needs_graphviz
def test_an_svg_fills_the_window_and_zooms_without_anything_from_outside(draw):
    picture = draw("a.svg")[1]
    root = ET.fromstring(picture)
    assert (root.get("width"), root.get("height")) == ("100%", "100%")
    x, y, width, height = map(float, root.get("viewBox").split())
    assert x == y == 0 and min(width, height) > 100
    texts = [t.text for t in root.iter("{http://www.w3.org/2000/svg}text")]
    assert {"small net", "conv1", "Convolution 5x5, 20 outputs, stride 2", "ReLU"} <= set(texts)
    (script,) = root.iter("{http://www.w3.org/2000/svg}script")
    assert "viewBox" in script.text and "wheel" in script.text and script.attrib == {}
    assert re.findall(rb"https?://[^\"\s]+", picture.partition(b"<svg")[2]) == [
        b"http://www.w3.org/2000/svg",
        b"http://www.w3.org/1999/xlink",
    ]


def test_what_is_missing_is_said_before_the_net_is_read(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("PATH", "")
    model = str(tmp_path / "none.prototxt")
    assert main(["draw_net", model, "a.png"]) == 2
    said = capsys.readouterr().err
    assert "`dot` is not on the PATH" in said and "apt install graphviz" in said and "none.prototxt" not in said
    monkeypatch.setitem(sys.modules, "pydot", None)
    assert main(["draw_net", model, "a.png"]) == 1
    said = capsys.readouterr().err
    assert "pip install 'pycaffe-lms[draw]' && apt install graphviz" in said and "none.prototxt" not in said


def test_wrong_use(draw, tmp_path, capsys):
    assert draw("a")[0] == 2
    assert "no ending" in capsys.readouterr().err
    assert draw("a.png", "-phase", "TRIAN")[0] == 2
    assert "TRIAN" in capsys.readouterr().err
    (tmp_path / "net.prototxt").write_text("layer { name: 3 }")
    assert draw("a.dot") == (1, None)
    assert "net.prototxt:1" in capsys.readouterr().err


@needs_graphviz
def test_a_format_that_graphviz_lacks(draw, capsys):
    assert draw("a.xyz") == (2, None)
    assert '"xyz"' in capsys.readouterr().err
