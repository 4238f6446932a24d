"""`solver.fit`: the history that it returns, its bar, and the curves in a notebook."""

from __future__ import annotations

import math
import subprocess
import sys

import pytest

import pycaffe_lms as caffe
from pycaffe_lms.errors import MissingDependency, UsageError
from pycaffe_lms.solvers.events import Evaluation, Output
from pycaffe_lms.viz import notebook
from pycaffe_lms.viz.history import History

from ..solvers.helpers import GAUSSIAN, bits, inner, loss, solver_text

NET = GAUSSIAN + inner() + loss()
RATES = {"max_iter": 6, "lr_policy": '"multistep"', "gamma": 0.5, "stepvalue": [2, 3]}
TESTS = {"test_iter": 2, "test_interval": 3, "test_state": "{ stage: 'x' }"}


@pytest.fixture
def solver(tmp_path):
    def make(**options):
        path = tmp_path / "s.prototxt"
        path.write_text(solver_text(NET, **RATES | options))
        return caffe.SGDSolver(path)

    return make


# -- the history -----------------------------------------------------------------------------------------------------
def test_losses_and_rates_of_every_iteration(solver):
    """Compare the losses to those of single steps; the rates halve after iterations 2 and 3."""
    plain, fitted = solver(), solver(average_loss=3, display=2)
    losses = [plain.step(1) or plain.net.loss() for _ in range(6)]
    before = fitted.around_iteration
    first = fitted.fit(2)
    rest = fitted.fit()
    assert first.iterations + rest.iterations == [0, 1, 2, 3, 4, 5] and (len(first), len(rest)) == (2, 4)
    assert first.losses + rest.losses == losses
    assert first.rates + rest.rates == pytest.approx([0.1, 0.1, 0.05, 0.025, 0.025, 0.025])
    assert bits(plain) == bits(fitted) and fitted.around_iteration is before and fitted.observers == []
    assert fitted.iter == 6 and len(fitted.fit()) == 0 and repr(fitted.fit()) == "<History: no iterations>"
    assert repr(rest) == f"<History of iterations 2 to 5: loss {losses[2]:.4g} to {losses[5]:.4g}>"
    assert rest.title == "small"


def test_the_loss_is_a_mean_over_iter_size(solver):
    plain, fitted = solver(iter_size=1, base_lr=0), solver(iter_size=2, base_lr=0)
    halves = [plain.step(1) or plain.net.loss() for _ in range(4)]  # nothing is learned: the same batches
    assert fitted.fit(2).losses == pytest.approx([(halves[0] + halves[1]) / 2, (halves[2] + halves[3]) / 2])


def test_callbacks_are_called(solver):
    """A callback that clears the gradients leaves the parameters as they are."""
    fitted, told = solver(), []

    def no_gradients():
        told.append("gradients")
        fitted.net.clear_param_diffs()

    fitted.add_callback(lambda: told.append("start"), no_gradients)
    before = [p.data.copy() for p in fitted.net.params["ip"]]
    assert len(fitted.fit(2)) == 2
    assert told == ["start", "gradients"] * 2
    assert all((p.data == old).all() for p, old in zip(fitted.net.params["ip"], before, strict=True))


def test_tests_are_in_it(solver):
    fitted = solver(**TESTS)
    seen = []
    fitted.observers.append(type("Seen", (History,), {"on_test": lambda self, test: seen.append(test)})())
    history = fitted.fit(5)
    assert history.tests == seen and [test.iteration for test in seen] == [0, 3]
    assert history.test("loss") == ([0, 3], [test.outputs[0].value for test in seen])
    assert history.test("accuracy") == ([], []) and history.test("loss", net=1) == ([], [])


def test_what_is_drawn():
    history = History("net")
    history.iterations, history.losses, history.rates = [0, 1], [2.0, 1.0], [0.1, 0.1]
    outputs = (Output("accuracy", 0.25, 0.0), Output("loss", 1.5, 1.0))
    history.tests = [Evaluation(1, net, outputs, None, 3) for net in (0, 1)]
    assert history.panels() == {
        "loss": {
            "train": ([0, 1], [2.0, 1.0]),
            "test: loss": ([1], [1.5]),
            "test: loss of test net 1": ([1], [1.5]),
        },
        "output": {"test: accuracy": ([1], [0.25]), "test: accuracy of test net 1": ([1], [0.25])},
        "learning rate": {"": ([0, 1], [0.1, 0.1])},
    }
    pytest.importorskip("matplotlib")
    figure = history.figure()
    assert [axes.get_ylabel() for axes in figure.axes] == ["loss", "output", "learning rate"]
    assert [len(axes.lines) for axes in figure.axes] == [3, 2, 1]
    assert list(figure.axes[0].lines[0].get_ydata()) == [2.0, 1.0]
    assert history._repr_png_().startswith(b"\x89PNG") and History("net")._repr_png_() is None
    low, high = figure.axes[-1].get_ylim()
    assert low == 0 and high > max(history.rates), "also a constant rate is seen from zero"


