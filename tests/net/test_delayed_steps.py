"""Steps that make gradients of bottoms are delayed where that saves memory; every step still reads the same values."""

from __future__ import annotations

from itertools import accumulate
from types import SimpleNamespace

import pytest

from pycaffe_lms.backend.sim.device import SimDevice
from pycaffe_lms.layers.base import Gradients, count
from pycaffe_lms.lms.config import LMSConfig
from pycaffe_lms.lms.program import Access, Mode, Step
from pycaffe_lms.net.program.programs import SplitBackward
from pycaffe_lms.net.program.step_order import delayed
from tests.lms.nets import _DATA, _eltwise, _pool, conv, head, train

from ..seeds import seeded
from .test_split_backward import TEXTS, solver

READ, UPDATE, OVERWRITE = Mode
MODES = {"r": READ, "u": UPDATE, "w": OVERWRITE}


def step(name, waits=False, **accesses):
    """waits: it makes gradients of bottoms only."""
    parts = tuple(Access(ord(b), MODES[m]) for m, buffers in accesses.items() for b in buffers)
    return SimpleNamespace(step=Step(name, parts), makes=Gradients.BOTTOMS if waits else Gradients.ALL)


def order(steps, scratch="", **sizes):
    found = delayed(steps, {ord(b): n for b, n in sizes.items()}, {ord(b) for b in scratch})
    return [one.step.name for one in found]


def two_readers(**more):
    """Both read x and add up its gradient g: one gives it from p, the other from q. P and Q are their weights."""
    return [
        step("params one", r="xp", w="d"),
        step("bottoms one", True, r="pP", w="g"),
        step("update P", r="d", u="P"),
        step("makes q", r="s", w="q"),
        step("params two", r="xq", w="e"),
        step("bottoms two", True, r="qQ", u="g"),
        step("update Q", r="e", u="Q"),
        step("sum", r="g", w="G"),
    ]


def test_the_first_waits_for_the_second_and_its_update_with_it():
    assert order(two_readers(), g=8, p=2, P=1, d=1) == [
        "params one",
        "makes q",
        "params two",
        "bottoms one",
        "update P",
        "bottoms two",
        "update Q",
        "sum",
    ]


@pytest.mark.parametrize("kept", ["p", "P", "d"])
def test_not_where_what_it_is_made_from_is_as_large(kept):
    """What it reads, and what its update does, waits too."""
    assert order(two_readers(), g=8, **{kept: 8}) == [one.step.name for one in two_readers()]


def test_workspace_does_not_count_and_orders_nothing():
    steps = two_readers()
    for one in steps:
        one.step = Step(one.step.name, (*one.step.accesses, Access(ord("W"), OVERWRITE)))
    assert order(steps, "W", g=8, p=2, W=99)[3] == "bottoms one"


def test_what_depends_on_it_stays_behind():
    """And what depends on that."""
    steps = two_readers()
    steps[3:3] = [step("reads P", r="P", w="y"), step("reads y", r="y", w="z"), step("free", r="f", w="h")]
    assert order(steps, g=8, p=2) == [
        "params one",
        "free",
        "makes q",
        "params two",
        "bottoms one",
        "update P",
        "reads P",
        "reads y",
        "bottoms two",
        "update Q",
        "sum",
    ]


def test_of_three_readers_two_wait_for_the_third():
    steps = two_readers()
    steps[7:7] = [
        step("makes v", r="t", w="v"),
        step("params three", r="xv", w="k"),
        step("bottoms three", True, r="vV", u="g"),
    ]
    found = order(steps, g=8, p=2, q=2)
    assert found[-6:] == ["bottoms one", "update P", "bottoms two", "update Q", "bottoms three", "sum"]
    assert order(steps, g=8, p=2, q=6)[-4:] == ["makes v", "params three", "bottoms three", "sum"]  # too much together


def test_a_step_that_makes_all_gradients_does_not_wait():
    steps = two_readers()
    steps[1].makes = Gradients.ALL
    assert order(steps, g=8) == [one.step.name for one in steps]


def _memory(steps, sizes):
    """Most bytes alive at once: a value from its making to its last reader."""
    change = [0] * (len(steps) + 1)
    for b, size in sizes.items():
        uses = [s for s, one in enumerate(steps) if b in {a.buffer for a in one.step.accesses}]
        if uses:
            change[uses[0]] += size
            change[uses[-1] + 1] -= size
    return max(accumulate(change))


def test_less_memory_is_needed():
    sizes = {ord("g"): 8, ord("x"): 8, ord("q"): 4, ord("p"): 2, ord("s"): 4}
    steps = [step("makes x", w="x"), step("makes s", w="s"), step("makes p", w="p"), *two_readers()]
    assert (_memory(steps, sizes), _memory(delayed(steps, sizes, set()), sizes)) == (24, 18)


