"""Tests what observers are told: the numbers of the log, in its order; training does not change."""

from __future__ import annotations

import re

import pytest

from pycaffe_lms.solvers import events
from pycaffe_lms.solvers.base import NONE, STOP

from .helpers import GAUSSIAN, PLACES, bits, inner, loss, make, messages

NET = GAUSSIAN + inner() + loss()
TESTS = {"test_iter": 3, "test_interval": 4, "test_state": "{ stage: 'x' }"}
EVERY = {"max_iter": 8, "display": 2, "average_loss": 2, "lr_policy": '"step"', "gamma": 0.5, "stepsize": 3}


class Notes(events.Observer):
    """Note every event, in order."""

    def __init__(self, solver=None):
        self.told, self.solver, self.iters = [], solver, []
        self.on_start = self.on_display = self.on_test = self.on_snapshot = self.on_done = self.note

    def note(self, event):
        self.told.append(event)
        self.iters.append(self.solver.iter if self.solver else None)

    def of(self, kind):
        return [e for e in self.told if isinstance(e, kind)]


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("more", [{}, {"clip_gradients": 0.5}, {"iter_size": 2}], ids=str)
def test_the_same_numbers_as_in_the_log(place, more, caplog, tmp_path):
    """Compare every display and test to the log's six digits, and parameters to those of a run without observers."""
    options = EVERY | TESTS | {"snapshot": 5, "snapshot_prefix": f'"{tmp_path}/s"'} | more
    watched, alone = make(NET, place, **options), make(NET, place, **options)
    notes = Notes(watched)
    watched.observers.append(notes)
    caplog.set_level("INFO")
    caplog.clear()
    watched.solve()
    log = messages(caplog)
    alone.solve()
    assert bits(watched) == bits(alone)

    shown = notes.of(events.Display)
    lines = [re.match(r"Iteration (\d+) \(.*\), loss = (\S+)", m) for m in log]
    assert [(str(d.iteration), f"{d.loss:.6g}") for d in shown] == [m.groups() for m in lines if m]
    rates = [re.match(r"Iteration (\d+), lr = (\S+)", m) for m in log]
    assert [(str(d.iteration), f"{d.rate:.6g}") for d in shown] == [m.groups() for m in rates if m]
    outputs = [re.match(r"    Train net output #0: (\S+) = (\S+)", m) for m in log]
    assert [(o.name, f"{o.value:.6g}") for d in shown for o in d.outputs] == [m.groups() for m in outputs if m]
    assert [d.iteration for d in shown] == [0, 2, 4, 6]
    assert [d.iterations for d in shown] == [0, 2, 2, 2] and shown[0].speed is None
    assert all(d.seconds > 0 and d.speed == d.iterations / d.seconds for d in shown[1:])
    assert all(o.weight == 1 for d in shown for o in d.outputs)

    tested = notes.of(events.Evaluation)
    means = [re.match(r"    Test net output #0: (\S+) = (\S+)", m) for m in log]
    assert [(o.name, f"{o.value:.6g}") for t in tested for o in t.outputs] == [m.groups() for m in means if m]
    assert [(t.iteration, t.net, t.batches, t.loss) for t in tested] == [(i, 0, 3, None) for i in (0, 4, 8)]

    files = [(s.iteration, s.model, s.state) for s in notes.of(events.Snapshot)]
    assert files == [(5, f"{tmp_path}/s_iter_5.caffemodel", f"{tmp_path}/s_iter_5.solverstate")]
    assert notes.told[0] == events.Start(0, 8)
    assert notes.told[-1] == events.Done(8, watched.mean_loss, stopped=False)
    others = [(e, k) for e, k in zip(notes.told, notes.iters, strict=True) if not isinstance(e, events.Snapshot)]
    order = [type(e).__name__ for e, _ in others]
    assert order == [
        *("Start", "Evaluation", "Display", "Display", "Evaluation", "Display", "Display"),
        *("Evaluation", "Done"),
    ]
    assert all(k == e.iteration for e, k in others[1:]), "the solver stands where the event says"
    (told,) = [k for k, e in enumerate(notes.told) if isinstance(e, events.Snapshot)]
    assert told >= 6 and notes.iters[told] >= 5, "once it is whole, between iterations"


def test_the_loss_of_a_test_net_where_it_is_computed():
    solver = make(NET, **EVERY | TESTS | {"test_compute_loss": "true", "max_iter": 1})
    notes = Notes()
    solver.observers.append(notes)
    solver.solve()
    (test,) = notes.of(events.Evaluation)
    assert test.loss == pytest.approx(test.outputs[0].value, rel=1e-12)  # the net has one output, its loss


def test_stopped_by_an_action():
    asked = iter([NONE] * 3 + [STOP] * 9)
    solver = make(NET, action=lambda: next(asked), **EVERY)
    notes = Notes()
    solver.observers.append(notes)
    solver.solve()
    assert notes.told[-1] == events.Done(4, None, stopped=True)


def test_no_display_no_loss():
    solver = make(NET, max_iter=3)
    notes = Notes()
    solver.observers.append(notes)
    solver.solve()
    assert notes.told == [events.Start(0, 3), events.Done(3, None, stopped=False)]


def test_what_an_observer_raises_ends_the_training():
    class Broken(events.Observer):
        def on_display(self, display):
            raise ValueError(f"at {display.iteration}")

    solver = make(NET, **EVERY)
    solver.observers.append(Broken())
    with pytest.raises(ValueError, match="at 0"):
        solver.solve()
    assert solver.iter == 0


def test_a_resumed_run_starts_where_the_snapshot_was(tmp_path):
    prefix = {"snapshot_prefix": f'"{tmp_path}/s"'}
    first = make(NET, max_iter=3, **prefix)
    first.solve()
    first.snapshot()
    again, notes = make(NET, max_iter=5, **prefix), Notes()
    again.observers.append(notes)
    again.solve(str(tmp_path / "s_iter_3.solverstate"))
    assert notes.told == [events.Start(3, 5), events.Done(5, None, stopped=False)]


def test_an_observer_is_asked_in_turn():
    solver, order = make(NET, max_iter=1, display=1), []

    class One(events.Observer):
        def __init__(self, name):
            self.name = name

        def on_display(self, display):
            order.append(self.name)

    solver.observers += [One("a"), One("b")]
    solver.solve()
    assert order == ["a", "b"]


def test_losses_are_not_read_more_often_for_observers(monkeypatch):
    """Reading a loss waits for the device; an observer must not make that more frequent."""
    counts = []
    for observers in ([], [events.Observer()]):
        solver = make(NET, max_iter=40, display=20)
        solver.observers += observers
        read, real = [], solver.net.loss
        monkeypatch.setattr(solver.net, "loss", lambda read=read, real=real: read.append(1) or real())
        solver.step(40)
        counts.append(len(read))
    assert counts[0] == counts[1] < 5
