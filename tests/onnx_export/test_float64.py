"""Cases of the tests of layers in float64, in ONNX's reference implementation: tighter, another program."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("onnx", minversion="1.20")  # older reference implementations get more wrong
pytest.importorskip("onnxruntime")

from tests.sampling import of_each_type

from .harness import Exported, agree, fill_params, one_layer
from .test_every_case import CASES


def _is_right_there(case) -> bool:
    """Without what the reference implementation lacks (MaxRoiPool; GridSample's mode by its name before opset 20) or
    gets wrong: LRN runs over as many channels as there are items, ConvTranspose with groups fails, a global maximum is
    always one over two axes."""
    if case.type in ("ROIPooling", "SpatialTransformer", "Warp", "FlowWarp", "LRN"):
        return False
    grouped = case.type == "Deconvolution" and "group" in case.text
    return not grouped and not ("global_pooling" in case.text and len(case.shapes[0]) != 4)


CASES = [(name, case) for name, case in CASES if _is_right_there(case)]


@pytest.mark.parametrize("case", of_each_type(CASES, every=8))
def test_values_agree(case, tmp_path):
    net = one_layer(case.type, case.text, case.shapes, case.n_top, np.float64)
    fill_params(net)
    bottoms = case.make_bottoms(np.random.default_rng(case.seed))
    # numbers that ONNX keeps as attributes (slopes, eps) are float32 there
    agree(net, Exported(net, tmp_path), {f"b{i}": b for i, b in enumerate(bottoms)}, tolerance=1e-6)
