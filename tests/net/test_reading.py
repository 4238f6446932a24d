"""Reading and writing any blob at any time: the current value, or an error that names the fix; never a stale number."""

from __future__ import annotations

import numpy as np
import pytest

from pycaffe_lms.backend.sim.device import SimDevice
from pycaffe_lms.errors import DiscardedRead
from pycaffe_lms.formats.prototxt.parser import parse_solver
from pycaffe_lms.net.tuning import Tuning
from pycaffe_lms.solvers import SGDSolver

from .nets import CPU, Place, conv, ip, layer, loss, make_net, make_solver, relu
from .test_net import IMAGES, UNIT, feed

LMS = Place("lms")
TEXT = (
    IMAGES
    + UNIT
    + conv("z", "x", 4)
    + relu("rz", "z")
    + layer("sum", "Eltwise", "x z")
    + relu("rs", "sum")
    + layer("flat", "Flatten", "sum")
    + ip("y", "flat", 3)
    + loss("y", text="loss_weight: 2")
    + layer("accuracy", "Accuracy", "y label")
)


def _solver(place):
    solver = make_solver(TEXT, place)
    feed(solver.net)
    return solver


def _all(net):
    """{(blob or layer, what): bytes, or None where it was dropped}; the error must say how to keep it."""
    found = {}
    blobs = [(name, blob) for name, blob in net.blobs.items()]
    blobs += [(f"{name}[{i}]", blob) for name, bs in net.params.items() for i, blob in enumerate(bs)]
    for name, blob in blobs:
        for what in ("data", "diff"):
            try:
                found[name, what] = getattr(blob, f"read_{what}")().tobytes()
            except DiscardedRead as error:
                assert 'net.keep("' in error.fix
                found[name, what] = error.fix.split('net.keep("')[1].split('"')[0]
    return found


def _agree(ours, truth):
    """Same numbers wherever there are numbers; returns what was dropped."""
    assert ours.keys() == truth.keys()
    dropped = {k: v for k, v in ours.items() if isinstance(v, str)}
    assert [k for k in ours if k not in dropped and ours[k] != truth[k]] == []
    return dropped


def test_by_hand_everything_is_readable_after_every_pass(place):
    """A program that a user starts does not know what will be read: nothing is dropped."""
    net, plain = make_net(TEXT, place), make_net(TEXT)
    for each in (net, plain):
        feed(each)
        each.forward_range()
    assert _agree(_all(net), _all(plain)) == {}
    for each in (net, plain):
        each.backward_range()
    assert _agree(_all(net), _all(plain)) == {}


def test_by_hand_every_single_step_shows_its_value(place):
    net, plain = make_net(TEXT, place), make_net(TEXT)
    for each in (net, plain):
        feed(each)
    n = len(net.graph.nodes)
    for i in range(n):
        assert net._forward(i, i) == plain._forward(i, i)
        assert _agree(_all(net), _all(plain)) == {}
    for i in reversed(range(n)):
        net._backward(i, i)
        plain._backward(i, i)
        assert _agree(_all(net), _all(plain)) == {}


def test_after_a_solvers_iteration_without_lms_everything_is_readable():
    sim, plain = _solver(Place("sim")), _solver(CPU)
    for _ in range(2):
        for solver in (sim, plain):
            solver.step(1)
        assert _agree(_all(sim.net), _all(plain.net)) == {}


def test_after_a_solvers_iteration_under_lms():
    """The true value or an error; parameters, outputs, losses and inputs have a value."""
    managed, plain = _solver(LMS), _solver(CPU)
    for _ in range(3):
        for solver in (managed, plain):
            solver.step(1)
        dropped = _agree(_all(managed.net), _all(plain.net))
        assert {("x", "data"), ("z", "diff"), ("flat", "diff")} <= dropped.keys()
        sure = {*managed.net.outputs, "loss", "data", "label"}
        assert not {name for name, what in dropped if what == "data"} & sure
        assert not [name for name, _ in dropped if "[" in name]


def test_what_the_error_says_works():
    """net.keep of the name in the message makes the blob readable, whatever memory it shares."""
    solver, plain = _solver(LMS), _solver(CPU)
    for each in (solver, plain):
        each.step(1)
    net = solver.net
    dropped = _agree(_all(net), _all(plain.net))
    assert dropped and set(dropped.values()) <= set(net.blobs)
    for (name, what), fix in dropped.items():
        assert np.may_share_memory(getattr(plain.net.blobs[name], what), getattr(plain.net.blobs[fix], what))
    net.keep(*set(dropped.values()))
    for _ in range(2):
        for each in (solver, plain):
            each.step(1)
        assert _agree(_all(net), _all(plain.net)) == {}


