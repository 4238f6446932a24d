"""Tests updates of SGD against NumPy in float64, written from the rules: a softmax regression with all settings."""

from __future__ import annotations

import logging

import numpy as np
import pytest

from pycaffe_lms.net.net import Net

from .helpers import INPUT, PLACES, bits, inner, loss, make, messages, values

BATCH, INPUTS, CLASSES = 4, 3, 5
RATE = float(np.float32(0.2))  # numbers in a prototxt are float32
NET = INPUT + inner() + loss()
MULTS = "param { lr_mult: 0.5 decay_mult: 3 } param { lr_mult: 2 decay_mult: 0 }"


def batch(k: int) -> tuple[np.ndarray, np.ndarray]:
    random = np.random.RandomState(k)
    return random.randn(BATCH, INPUTS).astype(np.float32), random.randint(0, CLASSES, BATCH)


def softmax_gradient(x, labels, w, b):
    """Return the mean cross entropy of softmax(x w^T + b), and its gradients by w and b."""
    z = x.astype(np.float64) @ w.T + b
    p = np.exp(z - z.max(1, keepdims=True))
    p /= p.sum(1, keepdims=True)
    rows = np.arange(len(x))
    value = -np.log(p[rows, labels]).mean()
    p[rows, labels] -= 1
    p /= len(x)
    return value, [p.T @ x, p.sum(0)]


class Reference:
    """Do the steps of a solver as section "update rules" of Caffe's manual describes them."""

    def __init__(self, start, *, momentum=0.0, decay=0.0, l1=False, lr=(1, 1), decays=(1, 1), clip=-1.0, iter_size=1):
        self.w = [a.astype(np.float64) for a in start]
        self.h = [np.zeros_like(a) for a in self.w]
        self.momentum, self.decay, self.clip = (float(np.float32(v)) for v in (momentum, decay, clip))
        self.l1, self.lr, self.decays, self.iter_size = l1, lr, decays, iter_size
        self.norms = []

    def step(self, batches) -> float:
        """Do one iteration over `iter_size` batches; return its loss."""
        total, g = 0.0, [np.zeros_like(a) for a in self.w]
        for x, labels in batches:
            value, gradients = softmax_gradient(x, labels, *self.w)
            total += value
            g = [a + b for a, b in zip(g, gradients, strict=True)]
        self.norms.append(np.sqrt(sum(np.vdot(a, a) for a in g)))
        if 0 <= self.clip < self.norms[-1]:
            g = [a * self.clip / self.norms[-1] for a in g]
        for i, a in enumerate(g):
            penalty = np.sign(self.w[i]) if self.l1 else self.w[i]
            a = a / self.iter_size + self.decay * self.decays[i] * penalty
            self.h[i] = self.momentum * self.h[i] + RATE * self.lr[i] * a
            self.w[i] = self.w[i] - self.h[i]
        return total / self.iter_size


class Feed:
    """Give a net its batches, one per forward, through the Input blobs, before the data is used."""

    def __init__(self, monkeypatch, solver):
        self.next, self.losses = 0, []
        original = Net.iteration

        def iteration(net, *args, **kwargs):
            x, labels = batch(self.next)
            self.next += 1
            net.blobs["x"].data = x
            net.blobs["label"].data = labels
            done = original(net, *args, **kwargs)
            self.losses.append(net.loss())
            return done

        monkeypatch.setattr(Net, "iteration", iteration)


