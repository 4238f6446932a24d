"""Tests learning rates: the policies against formulas written for the tests, and which settings are refused."""

from __future__ import annotations

import logging
import math

import numpy as np
import pytest

from pycaffe_lms.backend.sim.device import SimDevice
from pycaffe_lms.errors import SolverError
from pycaffe_lms.formats.prototxt.parser import parse_solver
from pycaffe_lms.proto.caffe_pb2 import SolverParameter
from pycaffe_lms.solvers import SGDSolver
from pycaffe_lms.solvers.lr_policy import Plateau, check_policy, learning_rate, momentum, weight_decay

from .helpers import CONSTANT, inner, loss, make, messages

BASE, GAMMA, POWER = 0.25, 0.5, 0.75  # exact in the message's float32
STEPS = [3, 4, 4, 9]
ITERATIONS = range(12)


def _staircase(n: int) -> float:
    """Return multistep rates read at every iteration from 0 on: each reading advances by one step at most, even where
    two are due (4, 4)."""
    return BASE * GAMMA ** {0: 0, 1: 0, 2: 0, 3: 1, 4: 2}.get(n, 3 if n < 9 else 4)


FORMULAS = {
    "fixed": lambda n: BASE,
    "step": lambda n: BASE * math.exp(math.floor(n / 4) * math.log(GAMMA)),
    "exp": lambda n: BASE * math.exp(n * math.log(GAMMA)),
    "inv": lambda n: BASE / np.power(1 + GAMMA * n, POWER),
    "multistep": _staircase,
    "poly": lambda n: BASE * math.exp(POWER * math.log((11 - n) / 11)) if n < 11 else 0.0,
    "cosine": lambda n: BASE * math.cos(math.pi * n / 22) ** 2 if n < 11 else 0.0,
    "sigmoid": lambda n: BASE / 2 * (1 + math.tanh(GAMMA * (n - 4) / 2)),
}


def _param(policy="", **fields) -> SolverParameter:
    fields = {"base_lr": BASE, "gamma": GAMMA, "power": POWER, "stepsize": 4, "max_iter": 11} | fields
    return SolverParameter(lr_policy=policy, stepvalue=STEPS, **fields)


@pytest.mark.parametrize("policy", FORMULAS)
def test_rates(policy):
    param, step = _param(policy), 0
    check_policy(param)
    for n in ITERATIONS:
        rate = learning_rate(param, n, step)
        step = rate.current_step
        assert rate.rate == pytest.approx(FORMULAS[policy](n), rel=1e-12, abs=1e-15), n


def test_step_says_which_step_it_is():
    assert [learning_rate(_param("step"), n).current_step for n in (0, 3, 4, 11)] == [0, 0, 1, 2]


def test_multistep_advances_at_most_once_per_call():
    """After a jump far ahead, too, every call advances by one step, until none is left."""
    steps = [0]
    for _ in range(6):
        steps.append(learning_rate(_param("multistep"), 100, steps[-1]).current_step)
    assert steps == [0, 1, 2, 3, 4, 4, 4]


@pytest.mark.parametrize(
    ("policy", "fields", "iteration", "expected"),
    [
        ("sigmoid", {"gamma": 1.0, "stepsize": 100_000}, 0, 0.0),
        ("sigmoid", {"gamma": 1.0}, 100_000, BASE),
        ("exp", {"gamma": 8.0}, 100_000, math.inf),
        ("exp", {"gamma": 0.0}, 0, BASE),
        ("exp", {"gamma": 0.0}, 1, 0.0),
        ("inv", {"power": -1000.0}, 10_000, math.inf),
        ("poly", {"power": -1.0}, 11, math.inf),
        ("poly", {"power": 2.0}, 22, BASE),
    ],
)
def test_far_ends_are_those_of_c(policy, fields, iteration, expected):
    """No overflow raises an exception in the middle of training."""
    assert learning_rate(_param(policy, **fields), iteration).rate == expected


