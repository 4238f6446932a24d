"""Scores detection: average precisions of the rows that DetectionEvaluate makes, as in SSD's tests.

Source: weiliu89/caffe (SSD), src/caffe/solver.cpp, src/caffe/util/bbox_util.cpp (ComputeAP: definitions).
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Sequence

import numpy as np

from ..arrays import HostArray
from ..errors import SolverError
from ..net.net import Net
from ..proto.caffe_pb2 import SolverParameter
from .events import Output

_log = logging.getLogger(__name__)


class DetectionScores:
    """Collect the rows of a test net's outputs over batches.

    Args:
        param: of the solver; ap_version and show_per_class_result are read.
        names: of the outputs.

    Raises:
        SolverError: an output is none of DetectionEvaluate.
    """

    def __init__(self, net: Net, param: SolverParameter, names: Sequence[str]):
        self._net, self._param = net, param
        self._rows: dict[str, list[HostArray]] = {name: [] for name in names}
        for name in names:
            shape = net.blobs[name].shape
            if len(shape) != 4 or 5 not in (shape[1], shape[3]):
                raise SolverError(
                    f'eval_type is "detection", but the test net\'s output "{name}" has shape {tuple(shape)}',
                    field="eval_type",
                    fix='end the test net with a DetectionEvaluate layer, and read other tops with a "Silence" layer',
                )

    @property
    def names(self) -> list[str]:
        """Return the names of the outputs."""
        return list(self._rows)

    def add(self) -> None:
        """Take the outputs of the net's last forward."""
        for name, rows in self._rows.items():
            rows.append(self._net.blobs[name].read_data().reshape(-1, 5).copy())

    def outputs(self) -> list[Output]:
        """Return the mean average precision of every output; log those of its classes where that is asked for."""
        return [Output(name, self._mean(name), 0.0) for name in self._rows]

    def _mean(self, name: str) -> float:
        rows = np.concatenate([np.empty((0, 5)), *self._rows[name]])
        counts = rows[:, 0] == -1
        true: dict[int, int] = defaultdict(int)
        for _, label, number, *_ in rows[counts].tolist():
            true[int(label)] += int(number)
        found, precisions, missing = rows[~counts], [], []
        for label in sorted(true):
            own = found[found[:, 1] == label]
            own = own[own[:, 3] + own[:, 4] > 0]  # the others are found, but difficult
            if not len(own):
                missing.append(str(label))
                precisions.append(0.0)
                continue
            precisions.append(average_precision(own[:, 2], own[:, 3], true[label], self._param.ap_version))
            if self._param.show_per_class_result:
                _log.info("class%d: %.6g", label, precisions[-1])
        if missing:
            _log.warning("%s: nothing is found of class %s, which counts as 0", name, ", ".join(missing))
        return float(np.mean(precisions)) if precisions else 0.0


def average_precision(scores: HostArray, right: HostArray, true: int, version: str) -> float:
    """Return the average precision of detections of one class; 0 without ground-truth boxes.

    Ranked by score, the first i objects have a precision (share of right ones) and a recall (right ones of all `true`
    boxes). 11point: the mean of the largest precisions at recalls of 0, 0.1, ..., 1 at least (VOC 2007). Integral: the
    sum of precisions times the recall each object adds. MaxIntegral: that with, for every precision, the largest of
    all at higher recall; the precision before an object is added counts for it (VOC 2012).

    Args:
        scores, right: of each object; right is 1, or 0.
        version: one of `settings.AP_VERSIONS`.
    """
    if not len(scores) or true == 0:
        return 0.0
    hits = np.cumsum(right[np.argsort(-scores, kind="stable")])
    precision = (hits / np.arange(1, len(hits) + 1)).astype(np.float32)
    recall = (hits / true).astype(np.float32)  # in single precision, which decides ties with 0.1, 0.2, ... as SSD does
    if version == "11point":
        at = [precision[recall >= j / 10].max(initial=0) for j in range(11)]
        return float(np.sum(at, dtype=np.float64) / 11)
    if version == "Integral":
        return float(np.sum(precision * np.diff(recall, prepend=np.float32(0)), dtype=np.float64))
    largest = np.maximum.accumulate(precision[::-1])[::-1]
    return float(np.sum(largest * np.diff(recall, append=recall[-1]), dtype=np.float64) + largest[0] * recall[0])