def test_keep_does_not_bring_back_what_was_dropped():
    """Until the next iteration makes it again, reading it is the same error as before, wherever it lives now."""
    parsed = parse_solver(f'base_lr: 0.1 lr_policy: "fixed" random_seed: 3 net_param {{ {TEXT} }}')
    solver = SGDSolver(parsed.message, lines=parsed.lines, device=SimDevice(1 << 20), tuning=Tuning(pack=True))
    feed(solver.net)
    solver.step(1)
    before = _all(solver.net)
    dropped = {key for key, value in before.items() if isinstance(value, str)}
    assert dropped
    solver.net.keep(*{before[key] for key in dropped})
    after = _all(solver.net)
    assert {key for key, value in after.items() if isinstance(value, str)} == dropped
    assert after == before
    solver.step(1)
    assert not any(isinstance(value, str) for value in _all(solver.net).values())


@pytest.mark.parametrize("name", ["x", "z", "sum", "flat", "y", "x_drop_0_split_0"])
def test_keep_one(name):
    solver, plain = _solver(LMS), _solver(CPU)
    solver.net.keep(name)
    for each in (solver, plain):
        each.step(2)
    for what in ("data", "diff"):
        ours, truth = (getattr(s.net.blobs[name], what) for s in (solver, plain))
        np.testing.assert_array_equal(ours, truth)


def test_a_dropped_value_stops_a_pass_by_hand_too():
    """Forward from the middle after an iteration: an error, not what the memory happens to hold."""
    solver = _solver(LMS)
    solver.step(1)
    with pytest.raises(DiscardedRead, match="net.keep"):
        solver.net.forward(start="flat")
    with pytest.raises(DiscardedRead, match="net.keep"):
        solver.net.backward()
    plain = _solver(CPU)
    plain.step(1)
    for net in (solver.net, plain.net):  # but the whole forward works again
        net.layer_dict["drop"].draws = 0
    assert solver.net.forward_range() == plain.net.forward_range()


def test_writing_into_a_dropped_blob_whole_makes_it_readable():
    solver = _solver(LMS)
    solver.step(1)
    blob = solver.net.blobs["x"]
    with pytest.raises(DiscardedRead):
        blob.data[...] = 1  # reads the rest of it first
    blob.data = 1
    assert (blob.data == 1).all()


def test_parameters_written_between_iterations_are_used(place):
    """And so are gradients cleared, statistics reset, and data exchanged."""
    solver, plain = _solver(place), _solver(CPU)
    for each in (solver, plain):
        each.step(1)
        each.net.params["z"][0].data[...] *= 0.5
        each.net.params["bn"][2].data[...] = 0
        each.net.params["y"][1].data[:2] = 0.25
        each.net.clear_param_diffs()
        feed(each.net, seed=4)
        each.step(2)
    assert solver.net.loss() == plain.net.loss()
    ours, truth = ([p.data.tobytes() for p in s.net.learnable_params] for s in (solver, plain))
    assert ours == truth


def test_reading_between_iterations_changes_nothing(place):
    looked, alone = _solver(place), _solver(place)
    for _ in range(3):
        looked.step(1)
        _all(looked.net)
        for blob in looked.net.learnable_params:
            assert blob.data.shape == blob.diff.shape
    alone.step(3)
    ours, truth = ([p.data.tobytes() for p in s.net.learnable_params] for s in (looked, alone))
    assert ours == truth


def test_by_hand_between_iterations(place):
    """A forward and backward of one's own in between, then the solver goes on."""
    solver, plain = _solver(place), _solver(CPU)
    for each in (solver, plain):
        each.step(1)
        each.net.forward_range()
        each.net.backward_range()
        each.step(1)
    assert _agree(_all(solver.net), _all(plain.net)).keys() <= (_all(solver.net).keys() if place.manages else set())


def test_a_blob_nobody_wrote_reads_as_zeros(place):
    net = make_net(TEXT, place)
    assert not net.blobs["x"].data.any() and not net.blobs["y"].diff.any() and not net.params["z"][0].diff.any()


def test_read_only_views_are_read_only(place):
    net = make_net(TEXT, place)
    for view in (net.blobs["x"].read_data(), net.blobs["x"].read_diff()):
        with pytest.raises(ValueError, match="read-only"):
            view[...] = 1
