"""`pycaffe-lms detect` with a net that ends in DetectionOutput: lines for objects, and pictures with their boxes."""

from __future__ import annotations

import numpy as np
import pytest

import pycaffe_lms as caffe
from pycaffe_lms.cli.main import main

cv2 = pytest.importorskip("cv2")

NET = """
layer { name: "data" type: "Input" top: "data" input_param { shape { dim: 2 dim: 3 dim: 4 dim: 4 } } }
layer { name: "map" type: "Pooling" bottom: "data" top: "map" pooling_param { pool: AVE global_pooling: true } }
layer { name: "loc" type: "InnerProduct" bottom: "map" top: "loc" inner_product_param { num_output: 4 } }
layer { name: "conf" type: "InnerProduct" bottom: "map" top: "conf" inner_product_param { num_output: 3 } }
layer { name: "prior" type: "PriorBox" bottom: "map" bottom: "data" top: "prior"
  prior_box_param { min_size: 2 variance: 0.1 } }
layer { name: "out" type: "DetectionOutput" bottom: "loc" bottom: "conf" bottom: "prior" top: "out"
  detection_output_param { num_classes: 3 nms_param { nms_threshold: 0.45 } confidence_threshold: 0.01 } }
"""
FLAGS = ("-weights", "w.caffemodel", "-backend", "cpu")
MEANS = ("-mean_value", "50,100,150", "-input_scale", "0.01")


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """A net that finds the box of half the picture's sides in its middle: of class 1 with the mean of the blue channel
    as its score, of class 2 with that of the red one. A picture of 8 x 4 pixels."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "deploy.prototxt").write_text(NET)
    net = caffe.Net("deploy.prototxt", caffe.TEST)
    net.params["conf"][0].data[...] = np.array([[0, 0, 0], [1, 0, 0], [0, 0, 1]])
    net.save("w.caffemodel")
    cv2.imwrite("a.png", np.full((4, 8, 3), (120, 0, 180), np.uint8))
    cv2.imwrite("b.png", np.full((8, 16, 3), (50, 0, 245), np.uint8))
    (tmp_path / "map.prototxt").write_text('item { name: "cat" label: 1 }\nitem { name: "dog" label: 2 }\n')


def test_lines(capsys):
    assert main(["detect", "deploy.prototxt", "a.png", "b.png", *FLAGS, *MEANS, "-label_map_file", "map.prototxt"]) == 0
    # (120 - 50) / 100 and (180 - 150) / 100, which is less than 0.5; (245 - 150) / 100
    assert capsys.readouterr().out.splitlines() == [
        "a.png cat 0.7000 2.0 1.0 6.0 3.0",
        "b.png dog 0.9500 4.0 2.0 12.0 6.0",
    ]


def test_less_sure_ones_are_told_best_first(capsys):
    flags = (*FLAGS, "-mean_value", "100", "-input_scale", "0.01", "-confidence_threshold", "0.1")
    assert main(["detect", "-model", "deploy.prototxt", "a.png", *flags]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "a.png class2 0.8000 2.0 1.0 6.0 3.0",
        "a.png class1 0.2000 2.0 1.0 6.0 3.0",
    ]


def test_boxes_are_drawn(tmp_path):
    assert main(["detect", "deploy.prototxt", "b.png", *FLAGS, *MEANS, "-draw", "found/here"]) == 0
    drawn = cv2.imread("found/here/b.png")
    changed = (drawn != (50, 0, 245)).any(axis=2)
    assert drawn.shape == (8, 16, 3)
    assert changed[6, 4:13].all() and changed[2:7, 4].all() and not changed[3:6, 13:].any()


@pytest.mark.parametrize(
    ("more", "code", "words"),
    [
        (("-mean_value", "1,2"), 2, "2 numbers, but the net has 3 channels"),
        (("-mean_value", "1,b,3"), 2, "is not a list of numbers"),
        (("-mean_value", "1", "-mean_file", "m.npy"), 2, "-mean_value and -mean_file"),
        (("x/a.png",), 1, "x/a.png"),
        (("-draw", "deploy.prototxt"), 1, "deploy.prototxt"),
        (("-label_map_file", "none.prototxt"), 1, "none.prototxt"),
    ],
)
def test_wrong_use(capsys, more, code, words):
    assert main(["detect", "deploy.prototxt", "a.png", *FLAGS, *more]) == code
    err = capsys.readouterr().err
    assert words in err and "Traceback" not in err


def test_pictures_of_one_name_cannot_share_a_folder(tmp_path, capsys):
    (tmp_path / "x").mkdir()
    (tmp_path / "x" / "a.png").write_bytes((tmp_path / "a.png").read_bytes())
    assert main(["detect", "deploy.prototxt", "a.png", "x/a.png", *FLAGS, "-draw", "found"]) == 2
    assert "two pictures have one name" in capsys.readouterr().err


def test_a_net_without_detections_is_refused(tmp_path, capsys):
    (tmp_path / "deploy.prototxt").write_text(NET[: NET.index('layer { name: "out"')])
    assert main(["detect", "deploy.prototxt", "a.png", *FLAGS]) == 2
    assert "no DetectionOutput layer" in capsys.readouterr().err
