"""Defines what a training loop tells its observers: start, displays, tests, snapshots, end. Pure.

    class Best(Observer):
        def on_test(self, test):
            print(test.iteration, dict((o.name, o.value) for o in test.outputs))

    solver.observers.append(Best())

Observers cost nothing: no value is read from the device for them alone. `Solver.callbacks` differ: they may change
what runs; `Solver.around_iteration` is for timing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple


class Output(NamedTuple):
    """Hold one element of an output blob: the blob's name, its value, the blob's loss weight (0: not a loss)."""

    name: str
    value: float
    weight: float


@dataclass(frozen=True)
class Start:
    """Tell that `solve` begins at `iteration` (not 0 where it resumes) and will end at `end`."""

    iteration: int
    end: int


@dataclass(frozen=True)
class Display:
    """Tell of an iteration that is displayed.

    Args:
        loss: mean of the last average_loss losses.
        rate: the learning rate that the iteration used.
        outputs: of the train net, of the iteration's last batch.
        iterations, seconds: since the last display or the start of `step`, tests included; `iterations` is 0 for the
            first display of a run.
    """

    iteration: int
    loss: float
    rate: float
    outputs: tuple[Output, ...]
    iterations: int
    seconds: float

    @property
    def speed(self) -> float | None:
        """Return iterations per second; None for the first display of a run."""
        return self.iterations / self.seconds if self.iterations else None


@dataclass(frozen=True)
class Evaluation:
    """Tell that test net `net` was tested over `batches` batches. outputs: means. loss: its mean where
    test_compute_loss is set, else None."""

    iteration: int
    net: int
    outputs: tuple[Output, ...]
    loss: float | None
    batches: int


@dataclass(frozen=True)
class Snapshot:
    """Tell that model and solver state, as they were at `iteration`, were written to these files."""

    iteration: int
    model: str
    state: str


@dataclass(frozen=True)
class Done:
    """Tell that `solve` is over. loss: the last mean loss if displayed, else None. stopped: before max_iter."""

    iteration: int
    loss: float | None
    stopped: bool


class Observer:
    """Take events; subclasses override what they need.

    Observers are called between iterations, on the training thread, in the order of `solver.observers`; an exception
    ends the training."""

    def on_start(self, start: Start) -> None:
        """Called at the start of `solve`, after a snapshot is restored; `step` alone has no start and no end."""

    def on_display(self, display: Display) -> None:
        """Called every `display` iterations, when the iteration's work is queued; `solver.iter` is still its number."""

    def on_test(self, test: Evaluation) -> None:
        """Called after all batches of a test net; not where the test was interrupted."""

    def on_snapshot(self, snapshot: Snapshot) -> None:
        """Called after both files are complete; the training may be some iterations further by then."""

    def on_done(self, done: Done) -> None:
        """Called at the end of `solve`, also where a signal ended it; not after an error."""
