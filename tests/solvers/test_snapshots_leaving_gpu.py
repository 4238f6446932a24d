"""Tests on a GPU that no update overtakes the copies of a snapshot, which take longer than an iteration here."""

from __future__ import annotations

import pytest

from pycaffe_lms.backend import cuda_available, get_device
from pycaffe_lms.formats.weights.caffemodel import read_weights
from pycaffe_lms.formats.weights.solverstate import read_solverstate
from pycaffe_lms.lms.config import LMSConfig
from pycaffe_lms.solvers.snapshots import staging

from .helpers import GAUSSIAN, bits, inner, loss, make

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not cuda_available(), reason="no GPU")]
NET = GAUSSIAN + inner("hidden", outputs=4096) + inner("wide", "hidden", outputs=4096) + inner(bottom="wide") + loss()


@pytest.mark.parametrize("lms", [None, LMSConfig(auto=True, threshold_kb=1)], ids=["without LMS", "auto"])
def test_files_are_of_their_iteration(lms, tmp_path, monkeypatch):
    monkeypatch.setattr(staging, "gather", lambda *_: None)  # as where a budget leaves no room
    options = {"snapshot_prefix": f'"{tmp_path}/s"', "momentum": 0.9, "base_lr": 0.001}
    device = get_device("cuda")
    device.set_budget(None)
    found = []
    for every in (4, 0):
        solver = make(NET, lambda: {"device": device, "lms": lms}, snapshot=every, **options)
        if every:
            solver.step(10)
        else:
            for k in (4, 8):
                solver.step(4)
                model = read_weights(tmp_path / f"s_iter_{k}.caffemodel")
                expected = [b.read_data().tobytes() for blobs in solver.net.params.values() for b in blobs]
                assert [b.data.tobytes() for layer in model for b in layer.blobs] == expected
                history = read_solverstate(tmp_path / f"s_iter_{k}.solverstate").history
                assert [h.tobytes() for h in history] == [b.read_data().tobytes() for b in solver.history_blobs()]
            solver.step(2)
        found.append(bits(solver))
        solver.close()
        solver.runtime.close()
    assert found[0] == found[1]
