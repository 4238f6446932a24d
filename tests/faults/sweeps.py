"""A short training through the command line in this process, in which one operation fails; and what it left."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from pycaffe_lms.backend.sim.device import SimDevice
from pycaffe_lms.cli import devices, main
from pycaffe_lms.faults import FILES, Faults, in_files

from .. import seeds
from ..cli.command import LOG_LINE
from ..solvers.helpers import GAUSSIAN, inner, loss, solver_text

DROPOUT = 'layer { name: "drop" type: "Dropout" bottom: "ip1" top: "ip1" }\n'
NET = GAUSSIAN + inner("ip1", outputs=300) + DROPOUT + inner("ip2", "ip1", outputs=6) + inner("ip", "ip2") + loss()
ITERATIONS = 6


@dataclass(frozen=True)
class Outcome:
    """Exit code of a training, and what stood on stderr beside the log."""

    code: int
    said: tuple[str, ...]


class Training:
    """Trains in `folder` with Large Model Support and a snapshot after every second iteration. form: of snapshots."""

    def __init__(self, folder: Path, monkeypatch, read_stderr: Callable[[], str], form: str, order: str):
        self.folder, self.order = folder, order
        self._read_stderr, self._patch = read_stderr, monkeypatch
        options = {
            "momentum": 0.9,
            "max_iter": ITERATIONS,
            "snapshot": 2,
            "snapshot_format": form,
            "display": 1,
            "snapshot_prefix": '"s"',
        }
        (folder / "s.prototxt").write_text(solver_text(NET, **options))
        monkeypatch.chdir(folder)
        counted = Faults()
        done = self.run(counted, counted)
        self.counts = counted.counts
        assert done.code == 0, done
        self.expected = self.files()
        assert sorted(self.expected) == sorted(
            f"s_iter_{k}.{kind}{'.h5' * (form == 'HDF5')}" for k in (2, 4, 6) for kind in ("caffemodel", "solverstate")
        )
        self._resumed: set[frozenset[str]] = set()

    def files(self) -> dict[str, bytes]:
        """What is in the folder beside the solver, by name, temporary files included."""
        return {p.name: p.read_bytes() for p in self.folder.iterdir() if p.name != "s.prototxt"}

    def run(self, of_device: Faults, of_files: Faults, *flags: str) -> Outcome:
        """Train with the faults of these plans."""
        device = lambda name, **more: SimDevice(64 << 20, order=self.order, seed=5, faults=of_device)  # noqa: E731
        self._patch.setattr(devices, "get_device", device)
        self._read_stderr()
        with in_files(of_files):
            code = main.main(["train", "-solver", "s.prototxt", "-backend", "sim", "-lms", "1", *flags])
        lines = ["", *self._read_stderr().splitlines()]
        pairs = zip(lines, lines[1:], strict=False)  # a warning may have its fix on a second line
        said = [
            line
            for before, line in pairs
            if not LOG_LINE.match(line) and not (line.startswith("  fix: ") and LOG_LINE.match(before))
        ]
        return Outcome(code, tuple(said))

    def survive(self, kind: str, n: int, lasting: bool) -> str:
        """Train with one fault, and from what it left to the end. Returns "went on" or "ended"."""
        for name in self.files():
            os.unlink(self.folder / name)
        faults = Faults((kind, n), lasting=lasting)
        # a disk that is lost does not end the device, nor the reverse
        done = self.run(*((Faults(), faults) if kind in FILES else (faults, Faults())))
        assert faults.failed == [(kind, n)], "the operation was not reached"
        left = self.files()
        for name, content in left.items():
            assert content == self.expected.get(name), f"{name} is not that of the training that nothing befell"
        if done.code == 0:
            assert left == self.expected and not done.said, done
            return "went on"
        assert done.code == 1 and len(done.said) == 2, done
        assert done.said[0].startswith("error: ") and done.said[1].startswith("  fix: "), done
        self._resume(left)
        return "ended"

    def _resume(self, left: dict[str, bytes]) -> None:
        """From the newest state among these files, which are as they must be: once for each set of them."""
        if frozenset(left) in self._resumed:
            return
        self._resumed.add(frozenset(left))
        states = sorted(name for name in left if ".solverstate" in name)
        done = self.run(Faults(), Faults(), *(("-snapshot", states[-1]) if states else ()))
        assert done.code == 0, done
        assert self.files() == self.expected


SHARES = pytest.mark.parametrize(
    "whole", [pytest.param(False, id="some"), pytest.param(True, id="whole", marks=pytest.mark.thorough)]
)
"""Of a test that tries some of the operations of a kind, which PYCAFFE_LMS_SEED chooses: one with all, if asked for."""


def sweep(count: int, survive: Callable[[int], str], *, every: int = 1, **what) -> Counter[str]:
    """Let each of `count` operations fail in a training of its own; returns how many trainings ended and went on, and
    prints it as a line of JSON.

    every: only so many of them, begun with one that PYCAFFE_LMS_SEED chooses. what: says in the line what was swept."""
    assert count > 0
    found: Counter[str] = Counter()
    for n in seeds.swept(count, every):
        try:
            found[survive(n)] += 1
        except BaseException as error:
            raise AssertionError(f"fault {n} of {count}: {error}") from error
    print("\nfaults", json.dumps({**what, "operations": count, "survived": found.total(), **found}))
    return found