def _run(steps, memory):
    """Every step writes a number that depends on its name and on what it finds there."""
    for one in steps:
        found = tuple(memory.get(a.buffer) for a in one.step.accesses if a.mode is not OVERWRITE)
        for a in one.step.accesses:
            if a.mode is not READ:
                memory[a.buffer] = hash((one.step.name, a.buffer, found))
    return memory


@pytest.mark.parametrize("seed", range(200))
def test_every_step_finds_what_it_would(seed):
    rng, buffers = seeded(seed), range(12)
    steps = []
    for s in range(30):
        chosen = rng.sample(buffers, rng.randint(1, 4))
        parts = tuple(Access(b, rng.choice((READ, READ, UPDATE, OVERWRITE))) for b in chosen)
        makes = Gradients.BOTTOMS if rng.random() < 0.4 else Gradients.ALL
        steps.append(SimpleNamespace(step=Step(str(s), parts), makes=makes))
    sizes = {b: rng.randint(1, 100) for b in buffers}
    found = delayed(steps, sizes, frozenset())
    assert sorted(map(id, found)) == sorted(map(id, steps))
    assert _run(found, {}) == _run(steps, {})


# -- nets ------------------------------------------------------------------------------------------------------------
TEXTS["a shortcut that widens"] = (
    _DATA
    + conv("a", "data", 8)
    + _pool("p", "a")
    + conv("s", "p", 16, 1)
    + conv("b", "p", 2, 1)
    + conv("c", "b", 2)
    + conv("d", "c", 16, 1)
    + _eltwise("sum", "s", "d")
    + head("sum")
)
TEXTS["four branches"] = (
    _DATA
    + conv("a", "data", 32)
    + _pool("p", "a")
    + conv("b", "p", 2, 1)
    + conv("c", "p", 2, 1)
    + conv("d", "p", 2, 1)
    + conv("e", "p", 2, 1)
    + 'layer { name: "cat" type: "Concat" bottom: "b" bottom: "c" bottom: "d" bottom: "e" top: "cat" }\n'
    + head("cat")
)
CONFIGS = [LMSConfig(threshold_kb=1, ahead=0), LMSConfig(threshold_kb=1), LMSConfig(threshold_kb=1, recompute=True)]


@pytest.mark.parametrize("net, late", [("a shortcut that widens", {"b"}), ("four branches", {"c", "d", "e"})])
def test_readers_of_one_value_make_its_gradient_together(net, late):
    """When all have made those of their parameters."""
    names = [s.step.name for s in solver(net, SimDevice(64 << 20), True, CONFIGS[0]).net.memory.steps("train")]
    back = [name for name in names if name.startswith("backward:")]
    first = min(back.index(f"backward:{layer}") for layer in late)
    assert all(back.index(name) < first for name in back if name.endswith("[params]") and name[9:10] in "sbcde")


@pytest.mark.parametrize("options", [{}, {"iter_size": 2}, {"clip_gradients": 0.5}], ids=str)
@pytest.mark.parametrize("net", ["a shortcut that widens", "four branches"])
def test_bits_are_those_of_one_step(net, options):
    expected = train(solver(net, SimDevice(64 << 20), False, **options), 3)
    for seed, lms in enumerate([None, *CONFIGS, LMSConfig(auto=True, threshold_kb=1, budget=300 << 10)]):
        one = solver(net, SimDevice(64 << 20, order="random", seed=seed), True, lms, **options)
        assert train(one, 3) == expected


# -- which layers ----------------------------------------------------------------------------------------------------
def test_small_layers_make_theirs_in_one_step_unless_told():
    """Next to data of 12x12, `b` is large; what is behind two poolings is small, but for the weights of fc."""
    text = _DATA + conv("a", "data", 8) + conv("b", "a", 8) + _pool("p", "b") + _pool("q", "p") + conv("c", "q", 8)
    TEXTS["small ones"] = text + head("c")
    one = solver("small ones", SimDevice(64 << 20))
    n, builder = len(one.net.graph.nodes) - 1, one.net.arrangement.builder

    def halves(which):
        steps = builder.backward(n, 0, builder.loss_diffs(), accumulate=False, fused=True, split_backward=which)
        return {s.step.name.removeprefix("backward:") for s in steps if s.makes is Gradients.BOTTOMS}

    def elements(layer):
        node = next(node for node in one.net.run_graph.nodes if node.name == layer)
        values, params = one.net.run_graph.values, one.net.run_graph.params
        size = [count(values[b].shape) for b in node.bottoms], [count(params[p].shape) for p in node.params]
        return max(map(sum, size))

    assert halves(SplitBackward.NONE) == set()
    assert halves(SplitBackward.ALL) == {"fc", "c", "b"}
    assert halves(SplitBackward.LARGE) == {layer for layer in ("fc", "c", "b") if elements(layer) * 6 >= elements("b")}
    assert halves(SplitBackward.LARGE) == {"b"}