@pytest.mark.parametrize("wrong", [-1, 1.5, "3"])
def test_no_count_of_iterations(solver, wrong):
    with pytest.raises(UsageError, match="is not a number of iterations"):
        solver().fit(wrong)


def test_after_an_error_nothing_is_left(solver):
    fitted = solver()
    before = fitted.around_iteration
    fitted.add_callback(lambda: 1 / 0, lambda: None)
    with pytest.raises(ZeroDivisionError):
        fitted.fit(3)
    assert fitted.around_iteration is before and fitted.observers == [] and fitted.asks_loss is False


def test_last_loss_and_rate(solver):
    fitted = solver()
    assert math.isnan(fitted.last_loss) and math.isnan(fitted.last_rate)
    fitted.step(3)  # of which only the last loss is read
    assert fitted.last_loss == fitted.net.loss() and fitted.last_rate == pytest.approx(0.05)


def test_the_bar_counts_to_the_end_of_the_fit(solver, monkeypatch):
    asked = []
    monkeypatch.setattr("pycaffe_lms.pycaffe.classes.make_bar", lambda *args, **kw: asked.append((args, kw)))
    fitted = solver()
    fitted.fit(2, progress=True)
    fitted.fit(3, progress=False)
    fitted.fit(1)
    assert asked == [(("small", 2), {"always": True}), (("small", 6), {"always": False})]


# -- in a notebook ---------------------------------------------------------------------------------------------------
class Display:
    """Stand for IPython.display: note what is shown."""

    def __init__(self):
        self.shown, self.updated = [], []

    def Image(self, data):
        return data

    def display(self, picture, display_id):
        assert display_id is True
        self.shown.append(picture)
        return type("Handle", (), {"update": lambda _, picture: self.updated.append(picture)})()


@pytest.fixture
def kernel(monkeypatch):
    """Make this process look like a Jupyter kernel of a kind of its own."""
    shell = type("Shell", (type("ZMQInteractiveShell", (), {}),), {})()
    display = Display()
    members = {"get_ipython": staticmethod(lambda: shell), "version_info": (9, 0)}
    monkeypatch.setitem(sys.modules, "IPython", type("IPython", (), members))
    monkeypatch.setitem(sys.modules, "IPython.display", display)
    return display


def test_curves_grow_while_it_trains(solver, kernel, monkeypatch):
    """A picture for every second that passes, and one at the end."""
    pytest.importorskip("matplotlib")
    drawn = []
    real = notebook.figure
    monkeypatch.setattr(notebook, "figure", lambda p, t: drawn.append(len(p["loss"]["train"][0])) or real(p, t))
    clock = iter(k * 0.4 for k in range(1000))
    monkeypatch.setattr(notebook.time, "monotonic", lambda: next(clock))
    watched = solver(max_iter=20)
    watched.fit(9, progress=False, curves=True)
    assert len(kernel.shown) == 1 and len(kernel.updated) == len(drawn) - 1 >= 2
    assert drawn[0] == 1 and drawn[-1] == 9 and drawn == sorted(drawn)
    assert all(picture.startswith(b"\x89PNG") for picture in kernel.shown + kernel.updated)


def test_curves_need_a_notebook(solver):
    fitted = solver()
    with pytest.raises(UsageError, match=r"history\.figure"):
        fitted.fit(2, curves=True)
    assert fitted.iter == 0


def test_curves_need_matplotlib(solver, kernel, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    fitted = solver()
    with pytest.raises(MissingDependency, match=r"pip install 'pycaffe-lms\[plot\]'"):
        fitted.fit(2, curves=True)
    assert fitted.iter == 0
    with pytest.raises(MissingDependency):
        fitted.fit(1).figure()


def test_a_kernel_is_a_notebook_whatever_its_shell_derives_from(kernel):
    assert notebook.in_notebook()


def test_fitting_imports_neither_matplotlib_nor_ipython():
    code = "import sys, pycaffe_lms; print([m for m in ('matplotlib', 'IPython') if m in sys.modules])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout == "[]\n"
