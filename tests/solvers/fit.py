"""Fits least squares with every solver type in NumPy, float64: the reference that solvers are compared with."""

from __future__ import annotations

import numpy as np

from pycaffe_lms.net.net import Net

from ..ops import updates
from .helpers import INPUT, inner

BATCH, INPUTS, OUTPUTS = 4, 3, 5
MULTS = "param { lr_mult: 0.5 decay_mult: 3 } param { lr_mult: 2 decay_mult: 0.5 }"
MULTIPLIERS = (0.5, 3.0), (2.0, 0.5)  # of rate and decay
NET = (
    INPUT.replace("shape { dim: 4 } }", "shape { dim: 4 dim: 5 } }")
    + inner(params=MULTS)
    + 'layer { name: "loss" type: "EuclideanLoss" bottom: "ip" bottom: "label" top: "loss" }\n'
)
# type -> (settings of the file, what they are in the rules)
TYPES = {
    "SGD": ({"momentum": 0.9}, {"keep": 0.9}),
    "Nesterov": ({"momentum": 0.9}, {"keep": 0.9}),
    "AdaGrad": ({"delta": 0.01}, {"delta": 0.01}),
    "RMSProp": ({"rms_decay": 0.8, "delta": 0.01}, {"keep": 0.8, "delta": 0.01}),
    "AdaDelta": ({"momentum": 0.8, "delta": 0.001}, {"keep": 0.8, "delta": 0.001}),
    "Adam": ({"momentum": 0.7, "momentum2": 0.9, "delta": 0.01}, {"keep": 0.7, "keep2": 0.9, "delta": 0.01}),
    "AdamW": ({"momentum": 0.7, "momentum2": 0.9, "delta": 0.01}, {"keep": 0.7, "keep2": 0.9, "delta": 0.01}),
    "Lion": ({"momentum": 0.7, "momentum2": 0.9}, {"keep": 0.7, "keep2": 0.9}),
}


def single(number: float) -> float:
    """Return a value as a solver file holds it, rounded to float32."""
    return float(np.float32(number))


def batch(k: int) -> tuple[np.ndarray, np.ndarray]:
    random = np.random.RandomState(k)
    return random.randn(BATCH, INPUTS).astype(np.float32), random.randn(BATCH, OUTPUTS).astype(np.float32)


class Reference:
    """Hold weights and histories, and update them iteration by iteration."""

    def __init__(self, start, kind, *, decay=0.0, l1=False, clip=-1.0, iter_size=1, rates=(0.1,) * 9, **numbers):
        self.rule, self.numbers = kind.lower(), {k: single(v) for k, v in numbers.items()}
        self.w = [a.astype(np.float64) for a in start]
        self.h = [[np.zeros_like(a)] * updates.HISTORIES[self.rule] for a in self.w]
        self.u = [None] * len(self.w)
        self.decay, self.l1, self.clip, self.iter_size, self.rates = single(decay), l1, single(clip), iter_size, rates
        self.done, self.clipped = 0, 0

    def step(self):
        sums = [np.zeros_like(w) for w in self.w]
        for k in range(self.done * self.iter_size, (self.done + 1) * self.iter_size):
            x, y = (a.astype(np.float64) for a in batch(k))
            error = (x @ self.w[0].T + self.w[1] - y) / BATCH
            sums[0] += error.T @ x
            sums[1] += error.sum(0)
        norm = np.sqrt(sum(float((s**2).sum()) for s in sums))
        if 0 <= self.clip < norm:
            self.clipped += 1
            sums = [s * (self.clip / norm) for s in sums]
        rate = single(self.rates[self.done])
        self.done += 1
        pulls = [0.0, 0.0]
        if self.rule in updates.DECOUPLED:
            options = [{"rate": rate * lr, "decay": self.decay * decay, "l1": self.l1} for lr, decay in MULTIPLIERS]
            pulls = [updates.pull(self.rule, w, **more) for w, more in zip(self.w, options, strict=True)]
        if self.rule in ("adam", "adamw"):
            keep, keep2 = self.numbers["keep"], self.numbers["keep2"]
            rate *= np.sqrt(1 - keep2**self.done) / (1 - keep**self.done)
        for i, (lr, decay) in enumerate(MULTIPLIERS):
            own = {"decay": self.decay * decay, "l1": self.l1, "rule": self.rule}
            g = updates.gradient(self.w[i], sums[i], scale=1 / self.iter_size, **own)
            self.w[i], self.u[i], self.h[i] = updates.step(
                self.rule, self.w[i], g, self.h[i], rate=rate * lr, pull=pulls[i], **self.numbers
            )


def feed(monkeypatch):
    """Let every forward of an iteration read its batch from now on."""
    original = Net.iteration

    def iteration(net, *args, **kwargs):
        net.batches = getattr(net, "batches", 0)
        net.blobs["x"].data, net.blobs["label"].data = batch(net.batches)
        net.batches += 1
        return original(net, *args, **kwargs)

    monkeypatch.setattr(Net, "iteration", iteration)


def compare(solver, reference, rel, iterations=5):
    """Compare weights, updates and histories after each iteration."""
    for _ in range(iterations):
        solver.step(1)
        reference.step()
        blobs = solver.net.params["ip"]
        histories = [b.read_data() for b in solver.history_blobs()]
        expected = [h[slot] for slot in range(len(reference.h[0])) for h in reference.h]
        for got, want in zip(
            [*(b.read_data() for b in blobs), *(b.read_diff() for b in blobs), *histories],
            [*reference.w, *reference.u, *expected],
            strict=True,
        ):
            np.testing.assert_allclose(got, want, rtol=rel, atol=rel)
