"""Every layer type that can work on a part of the batch, in a net of its own: in parts it is what it is whole."""

from __future__ import annotations

import math

import numpy as np
import pytest

from pycaffe_lms.backend import get_device
from pycaffe_lms.backend.sim.device import SimDevice
from pycaffe_lms.layers.base import Layer
from pycaffe_lms.layers.mixins import RandomLayer
from pycaffe_lms.layers.registry import LAYERS
from pycaffe_lms.lms.config import LMSConfig
from pycaffe_lms.net.passes import regions
from tests.layers.all_cases import as_params, device_cases

from .layer_nets import around, train

TYPES = {
    *("Convolution", "Deconvolution", "DepthwiseConvolution", "Pooling", "LRN", "InnerProduct", "Dropout", "Eltwise"),
    *("ReLU", "ReLU6", "PReLU", "ELU", "Sigmoid", "TanH", "BNLL", "Exp", "Log", "Power", "AbsVal", "Clip", "Swish"),
    *("Concat", "Slice", "Scale", "Bias", "Softmax", "Crop", "MVN", "Normalize", "Interp", "Upsample", "Axpy"),
    *("ShuffleChannel", "Threshold", "Attention", "Correlation", "GELU", "GatedUnit", "LayerNorm", "MatMul", "RMSNorm"),
    *("RotaryEmbedding", "SpatialTransformer", "DropPath", "DeephiResize", "LocallyConnected", "Pad"),
    *("MaskPooling", "MaskResize", "GuidedDropout", "Warp", "FlowWarp"),
}


def _first_axes(case):
    return {shape[0] if shape else 0 for shape in case.shapes}


def _can(case):
    small = sum(map(math.prod, case.shapes)) <= 3000 and all(math.prod(s) for s in case.shapes)
    return case.type in TYPES and len(_first_axes(case)) == 1 and min(_first_axes(case)) > 1 and small


def _some(n):
    """At most n cases of each type, far apart."""
    chosen = []
    for kind in sorted(TYPES):
        of_kind = [(name, case) for name, case in device_cases() if case.type == kind and _can(case)]
        chosen += of_kind[:: max(1, -(-len(of_kind) // n))]
    return chosen


CASES = _some(4)
CASES += [c for c in device_cases() if c[1].type == "Attention" and c[1].shapes[0][0] == 4 and c not in CASES]


def _numbers(solver, iterations=2):
    """Outputs, parameters and gradients, as arrays."""
    found = []
    for _ in range(iterations):
        solver.step(1)
        found += [solver.net.blobs[name].read_data().copy() for name in solver.net.outputs]
    for blob in solver.net.learnable_params:
        found += [blob.read_data().copy(), blob.read_diff().copy()]
    return found


@pytest.fixture
def any_place_will_do(request, monkeypatch):
    """The CPU reads rows wherever they begin; random numbers do come in fours."""
    case = request.getfixturevalue("case")
    draws = {"Pooling": "STOCHASTIC", "Attention": "dropout"}.get(case.type, "")
    if not issubclass(LAYERS[case.type], RandomLayer) or draws not in case.text:
        monkeypatch.setattr(regions, "LANES", 1)


def _runs_in_parts(solver, layer="l"):
    return [node.part for node in solver.net.run_graph.nodes if node.layer.param.name == layer and node.part]


@pytest.mark.parametrize("case", as_params(CASES))
def test_in_parts_it_is_the_same(case, any_place_will_do):
    net, parts = around(case), min(2 + len(case.text) % 2, *_first_axes(case))
    solver = net.solver(get_device("cpu"), LMSConfig(split=parts), "float64")
    if not _runs_in_parts(solver):
        assert not _expected_to_split(case), f"{case} does not run in parts"
        pytest.skip("these settings mix images, or random numbers cannot be cut here")
    expected = _numbers(net.solver(get_device("cpu"), dtype="float64"))
    for ours, theirs in zip(_numbers(solver), expected, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-11, atol=1e-12 * max(1e-3, np.abs(theirs).max(initial=0)))


def _expected_to_split(case):
    along_batch = any(f"{field}: {axis}" in case.text for field in ("axis", "concat_dim", "slice_dim") for axis in "0-")
    shared = case.type in ("Scale", "Bias") and (len(case.shapes) > 1 or "num_axes: 0" in case.text or along_batch)
    shared |= case.type == "MatMul" and (len(case.shapes[0]) < 3 or case.shapes[0][:-2] != case.shapes[1][:-2])
    random = (
        case.type in ("Dropout", "DropPath", "GuidedDropout") or "STOCHASTIC" in case.text or "dropout" in case.text
    )
    nothing = (case.type == "Concat" and len(case.shapes) == 1) or (case.type == "Slice" and case.n_top == 1)
    nothing |= "cache" in case.text  # a state belongs to all items
    nothing |= case.text == "slice_param { slice_point: 3 }"  # a top without elements
    nothing |= case.type == "Pad" and "paddings: [1, 0, 2, 1]" in case.text  # adds items
    return not (along_batch or shared or random or nothing)


@pytest.mark.parametrize("case", as_params(_some(1)))
def test_large_model_support_changes_no_bit_of_it(case, any_place_will_do, monkeypatch):
    monkeypatch.setattr(LMSConfig, "min_bytes", property(lambda config: 0))
    net = around(case)
    expected = train(net.solver(SimDevice(64 << 20), LMSConfig(split=2)))
    for seed, ahead in ((1, 0), (2, 32)):
        device = SimDevice(64 << 20, order="random", seed=seed)
        assert train(net.solver(device, LMSConfig(threshold_kb=1, split=2, ahead=ahead))) == expected


def test_every_type_was_tried():
    assert {case.type for _, case in CASES} == TYPES
    own = Layer.splits_over_batch
    says = {n for n, cls in LAYERS.items() if cls.declares.splits_over_batch or cls.splits_over_batch is not own}
    aliases = {"NdConvolution", "NdPooling", "ConvolutionDepthwise"}
    elsewhere = {"Split", "Silence", "Flatten", "Reshape"}  # in whole nets: alone they do nothing
    assert says - aliases - elsewhere == TYPES