CASES = {
    "plain": ({}, {}),
    "momentum": ({"momentum": 0.9}, {"momentum": 0.9}),
    "L2": ({"weight_decay": 0.1, "momentum": 0.5}, {"decay": 0.1, "momentum": 0.5}),
    "L1": ({"weight_decay": 0.1, "regularization_type": '"L1"'}, {"decay": 0.1, "l1": True}),
    "multipliers": (
        {"weight_decay": 0.1, "momentum": 0.9, "mults": MULTS},
        {"decay": 0.1, "momentum": 0.9, "lr": (0.5, 2), "decays": (3, 0)},
    ),
    "clip": ({"clip_gradients": 0.3, "weight_decay": 0.1}, {"clip": 0.3, "decay": 0.1}),
    "clip to nothing": ({"clip_gradients": 0, "weight_decay": 0.1}, {"clip": 0.0, "decay": 0.1}),
    "clip that is never met": ({"clip_gradients": 50}, {}),
    "two batches": (
        {"iter_size": 2, "momentum": 0.9, "weight_decay": 0.1},
        {"iter_size": 2, "momentum": 0.9, "decay": 0.1},
    ),
    "three batches, clipped before the division": (
        {"iter_size": 3, "clip_gradients": 0.7, "momentum": 0.9, "weight_decay": 0.1, "mults": MULTS},
        {"iter_size": 3, "clip": 0.7, "momentum": 0.9, "decay": 0.1, "lr": (0.5, 2), "decays": (3, 0)},
    ),
}


@pytest.mark.parametrize(
    ("place", "dtype", "rel"),
    [("cpu", "float64", 1e-9), ("cpu", "float32", 2e-5), ("sim", "float32", 2e-5), ("sim with LMS", "float32", 2e-5)],
)
@pytest.mark.parametrize("case", CASES)
def test_five_iterations(case, place, dtype, rel, monkeypatch):
    options, rules = CASES[case]
    options = {**options}
    net = INPUT + inner(params=options.pop("mults", "")) + loss()
    solver = make(net, place, dtype=dtype, base_lr=RATE, **options)
    reference = Reference(values(solver), **rules)
    feed = Feed(monkeypatch, solver)
    size = reference.iter_size
    for k in range(5):
        solver.step(1)
        expected = reference.step([batch(i) for i in range(k * size, (k + 1) * size)])
        assert solver._display._losses[-1] == pytest.approx(expected, rel=rel)
        for blob, w, h in zip(solver.net.params["ip"], reference.w, reference.h, strict=True):
            np.testing.assert_allclose(blob.read_data(), w, rtol=rel, atol=rel)
            np.testing.assert_allclose(blob.read_diff(), h, rtol=rel, atol=rel, err_msg="diff holds the update")
    assert feed.next == 5 * size
    if rules.get("clip", 0) > 0:
        assert max(reference.norms) > rules["clip"], "this test must clip"


def test_clipping_is_logged(monkeypatch, caplog):
    """The line has the norm of the raw sum over all batches, before the division by iter_size; it follows the rate's
    line."""
    caplog.set_level(logging.INFO, "pycaffe_lms")
    solver = make(NET, dtype="float64", base_lr=RATE, clip_gradients=0.25, iter_size=2, display=1)
    reference = Reference(values(solver), clip=0.25, iter_size=2)
    Feed(monkeypatch, solver)
    caplog.clear()
    solver.step(2)
    for k in (0, 2):
        reference.step([batch(k), batch(k + 1)])
    told = [m for m in messages(caplog) if "clip" in m or "lr =" in m]
    expected = []
    for k, norm in enumerate(reference.norms):
        clip = (
            f"Gradient clipping: scaling down gradients (L2 norm {norm:.6g} > 0.25) by scale factor {0.25 / norm:.6g}"
        )
        expected += [f"Iteration {k}, lr = 0.2", clip]
    assert told == expected