def test_poly_has_no_rate_after_its_end():
    with pytest.raises(SolverError, match="iteration 12 is past max_iter 11") as caught:
        learning_rate(_param("poly"), 12)
    assert caught.value.fix == "raise max_iter"


@pytest.mark.parametrize(
    ("policy", "fields", "text", "fix"),
    [
        ("", {}, "lr_policy is missing", "use one of fixed, step, exp, inv, multistep, poly, sigmoid"),
        ("Step", {}, 'lr_policy "Step" is unknown', "use one of fixed, step,"),
        *(
            (policy, {"gamma": -0.5}, "gamma -0.5 is negative", f'lr_policy "{policy}" needs gamma >= 0')
            for policy in ("step", "exp", "inv", "multistep", "sigmoid")
        ),
        *(
            (policy, {"stepsize": size}, f"stepsize {size} is not positive", f'lr_policy "{policy}" needs stepsize > 0')
            for policy in ("step", "sigmoid")
            for size in (0, -3)
        ),
        ("poly", {"max_iter": 0}, "max_iter is not positive", 'lr_policy "poly" needs max_iter > 0'),
    ],
)
def test_refused(policy, fields, text, fix):
    with pytest.raises(SolverError) as caught:
        check_policy(_param(policy, **fields))
    assert caught.value.message == text and caught.value.fix.startswith(fix)


def test_what_a_policy_does_not_use_may_be_anything():
    for policy, fields in (("fixed", {"gamma": -1.0, "stepsize": -1}), ("poly", {"gamma": -1.0})):
        check_policy(_param(policy, **fields))


NET = CONSTANT + inner() + loss()


def test_a_solver_refuses_with_its_file():
    with pytest.raises(SolverError) as caught:
        make(NET, file="models/s.prototxt", lr_policy='"inv"', gamma=-2)
    assert str(caught.value) == ('models/s.prototxt:5: gamma -2 is negative\n  fix: lr_policy "inv" needs gamma >= 0')


def test_reading_lr_advances_a_multistep_policy(caplog):
    """As in Caffe: two steps are due at iteration 0, and each reading takes one."""
    caplog.set_level(logging.INFO, "pycaffe_lms")
    solver = make(NET, base_lr=1, lr_policy='"multistep"', gamma=0.5, stepvalue=[0, 0, 5])
    caplog.clear()
    assert [solver.lr, solver.lr, solver.lr] == [0.5, 0.25, 0.25]
    assert messages(caplog) == [f"MultiStep Status: Iteration 0, step = {k}" for k in (1, 2)]


def test_a_solver_trains_with_the_policy_of_its_iterations(caplog):
    """Compare the displayed rates of a multistep solver; the step is logged between the outputs and the rate."""
    caplog.set_level(logging.INFO, "pycaffe_lms")
    solver = make(NET, base_lr=1, lr_policy='"multistep"', gamma=0.5, stepvalue=[1, 1, 3], display=1)
    caplog.clear()
    solver.step(5)
    told = [m for m in messages(caplog) if "lr = " in m or "MultiStep" in m]
    assert told == [
        "Iteration 0, lr = 1",
        "MultiStep Status: Iteration 1, step = 1",
        "Iteration 1, lr = 0.5",
        "MultiStep Status: Iteration 2, step = 2",
        "Iteration 2, lr = 0.25",
        "MultiStep Status: Iteration 3, step = 3",
        "Iteration 3, lr = 0.125",
        "Iteration 4, lr = 0.125",
    ]


# -- of forks: formulas of their sgd_solver.cpp --------------------------------------------------------------------
def _rates(param: SolverParameter) -> list[float]:
    check_policy(param)
    return [learning_rate(param, n).rate for n in range(11)]


def test_a_rampup_rises_as_a_square():
    found = _rates(_param("poly", power=2, rampup_interval=4, rampup_lr=0.0625))
    rising = [0.0625 + (BASE - 0.0625) * (n / 4) ** 2 for n in range(4)]
    assert found == pytest.approx([*rising, *(BASE * (1 - n / 11) ** 2 for n in range(4, 11))], rel=1e-12)


