"""`-shape` of `train` and `time`: synthetic data in place of a database, labels within the classes."""

from __future__ import annotations

import numpy as np
import pytest

from pycaffe_lms.cli.synthetic import Synthetic
from pycaffe_lms.formats.prototxt.parser import parse_net
from pycaffe_lms.net.net import Net

from .command import caffe, complaint
from .nets import DATA_NET, SOLVER, write

TEST_NET = """
test_iter: 1
test_interval: 1
"""
RUNS = {
    "train": ["train", "-solver", "solver.prototxt", "-backend", "sim", "-lms", "1"],
    "time": ["time", "-model", "net.prototxt", "-backend", "cpu", "-iterations", "1"],
}


@pytest.fixture
def folder(tmp_path):
    write(tmp_path, DATA_NET)  # its database does not exist
    write(tmp_path, SOLVER + TEST_NET, name="solver.prototxt")
    return tmp_path


@pytest.mark.parametrize("command", RUNS)
def test_no_database_is_needed(folder, command):
    done = caffe(*RUNS[command], "-shape", "data=4,3,8,8", cwd=folder)
    assert done.code == 0, done.stderr
    _, fix = complaint(caffe(*RUNS[command], cwd=folder), 1)
    assert "-shape data=32,3,224,224" in fix, "without the flag the error names it"


@pytest.mark.parametrize("command", RUNS)
@pytest.mark.parametrize("shape", ["dat=4,3,8,8", "data", "data=4,x"])
def test_a_shape_that_means_nothing(folder, command, shape):
    message, fix = complaint(caffe(*RUNS[command], "-shape", shape, cwd=folder), 2)
    assert message.startswith("-shape ") and shape in message
    assert "data, label" in fix if shape.startswith("dat=") else "-shape data=32,3,224,224" in fix


def _filled(text, *shapes):
    synthetic = Synthetic(shapes)
    with synthetic.building("net.prototxt"):
        net = Net(synthetic.replace(parse_net(text).message), 0)
    synthetic.fill(net)
    return net


def test_labels_are_within_the_classes_of_all_that_read_them():
    accuracy = 'layer { name: "acc" type: "Accuracy" bottom: "ip" bottom: "label" top: "acc" }\n'
    net = _filled(DATA_NET + accuracy, "data=500,3,8,8")  # two readers: a Split layer stands between
    label, data = net.blobs["label"].data, net.blobs["data"].data
    assert label.shape == (500,) and set(label.tolist()) == set(range(10))
    assert data.shape == (500, 3, 8, 8) and abs(data.mean()) < 0.01 and abs(data.std() - 1) < 0.01
    before = data.copy(), label.copy()
    net.test_forward()
    net.test_forward()
    np.testing.assert_array_equal(net.blobs["data"].data, before[0])
    np.testing.assert_array_equal(net.blobs["label"].data, before[1])
    assert 0 < net.blobs["loss"].data < 20  # a label out of range would make it NaN


def test_a_label_for_every_position():
    text = DATA_NET.replace('type: "InnerProduct"', 'type: "Convolution"', 1).replace(
        "inner_product_param { num_output: 10 }", "convolution_param { num_output: 3 kernel_size: 1 }"
    )
    net = _filled(text, "data=2,1,4,5", "label=2,1,4,5")
    assert set(net.blobs["label"].data.ravel().tolist()) == {0, 1, 2}


def test_indices_are_within_the_table():
    text = """layer { name: "words" type: "HDF5Data" top: "words" hdf5_data_param { source: "none" batch_size: 1 } }
    layer { name: "e" type: "Embed" bottom: "words" top: "e" embed_param { input_dim: 7 num_output: 2 } }
    """
    assert set(_filled(text, "words=300").blobs["words"].data.tolist()) == set(range(7))


def test_pictures_with_boxes_have_none():
    """The rows of AnnotatedData's label are -1, as of a batch without objects."""
    text = """layer { name: "data" type: "AnnotatedData" top: "data" top: "boxes"
      data_param { source: "none" batch_size: 2 } transform_param { resize_param { height: 9 width: 9 } } }"""
    net = _filled(text, "data=4,3,5,6")
    assert net.blobs["boxes"].data.shape == (1, 1, 32, 8) and (net.blobs["boxes"].data == -1).all()
    assert net.blobs["data"].data.shape == (4, 3, 5, 6) and net.blobs["data"].data.std() > 0.5
    assert _filled(text, "data=4,3,5,6", "boxes=1,1,3,8").blobs["boxes"].data.tolist() == [[[[-1] * 8] * 3]]