@pytest.mark.parametrize("display, expected", [(0, [0]), (3, [0, 3, 6]), (1, range(7))])
def test_clipping_is_logged_once_for_each_display(display, expected, monkeypatch, caplog):
    caplog.set_level(logging.INFO, "pycaffe_lms")
    solver = make(NET, dtype="float64", base_lr=RATE, clip_gradients=1e-3, display=display)
    Feed(monkeypatch, solver)
    found = []
    for k in range(7):
        caplog.clear()
        solver.step(1)
        found += [k] * sum(m.startswith("Gradient clipping") for m in messages(caplog))
    assert found == list(expected)


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("clip", [-1, 0.001])
def test_a_parameter_without_a_gradient_path_still_decays(clip, place):
    """Its gradient is zero in every iteration. Its diff holds the last update, which must not be taken for the
    gradient, neither in its own update nor in the norm."""
    dead = inner("dead", "x") + 'layer { name: "quiet" type: "Silence" bottom: "dead" }\n'
    options = {"weight_decay": 0.5, "momentum": 0.5, "base_lr": 0.5, "clip_gradients": clip}
    with_dead, without = (make(INPUT + inner() + loss() + more, place, **options) for more in (dead, ""))
    start = [v.astype(np.float64) for v in values(with_dead, "dead")]
    history = [np.zeros_like(v) for v in start]
    for a, b in zip(with_dead.net.params["ip"], without.net.params["ip"], strict=True):
        b.data = a.read_data()
    for solver in (with_dead, without):
        solver.net.blobs["x"].data, solver.net.blobs["label"].data = batch(0)
    for _ in range(4):
        with_dead.step(1)
        without.step(1)
        history = [0.5 * h + 0.5 * 0.5 * w for h, w in zip(history, start, strict=True)]
        start = [w - h for w, h in zip(start, history, strict=True)]
    for blob, w, h in zip(with_dead.net.params["dead"], start, history, strict=True):
        np.testing.assert_allclose(blob.read_data(), w, rtol=1e-5)
        np.testing.assert_allclose(blob.read_diff(), h, rtol=1e-5)
    assert [v.tobytes() for v in values(with_dead)] == [v.tobytes() for v in values(without)]


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("iter_size", [1, 3])
def test_shared_parameters_get_the_sum_and_move_once(place, iter_size):
    """Two losses on one weight are as one loss on both batches, with twice the mean's gradient."""
    names = 'param { name: "w" lr_mult: 0.5 } param { name: "b" }'
    twice = INPUT.replace('"x"', '"y"').replace('"label"', '"label2"') + INPUT + inner(params=names) + loss()
    twice += inner("ip2", "y", params='param { name: "w" } param { name: "b" }')
    twice += loss("ip2", "loss2").replace('"label"', '"label2"')
    options = {"momentum": 0.9, "weight_decay": 0.1, "base_lr": RATE, "iter_size": iter_size}
    solver = make(twice, place, **options)
    assert len(solver.net.learnable_params) == 2 == len(solver.history_blobs())
    reference = Reference(values(solver), momentum=0.9, decay=0.1, lr=(0.5, 1), iter_size=1)
    blobs = solver.net.blobs
    (blobs["x"].data, blobs["label"].data), (blobs["y"].data, blobs["label2"].data) = batch(0), batch(1)
    for _ in range(4):
        solver.step(1)
        reference.step([batch(0), batch(1)])
    for layer in ("ip", "ip2"):
        for blob, w in zip(solver.net.params[layer], reference.w, strict=True):
            np.testing.assert_allclose(blob.read_data(), w, rtol=2e-5, atol=1e-6)


def test_lr_mult_zero_stays_and_gets_no_gradient():
    solver = make(INPUT + inner(params="param { lr_mult: 0 } param { }") + loss(), weight_decay=0.5, momentum=0.9)
    solver.net.blobs["x"].data, solver.net.blobs["label"].data = batch(0)
    before = values(solver)
    solver.step(3)
    weight, bias = solver.net.params["ip"]
    assert (weight.read_data() == before[0]).all() and not weight.read_diff().any()
    assert (bias.read_data() != before[1]).any()


