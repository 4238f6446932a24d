"""Buffer views: Concat and Slice of contiguous ranges copy nothing in a solver's programs: same bits, less memory."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from pycaffe_lms.backend import cuda_available
from pycaffe_lms.errors import OutOfDeviceMemory
from pycaffe_lms.layers.shape.concat import ConcatLayer, SliceLayer
from pycaffe_lms.lms.config import LMSConfig
from pycaffe_lms.net.program import buffer_views
from pycaffe_lms.solvers import SGDSolver

from ..lms.nets import conv, head, train
from .nets import layer, relu
from .view_nets import CHANNEL, NETS, PLACES, concat, copying, data, solver, steps_of, total


def smallest_budget(text: str, lms: LMSConfig) -> int:
    """Of those that are each a tenth larger than the one before, the first with which the net trains."""
    for k in range(60):
        budget = int(1.1**k * (64 << 10))
        try:
            solver(text, lms=replace(lms, budget=budget)).step(1)
        except OutOfDeviceMemory:
            continue
        return budget
    raise AssertionError("no budget will do")


_GPU = [pytest.mark.gpu, pytest.mark.skipif(not cuda_available(), reason="no GPU")]


@pytest.mark.parametrize("place", [pytest.param(p, marks=_GPU if p == "gpu" else []) for p in PLACES])
@pytest.mark.parametrize("net", NETS)
def test_bits_are_those_of_copying(net, place, monkeypatch):
    make, lms = PLACES[place]
    expected = train(copying(monkeypatch, NETS[net][0], make()), 4)
    if place == "auto":
        lms = replace(lms, budget=smallest_budget(NETS[net][0], lms))
    assert train(solver(NETS[net][0], make(), lms), 4) == expected


@pytest.mark.parametrize("net", NETS)
def test_who_still_copies(net):
    s = solver(NETS[net][0])
    s.step(1)
    found = steps_of(s.net, "Concat", "Slice")
    assert (found["forward"], found["backward"]) == NETS[net][1:]


def test_nothing_is_queued_where_nobody_copies(monkeypatch):
    calls = []
    for kind in (ConcatLayer, SliceLayer):
        for way in ("forward", "backward"):
            old = getattr(kind, way)
            monkeypatch.setattr(kind, way, lambda self, io, old=old: (calls.append(self.name), old(self, io)))
    s = solver(NETS["nested"][0])
    s.step(2)
    assert calls == []
    s.net.forward_range()  # by hand
    assert calls == ["ab", "abc", "all"]


def random_net(rng: np.random.Generator) -> str:
    """Convolutions, layers in place, sums, Concats and Slices at random; some of the values end in a loss."""
    text, width, read = data() + conv("v0", "data", 8, 1), {"v0": 8}, set()
    for n in range(1, 16):
        kind = rng.choice(["conv", "relu", "tanh", "concat", "concat", "slice", "sum"])
        free = [v for v in width if width[v] <= 32]
        name, one = f"v{n}", str(rng.choice(free))
        alike = [v for v in free if width[v] == width[one]]
        if kind == "relu" and one not in read:
            text += relu(name, one)
            continue
        read.add(one)
        if kind == "slice":
            if width[one] >= 2:
                text += layer(name, "Slice", one, f"{name}a {name}b")
                width |= {f"{name}a": width[one] // 2, f"{name}b": width[one] // 2}
            continue
        if kind in ("sum", "concat"):
            some = [one, *map(str, rng.choice(alike if kind == "sum" else free, int(rng.integers(1, 3))))]
            read.update(some)
            text += (total if kind == "sum" else concat)(name, " ".join(some))
            width[name] = width[one] if kind == "sum" else sum(width[v] for v in some)
        elif kind == "conv":
            width[name] = int(rng.choice([2, 4, 8]))
            text += conv(name, one, width[name], 1)
        else:
            text, width[name] = text + layer(name, "TanH", one), width[one]
    square = "loss_weight: 0.0001 reduction_param { operation: SUMSQ }"
    ends = [v for v in width if v not in read or rng.random() < 0.3]
    return text + "".join(layer(f"loss_{v}", "Reduction", v, text=square) for v in ends)


@pytest.mark.parametrize("memory_counts", [True, False], ids=["as it is", "whatever memory it takes"])
@pytest.mark.parametrize("seed", [pytest.param(n, marks=pytest.mark.thorough if n % 4 else ()) for n in range(20)])
def test_random_nets(seed, memory_counts, monkeypatch):
    if not memory_counts:
        monkeypatch.setattr(buffer_views._ViewChoice, "_needs", lambda self: (0, 0))
    text = random_net(np.random.default_rng(seed))
    without_views = copying(monkeypatch, text)
    expected = train(without_views, 3)
    assert np.isfinite(expected[0]).all()
    for place in ("sim", "random", "all managed", "on demand", "cpu"):
        make, lms = PLACES[place]
        s = solver(text, make(), lms)
        assert train(s, 3) == expected, place
        if place == "sim" and memory_counts:
            assert arena(s) <= arena(without_views) + s.runtime.device.page  # a view may cost the rest of a page


def arena(s: SGDSolver) -> int:
    return s.net.memory.plans()["train"].arena_bytes


def test_memory_is_smaller_by_what_nobody_copies(monkeypatch):
    """Backward reads both bottoms and the top."""
    text = data() + conv("a", "data", 4) + layer("ta", "TanH", "a") + conv("b", "data", 4) + layer("tb", "TanH", "b")
    text += concat("cat", "ta tb") + conv("c", "cat", 1) + head("c")
    views, without_views = solver(text), copying(monkeypatch, text)
    for s in (views, without_views):
        s.step(1)
    # channels: the data, ta, tb, cat, cat's gradient and c's, in the backward of c
    assert arena(without_views) == (3 + 4 + 4 + 8 + 8 + 1) * CHANNEL
    # the data, cat, its gradient, and b's, in the backward of tb
    assert arena(views) == (3 + 8 + 8 + 4) * CHANNEL