def test_a_warmup_rises_as_a_line():
    param = _param("fixed", warmup_iter=5, warmup_start_lr=0.0625, momentum=0.75)
    found = _rates(param)
    assert [momentum(param, n, rate) for n, rate in enumerate(found)] == [0.75] * 11
    rising = [(n * BASE + (5 - n) * 0.0625) / 5 for n in range(5)]
    assert found == pytest.approx([*rising, *[BASE] * 6], rel=1e-12)


def test_no_rate_is_below_min_lr_and_poly_ends_there():
    least = 0.03125
    found = _rates(_param("poly", power=2, min_lr=least))
    assert found == pytest.approx([(BASE - least) * (1 - n / 11) ** 2 + least for n in range(11)], rel=1e-12)
    found = _rates(_param("exp", gamma=0.5, min_lr=least))
    assert found == pytest.approx([max(BASE * 0.5**n, least) for n in range(11)], rel=1e-12)


def test_multifixed_gives_each_stage_its_rate():
    """Iteration n is of the first stage that ends at n or later; after all of them the last rate stays."""
    param = _param("multifixed", stagelr=[0.5, 0.25, 0.125], stageiter=[2, 3, 8])
    assert _rates(param) == [0.5] * 3 + [0.25] + [0.125] * 7


def test_momentum_and_decay_that_change():
    param = _param("fixed", momentum=0.5, max_momentum=0.875, momentum_power=2, weight_decay=0.25)
    param.momentum_policy, param.weight_decay_policy = "poly", "poly"
    param.max_weight_decay, param.weight_decay_power = 0.75, 3
    for n in range(11):
        assert momentum(param, n, BASE) == pytest.approx(0.5 + 0.375 * (n / 11) ** 2, rel=1e-12)
        assert weight_decay(param, n) == pytest.approx(0.25 + 0.5 * (n / 11) ** 3, rel=1e-12)
    param.momentum_policy = "opt"
    assert momentum(param, 0, 0.25) == pytest.approx(0.75**2)
    assert momentum(param, 0, 1e-8) == 0.875  # max_momentum
    param.ClearField("max_momentum")
    assert momentum(param, 0, 0.01) == pytest.approx(0.95**2)


@pytest.mark.parametrize(
    ("fields", "field", "said"),
    [
        ({"lr_policy": "multifixed", "stagelr": [1.0]}, "stagelr", "1 stagelr for 0 stageiter"),
        ({"lr_policy": "multifixed"}, "stagelr", "0 stagelr for 0 stageiter"),
        ({"lr_policy": "poly", "base_lr": 0.5, "max_iter": 1, "min_lr": 0.75}, "min_lr", "min_lr 0.75 is above"),
        ({"lr_policy": "fixed", "momentum_policy": "up"}, "momentum_policy", 'momentum_policy "up" is unknown'),
        ({"lr_policy": "fixed", "weight_decay_policy": "poly"}, "max_iter", "max_iter is not positive"),
    ],
)
def test_settings_of_forks_that_do_not_fit(fields, field, said):
    with pytest.raises(SolverError, match=said) as caught:
        check_policy(SolverParameter(**fields))
    assert caught.value.field == field and caught.value.fix


def test_cosine_begins_where_the_warm_up_ends_and_ends_at_min_lr():
    """As in a library of transformers: a line from 0 to the rate, then half a cosine."""
    param = _param("cosine", warmup_iter=3, max_iter=11, min_lr=0.0625)
    found = [learning_rate(param, n).rate for n in range(14)]
    rise = [max(BASE * n / 3, 0.0625) for n in range(3)]
    fall = [0.0625 + (BASE - 0.0625) * (1 + math.cos(math.pi * n / 8)) / 2 for n in range(9)]
    assert found == pytest.approx([*rise, *fall, 0.0625, 0.0625], rel=1e-12)


