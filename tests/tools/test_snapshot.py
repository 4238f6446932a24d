"""tools/bench/snapshot.py: a run of small size on the CPU."""

from __future__ import annotations

import argparse
import os

from ..solvers.helpers import GAUSSIAN, inner, loss, make


def test_a_small_run(script, tmp_path, monkeypatch):
    bench = script("snapshot")
    monkeypatch.setattr(bench, "make_solver", lambda *_, **__: make(GAUSSIAN + inner() + loss(), momentum=0.9))
    args = argparse.Namespace(model="small", batch=4, lms="off", budget="", backend="cpu", every=4, iterations=12)
    found = bench.measure(args, str(tmp_path))
    assert found["snapshots"] == 4 and found["bytes"] == 2 * 4 * (15 + 5)
    assert 0 < found["copies_ms"] <= found["call_ms"]
    assert found["lost_share"] == found["lost_ms"] / found["iteration_ms"]
    assert len(os.listdir(tmp_path)) == 2, "one snapshot stays"
