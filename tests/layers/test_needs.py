"""Check that layers read all that they declare to read, and nothing else.

Honest: NaN in everything that backward did not declare changes no gradient to the bit; the same for forward.
Minimal: other values in one declared array change something, for each target that is propagated alone, in at least one
case of the type; what is declared for nothing costs memory and copies under Large Model Support.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace

import numpy as np
import pytest

from pycaffe_lms.errors import DataError
from pycaffe_lms.layers.base import Lives, Needs
from pycaffe_lms.layers.registry import layer_class

from ..sampling import of_each_type
from .all_cases import learning_cases, runnable_cases
from .case_run import Run, disturb, hand_over_poison, spoil_undeclared

CASES = runnable_cases()
LEARNING = learning_cases()


def _equal(a, b):
    return a.keys() == b.keys() and all(np.array_equal(a[k], b[k], equal_nan=True) for k in a)


@pytest.mark.parametrize("case", of_each_type(LEARNING, every=16))
def test_backward_reads_nothing_else(case):
    run, poisoned = Run(case), Run(case)
    hand_over_poison(poisoned, "backward")
    for target in [None, *run.targets()] if len(run.targets()) > 1 else [None]:
        run.wants(only=target)
        poisoned.wants(only=target)
        run.forward()
        expected = run.backward(run.top_diffs())
        poisoned.forward()
        spoil_undeclared(poisoned)
        found = poisoned.backward(run.top_diffs())
        assert _equal(found, expected), f"with {target or 'all gradients'} wanted"


@pytest.mark.parametrize("case", of_each_type(CASES, every=16))
def test_forward_reads_nothing_else(case):
    run, poisoned = Run(case), Run(case)
    hand_over_poison(poisoned, "forward")
    expected = run.forward()
    for a, b in zip(poisoned.forward(), expected, strict=True):
        np.testing.assert_array_equal(a, b)


# -- minimal ------------------------------------------------------------------------------------------------------
def _high(run, kind, i):
    return dict(run.case.integer_bottoms).get(i) if kind == "bottom" else None


def _declared_for_backward(run):
    """Return {(kind, index or name): array} of what backward reads for the wanted targets."""
    bench, layer = run.bench, run.layer
    needs = layer.backward_needs(list(bench.propagate_down), list(bench.param_propagate))
    found = {("bottom", i): bench._bottom[i] for i in needs.bottoms}
    found |= {("top", i): bench._top[i] for i in needs.tops}
    found |= {("param", i): bench._param[i] for i in needs.params}
    saved = [s.name for s in layer.scratches.values() if s.lives is Lives.SAVED]
    return found | {("scratch", name): bench.scratch[name] for name in saved}


_FIRST_STATES = {"RNN", "LSTM"}  # as in Caffe the gradient of a first state is zero, which reads nothing


def _alone(need, found):
    """Return whether the array shares no memory with another declared one, which would change with it."""
    return not any(k != need and np.shares_memory(a, found[need]) for k, a in found.items())


def _backward_use(case, known=frozenset()):
    """Return {(target, need): whether other values there change the gradient} for one case; of those in `known`, which
    another case showed, True untried."""
    run, use = Run(case), {}
    for target in run.targets():
        run.wants(only=target)
        run.forward()
        # scratch is there for all targets together
        keys = {n: (None if n[0] == "scratch" else target, n) for n, a in _declared_for_backward(run).items() if a.size}
        use |= {key: True for key in keys.values() if key in known}
        needs = [need for need, key in keys.items() if not use.get(key)]
        if not needs:
            continue
        expected = run.backward(run.top_diffs())
        if case.type in _FIRST_STATES and not expected[target].any():
            continue
        for need in needs:
            run.forward()
            found = _declared_for_backward(run)
            if _alone(need, found):
                disturb(found[need], _high(run, *need))
                use[keys[need]] = not _equal(run.backward(run.top_diffs()), expected)
    return use


def _forward_use(case, known=frozenset()):
    """Return {need: whether other values there change a top or a parameter} for one case; of those in `known`, which
    another case showed, True untried."""
    run, use = Run(case), {}
    needs = run.layer.forward_needs()
    for kind, indices in (("bottom", needs.bottoms), ("param", needs.params)):
        for i in indices:
            arrays = run.bottoms if kind == "bottom" else run.params
            if (kind, i) in known:
                use[kind, i] = True
            elif arrays[i].size:
                expected = [*run.forward(), *(p.copy() for p in run.bench.params)]
                start = arrays[i].copy()
                disturb(arrays[i], _high(run, kind, i))
                try:
                    given = [*run.forward(), *run.bench.params]
                    use[kind, i] = any(not np.array_equal(a, b) for a, b in zip(given, expected, strict=True))
                except DataError:  # to refuse values is to read them
                    use[kind, i] = True
                arrays[i][...] = start
    return use


def _unused(cases, use_of):
    """Return {type: {need: why not}} of what some case declares but no case uses."""
    declared, used = defaultdict(set), defaultdict(set)
    for _, case in cases:
        for need, changes in use_of(case, used[case.type]).items():
            declared[case.type].add(need)
            if changes:
                used[case.type].add(need)
    return {t: declared[t] - used[t] for t in sorted(declared) if declared[t] - used[t]}


def test_backward_uses_all_that_it_declares():
    assert _unused(LEARNING, _backward_use) == {}


def test_forward_uses_all_that_it_declares():
    assert _unused(CASES, _forward_use) == {}


# -- these tests find what they look for ------------------------------------------------------------------------------
def _of(type_name):
    return [(n, c) for n, c in LEARNING if c.type == type_name]


@pytest.mark.parametrize("type_name", ["ReLU", "InnerProduct", "Softmax", "Eltwise"])
def test_a_need_that_is_not_declared_is_found(type_name, monkeypatch):
    monkeypatch.setattr(layer_class(type_name), "backward_needs", lambda *_: Needs())
    with pytest.raises((AssertionError, AttributeError, TypeError)):  # None is handed over where NaN is not
        for _, case in _of(type_name):
            test_backward_reads_nothing_else(case)


@pytest.mark.parametrize("type_name, extra", [("InnerProduct", ("top", 0)), ("Softmax", ("bottom", 0))])
def test_a_need_for_nothing_is_found(type_name, extra, monkeypatch):
    needs_of = layer_class(type_name).backward_needs

    def more(layer, *flags):
        needs = needs_of(layer, *flags)
        return replace(needs, **{f"{extra[0]}s": getattr(needs, f"{extra[0]}s") | {extra[1]}})

    monkeypatch.setattr(layer_class(type_name), "backward_needs", more)
    assert {need for _, need in _unused(_of(type_name), _backward_use)[type_name]} == {extra}
