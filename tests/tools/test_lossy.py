"""tools/bench/lossy.py: what copies in 16 bits do to the gradient of a convnet on real digits."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import numpy as np

from pycaffe_lms.cli.main import main

FILE = Path(__file__).resolve().parents[2] / "tools" / "bench" / "lossy.py"


def test_the_error_of_the_gradient(tmp_path):
    spec = importlib.util.spec_from_file_location("lossy", FILE)
    lossy = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(lossy)
    assert main(["dataset", "digits", "-out", str(tmp_path)]) == 0
    weights = [p.read_data().copy() for p in lossy.make_solver(tmp_path, None).net.learnable_params]
    exact, again, bf16, fp16 = (lossy.gradient_of(tmp_path, kind, weights) for kind in (None, None, "bf16", "fp16"))
    np.testing.assert_array_equal(exact, again)
    errors = [np.linalg.norm(found - exact) / np.linalg.norm(exact) for found in (bf16, fp16)]
    assert 2e-5 < errors[0] < 2e-3  # a bf16 value is off by 2^-8 of itself at most
    assert 2e-6 < errors[1] < 2.5e-4  # 2^-11 in fp16
