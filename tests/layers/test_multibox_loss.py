"""MultiBoxLoss: values against loops over plain numbers, gradients against differences, Large Model Support."""

from __future__ import annotations

import numpy as np
import pytest

from pycaffe_lms.backend import cuda_available, get_device
from pycaffe_lms.backend.sim.device import SimDevice
from pycaffe_lms.errors import DataError, LayerParamError, ShapeError
from pycaffe_lms.formats.prototxt.parser import parse_solver
from pycaffe_lms.lms.config import LMSConfig
from pycaffe_lms.solvers import SGDSolver

from .cases import Case
from .harness import LayerBench, check_gradient
from .ssd_loops import multibox_loss

P, N, C, CODES = 14, 3, 3, ("CORNER", "CENTER_SIZE", "CORNER_SIZE")
TRUTH = [
    [0, 1, 0, 0.2, 0.2, 0.5, 0.5, 0],
    [0, 2, 0, 0.5, 0.4, 0.9, 0.8, 1],
    [2, 1, 0, 0.1, 0.3, 0.4, 0.6, 0],
    [2, 1, 1, 0.15, 0.3, 0.5, 0.7, 0],
    [2, 2, 1, 0.6, 0.1, 0.9, 0.45, 0],
    [-1] * 8,
]
SHAPES = ((N, P * 4), (N, P * C), (1, 2, P * 4), (1, 1, len(TRUTH), 8))
OWN = ((N, P * C * 4, 1, 1), *SHAPES[1:])


def bottoms(rng, shapes):
    """Default boxes around the true ones, some beyond the picture; the second image has no ground-truth box."""
    centre, size = rng.uniform(0.1, 0.9, (P, 2)), rng.uniform(0.2, 0.45, (P, 2)) / 2
    variances = rng.uniform(0.1, 0.3, (P, 4))
    priors = np.stack([np.concatenate([centre - size, centre + size], axis=1), variances]).reshape(1, 2, -1)
    return [rng.normal(size=shapes[0]) * 0.7, rng.normal(size=shapes[1]), priors, np.array(TRUTH)[None, None]]


def case(text, code="CENTER_SIZE", shapes=SHAPES, seed=0, more="", classes=C):
    inside = f"num_classes: {classes} code_type: {code} overlap_threshold: 0.3 {text}"
    return Case("MultiBoxLoss", f"{more} multibox_loss_param {{ {inside} }}", shapes, maker=bottoms, seed=seed)


HOST_CASES = [case("", code) for code in CODES] + [
    case("loc_loss_type: L2 conf_loss_type: LOGISTIC neg_pos_ratio: 2 loc_weight: 0.5"),
    case("share_location: false mining_type: NONE background_label_id: 0", shapes=OWN),
    case("mining_type: HARD_EXAMPLE sample_size: 5 use_prior_for_nms: true nms_param { nms_threshold: 0.6 top_k: 9 }"),
    case("bp_inside: true match_type: BIPARTITE use_difficult_gt: false neg_overlap: 0.4", "CORNER"),
    case("encode_variance_in_target: true ignore_cross_boundary_bbox: true do_neg_mining: true"),
    case("use_prior_for_matching: false", seed=4),
    case("", more="loss_weight: 3 loss_param { normalization: FULL }"),
    Case(
        "MultiBoxLoss",
        "multibox_loss_param { num_classes: 3 code_type: CENTER_SIZE overlap_threshold: 0.3 objectness_score: 0.5 }",
        (*SHAPES, (N, P * 2), (N, P * 4)),
        maker=lambda rng, shapes: refined(rng, shapes),
    ),
]

