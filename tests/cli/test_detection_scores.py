"""`pycaffe-lms test` of a net that ends in DetectionEvaluate: mean average precisions in place of means."""

from __future__ import annotations

import numpy as np
import pytest

import pycaffe_lms as pycaffe

from .command import caffe

h5py = pytest.importorskip("h5py")

NET = """
layer { name: "boxes" type: "HDF5Data" top: "found" top: "truth" hdf5_data_param { source: "list.txt" batch_size: 1 } }
layer { name: "map" type: "DetectionEvaluate" bottom: "found" bottom: "truth" top: "map"
  detection_evaluate_param { num_classes: 3 } }
layer { name: "size" type: "InnerProduct" bottom: "truth" top: "size" inner_product_param { num_output: 1 } }
"""
BOX, OTHER = [0.1, 0.1, 0.4, 0.4], [0.6, 0.6, 0.9, 0.9]


@pytest.mark.parametrize(("version", "expected"), [("Integral", (0.5 + 1) / 2), ("11point", (6 / 11 + 1) / 2)])
def test_a_net_of_detections(tmp_path, version, expected):
    """Class 1 has a right box in the first of two batches, and a wrong one in the second; class 2 has right ones."""
    truth = [[[0, 1, 0, *BOX, 0], [0, 2, 0, *OTHER, 0]]] * 2
    found = [[[0, 1, 0.9, *BOX], [0, 2, 0.8, *OTHER]], [[0, 1, 0.7, *OTHER], [0, 2, 0.8, *OTHER]]]
    with h5py.File(tmp_path / "boxes.h5", "w") as file:
        file["truth"], file["found"] = (np.array(a, np.float32)[:, None] for a in (truth, found))
    (tmp_path / "list.txt").write_text(f"{tmp_path}/boxes.h5\n")
    (tmp_path / "net.prototxt").write_text(NET.replace("list.txt", f"{tmp_path}/list.txt"))
    pycaffe.Net(tmp_path / "net.prototxt", pycaffe.TEST).save(tmp_path / "w.caffemodel")
    flags = ("-weights", "w.caffemodel", "-iterations", "2", "-ap_version", version)
    done = caffe("test", "-model", "net.prototxt", *flags, cwd=tmp_path)
    assert done.code == 0, done.stderr
    assert done.log[-4:] == ["size = 0", f"class1: {2 * expected - 1:.6g}", "class2: 1", f"map = {expected:.6g}"]
    assert not any("map" in line for line in done.log if line.startswith("Batch "))
