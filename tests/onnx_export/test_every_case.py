"""Every way in which the tests of layers run a layer, of every type that can be exported: values, shapes, operators."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

import onnx

from pycaffe_lms.errors import ExportError
from pycaffe_lms.layers.registry import LAYERS
from pycaffe_lms.onnx_export.convert import CONVERTERS, convert
from pycaffe_lms.onnx_export.export import with_other_sizes
from tests.layers.all_cases import all_cases
from tests.layers.cases import Case
from tests.layers.test_detection_output import maker as found
from tests.sampling import of_each_type

from .harness import Exported, agree, fill_params, one_layer

NOT_ALONE = {"Silence", "Input"}  # a net of one of them has no outputs, or nothing to run


def _detections(text: str, boxes: int = 16, classes: int = 4) -> Case:
    shapes = ((2, 4 * boxes), (2, classes * boxes), (1, 2, 4 * boxes))
    return Case("DetectionOutput", f"detection_output_param {{ num_classes: {classes} {text} }}", shapes, maker=found)


def _refined(rng, shapes):
    """Objects in every other box, and small steps from the default boxes."""
    objects = np.tile([0.9, 0.1, 0.2, 0.8], shapes[3][0] * shapes[3][1] // 4).reshape(shapes[3])
    return [*found(rng, shapes[:3]), objects, rng.normal(size=shapes[4]) * 0.3]


MORE = [
    _detections("keep_top_k: 5 code_type: CORNER_SIZE nms_param { top_k: 7 nms_threshold: 0.3 }"),
    _detections("keep_top_k: 3 code_type: CORNER nms_param { top_k: 400 }"),
    _detections("confidence_threshold: 2"),  # nothing is found
    _detections("nms_param { top_k: 0 }"),
    _detections("keep_top_k: 0"),
    Case(
        "DetectionOutput",
        "detection_output_param { num_classes: 3 code_type: CENTER_SIZE objectness_score: 0.5 keep_top_k: 30 }",
        ((2, 64), (2, 48), (1, 2, 64), (2, 32), (2, 64)),
        maker=_refined,
    ),
    Case("Clip", "clip_param { min: 1 max: -1 }", [(2, 3)]),
    Case("Convolution", "convolution_param { num_output: 2 kernel_size: 1 pad: 1 pad: 2 stride: 2 }", [(2, 3, 4, 5)]),
    Case("Dropout", "", [(2, 3)]),
    Case("ReLU6", "relu6_param { negative_slope: 0.5 }", [(2, 3, 4)]),
    Case("Power", "power_param { power: 0 }", [(2, 3)]),
    Case("Power", "power_param { power: 2 scale: 3 shift: -1 }", [(2, 3)]),
    Case("Upsample", "", [(2, 3, 4, 5)]),
    Case("PriorBox", "prior_box_param { min_size: 4 aspect_ratio: 2 clip: true }", [(1, 2, 2, 3), (1, 3, 8, 12)]),
    Case("ContinuationIndicator", "continuation_indicator_param { time_step: 3 batch_size: 2 }", []),
    Case("DummyData", "dummy_data_param { shape { dim: 2 dim: 3 } data_filler { type: 'constant' value: 4 } }", []),
]


def _wanted(case) -> bool:
    sizes = "dim: 0" not in case.text and all(0 not in shape for shape in case.shapes)
    axes = len(case.shapes[0]) if case.shapes else 0
    few_axes = axes <= 5 or not case.type.endswith("Pooling")
    constant = case.type != "DummyData" or "constant" in case.text
    constant &= "sample_weights_test" not in case.text
    constant &= "cache" not in case.text and not (case.type == "RotaryEmbedding" and len(case.shapes) == 2)
    return case.type in CONVERTERS and case.type not in NOT_ALONE and sizes and few_axes and constant


CASES = [(name, case) for name, case in all_cases() if _wanted(case)]
CASES += [(f"more-{i}-{case.type}", case) for i, case in enumerate(MORE)]


def _net(case, dtype=np.float32):
    net = one_layer(case.type, case.text, case.shapes, case.n_top, dtype)
    fill_params(net)
    return net


@pytest.mark.parametrize("case", of_each_type(CASES, every=6))
def test_values_agree(case, tmp_path):
    net = _net(case)
    bottoms = case.make_bottoms(np.random.default_rng(case.seed))
    exported = Exported(net, tmp_path)
    agree(net, exported, {f"b{i}": b for i, b in enumerate(bottoms)})
    for name in net.outputs:
        free = {"DetectionOutput": {2}, "Proposal": {0}, "Filter": {0}}.get(case.type, set())
        assert exported.shape(name) == ["" if i in free else n for i, n in enumerate(net.blobs[name].shape)]


SINCE = {"SpatialTransformer": 16, "Warp": 16, "FlowWarp": 16}  # the first opset that has an operator for a type
FIRST = {case.type: (name, case) for name, case in reversed(CASES)}
OLD = [pytest.param(11, case, id=f"11-{name}") for name, case in FIRST.values()]
OLD += [
    pytest.param(opset, case, id=f"{opset}-{name}", marks=pytest.mark.thorough)
    for opset in (11, 12, 13, 18, 21)
    for name, case in CASES
]
AT_23 = {"Attention", "RMSNorm", "RotaryEmbedding"}  # the types that have an operator of their own since opset 23
OLD += [pytest.param(23, case, id=f"23-{name}") for name, case in CASES if case.type in AT_23]


@pytest.mark.parametrize(("opset", "case"), OLD)
def test_values_agree_in_other_opsets(opset, case, tmp_path):
    """One case of each type in the oldest opset; thorough: all of them in those where operators changed."""
    if opset > onnx.defs.onnx_opset_version():
        pytest.skip(f"the installed onnx does not know opset {opset}")
    net = _net(case)
    if opset < (since := SINCE.get(case.type, 0)):
        with pytest.raises(ExportError, match=f"opset {since}"):
            Exported(net, tmp_path, opset=opset)
        return
    bottoms = case.make_bottoms(np.random.default_rng(case.seed))
    exported = Exported(net, tmp_path, opset=opset)
    assert [o.version for o in exported.model.opset_import] == [opset]
    agree(net, exported, {f"b{i}": b for i, b in enumerate(bottoms)})


def test_every_converter_has_a_case():
    assert {case.type for _, case in CASES} == set(CONVERTERS) - NOT_ALONE
    assert set(CONVERTERS) <= set(LAYERS)


def test_the_table_names_exactly_the_operators_that_are_written():
    written: dict[str, set[str]] = {name: set() for name in CONVERTERS}
    for _, case in CASES:
        net = _net(case)
        for other in (None, with_other_sizes(net)) if case.type in ("Interp", "DeephiResize") else (None,):
            for opset in (11, 17, 23) if case.type in {*AT_23, "LayerNorm"} else (17,):
                sketch = convert(net.graph, dtype=np.float32, opset=opset, file=None, other=other)
                written[case.type] |= {node.op for node in sketch.nodes}
    for name, converter in CONVERTERS.items():
        others = {case for case in CONVERTERS if CONVERTERS[case].run is converter.run}
        found = set().union(*(written[other] for other in others))
        assert found - {"Identity"} == set(converter.ops) - {"Identity"}, name
        assert len(converter.ops) == len(set(converter.ops)), name


SAMPLED = Case("SpatialTransformer", "", ((2, 3, 5, 6), (2, 6)))


@pytest.mark.parametrize("opset, mode", [(16, b"bilinear"), (20, b"linear")])
def test_the_mode_of_sampling_has_the_name_of_its_opset(opset, mode, tmp_path):
    net = _net(SAMPLED)
    exported = Exported(net, tmp_path, opset=opset)
    (node,) = (n for n in exported.model.graph.node if n.op_type == "GridSample")
    assert {a.name: a.s for a in node.attribute} == {"mode": mode}
    x, theta = SAMPLED.make_bottoms(np.random.default_rng(2))
    agree(net, exported, {"b0": x, "b1": theta})


def test_sampling_needs_opset_16(tmp_path):
    with pytest.raises(ExportError, match="opset 16"):
        Exported(_net(SAMPLED), tmp_path, opset=15)


def test_sampling_needs_numbers_of_theta(tmp_path):
    constants = " ".join(f"theta_{i}_{j}: 0.5" for i in (1, 2) for j in (1, 2, 3))
    with pytest.raises(ExportError, match="constants only"):
        Exported(_net(Case("SpatialTransformer", f"st_param {{ {constants} }}", ((2, 3, 5, 6), (2, 0)))), tmp_path)
