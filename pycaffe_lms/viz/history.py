"""Records what a training did, iteration by iteration: losses, learning rates, tests."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from ..solvers.events import Evaluation, Observer
from .notebook import Panels, figure, png

if TYPE_CHECKING:
    from ..solvers import Solver


class History(Observer):
    """Hold losses, learning rates and tests of some iterations; `solver.fit` returns it.

    Attributes:
        title: the net's name.
        iterations: their numbers, as in the log.
        losses: the loss of each of them, a mean over iter_size batches; not over average_loss iterations.
        rates: the learning rate of each.
        tests: every test in between, as `on_test` of an observer is told.
    """

    def __init__(self, title: str = ""):
        self.title = title
        self.iterations: list[int] = []
        self.losses: list[float] = []
        self.rates: list[float] = []
        self.tests: list[Evaluation] = []

    def on_test(self, test: Evaluation) -> None:
        """Keep a test."""
        self.tests.append(test)

    def test(self, output: str, net: int = 0) -> tuple[list[int], list[float]]:
        """Return (iterations, values) of the first element of a test net's output, such as test("accuracy").

        Both are empty where there was no such output."""
        found = [
            (test.iteration, next(o.value for o in test.outputs if o.name == output))
            for test in self.tests
            if test.net == net and any(o.name == output for o in test.outputs)
        ]
        return [iteration for iteration, _ in found], [value for _, value in found]

    def panels(self) -> Panels:
        """Return {panel: {curve: (iterations, values)}}: loss, other test outputs, learning rate."""
        panels: Panels = {"loss": {"train": (self.iterations, self.losses)}, "output": {}}
        for net in sorted({test.net for test in self.tests}):
            outputs = {o.name: o.weight for test in self.tests if test.net == net for o in test.outputs}
            for name, weight in outputs.items():
                where = f" of test net {net}" if net else ""
                panels["loss" if weight else "output"][f"test: {name}{where}"] = self.test(name, net)
        panels["learning rate"] = {"": (self.iterations, self.rates)}
        return {name: curves for name, curves in panels.items() if curves}

    def figure(self) -> Any:
        """Return a Matplotlib figure of the curves. Raises MissingDependency where Matplotlib is not installed."""
        return figure(self.panels(), self.title)

    def _repr_png_(self) -> bytes | None:
        """Return the curves as a picture, which a notebook shows; None without iterations or without Matplotlib."""
        there = self.iterations and importlib.util.find_spec("matplotlib") is not None
        return png(self.panels(), self.title) if there else None

    @contextmanager
    def following(self, solver: Solver, then: Callable[[], object] = lambda: None) -> Iterator[None]:
        """Within: add each iteration of the solver, and call `then()` behind it.

        The loss is read after every iteration, which waits for the device."""
        before = solver.around_iteration

        @contextmanager
        def iteration() -> Iterator[None]:
            with before():
                yield
            self.iterations.append(solver.iter)
            self.losses.append(solver.last_loss)
            self.rates.append(solver.last_rate)
            then()

        solver.around_iteration, solver.asks_loss = iteration, True
        solver.observers.append(self)
        try:
            yield
        finally:
            solver.around_iteration, solver.asks_loss = before, False
            solver.observers.remove(self)

    def __len__(self) -> int:
        return len(self.iterations)

    def __repr__(self) -> str:
        if not self.iterations:
            return "<History: no iterations>"
        first, last = self.iterations[0], self.iterations[-1]
        return f"<History of iterations {first} to {last}: loss {self.losses[0]:.4g} to {self.losses[-1]:.4g}>"