OPTIONS = [
    ("", {}),
    (
        "neg_pos_ratio: 1.5 neg_overlap: 0.2 loc_weight: 2",
        {"ratio": 1.5, "neg_overlap": 0.20000000298, "loc_weight": 2},
    ),
    ("match_type: BIPARTITE", {"bipartite": True}),
    ("loc_loss_type: L2", {"l2": True}),
    ("conf_loss_type: LOGISTIC", {"logistic": True}),
    ("conf_loss_type: LOGISTIC mining_type: NONE", {"logistic": True, "mining": "NONE"}),
    ("mining_type: NONE", {"mining": "NONE"}),
    ("use_difficult_gt: false", {"use_difficult": False}),
    ("encode_variance_in_target: true", {"by_target": True}),
    ("ignore_cross_boundary_bbox: true", {"ignore_outside": True}),
    ("bp_inside: true", {"inside": True}),
    ("bp_inside: true use_prior_for_matching: false", {"inside": True, "by_priors": False}),
    ("use_prior_for_matching: false", {"by_priors": False}),
    ("mining_type: HARD_EXAMPLE sample_size: 5", {"mining": "HARD_EXAMPLE", "sample_size": 5}),
    (
        "mining_type: HARD_EXAMPLE sample_size: 5 nms_param { nms_threshold: 0.3 top_k: 8 }",
        {"mining": "HARD_EXAMPLE", "sample_size": 5, "nms": 0.300000012, "top_k": 8},
    ),
    (
        "nms_param { nms_threshold: 0.2 } use_prior_for_nms: true ignore_cross_boundary_bbox: true",
        {"nms": 0.2000000030, "nms_priors": True, "ignore_outside": True},
    ),
]
OPTIONS_OF_CLASSES = [
    ("mining_type: NONE", {"mining": "NONE"}),
    ("mining_type: NONE conf_loss_type: LOGISTIC", {"mining": "NONE", "logistic": True}),
    ("mining_type: NONE use_prior_for_matching: false", {"mining": "NONE", "by_priors": False}),
    (
        "mining_type: NONE use_prior_for_matching: false conf_loss_type: LOGISTIC match_type: BIPARTITE",
        {"mining": "NONE", "by_priors": False, "logistic": True, "bipartite": True},
    ),
]


def check_value(text, options, code, seed, shapes=SHAPES, more="", classes=C):
    bench = case(text, code, shapes, more=more, classes=classes).bench()
    blobs = bottoms(np.random.default_rng(seed), shapes)
    (loss,) = bench.forward(blobs)
    options = {"overlap_threshold": 0.300000012} | options
    expected = multibox_loss(*blobs, classes=classes, code=code, **options)
    assert loss.shape == () and loss == pytest.approx(expected, rel=1e-10)


@pytest.mark.parametrize("code", CODES)
@pytest.mark.parametrize(("text", "options"), OPTIONS, ids=[text for text, _ in OPTIONS])
def test_value_by_loops(text, options, code):
    for seed in range(5):
        check_value(text, options, code, seed)


@pytest.mark.parametrize(("text", "options"), OPTIONS_OF_CLASSES, ids=[text for text, _ in OPTIONS_OF_CLASSES])
def test_value_with_places_of_each_class(text, options):
    for seed in range(5):
        check_value(f"share_location: false {text}", options | {"shared": False}, "CENTER_SIZE", seed, OWN)


@pytest.mark.parametrize("mode", ["VALID", "FULL", "BATCH_SIZE", "NONE"])
def test_normalization(mode):
    check_value("", {"normalization": mode}, "CORNER", 1, more=f"loss_param {{ normalization: {mode} }}")


def test_normalize_is_the_old_spelling():
    for value, mode in (("true", "VALID"), ("false", "BATCH_SIZE")):
        check_value("", {"normalization": mode}, "CORNER", 1, more=f"loss_param {{ normalize: {value} }}")


def test_one_class_of_objects():
    shapes = (SHAPES[0], (N, P * 2), *SHAPES[2:])
    check_value("map_object_to_agnostic: true", {"agnostic": True}, "CENTER_SIZE", 3, shapes, classes=2)


REFINED = (*SHAPES, (N, P * 2), (N, P * 4))


def refined(rng, shapes):
    return [*bottoms(rng, shapes), rng.uniform(size=shapes[4]), rng.normal(size=shapes[5]) * 0.5]


@pytest.mark.parametrize(
    ("text", "options"),
    [
        ("", {}),
        ("mining_type: HARD_EXAMPLE sample_size: 4", {"mining": "HARD_EXAMPLE", "sample_size": 4}),
        ("bp_inside: true nms_param { nms_threshold: 0.25 }", {"inside": True, "nms": 0.25}),
    ],
)
def test_refinedet_by_loops(text, options):
    for seed in range(5):
        *blobs, objectness, refinement = refined(np.random.default_rng(seed), REFINED)
        more = {
            "objectness": objectness,
            "refinement": refinement,
            "least_object": 0.5,
            "overlap_threshold": 0.300000012,
        }
        bench = case(f"objectness_score: 0.5 {text}", shapes=REFINED).bench()
        (loss,) = bench.forward([*blobs, objectness, refinement])
        expected = multibox_loss(*blobs, classes=C, code="CENTER_SIZE", **more, **options)
        assert loss == pytest.approx(expected, rel=1e-10)


