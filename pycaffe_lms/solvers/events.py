"""What a training loop tells its observers: start, displays, tests, snapshots, end. Pure; nothing is read for it.

    class Best(Observer):
        def on_test(self, test):
            print(test.iteration, dict((o.name, o.value) for o in test.outputs))

    solver.observers.append(Best())

Does not cover: callbacks (`Solver.callbacks`), which change what runs; `Solver.around_iteration`, which times it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple


class Output(NamedTuple):
    """One element of an output blob: the blob's name, its value, the blob's loss weight (0: no loss)."""

    name: str
    value: float
    weight: float


@dataclass(frozen=True)
class Start:
    """`solve` begins at `iteration` (not 0 where it resumes) and will end at `end`."""

    iteration: int
    end: int


@dataclass(frozen=True)
class Display:
    """An iteration that is displayed. loss: mean of the last average_loss losses. rate: the learning rate it used.

    iterations, seconds: how many since the last display (or the start of `step`), and how long they took, tests
    included; the first display of a run follows on 0 iterations. outputs: of the train net, of the iteration's last
    batch."""

    iteration: int
    loss: float
    rate: float
    outputs: tuple[Output, ...]
    iterations: int
    seconds: float

    @property
    def speed(self) -> float | None:
        """Iterations per second; None for the first display of a run."""
        return self.iterations / self.seconds if self.iterations else None


@dataclass(frozen=True)
class Evaluation:
    """Test net `net` was tested over `batches` batches: means of its outputs. loss: its mean where test_compute_loss
    is set, else None."""

    iteration: int
    net: int
    outputs: tuple[Output, ...]
    loss: float | None
    batches: int


@dataclass(frozen=True)
class Snapshot:
    """Model and solver state, as they were at `iteration`, were written to these files."""

    iteration: int
    model: str
    state: str


@dataclass(frozen=True)
class Done:
    """`solve` is over. loss: the last mean loss where there is a display, else None. stopped: before max_iter."""

    iteration: int
    loss: float | None
    stopped: bool


class Observer:
    """Subclasses take the events they want. They are called between iterations, on the training thread, in the order
    of `solver.observers`; what they raise ends the training."""

    def on_start(self, start: Start) -> None:
        """At the start of `solve`, once a snapshot is restored; `step` alone has no start and no end."""

    def on_display(self, display: Display) -> None:
        """Every `display` iterations, when the iteration's work is queued and `solver.iter` still names it."""

    def on_test(self, test: Evaluation) -> None:
        """After all batches of a test net; not when the test was interrupted."""

    def on_snapshot(self, snapshot: Snapshot) -> None:
        """After both files are complete; the training may be some iterations further by then."""

    def on_done(self, done: Done) -> None:
        """At the end of `solve`, also where a signal ended it; not after an error."""
