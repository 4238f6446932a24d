"""SoftmaxWithLoss with a weight per class (SegNet) against a plain loop, and its gradients."""

from __future__ import annotations

import math

import numpy as np
import pytest

from pycaffe_lms.errors import LayerParamError

from .cases import Case
from .harness import LayerBench, check_gradient

WEIGHTS = [0.25, 4.5, 1, 0]


def _case(text, scores=(3, 4, 2, 2), labels=(3, 2, 2), n_top=1, axis=""):
    weights = " ".join(f"class_weighting: {w}" for w in WEIGHTS)
    text = f"loss_param {{ weight_by_label_freqs: true {weights} {text} }} {axis}"
    return Case("SoftmaxWithLoss", text, (scores, labels), n_top=n_top, integer_bottoms=((1, 4),))


CASES: list[Case] = [
    _case(""),
    _case("ignore_label: 1"),
    _case("ignore_label: 1 normalization: FULL"),
    _case("normalization: BATCH_SIZE"),
    _case("normalization: PRE_FIXED pre_fixed_normalizer: 2.5"),
    _case("", (5, 4), (5,), n_top=2),
    _case("", (3, 2, 4), (3, 2), axis="softmax_param { axis: -1 }"),
]


def reference(x, label, layer):
    """Return the loss and its gradient, one position at a time."""
    param, (outer, c, inner) = layer.param.loss_param, layer.grid
    x, label = x.reshape(outer, c, inner), label.reshape(outer, inner).astype(int)
    total, valid, dx = 0.0, 0, np.zeros(x.shape)
    for o, i in np.ndindex(outer, inner):
        k = label[o, i]
        if param.HasField("ignore_label") and k == param.ignore_label:
            continue
        valid += 1
        p = np.exp(x[o, :, i]) / np.exp(x[o, :, i]).sum()
        total -= WEIGHTS[k] * math.log(p[k])
        dx[o, :, i] = WEIGHTS[k] * (p - np.eye(c)[k])
    z = {param.VALID: valid, param.FULL: outer * inner, param.BATCH_SIZE: outer, param.PRE_FIXED: 2.5}[
        param.normalization
    ]
    return total / z, dx / z


@pytest.mark.parametrize("case", CASES, ids=str)
def test_against_a_loop(case):
    bench, (x, label) = case.bench(), case.make_bottoms(np.random.default_rng(1))
    loss, dx = reference(x, label, bench.layer)
    tops = bench.forward([x, label])
    assert float(tops[0]) == pytest.approx(loss, rel=1e-12)
    found, _ = bench.backward([np.array(1.0), np.zeros_like(x)][: case.n_top])
    np.testing.assert_allclose(found[0].reshape(dx.shape), dx, rtol=1e-11, atol=1e-14)


def test_gradient():
    check_gradient(CASES[1].bench(), CASES[1].make_bottoms(np.random.default_rng(2)))


def test_without_the_switch_weights_do_not_count():
    text = "loss_param { class_weighting: 3 class_weighting: 5 }"
    benches = [LayerBench("SoftmaxWithLoss", t, ((4, 2), (4,))) for t in (text, "")]
    x, label = np.random.default_rng(3).normal(size=(4, 2)), np.array([0, 1, 1, 0])
    assert len({float(bench.forward([x, label])[0]) for bench in benches}) == 1


@pytest.mark.parametrize("type_name", ["SoftmaxWithLoss", "SigmoidCrossEntropyLoss", "InfogainLoss"])
@pytest.mark.parametrize(("given", "used"), [(2.5, 2.5), (0.5, 1), (None, 1)])
def test_a_given_normalizer_divides_the_sum(type_name, given, used):
    """R-FCN's PRE_FIXED; as every normalizer it is at least 1."""
    number = f"pre_fixed_normalizer: {given}" if given else ""
    shapes = ((4, 3), (4, 3) if type_name == "SigmoidCrossEntropyLoss" else (4,))
    x, label = np.random.default_rng(3).normal(size=(4, 3)), np.ones(shapes[1])
    matrix = [np.arange(9.0).reshape(3, 3)] if type_name == "InfogainLoss" else []
    shapes += tuple(m.shape for m in matrix)
    texts = (f"loss_param {{ normalization: PRE_FIXED {number} }}", "loss_param { normalization: NONE }")
    found = []
    for text in texts:
        bench = LayerBench(type_name, text, shapes)
        found.append((float(bench.forward([x, label, *matrix])[0]), bench.backward([np.array(1.0)])[0][0]))
    assert found[0][0] == pytest.approx(found[1][0] / used, rel=1e-12)
    np.testing.assert_allclose(found[0][1], found[1][1] / used, rtol=1e-12)


@pytest.mark.parametrize("weights", ["", "class_weighting: 1"])
def test_one_weight_per_class(weights):
    text = f"loss_param {{ weight_by_label_freqs: true {weights} }}"
    with pytest.raises(LayerParamError, match=r'layer "l".*has [01] class_weighting for 3 classes'):
        LayerBench("SoftmaxWithLoss", text, ((4, 3), (4,)))