def test_refinedets_first_step_knows_objects_only():
    """With objectness_score and two classes every ground-truth box is of class 1; else another class is an error."""
    shapes = (SHAPES[0], (N, P * 2), *SHAPES[2:])
    blobs = bottoms(np.random.default_rng(1), shapes)
    (loss,) = case("objectness_score: 0.01", shapes=shapes, classes=2).bench().forward(blobs)
    expected = multibox_loss(*blobs, classes=2, code="CENTER_SIZE", agnostic=True, overlap_threshold=0.300000012)
    assert loss == pytest.approx(expected, rel=1e-10)
    with pytest.raises(DataError, match="has class 2, which is none of 2"):
        case("", shapes=shapes, classes=2).bench().forward(blobs)


def test_single_precision_is_near_double():
    blobs = bottoms(np.random.default_rng(2), SHAPES)
    one, two = (case("").bench(dtype).forward(blobs)[0] for dtype in (np.float32, np.float64))
    assert one.dtype == np.float32 and one == pytest.approx(two, rel=1e-5)


@pytest.mark.parametrize("made", HOST_CASES, ids=str)
def test_gradient(made):
    """The matches do not change within the small differences."""
    for seed in (0, 1):
        check_gradient(made.bench(), made.make_bottoms(np.random.default_rng(seed)))


def test_without_objects():
    """No match: no loss; with NONE that of the background, over 1."""
    empty = np.full((1, 1, 1, 8), -1.0)
    shapes = (*SHAPES[:3], empty.shape)
    blobs = [*bottoms(np.random.default_rng(0), SHAPES)[:3], empty]
    bench = case("", shapes=shapes).bench()
    assert bench.forward(blobs)[0] == 0
    assert not any(g.any() for g in bench.backward([np.array(1.0)])[0] if g is not None)
    scores = blobs[1].reshape(-1, C)
    expected = (np.log(np.exp(scores).sum(axis=1)) - scores[:, 0]).sum()
    assert case("mining_type: NONE", shapes=shapes).bench().forward(blobs)[0] == pytest.approx(expected)


def test_propagate_down_leaves_a_loss_out():
    blobs = bottoms(np.random.default_rng(0), SHAPES)
    both, locations, classes = (
        case("", more=more).bench().forward(blobs)[0]
        for more in (
            "",
            *(f"propagate_down: {a} propagate_down: {b}" for a, b in (("true", "false"), ("false", "true"))),
        )
    )
    assert locations > 0 and classes > 0 and both == pytest.approx(locations + classes)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "num_classes is not given"),
        ("num_classes: 3 do_neg_mining: false", "do_neg_mining is false, but mining_type is MAX_NEGATIVE"),
        ("num_classes: 3 share_location: false", "only among boxes that all classes share"),
        ("num_classes: 3 background_label_id: 3", "background_label_id is 3 of 3 classes"),
        ("num_classes: 3 map_object_to_agnostic: true", "makes class 1 of all objects, but num_classes is 3"),
        ("num_classes: 3 mining_type: HARD_EXAMPLE sample_size: 0", "sample_size is 0"),
    ],
)
def test_refused(text, message):
    with pytest.raises(LayerParamError, match=f'layer "l".*{message}'):
        LayerBench("MultiBoxLoss", f"multibox_loss_param {{ {text} }}", SHAPES)


@pytest.mark.parametrize(
    ("at", "shape", "message"),
    [
        (0, (N, 5), "has 5 numbers per image, but 14 default boxes have 56 locations, 4 each"),
        (1, (N, 5), "have 42 scores, 3 each"),
        (1, (N + 1, P * C), "has 4 images, but bottom 0 has 3"),
        (2, (1, 1, P * 4), "has shape"),
        (3, (1, 1, 2, 7), "give ground-truth boxes"),
    ],
)
def test_shapes_refused(at, shape, message):
    shapes = [*SHAPES]
    shapes[at] = shape
    with pytest.raises(ShapeError, match=message):
        case("", shapes=tuple(shapes)).bench()


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ([0, 0, 0, 0.2, 0.2, 0.5, 0.5, 0], "a ground-truth box of image 0 has class 0, which is the background"),
        ([1, 3, 0, 0.2, 0.2, 0.5, 0.5, 0], "a ground-truth box of image 1 has class 3, which is none of 3"),
    ],
)
def test_wrong_true_boxes(row, message):
    blobs = bottoms(np.random.default_rng(0), SHAPES)
    blobs[3][0, 0, -1] = row
    with pytest.raises(DataError, match=message):
        case("").bench().forward(blobs)


