"""The gradients of every case against central differences, in float64."""

from __future__ import annotations

import numpy as np
import pytest

from ..sampling import of_each_type
from .all_cases import learning_cases
from .case_run import Run

# States at the ends of a recurrent layer pass no gradient, as in Caffe.
# The loss that YOLO's layers show is the sum of their squared gradients, not what these are gradients of; the second
# number of DetectionLoss and DetectionGroupLoss has no gradient, and their limits no slope. ROIWarping rounds regions
# in forward alone.
_SHOWN = {"RegionLoss", "Yolov3", "DetectionLoss", "DetectionGroupLoss", "ROIWarping"}
_MOVED = {"CenterLoss"}  # its parameters get moves, not gradients
_NO_SLOPE = ("expose_hidden: true", "clipping_threshold")  # the second cuts gradients on their way, see test_recurrent
LEARNING = [(n, c) for n, c in learning_cases() if not any(t in c.text for t in _NO_SLOPE) and c.type not in _SHOWN]
_EPS = 1e-6
_ELEMENTS = 6  # of each array, one at a time; all the others together, along random directions
_TOLERANCE = 2e-6


def _tolerance(case):
    if case.type == "ContrastiveLoss":
        return 2e-3  # its gradient adds 1e-4 to the distance, as in Caffe
    if case.type == "MVN" and "eps: 0.5" in case.text:
        return 5e-2  # its gradient takes the deviation plus eps for the deviation, as in Caffe
    return _TOLERANCE


def _factor(case):
    """Return what gradients are in multiples of the slope."""
    sums = case.type in ("CTCLoss", "CtcLoss", "WarpCTCLoss")
    return case.shapes[0][1] if sums else 1  # the number of sequences, as in the forks


def _start(case):
    """Return a run whose loss is smooth: with probabilities for a loss that takes their logarithm."""
    run = Run(case, in_place=False)
    if case.type == "MultinomialLogisticLoss":
        run.bottoms[0] = np.exp(run.bottoms[0]) / 8
    return run


def _directions(rng, size):
    """Return directions for the differences: single elements, then all elements at once."""
    for i in rng.permutation(size)[:_ELEMENTS]:
        yield f"element {i}", np.eye(1, size, i)[0]
    if size > _ELEMENTS:
        yield "all elements", rng.normal(size=size) / np.sqrt(size)


@pytest.mark.parametrize("case", of_each_type(((n, c) for n, c in LEARNING if 0 not in c.shapes[:1]), every=4))
def test_backward_is_the_slope_of_forward(case):
    run = _start(case)
    run.forward()
    weights = [w if i == 0 or not run.layer.declares.is_loss else w * 0 for i, w in enumerate(run.top_diffs())]
    gradients = run.backward(weights)
    rng, tolerance = np.random.default_rng(17), _tolerance(case)

    def loss():
        return sum(float((t * w).sum()) for t, w in zip(run.forward(), weights, strict=True))

    for (kind, i), gradient in gradients.items():
        if kind == "param" and case.type in _MOVED:
            continue
        array = run.bottoms[i] if kind == "bottom" else run.params[i]
        start = array.copy()
        for what, direction in _directions(rng, array.size):
            slope = float(gradient.reshape(-1) @ direction) / _factor(case)
            losses = []
            for step in (_EPS, -_EPS):
                array[...] = start + step * direction.reshape(array.shape)
                losses.append(loss())
            array[...] = start
            numeric = (losses[0] - losses[1]) / (2 * _EPS)
            size = max(abs(numeric), abs(slope), 1.0, 1e-3 * abs(losses[0]))
            assert abs(numeric - slope) <= tolerance * size, f"{kind} {i}, {what}: {numeric} against {slope}"
