"""Tests which gradients count in the norm of clip_gradients: as in Caffe all that a layer makes, of frozen parameters
too.

The gradients come from a net in which nothing is frozen or shared, the update from the formula."""

from __future__ import annotations

import numpy as np
import pytest

from .helpers import INPUT, PLACES, inner, loss, make

RATE = 0.2
FROZEN = "param { lr_mult: 0 } "


def _recurrent(kind: str, params: str) -> str:
    text = "weight_filler { type: 'gaussian' std: 0.7 } bias_filler { type: 'gaussian' std: 0.7 }"
    return (
        "layer { name: 'x' type: 'Input' top: 'x' input_param { shape { dim: 4 dim: 3 dim: 2 } } }"
        "layer { name: 'cont' type: 'Input' top: 'cont' input_param { shape { dim: 4 dim: 3 } } }"
        "layer { name: 'label' type: 'Input' top: 'label' input_param { shape { dim: 4 dim: 3 } } }"
        + inner("below", "x", outputs=3, extra="axis: 2")
        + f"layer {{ name: 'r' type: '{kind}' bottom: 'below' bottom: 'cont' top: 'r' {params}"
        f"recurrent_param {{ num_output: 4 {text} }} }}"
        + inner("above", "r", outputs=5, extra="axis: 2")
        + loss("above").replace("top:", "softmax_param { axis: 2 } top:")
    )


def _fill(solver):
    rng = np.random.default_rng(4)
    for name, shape in (("x", (4, 3, 2)), ("cont", (4, 3)), ("label", (4, 3))):
        if name in solver.net.blobs:
            values = {"x": rng.normal(size=shape), "cont": [[1] * 3] * 4, "label": rng.integers(5, size=shape)}[name]
            solver.net.blobs[name].data[...] = values


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("kind, n", [("LSTM", 3), ("RNN", 5)])
def test_a_frozen_recurrent_layer_counts(kind, n, place):
    free = make(_recurrent(kind, ""), dtype="float64")
    _fill(free)
    free.net.forward_range()
    free.net.backward_range()
    gradients = {name: [b.diff.copy() for b in blobs] for name, blobs in free.net.params.items()}
    norm = np.sqrt(sum((g**2).sum() for grads in gradients.values() for g in grads))
    assert sum((g**2).sum() for g in gradients["r"]) > 0.01 * norm**2, "the frozen layer must matter"

    clip = float(np.float32(norm / 2))
    solver = make(_recurrent(kind, FROZEN * n), place, dtype="float64", base_lr=RATE, clip_gradients=clip)
    for name, blobs in solver.net.params.items():
        for mine, theirs in zip(blobs, free.net.params[name], strict=True):
            mine.data[...] = theirs.data
    _fill(solver)
    solver.step(1)
    for name, blobs in solver.net.params.items():
        for mine, theirs, g in zip(blobs, free.net.params[name], gradients[name], strict=True):
            rate = 0 if name == "r" else np.float32(RATE)
            np.testing.assert_allclose(mine.read_data(), theirs.data - rate * g * clip / norm, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("first, second, counts", [("lr_mult: 0", "", "b"), ("", "lr_mult: 0", "a"), ("", "", "ab")])
def test_of_a_shared_parameter_the_layers_count_whose_own_lr_mult_is_not_zero(first, second, counts):
    """In Caffe each layer reads its own ParamSpec, whose lr_mult is 1 where it is not written. A shared parameter does
    not change if one of the layers says 0."""
    text = "".join(
        inner(name, "x", outputs=5, extra="bias_term: false", params=p) for name, p in (("a", "{0}"), ("b", "{1}"))
    )
    text += 'layer { name: "s" type: "Eltwise" bottom: "a" bottom: "b" top: "s" }\n'
    shared = text.replace("{0}", f'param {{ name: "w" {first} }}').replace("{1}", f'param {{ name: "w" {second} }}')
    end = inner("ip", "s", outputs=5) + loss()
    solver = make(INPUT + shared + end, dtype="float64", base_lr=RATE, clip_gradients=0.01)
    twin = make(INPUT + text.replace("{0}", "").replace("{1}", "") + end, dtype="float64")
    for name in ("a", "b"):
        twin.net.params[name][0].data[...] = solver.net.params["a"][0].data
    for mine, theirs in zip(twin.net.params["ip"], solver.net.params["ip"], strict=True):
        mine.data[...] = theirs.data
    for s in (solver, twin):
        s.net.blobs["x"].data[...] = np.random.default_rng(1).normal(size=(4, 3))
        s.net.blobs["label"].data[...] = [0, 1, 2, 3]
    twin.net.forward_range()
    twin.net.backward_range()
    parts = {name: [b.diff.copy() for b in blobs] for name, blobs in twin.net.params.items()}
    of_w = sum(parts[name][0] for name in counts)
    norm = np.sqrt((of_w**2).sum() + sum((g**2).sum() for g in parts["ip"]))
    before = solver.net.params["a"][0].data.copy()
    solver.step(1)
    scale = np.float32(RATE) * np.float32(0.01) / norm
    frozen = "lr_mult: 0" in (first, second)
    moved = before if frozen else before - scale * of_w
    np.testing.assert_allclose(solver.net.params["a"][0].read_data(), moved, rtol=1e-9)
    for mine, old, g in zip(solver.net.params["ip"], twin.net.params["ip"], parts["ip"], strict=True):
        np.testing.assert_allclose(mine.read_data(), old.data - scale * g, rtol=1e-9)