@pytest.mark.parametrize("clip", [-1, 0.3])
def test_a_forced_gradient_of_lr_mult_zero_counts_in_the_norm_but_moves_nothing(clip, monkeypatch):
    """force_backward computes every gradient, and Caffe clips by the norm of all of them."""
    net = "force_backward: true\n" + INPUT + inner(params="param { lr_mult: 0 } param { }") + loss()
    solver = make(net, dtype="float64", base_lr=RATE, momentum=0.9, weight_decay=0.1, clip_gradients=clip)
    reference = Reference(values(solver), momentum=0.9, decay=0.1, lr=(0, 1), clip=clip)
    Feed(monkeypatch, solver)
    for k in range(4):
        solver.step(1)
        reference.step([batch(k)])
        for blob, w, h in zip(solver.net.params["ip"], reference.w, reference.h, strict=True):
            np.testing.assert_allclose(blob.read_data(), w, rtol=1e-10)
            np.testing.assert_allclose(blob.read_diff(), h, rtol=1e-10, atol=1e-12)
    assert clip < 0 or min(reference.norms) > clip


@pytest.mark.parametrize("place", PLACES)
def test_where_gradients_can_be_seen_the_update_is_the_same(place):
    """Callbacks split the iteration into two programs with the same numbers, to the bit. A callback sees raw gradients
    and may change them."""
    options = {"momentum": 0.9, "weight_decay": 0.1, "iter_size": 2}
    plain, watched, doubled = (make(NET, place, **options) for _ in range(3))
    seen = []
    watched.callbacks.append((lambda: None, lambda: seen.append(watched.net.params["ip"][1].read_diff().copy())))
    doubled.callbacks.append((lambda: None, lambda: [_double(b) for b in doubled.net.learnable_params]))
    for solver in (plain, watched, doubled):
        solver.net.blobs["x"].data, solver.net.blobs["label"].data = batch(5)
    _, (_, gradient) = softmax_gradient(*batch(5), *(v.astype(np.float64) for v in values(plain)))
    half = make(NET, place, momentum=0.9, weight_decay=0.1)  # iter_size 2 of one batch, doubled: twice the gradient
    half.net.blobs["x"].data, half.net.blobs["label"].data = batch(5)
    half.callbacks.append((lambda: None, lambda: [_double(b) for b in half.net.learnable_params]))
    for solver in (plain, watched, doubled, half):
        solver.step(3)
    assert bits(plain) == bits(watched) and len(seen) == 3
    np.testing.assert_allclose(seen[0], 2 * gradient, rtol=1e-4, atol=1e-6)
    for a, b in zip(values(doubled), values(half), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5)
    assert bits(doubled) != bits(plain)


def _double(blob) -> None:
    blob.diff *= 2


@pytest.mark.parametrize("place", PLACES)
def test_apply_update_takes_the_gradients_that_are_there(place):
    """Nothing is cleared, not even where no backward writes; the iteration counts."""
    dead = inner("dead", "x") + 'layer { name: "quiet" type: "Silence" bottom: "dead" }\n'
    solver = make(NET + dead, place, base_lr=0.5, momentum=0.5)
    before = values(solver), values(solver, "dead")
    for blobs in (solver.net.params["ip"], solver.net.params["dead"]):
        for blob in blobs:
            blob.diff = 0.25
    solver.apply_update()
    solver.apply_update()  # the first left the update, 0.125, in diff
    for name, old in zip(("ip", "dead"), before, strict=True):
        for a, b in zip(values(solver, name), old, strict=True):
            np.testing.assert_allclose(b - a, 0.125 + (0.5 * 0.125 + 0.5 * 0.125), rtol=1e-4)
    assert solver.iter == 2


def test_rates_travel_in_the_history():
    """A lower rate acts on new gradients only; the momentum keeps what the old rate contributed."""
    solver = make(NET, dtype="float64", base_lr=1, lr_policy='"step"', stepsize=1, gamma=0.0, momentum=0.5)
    solver.net.blobs["x"].data, solver.net.blobs["label"].data = batch(0)
    solver.step(1)
    first = [b.read_diff().copy() for b in solver.net.params["ip"]]
    solver.step(1)
    for blob, update in zip(solver.net.params["ip"], first, strict=True):
        np.testing.assert_allclose(blob.read_diff(), 0.5 * update, rtol=1e-12)
