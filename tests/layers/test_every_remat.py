"""Every case of every layer: rematerialized tops are bit-identical to forward's, and parameters do not change."""

from __future__ import annotations

import numpy as np
import pytest

from pycaffe_lms.layers.base import Lives

from ..sampling import of_each_type
from .all_cases import device_cases
from .case_run import Run


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("case", of_each_type(device_cases(), every=8))
def test_rematerializing_makes_the_same(case, dtype):
    run = Run(case, dtype)
    layer, bench = run.layer, run.bench
    if layer.declares.runs_on.value == "nowhere" or bench.in_place:
        pytest.skip("forward does nothing, or overwrites what it reads")
    tops = [np.array(t) for t in run.forward()]
    if layer.remat_needs() is None:
        states = any(s.lives is Lives.STATE for s in layer.scratches.values())
        own = layer.declares
        assert layer.forward_updates() or states or own.dynamic_shape_bottoms or own.runs_on.value == "host"
        pytest.skip("cannot run again: forward changes more than its tops")
    saved = {n: s for n, s in layer.scratches.items() if s.forward and s.lives is Lives.SAVED}
    before = {n: bench.device.get(bench.scratch[n]).tobytes() for n in saved}
    params = [np.array(p) for p in bench.params]
    again, scratch = bench.rematerialize()
    assert [t.tobytes() for t in again] == [t.tobytes() for t in tops]
    assert {n: a.tobytes() for n, a in scratch.items()} == before
    assert all(np.array_equal(a, b) for a, b in zip(bench.params, params, strict=True))
