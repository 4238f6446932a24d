"""Tests every solver type against NumPy in float64, with all that changes a gradient before the rule."""

from __future__ import annotations

import logging

import numpy as np
import pytest

from pycaffe_lms.errors import SolverError
from pycaffe_lms.formats.prototxt.parser import parse_solver
from pycaffe_lms.solvers import SOLVERS, solver_class

from ..ops import updates
from .fit import NET, OUTPUTS, TYPES, Reference, compare, feed, single
from .helpers import GAUSSIAN, PLACES, bits, inner, loss, make, messages, solver_text, values

DEFAULTS = {"RMSProp": {"keep": 0.99, "delta": 1e-8}, "Adam": {"keep": 0.0, "keep2": 0.999, "delta": 1e-8}}
DEFAULTS["AdamW"] = DEFAULTS["Adam"]
DEFAULTS["Lion"] = {"keep": 0.0, "keep2": 0.999}


@pytest.fixture
def fed(monkeypatch):
    feed(monkeypatch)


@pytest.mark.parametrize("iter_size", [1, 2])
@pytest.mark.parametrize("clip", [-1, 0.9])
@pytest.mark.parametrize("decay", ["none", "L1", "L2"])
@pytest.mark.parametrize("kind", TYPES)
def test_the_formulas(kind, decay, clip, iter_size, fed):
    options, rules = TYPES[kind]
    if decay != "none":
        options = options | {"weight_decay": 0.05, "regularization_type": f'"{decay}"'}
        rules = rules | {"decay": 0.05, "l1": decay == "L1"}
    more = {"clip_gradients": clip, "iter_size": iter_size}
    solver = make(NET, dtype="float64", type=f'"{kind}"', **options, **more)
    reference = Reference(values(solver), kind, clip=clip, iter_size=iter_size, **rules)
    compare(solver, reference, 1e-10)
    assert solver.net.batches == 5 * iter_size and reference.clipped == (5 if clip > 0 else 0)


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("kind", TYPES)
def test_single_precision_everywhere(kind, place, fed):
    """Rates change: a recorded program must read them, and Adam's factor, at every run."""
    options, rules = TYPES[kind]
    more = {"lr_policy": '"step"', "gamma": 0.5, "stepsize": 2, "iter_size": 2, "weight_decay": 0.05}
    solver = make(NET, place, type=f'"{kind}"', **options, **more)
    rates = [0.1 * 0.5 ** (k // 2) for k in range(9)]
    compare(solver, Reference(values(solver), kind, iter_size=2, decay=0.05, rates=rates, **rules), 5e-5, 8)


@pytest.mark.parametrize("kind", DEFAULTS)
def test_settings_that_are_not_written(kind, fed):
    solver = make(NET, dtype="float64", type=f'"{kind}"')
    compare(solver, Reference(values(solver), kind, **DEFAULTS[kind]), 1e-9)


@pytest.mark.parametrize("kind", TYPES)
def test_settings_may_change_between_iterations(kind, fed):
    """On every device, with a recorded program too: the rule's numbers are read when it runs."""
    options, _ = TYPES[kind]
    found = []
    for place in ("sim with LMS", "sim"):
        solver = make(NET, place, type=f'"{kind}"', **options, weight_decay=0.1)
        solver.step(4)
        for name, value in {"weight_decay": 0.7, "regularization_type": "L1", "base_lr": 0.03, "delta": 0.2}.items():
            setattr(solver.param, name, value)
        for name in {"momentum", "rms_decay", "momentum2"} & set(options):
            setattr(solver.param, name, 0.3)
        solver.step(4)
        found.append(bits(solver))
        plain = make(NET, place, type=f'"{kind}"', **options, weight_decay=0.1)
        plain.step(8)
        assert bits(plain) != found[-1]
    assert found[0] == found[1]


@pytest.mark.parametrize("place", PLACES)
def test_clipping_may_be_turned_on_and_off(place, fed):
    """A limit of infinity computes norms from the beginning, and changes nothing."""
    found = []
    for start in (-1, "inf"):
        solver = make(NET, place, type='"Adam"', **TYPES["Adam"][0], clip_gradients=start)
        losses = []
        for limit in (float(start), 0.01, float(start)):
            solver.param.clip_gradients = limit
            for _ in range(4):
                solver.step(1)
                losses.append(solver.net.loss())
        found.append((losses, bits(solver)))
    assert found[0] == found[1]
    solver = make(NET, place, type='"Adam"', **TYPES["Adam"][0])
    solver.step(12)
    assert bits(solver) != found[0][1]


@pytest.mark.parametrize("kind", TYPES)
def test_apply_update(kind):
    """Make one update with the present gradients, of the iteration that counts; nothing is cleared."""
    options, rules = TYPES[kind]
    solver = make(NET, dtype="float64", type=f'"{kind}"', **options)
    rate, numbers = single(0.1), {k: single(v) for k, v in rules.items()}
    w, h = values(solver)[1], [np.zeros(OUTPUTS)] * updates.HISTORIES[kind.lower()]
    u = np.linspace(-1, 1, OUTPUTS)
    solver.net.params["ip"][1].diff = u
    for t in (1, 2, 3):
        factor = np.sqrt(1 - numbers["keep2"] ** t) / (1 - numbers["keep"] ** t) if kind.startswith("Adam") else 1
        w, u, h = updates.step(kind.lower(), w, u, h, rate=2 * rate * factor, **numbers)
        solver.apply_update()
        np.testing.assert_allclose(solver.net.params["ip"][1].read_data(), w, rtol=1e-12)
        np.testing.assert_allclose(solver.net.params["ip"][1].read_diff(), u, rtol=1e-12)
        assert solver.iter == t


# -- which type --------------------------------------------------------------------------------------------------------
def chosen(text: str) -> str:
    return solver_class(parse_solver(f"{text} base_lr: 1").message).__name__


@pytest.mark.parametrize("number, kind", list(enumerate(TYPES)))
def test_a_type_by_its_name_and_by_the_old_enumeration(number, kind):
    name = f"{kind}Solver"
    assert SOLVERS[kind].__name__ == name and list(SOLVERS) == list(TYPES)
    assert chosen(f'type: "{kind}"') == chosen(f"type: '{kind}'") == name
    if kind not in ("AdamW", "Lion"):  # younger than the enumeration
        assert chosen(f"solver_type: {kind.upper()}") == chosen(f"solver_type: {number}") == name


def test_sgd_where_nothing_is_said():
    assert chosen("") == "SGDSolver"


@pytest.mark.parametrize(
    ("written", "said"),
    [
        ("sgd", '; did you mean "SGD"?'),
        ("ADAM", '; did you mean "Adam"?'),
        ("Adamm", '; did you mean "Adam"?'),
        ("adagrad", '; did you mean "AdaGrad"?'),
        ("RmsProp", '; did you mean "RMSProp"?'),
        ("LBFGS", ""),
        ("", ""),
    ],
)
def test_a_type_that_is_none(written, said):
    with pytest.raises(SolverError) as caught:
        chosen(f'type: "{written}"')
    assert caught.value.message == f'solver type "{written}" is not known{said}'
    assert caught.value.fix == "use one of: SGD, Nesterov, AdaGrad, RMSProp, AdaDelta, Adam, AdamW, Lion"


def test_both_ways_at_once():
    with pytest.raises(SolverError, match='both `solver_type: ADAM` and `type: "Adam"`'):
        chosen('type: "Adam" solver_type: ADAM')


# -- what types refuse -------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("kind", "options", "said"),
    [
        *((kind, {"momentum": 0.9}, f"momentum 0.9 cannot be used with {kind}") for kind in ("AdaGrad", "RMSProp")),
        *(("RMSProp", {"rms_decay": v}, f"rms_decay {v} is outside of [0, 1)") for v in (1, -0.5, 99)),
        *(
            (kind, {"momentum": v}, f"momentum {v} is outside of [0, 1)")
            for kind in ("AdaDelta", "Adam")
            for v in (1, -0.1)
        ),
        *(("Adam", {"momentum2": v}, f"momentum2 {v} is outside of [0, 1)") for v in (1, -0.1)),
        *((kind, {"delta": -0.5}, "delta -0.5 is negative") for kind in ("AdaGrad", "RMSProp", "AdaDelta", "Adam")),
    ],
)
def test_refused(kind, options, said):
    with pytest.raises(SolverError) as caught:
        make(GAUSSIAN + inner() + loss(), file="s.prototxt", type=f'"{kind}"', **options)
    assert caught.value.message.startswith(said) and caught.value.fix
    text = solver_text("", type=f'"{kind}"', **options).splitlines()
    line = next(i for i, entry in enumerate(text, 1) if entry.startswith(next(iter(options))))
    assert (caught.value.where.file, caught.value.where.line) == ("s.prototxt", line)


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        ("AdaGrad", {"momentum": 0, "delta": 0}),
        ("RMSProp", {"rms_decay": 0}),
        ("AdaDelta", {"momentum": 0}),
        ("Adam", {"momentum": 0, "momentum2": 0}),
        ("SGD", {"delta": -1, "rms_decay": 5}),
        ("Nesterov", {"momentum": 1}),
    ],
)
def test_taken(kind, options):
    solver = make(GAUSSIAN + inner() + loss(), type=f'"{kind}"', **options)
    before = values(solver)
    solver.step(2)
    assert all(np.isfinite(a).all() and (a != b).any() for a, b in zip(values(solver), before, strict=True))


def test_settings_that_nothing_reads_are_said(caplog):
    caplog.set_level(logging.WARNING, "pycaffe_lms")
    options = {"momentum2": 0.9, "delta": 0.1, "rms_decay": 0, "gamma": 0.5, "stepvalue": [3, 4]}
    make(GAUSSIAN + inner() + loss(), file="s.prototxt", **options)
    assert [m.split(" ", 1) for m in messages(caplog)] == [
        ["s.prototxt:5:", 'momentum2 has no effect: a solver of type "SGD" does not read it'],
        ["s.prototxt:6:", 'delta has no effect: a solver of type "SGD" does not read it'],
        ["s.prototxt:8:", 'gamma has no effect: lr_policy "fixed" does not read it'],
        ["s.prototxt:9:", 'stepvalue has no effect: lr_policy "fixed" does not read it'],
    ]