def test_cosine_refuses_what_it_cannot_use():
    with pytest.raises(SolverError, match="max_iter is not positive"):
        check_policy(_param("cosine", max_iter=0))
    with pytest.raises(SolverError, match="is above base_lr"):
        check_policy(_param("cosine", min_lr=0.5))


# -- plateau -------------------------------------------------------------------------------------------------------
def _plateau_loop(losses, windows, average):
    """The fork's rules, iteration by iteration."""
    lowest, last, step, steps = math.inf, 0, 0, []
    for n in range(len(losses)):
        recent = losses[max(0, n - average + 1) : n + 1]
        mean = sum(recent) / len(recent)
        if mean < lowest:
            lowest, last = mean, n
        if step < len(windows) and n >= last + windows[step]:
            step, last = step + 1, n
        steps.append(step)
    return steps


@pytest.mark.parametrize("average", [1, 3])
def test_plateau_counts_iterations_without_a_lower_loss(average):
    rng, windows = np.random.default_rng(average), [4, 2, 6]
    losses = (np.exp(-np.arange(60) / 15) + rng.normal(size=60) * 0.2).tolist()
    plateau, step, found = Plateau(windows, average), 0, []
    for n, value in enumerate(losses):
        plateau.add(value)
        step = plateau.step(n, step)
        assert plateau.step(n, step) == step  # reading the rate twice changes nothing
        found.append(step)
        if n == 20:
            plateau, kept = Plateau(windows, average), plateau.state
            plateau.state = kept
    assert found == _plateau_loop(losses, windows, average) and set(found) == {0, 1, 2, 3}
    assert learning_rate(_param("plateau", gamma=0.5, plateau_winsize=windows), 9, 2).rate == BASE / 4


def test_plateau_needs_windows():
    for windows in ([], [3, 0]):
        with pytest.raises(SolverError, match="plateau_winsize is"):
            check_policy(_param("plateau", gamma=0.5, plateau_winsize=windows))


PLATEAU = """base_lr: 0.5 gamma: 0.5 max_iter: 30 momentum: 0.9 random_seed: 5 average_loss: 2
  lr_policy: "plateau" plateau_winsize: 2 plateau_winsize: 3 plateau_winsize: 4 snapshot_prefix: "PREFIX" {}
  net_param {{ layer {{ name: "d" type: "DummyData" top: "x" top: "t" dummy_data_param {{
      shape {{ dim: [4, 3] }} shape {{ dim: [4, 2] }} data_filler {{ type: "gaussian" }} }} }}
    layer {{ name: "ip" type: "InnerProduct" bottom: "x" top: "y" inner_product_param {{ num_output: 2 }} }}
    layer {{ name: "l" type: "EuclideanLoss" bottom: "y" bottom: "t" top: "l" }} }}"""


@pytest.mark.parametrize("snapshot_format", ["BINARYPROTO", "HDF5"])
def test_a_solver_on_a_plateau_resumes_with_the_same_bits(tmp_path, snapshot_format):
    pytest.importorskip("h5py")
    text = PLATEAU.format(f"snapshot_format: {snapshot_format}").replace("PREFIX", str(tmp_path / "s"))

    def solver(**options):
        return SGDSolver(parse_solver(text).message, **options)

    whole, first, resumed = solver(), solver(), solver(device=SimDevice(64 << 20, order="random"))
    rates, weights = [], []
    for _ in range(30):
        whole.step(1)
        rates.append(whole.last_rate)
        weights.append(whole.net.params["ip"][0].data.copy())
    assert {round(math.log2(0.5 / r)) for r in rates} == {0, 1, 2, 3}
    first.step(12)
    assert np.array_equal(first.net.params["ip"][0].data, weights[11])
    first.snapshot()
    (state,) = tmp_path.glob("s_iter_12.solverstate*")
    resumed.restore(state)
    resumed.step(18)
    assert np.array_equal(resumed.net.params["ip"][0].data, weights[29])
    for each in (whole, first, resumed):
        each.close()
