"""`pycaffe-lms draw_net`: the flags reach the picture."""

from __future__ import annotations

import shutil
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
    plain = draw("a.dot")[1].decode()
    assert "rankdir=LR" in plain and "lr mult" not in plain and "acc" in plain and "mnist_Data" in plain
    assert "rankdir=TB" in draw("a.dot", "--rankdir", "TB")[1].decode()
    assert "lr mult: 1.0, 2.0" in draw("a.dot", "--display_lrm")[1].decode()
    train, test = (draw("a.dot", "--phase", phase)[1].decode() for phase in ("TRAIN", "TEST"))
    assert "acc_Accuracy" not in train and "acc_Accuracy" in test
    assert "Batch 64" in train and "Batch 100" in test and "Batch 100" not in train


@needs_graphviz
def test_pictures(draw):
    assert draw("a.png")[1][:8] == b"\x89PNG\r\n\x1a\n"
    assert draw("a.pdf")[1][:5] == b"%PDF-"
    texts = [t.text for t in ET.fromstring(draw("a.svg")[1]).iter("{http://www.w3.org/2000/svg}text")]
    assert {"conv1", "(Convolution)", "kernel size: 5", "(Pooling AVE)"} <= set(texts)


def test_wrong_use(draw, tmp_path, capsys):
    assert draw("a")[0] == 2
    assert "no ending" in capsys.readouterr().err
    assert draw("a.png", "-phase", "TRIAN")[0] == 2
    assert "TRIAN" in capsys.readouterr().err
    (tmp_path / "net.prototxt").write_text("layer { name: 3 }")
    assert draw("a.png") == (1, None)
    assert "net.prototxt:1" in capsys.readouterr().err


@needs_graphviz
def test_a_format_that_graphviz_lacks(draw, capsys):
    assert draw("a.xyz") == (2, None)
    assert '"xyz"' in capsys.readouterr().err
