"""Tests solvers with pycaffe's interface: classes by name, what they print, and their methods."""

from __future__ import annotations

import logging

import numpy as np
import pytest

import pycaffe_lms as caffe
from pycaffe_lms.backend import get_device
from pycaffe_lms.backend.sim.device import SimDevice
from pycaffe_lms.errors import SolverError, UsageError, WeightsError
from pycaffe_lms.lms.config import LMSConfig

from .fit import TYPES
from .helpers import GAUSSIAN, PLACES, bits, inner, loss, make, messages, solver_text, values

NET = GAUSSIAN + inner() + loss()
CLASSES = {kind: getattr(caffe, f"{kind}Solver") for kind in TYPES}


@pytest.fixture
def write(tmp_path):
    def write(net=NET, name="solver.prototxt", **options):
        path = tmp_path / name
        path.write_text(solver_text(net, **options))
        return str(path)

    return write


# -- which class -------------------------------------------------------------------------------------------------------
def test_all_are_sgd_solvers():
    assert all(issubclass(cls, caffe.SGDSolver) for cls in CLASSES.values())
    assert len({cls.rule for cls in CLASSES.values()}) == 8


@pytest.mark.parametrize("kind", TYPES)
def test_the_class_decides(kind, write, caplog):
    """`type` in the file is ignored, with a warning; with get_solver the file decides."""
    options = {"momentum": 0.9} if kind not in ("AdaGrad", "RMSProp") else {}
    other = "SGD" if kind == "Adam" else "Adam"
    path = write(type=f'"{other}"', **options)
    ours, expected = CLASSES[kind](path), make(NET, type=f'"{kind}"', **options)
    assert f'solver.prototxt:5: type "{other}" is ignored: this is a {kind}Solver' in "".join(messages(caplog))
    for solver in (ours, expected):
        solver.step(3)
    assert bits(ours) == bits(expected)
    chosen = caffe.get_solver(write(type=f'"{kind}"', **options))
    assert type(chosen) is CLASSES[kind]


def test_the_old_enumeration(write, caplog):
    assert type(caffe.get_solver(write(solver_type="RMSPROP"))) is caffe.RMSPropSolver
    caplog.clear()
    caffe.AdamSolver(write(solver_type="RMSPROP"))
    assert 'solver.prototxt:5: type "RMSProp" is ignored' in messages(caplog)[0]


def test_a_type_that_is_none(write):
    path = write(type='"Adem"')
    with pytest.raises(SolverError, match='solver type "Adem" is not known; did you mean "Adam"') as caught:
        caffe.get_solver(path)
    assert (caught.value.where.file, caught.value.where.line) == (path, 5)
    caffe.SGDSolver(path)  # which does not care


@pytest.mark.parametrize("kind", TYPES)
@pytest.mark.parametrize("by_file", [False, True])
def test_lms_and_device(by_file, kind, write):
    options = {k: v for k, v in TYPES[kind][0].items()}
    path = write(type=f'"{kind}"', **options)
    factory = caffe.get_solver if by_file else CLASSES[kind]
    plain = factory(path, device=SimDevice(64 << 20))
    small = factory(path, lms=LMSConfig(threshold_kb=1, ahead=1), device=SimDevice(64 << 20))
    for solver in (plain, small):
        solver.step(4)
    assert bits(plain) == bits(small)
    assert small.runtime.active and not plain.runtime.active


def test_set_random_seed(write):
    """It is for files that set no seed; a file's own seed has priority."""
    try:
        caffe.set_random_seed(11)
        drawn = [values(caffe.SGDSolver(write(random_seed=seed)))[0] for seed in (None, None, -1, 5, 11)]
        caffe.set_random_seed(12)
        drawn.append(values(caffe.SGDSolver(write(random_seed=None)))[0])
    finally:
        caffe.set_random_seed(None)
    same = [(a == drawn[0]).all() for a in drawn]
    assert same == [True, True, True, False, True, False]


# -- what it shows -----------------------------------------------------------------------------------------------------
def test_members(write):
    solver = caffe.SGDSolver(write(max_iter=7, display=3, layer_wise_reduce="false", test_iter=[1, 1], test_interval=9))
    assert list(solver.net.params) == ["ip"] and len(solver.test_nets) == 2
    assert isinstance(solver.net, caffe.pycaffe.PycaffeNet) and solver.test_nets[1].phase == caffe.TEST
    param = solver.param
    assert (param.max_iter, param.display, param.layer_wise_reduce) == (7, 3, False)
    assert solver.base_lr == param.base_lr == np.float32(0.1)
    assert solver.iter == 0
    solver.step(2)
    solver.step(np.int64(1))
    assert solver.iter == 3
    assert caffe.SGDSolver(write()).param.layer_wise_reduce is True


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("way", ["param", "solver"])
def test_base_lr_can_be_written(way, place, write):
    """It works in the middle of training, with recorded programs too; lr is what the policy computes from it."""
    path = write(lr_policy='"step"', gamma=0.5, stepsize=2, momentum=0.5)
    solver = caffe.SGDSolver(path, **PLACES[place]())
    plain = caffe.SGDSolver(path, **PLACES[place]())
    for s in (solver, plain):
        s.step(5)
    assert bits(solver) == bits(plain) and solver.lr == pytest.approx(0.025)
    (solver.param if way == "param" else solver).base_lr = 0
    assert solver.lr == 0 == solver.base_lr
    histories = [b.read_data().copy() for b in solver.history_blobs()]
    solver.step(1)
    for blob, before in zip(solver.history_blobs(), histories, strict=True):
        np.testing.assert_array_equal(blob.read_data(), np.float32(0.5) * before)