@pytest.mark.parametrize("code", CODES)
def test_boxes_without_area_match_nothing(code):
    blobs = bottoms(np.random.default_rng(0), SHAPES)
    blobs[2][0, 0, :8] = [0.3, 0.2, 0.3, 0.5, 0.6, 0.5, 0.4, 0.3]
    blobs[3][0, 0, 0, 3:7] = [0.2, 0.2, 0.5, 0.2]
    (loss,) = case("", code).bench().forward(blobs)
    assert loss == pytest.approx(multibox_loss(*blobs, classes=C, code=code, overlap_threshold=0.3), rel=1e-10)


NET = """base_lr: 0.05 lr_policy: "fixed" momentum: 0.9 max_iter: 9 random_seed: 3 snapshot_after_train: false
net_param {
layer { name: "data" type: "DummyData" top: "data" dummy_data_param { shape { dim: 3 dim: 3 dim: 12 dim: 12 }
  data_filler { type: "gaussian" } } }
layer { name: "truth" type: "Input" top: "truth" input_param { shape { dim: 1 dim: 1 dim: 6 dim: 8 } } }
layer { name: "conv" type: "Convolution" bottom: "data" top: "conv"
  convolution_param { num_output: 16 kernel_size: 3 stride: 4 weight_filler { type: "xavier" } } }
layer { name: "relu" type: "ReLU" bottom: "conv" top: "conv" }
layer { name: "prior" type: "PriorBox" bottom: "conv" bottom: "data" top: "prior"
  prior_box_param { min_size: 4 aspect_ratio: 2 variance: 0.1 } }
layer { name: "locations" type: "Convolution" bottom: "conv" top: "locations"
  convolution_param { num_output: 12 kernel_size: 1 weight_filler { type: "xavier" } } }
layer { name: "p1" type: "Permute" bottom: "locations" top: "p1" permute_param { order: 0 order: 2 order: 3 order: 1 } }
layer { name: "p2" type: "Flatten" bottom: "p1" top: "p2" }
layer { name: "scores" type: "Convolution" bottom: "conv" top: "scores"
  convolution_param { num_output: 9 kernel_size: 1 weight_filler { type: "xavier" } } }
layer { name: "s1" type: "Permute" bottom: "scores" top: "s1" permute_param { order: 0 order: 2 order: 3 order: 1 } }
layer { name: "s2" type: "Flatten" bottom: "s1" top: "s2" }
layer { name: "loss" type: "MultiBoxLoss" bottom: "p2" bottom: "s2" bottom: "prior" bottom: "truth" top: "loss"
  propagate_down: true propagate_down: true propagate_down: false propagate_down: false
  multibox_loss_param { num_classes: 3 code_type: CENTER_SIZE overlap_threshold: 0.3 } }
}"""


def train(device, lms=None, iterations=3):
    parsed = parse_solver(NET, "multibox.prototxt")
    solver = SGDSolver(parsed.message, file=parsed.filename, lines=parsed.lines, device=device, lms=lms)
    solver.net.blobs["truth"].data[...] = np.array(TRUTH)[None, None]
    losses = []
    for _ in range(iterations):
        solver.step(1)
        losses.append(solver.net.loss())
    return losses, [b.read_data().tobytes() for b in solver.net.learnable_params]


def test_large_model_support_changes_no_bit():
    plain = train(None)
    assert train(SimDevice(64 << 20, order="latest")) == plain
    for order in ("latest", "earliest", "random"):
        device = SimDevice(64 << 20, order=order, seed=5)
        assert train(device, LMSConfig(threshold_kb=1)) == plain
        assert device.bytes_in > 0


@pytest.mark.gpu
@pytest.mark.skipif(not cuda_available(), reason="no GPU")
def test_large_model_support_changes_no_bit_on_a_gpu():
    plain = train(get_device("cuda"))
    np.testing.assert_allclose(plain[0], train(None)[0], rtol=1e-2)
    assert train(get_device("cuda"), LMSConfig(threshold_kb=1)) == plain


def test_it_learns():
    losses, _ = train(None, iterations=40)
    assert np.mean(losses[-5:]) < 0.7 * np.mean(losses[:5])
