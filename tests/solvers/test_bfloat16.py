"""Tests training with activations as bfloat16: gradients near those of float32, parameters in float32, accuracy."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

import pycaffe_lms
from pycaffe_lms.backend import cuda_available, get_device
from pycaffe_lms.backend.sim.device import SimDevice
from pycaffe_lms.formats.prototxt.parser import parse_solver
from pycaffe_lms.net.tuning import Tuning
from pycaffe_lms.solvers import SGDSolver
from tests.cli.command import caffe
from tests.lms import nets
from tests.lms.test_bfloat16 import make_solver

ROOT = Path(__file__).resolve().parents[2]


def gradients(net, *, half, last=False):
    solver = make_solver(net, SimDevice(64 << 20), half=half, channels_last=last)
    solver.step(1)
    return [b.read_diff().astype(np.float64) for b in solver.net.learnable_params]


@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize("net, most", [("residual", 0.2), ("chain", 0.08), ("branches", 0.06), ("groups", 0.15)])
def test_gradients_are_those_of_float32_but_for_rounding(net, most, last):
    """Compare relative to each gradient's size. A rounding is 2^-9; where it moves a value across ReLU's corner, or to
    another maximum, a whole element of the gradient is lost: of one in 300, a twentieth of the size, at each of five
    layers."""
    exact, rounded = gradients(net, half=False), gradients(net, half=True, last=last)
    sizes = [np.linalg.norm(a) for a in exact]
    differ = [np.linalg.norm(a - b) / n for a, b, n in zip(exact, rounded, sizes, strict=True) if n > 1e-6]
    assert 1e-5 < max(differ) < most and np.median(differ) < most / 2


def test_parameters_move_by_less_than_bfloat16_could_hold():
    """Make 100 updates by 2^-12 of a weight: each would be lost in 8 bits."""
    parsed = parse_solver(nets.solver_text("chain", base_lr=0.0, momentum=0, weight_decay=0), "chain.prototxt")
    solver = SGDSolver(parsed.message, device=get_device("cpu"), tuning=Tuning(half=True))
    weights = solver.net.params["conv1"][0]
    assert weights.data.dtype == np.float32 and solver.net.params["conv1"][0].data_memory.nbytes == 4 * weights.count
    weights.data = 1
    for _ in range(100):
        solver.net.params["conv1"][0].data[...] -= np.float32(2**-12)
        solver.step(1)
    np.testing.assert_array_equal(weights.data, np.float32(1 - 100 * 2**-12))


DIGITS = (
    'layer { name: "data" type: "Input" top: "data" input_param { shape { dim: 50 dim: 1 dim: 8 dim: 8 } } }\n'
    'layer { name: "label" type: "Input" top: "label" input_param { shape { dim: 50 } } }\n'
    + nets.unit("c1", "data", 8)
    + nets.unit("c2", "c1", 8)
    + nets.unit("c3", "c2", 8, relu=False)
    + 'layer { name: "sum" type: "Eltwise" bottom: "c1" bottom: "c3" top: "sum" }\n'
    + 'layer { name: "relu" type: "ReLU" bottom: "sum" top: "sum" }\n'
    + 'layer { name: "pool" type: "Pooling" bottom: "sum" top: "pool" pooling_param { kernel_size: 2 stride: 2 } }\n'
    + nets.head("pool").replace("num_output: 5", "num_output: 10")
)


def learn(*, half: bool, device=None, iterations=200) -> tuple[float, list[float]]:
    """Train a small residual net; return (accuracy on 250 unseen digits, losses)."""
    with np.load(Path(pycaffe_lms.__file__).parent / "data/sets/digits.npz") as found:
        images, labels = found["images"].astype(np.float32)[:, None] / 16 - 0.5, found["labels"]
    head = "base_lr: 0.02 momentum: 0.9 lr_policy: 'fixed' random_seed: 2 weight_decay: 0.0005"
    parsed = parse_solver(f"{head} net_param {{ name: 'digits' {DIGITS} }}", "digits")
    solver = SGDSolver(parsed.message, lines=parsed.lines, device=device or get_device("cpu"), tuning=Tuning(half=half))
    rng, losses, right, blobs = np.random.default_rng(4), [], [], solver.net.blobs
    for _ in range(iterations):
        batch = rng.integers(0, 1500, 50)
        blobs["data"].data, blobs["label"].data = images[batch], labels[batch]
        solver.step(1)
        losses.append(solver.net.loss())
    for first in range(1500, 1750, 50):
        batch = slice(first, first + 50)
        blobs["data"].data, blobs["label"].data = images[batch], labels[batch]
        solver.net.forward_range()
        right.append(float(blobs["accuracy"].data))
    return float(np.mean(right)), losses


def test_digits_are_learnt_as_well():
    (ours, mine), (theirs, losses) = learn(half=True), learn(half=False)
    assert min(ours, theirs) > 0.9 and abs(ours - theirs) < 0.03
    assert mine != losses and np.mean(mine[-50:]) == pytest.approx(np.mean(losses[-50:]), abs=0.02)
    page = " ".join((ROOT / "docs" / "lms.md").read_text().split())
    said = re.search(
        r"200 iterations on the CPU: ([\d.]+) % of unseen digits are right with `tf32`, ([\d.]+) % with `bf16`; "
        r"the means of the last 50 losses are ([\d.]+) and ([\d.]+)\.",
        page,
    )
    right, last = [float(x) for x in said.groups()[:2]], [float(x) for x in said.groups()[2:]]
    assert right == pytest.approx([100 * theirs, 100 * ours], abs=1)  # other sums of other libraries: two digits of 250
    assert last == pytest.approx([np.mean(losses[-50:]), np.mean(mine[-50:])], rel=0.1)


@pytest.mark.gpu
@pytest.mark.skipif(not cuda_available(), reason="no GPU")
def test_digits_on_a_gpu():
    (ours, mine), (theirs, losses) = learn(half=True, device=get_device("cuda")), learn(half=False)
    print("accuracy", ours, theirs, "last losses", np.mean(mine[-50:]), np.mean(losses[-50:]))
    assert min(ours, theirs) > 0.9 and abs(ours - theirs) < 0.03


def test_the_flag(tmp_path):
    """Run the command with the flag, with and without Large Model Support."""
    assert caffe("dataset", "digits", cwd=tmp_path).code == 0
    (tmp_path / "models/digits").mkdir(parents=True)
    for name in ("train_val.prototxt", "solver.prototxt"):
        text = (ROOT / "models/digits" / name).read_text()
        (tmp_path / "models/digits" / name).write_text(text.replace("max_iter: 1000", "max_iter: 8"))
    found = []
    for more in (["-math", "bf16"], ["-math", "bf16", "-lms", "1"], []):
        done = caffe("train", "-solver", "models/digits/solver.prototxt", "-backend", "sim", *more, cwd=tmp_path)
        assert done.code == 0, done.stderr
        assert bool(re.search(r"Stored as bfloat16: [1-9]\d* of", done.stderr)) == ("bf16" in more)
        found.append((tmp_path / "models/digits/digits_iter_8.caffemodel").read_bytes())
    assert found[0] == found[1] != found[2]
