"""A small training that the command line runs, and what its log says; conftest.py has the fixture `train`."""

from __future__ import annotations

import re

from ..solvers.helpers import GAUSSIAN, inner, loss

ACCURACY = 'layer { name: "acc" type: "Accuracy" bottom: "ip" bottom: "label" top: "acc" include { phase: TEST } }\n'
NET = GAUSSIAN + inner() + loss() + ACCURACY
OPTIONS = {
    **{"max_iter": 6, "display": 2, "test_iter": 2, "test_interval": 3, "lr_policy": '"step"', "gamma": 0.5},
    **{"stepsize": 2, "snapshot": 3, "snapshot_after_train": "false"},
}
DISPLAYS = re.compile(r"Iteration (\d+) \(.*\), loss = (\S+)")
RATES = re.compile(r"Iteration (\d+), lr = (\S+)")
TESTED = re.compile(r"Test net output #\d+: (\S+) = (\S+)")


def six(value) -> str:
    """As the log writes numbers."""
    return f"{value:.6g}"
