"""Tests that score detection: average precisions by the fork's facts and by hand, what a solver logs and returns."""

from __future__ import annotations

import logging

import numpy as np
import pytest

from pycaffe_lms.errors import SolverError
from pycaffe_lms.solvers.detection_scores import average_precision

from .helpers import CONSTANT, PLACES, inner, loss, make, messages

# Facts of weiliu89/caffe, test_bbox_util.cpp, TestComputeAP: scores, right ones, 5 true boxes.
SCORES = np.array([1, 1, 0.9, 0.9, 0.8, 0.7, 0.7, 0.6, 0.5, 0.4, 0.4])
RIGHT = np.array([0, 1, 1, 0, 1, 0, 1, 0, 0, 0, 1])
FACTS = {"Integral": (0.558528, 5 / 11 * 0.2), "MaxIntegral": (0.591861, 5 / 11 * 0.2), "11point": (0.598662, 10 / 121)}


@pytest.mark.parametrize("version", FACTS)
def test_average_precisions_of_the_fork(version):
    whole, last = FACTS[version]
    assert average_precision(SCORES, RIGHT, 5, version) == pytest.approx(whole, abs=1e-5)
    assert average_precision(SCORES[:7], RIGHT[:7], 5, version) == pytest.approx(whole - last, abs=1e-5)


@pytest.mark.parametrize("version", FACTS)
def test_the_ends_of_the_scale(version):
    assert average_precision(np.array([0.9, 0.8]), np.array([1, 1]), 2, version) == pytest.approx(1)
    assert average_precision(np.array([0.9, 0.8]), np.array([0, 0]), 2, version) == 0
    assert average_precision(np.array([]), np.array([]), 2, version) == 0
    assert average_precision(np.array([0.9]), np.array([0]), 0, version) == 0


# Image 0: class 1 is found twice, once right, class 2 not at all; image 1: class 1 is missed, class 3 right.
BOXES = """
layer { name: "found" type: "Input" top: "found" include { phase: TEST }
  input_param { shape { dim: 1 dim: 1 dim: 3 dim: 7 } } }
layer { name: "truth" type: "Input" top: "truth" include { phase: TEST }
  input_param { shape { dim: 1 dim: 1 dim: 4 dim: 8 } } }
layer { name: "map" type: "DetectionEvaluate" bottom: "found" bottom: "truth" top: "map" include { phase: TEST }
  detection_evaluate_param { num_classes: 4 evaluate_difficult_gt: false } }
layer { name: "quiet" type: "Silence" bottom: "loss" include { phase: TEST } }
"""
FOUND = [[0, 1, 0.9, 0.1, 0.1, 0.4, 0.4], [0, 1, 0.8, 0.6, 0.6, 0.9, 0.9], [1, 3, 0.7, 0.2, 0.2, 0.5, 0.5]]
TRUTH = [
    [0, 1, 0, 0.1, 0.1, 0.4, 0.4, 0],
    [1, 1, 0, 0.1, 0.1, 0.4, 0.4, 0],
    [0, 2, 0, 0.6, 0.6, 0.9, 0.9, 0],
    [1, 3, 0, 0.2, 0.2, 0.5, 0.5, 0],
]
NET = CONSTANT + inner() + loss()


def solver_of(place="cpu", **options):
    given = {"test_iter": 2, "test_interval": 1, "eval_type": '"detection"'} | options
    solver = make(NET + BOXES, place, **given)
    solver.test_nets[0].blobs["found"].data = np.array(FOUND)[None, None]
    solver.test_nets[0].blobs["truth"].data = np.array(TRUTH)[None, None]
    return solver


@pytest.mark.parametrize("place", PLACES)
def test_a_solver_tests_detection(caplog, place):
    """Both batches together: class 1 has 4 true boxes, of which 2 are found first; class 3 all; class 2 none."""
    caplog.set_level(logging.INFO, "pycaffe_lms")
    solver = solver_of(place, show_per_class_result="true", test_compute_loss="true")
    caplog.clear()
    expected = (0.5 + 0 + 1) / 3
    assert solver.test() == [("map", pytest.approx(expected, rel=1e-6))]
    log = messages(caplog)
    assert log[0] == "Iteration 0, Testing net (#0)" and log[1].startswith("Test loss: ")
    assert log[2:] == [
        "class1: 0.5",
        "class3: 1",
        "map: nothing is found of class 2, which counts as 0",
        "    Test net output #0: map = 0.5",
    ]


def test_versions_and_difficult_boxes():
    """At recalls 0 to 0.5 the precision of class 1 is 1; a difficult box is neither true nor wrong."""
    solver = solver_of(ap_version='"11point"')
    assert solver.test()[0][1] == pytest.approx((6 / 11 + 0 + 1) / 3)
    truth = np.array(TRUTH)
    truth[3, 7] = 1  # class 3 has no box then, and what is found of it does not count
    solver.test_nets[0].blobs["truth"].data = truth[None, None]
    assert solver.test()[0][1] == pytest.approx(6 / 11 / 3)


def test_observers_and_the_best_snapshot(tmp_path):
    prefix = f'"{tmp_path}/d"'
    solver = solver_of(snapshot_prefix=prefix, base_lr=0.0, max_iter=1, test_initialization="true")
    solver.snapshots.keep_best("map")
    solver.solve()
    assert (tmp_path / "d_best_iter_0.caffemodel").exists()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"eval_type": '"segmentation"'}, 'eval_type "segmentation" is unknown'),
        ({"eval_type": '"detection"', "ap_version": '"12point"'}, 'ap_version "12point" is unknown\n.*"11point"'),
    ],
)
def test_unknown_settings(options, message):
    with pytest.raises(SolverError, match=message):
        make(NET, **options)


def test_outputs_that_are_no_detections():
    solver = make(NET, test_iter=1, test_interval=1, eval_type='"detection"')
    with pytest.raises(SolverError, match=r'output "loss" has shape \(\)\n.*DetectionEvaluate'):
        solver.test()


def test_settings_without_effect(caplog):
    make(NET, ap_version='"11point"')
    assert 'ap_version has no effect: eval_type "classification" does not read it' in caplog.text
