"""PriorBox against the boxes counted one by one, alone and in a net."""

from __future__ import annotations

import math

import numpy as np
import pytest

from pycaffe_lms.backend import get_device
from pycaffe_lms.backend.sim.device import SimDevice
from pycaffe_lms.errors import LayerParamError, ShapeError
from pycaffe_lms.formats.prototxt.parser import parse_solver
from pycaffe_lms.layers.base import Needs, Runs
from pycaffe_lms.lms.config import LMSConfig
from pycaffe_lms.solvers import SGDSolver

from .harness import LayerBench

SHAPES = ((2, 8, 3, 4), (2, 3, 30, 60))
SSD = "min_size: 30 max_size: 60 aspect_ratio: 2 variance: 0.1 variance: 0.1 variance: 0.2 variance: 0.2 step: 8"


def priors(text, shapes=SHAPES, dtype=np.float64):
    layer = LayerBench("PriorBox", f"prior_box_param {{ {text} }}", shapes, dtype=dtype).layer
    array = np.full(layer.infer_shapes(shapes)[0], np.nan, dtype)
    layer.fill_once(0, array)
    return array


def loops(sides, shapes, steps, offset=0.5, picture=None):
    """Return the coordinates of all boxes, position by position."""
    (_, _, h, w), (_, _, height, width) = shapes
    width, height = picture or (width, height)
    out = []
    for j in range(h):
        for i in range(w):
            x, y = (i + offset) * steps[0], (j + offset) * steps[1]
            for a, b in sides:
                out += [(x - a / 2) / width, (y - b / 2) / height, (x + a / 2) / width, (y + b / 2) / height]
    return out


@pytest.mark.parametrize("dtype, tolerance", [(np.float32, 1e-6), (np.float64, 1e-12)], ids=["f32", "f64"])
def test_ssds_boxes(dtype, tolerance):
    made, root = priors(SSD, dtype=dtype), math.sqrt(2)
    sides = [(30, 30), (math.sqrt(1800),) * 2, (30 * root, 30 / root), (30 / root, 30 * root)]
    assert made.shape == (1, 2, 3 * 4 * 4 * 4)
    np.testing.assert_allclose(made[0, 0], loops(sides, SHAPES, (8, 8)), rtol=tolerance, atol=tolerance)
    np.testing.assert_allclose(made[0, 1].reshape(-1, 4), [[0.1, 0.1, 0.2, 0.2]] * 48, rtol=1e-6)