def test_what_is_written_is_checked(write):
    solver = caffe.AdamSolver(write())
    solver.param.momentum = 1.5
    with pytest.raises(SolverError, match="momentum 1.5 is outside of"):
        solver.step(1)
    assert solver.iter == 0


@pytest.mark.parametrize("n", [1.5, "3", None])
def test_steps_are_counted_in_integers(n, write):
    with pytest.raises(UsageError, match="step: .* is not a number of iterations"):
        caffe.SGDSolver(write()).step(n)


# -- what can be done --------------------------------------------------------------------------------------------------
def test_solve_restore_snapshot(write, tmp_path, caplog):
    caplog.set_level(logging.INFO, "pycaffe_lms")
    options = {"max_iter": 6, "snapshot_prefix": f'"{tmp_path}/s"', "momentum": 0.9, "momentum2": 0.9}
    path = write(**options)
    whole, first, second, third = (caffe.AdamSolver(path) for _ in range(4))
    whole.solve()
    assert whole.iter == 6 and messages(caplog)[-1] == "Optimization Done."
    first.step(4)
    assert first.snapshot() is None
    state = f"{tmp_path}/s_iter_4.solverstate"
    second.solve(state)
    third.restore(state)
    assert third.iter == 4
    third.step(2)
    assert bits(second) == bits(third) == bits(whole)


def test_callbacks(write):
    """on_start is called before the forward, on_gradients_ready with this iteration's gradients, which it may
    change."""
    solver, told = caffe.SGDSolver(write(iter_size=2)), []
    blob = solver.net.params["ip"][1]
    solver.add_callback(lambda: told.append(("start", solver.iter)), lambda: told.append(("ready", solver.iter)))

    def stop():
        assert blob.diff.any()
        for b in solver.net.params["ip"]:
            b.diff[...] = 0

    solver.add_callback(lambda: None, stop)
    before = values(solver)
    solver.step(2)
    assert told == [("start", 0), ("ready", 0), ("start", 1), ("ready", 1)]
    assert all((a == b).all() for a, b in zip(values(solver), before, strict=True))


def test_an_object_with_both_callbacks(write):
    class Both:
        told = []

        def on_start(self):
            self.told.append("start")

        def on_gradients_ready(self):
            self.told.append("ready")

    solver = caffe.SGDSolver(write())
    solver.add_callback(Both())
    solver.step(2)
    assert Both.told == ["start", "ready"] * 2


@pytest.mark.parametrize("given", [(None, len), (len, 3), (len,), (None,)])
def test_callbacks_that_cannot_be_called(given, write):
    solver = caffe.SGDSolver(write())
    with pytest.raises(UsageError, match="add_callback: .* cannot be called"):
        solver.add_callback(*given)
    assert not solver.callbacks


@pytest.mark.parametrize("lms", [None, LMSConfig(threshold_kb=0.001, ahead=1)], ids=["", "net with LMS"])
@pytest.mark.parametrize("place", PLACES)
def test_share_weights(place, lms, write, tmp_path):
    """Each of the two nets sees every later change that the other makes."""
    net = GAUSSIAN + inner() + inner("other", "x")
    (tmp_path / "net.prototxt").write_text(net)
    solver = caffe.NesterovSolver(write(momentum=0.9), **PLACES[place]())
    lms = None if place == "cpu" else lms
    other = caffe.Net(str(tmp_path / "net.prototxt"), caffe.TEST, device=solver.net.device, lms=lms)
    own = other.params["other"][0].read_data().copy()
    solver.share_weights(other)
    for _ in range(3):
        solver.step(1)
        out = other.forward()
        w, b = values(solver)
        np.testing.assert_allclose(out["ip"], other.blobs["x"].data @ w.T + b, rtol=1e-5, atol=1e-5)
        assert other.params["ip"][0].data.tobytes() == w.tobytes()
    assert (other.params["other"][0].read_data() == own).all()
    other.params["ip"][1].data[...] = 7
    assert (solver.net.params["ip"][1].data == 7).all()


def test_share_weights_refuses(write, tmp_path):
    (tmp_path / "net.prototxt").write_text(GAUSSIAN + inner(outputs=4))
    solver = caffe.SGDSolver(write(), device=SimDevice(1 << 20))
    net = caffe.Net(str(tmp_path / "net.prototxt"), caffe.TEST, device=get_device("cpu"))
    with pytest.raises(UsageError, match="memory cannot be shared") as caught:
        solver.share_weights(net)
    assert caught.value.fix == "make the net with device=solver.net.device"
    net = caffe.Net(str(tmp_path / "net.prototxt"), caffe.TEST, device=solver.net.device)
    with pytest.raises(WeightsError, match=r"shapes \(5, 3\) and \(4, 3\)"):
        solver.share_weights(net)