def test_tensorflows_boxes():
    """Synopsys: the large square last; 0.05 less of the picture on each side of the square of 60 pixels; y before x."""
    text, root = "min_size: 60 min_size: 20 max_size: 80 max_size: 80 aspect_ratio: 4 flip: false", math.sqrt(1600)
    sides = [(60, 60), (120, 30), (math.sqrt(4800),) * 2, (20, 20), (40, 10), (root, root)]
    plain = np.array(loops(sides, SHAPES, (15, 10))).reshape(12, 6, 4)
    plain[:, 0] += [0.05, 0.05, -0.05, -0.05]
    np.testing.assert_allclose(priors(f"{text} tf: true")[0, 0], plain.ravel(), rtol=1e-12, atol=1e-12)
    turned = plain[..., [1, 0, 3, 2]].clip(0, 1).ravel()
    made = priors(f"{text} tf: true yx_order: true clip: true")
    np.testing.assert_allclose(made[0, 0], turned, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(
    "text, sides, steps, offset, picture",
    [
        ("min_size: 9", [(9, 9)], (15, 10), 0.5, None),  # the steps are picture / map
        ("min_size: 9.9", [(9, 9)], (15, 10), 0.5, None),  # whole pixels
        ("min_size: 9 img_size: 40 offset: 0", [(9, 9)], (10, 40 / 3), 0, (40, 40)),
        ("min_size: 9 img_h: 12 img_w: 16 step_h: 2 step_w: 3", [(9, 9)], (3, 2), 0.5, (16, 12)),
        ("min_size: 4 min_size: 8 aspect_ratio: 4 flip: false", [(4, 4), (8, 2), (8, 8), (16, 4)], (15, 10), 0.5, None),
        (
            "min_size: 8 aspect_ratio: 1 aspect_ratio: 4 aspect_ratio: 4",
            [(8, 8), (16, 4), (4, 16)],
            (15, 10),
            0.5,
            None,
        ),
        ("min_size: 2 min_size: 8 max_size: 8 max_size: 18", [(2, 2), (4, 4), (8, 8), (12, 12)], (15, 10), 0.5, None),
    ],
)
def test_options(text, sides, steps, offset, picture):
    made = priors(text)
    np.testing.assert_allclose(made[0, 0], loops(sides, SHAPES, steps, offset, picture), rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(made[0, 1], 0.1)


def test_clip_and_one_variance():
    plain, clipped = priors("min_size: 50"), priors("min_size: 50 clip: true variance: 0.3")
    assert plain[0, 0].min() < 0 and plain[0, 0].max() > 1
    np.testing.assert_array_equal(clipped[0, 0], np.clip(plain[0, 0], 0, 1))
    np.testing.assert_allclose(clipped[0, 1], 0.3, rtol=1e-6)


def test_declarations_and_zero_gradients():
    bench = LayerBench("PriorBox", f"prior_box_param {{ {SSD} }}", SHAPES)
    layer = bench.layer
    assert layer.declares.runs_on is Runs.NOWHERE and not layer.rewrites(0)
    assert layer.forward_needs() == Needs() == layer.backward_needs([True, True], [])
    (top,) = bench.forward([np.zeros(s) for s in SHAPES])
    for diff, shape in zip(bench.backward([np.ones_like(top)])[0], SHAPES, strict=True):
        assert diff.shape == shape and not diff.any()


NET = """base_lr: 0.1 lr_policy: "fixed" max_iter: 9 random_seed: 3 snapshot_after_train: false net_param {
layer { name: "data" type: "DummyData" top: "data" dummy_data_param { shape { dim: 2 dim: 3 dim: 30 dim: 30 }
  data_filler { type: "gaussian" } } }
layer { name: "conv" type: "Convolution" bottom: "data" top: "conv"
  convolution_param { num_output: 4 kernel_size: 3 stride: 2 weight_filler { type: "xavier" } } }
layer { name: "prior" type: "PriorBox" bottom: "conv" bottom: "data" top: "prior" prior_box_param { min_size: 4 } }
layer { name: "boxes" type: "Reduction" bottom: "prior" top: "boxes" loss_weight: 1 }
layer { name: "size" type: "Reduction" bottom: "conv" top: "size" loss_weight: 1 reduction_param { operation: SUMSQ } }
}"""


def train(device, lms=None):
    parsed = parse_solver(NET, "prior.prototxt")
    solver = SGDSolver(parsed.message, file=parsed.filename, lines=parsed.lines, device=device, lms=lms)
    solver.step(2)
    net = solver.net
    return [net.loss(), net.blobs["prior"].read_data().tobytes()] + [
        b.read_data().tobytes() for b in net.learnable_params
    ]


def test_in_a_net_that_learns_through_its_bottom():
    plain = train(SimDevice(64 << 20))
    device = SimDevice(64 << 20, order="random", seed=5)
    assert train(device, LMSConfig(threshold_kb=1)) == plain
    assert device.bytes_in > 0
    assert train(get_device("cpu"))[1] == plain[1]
    assert np.isfinite(np.frombuffer(plain[1], np.float32)).all()


@pytest.mark.parametrize(
    "text, message",
    [
        ("", "min_size is not given"),
        ("min_size: 0", "min_size has a value that is not above 0"),
        ("min_size: 3 max_size: 5 max_size: 6", "2 max_size for 1 min_size"),
        ("min_size: 3 max_size: 3", "not above its min_size"),
        ("min_size: 3 variance: 1 variance: 2", "2 variance values"),
        ("min_size: 3 img_size: 5 img_h: 5", "img_size and img_h are both given"),
        ("min_size: 3 step_w: 5", "step_w is given alone"),
        ("min_size: 3 step: 0", "step is not above 0"),
    ],
)
def test_refused(text, message):
    with pytest.raises(LayerParamError, match=f'layer "l".*{message}'):
        LayerBench("PriorBox", f"prior_box_param {{ {text} }}", SHAPES)


def test_shapes_refused():
    for shapes in (((2, 8, 3), SHAPES[1]), (SHAPES[0], (2, 3)), ((2, 8, 0, 3), SHAPES[1])):
        with pytest.raises(ShapeError, match='layer "l".*has shape'):
            LayerBench("PriorBox", "prior_box_param { min_size: 3 }", shapes)
