"""Random use of a net with exported views: each equals the values of a net on the CPU, or is NaN where reading raises.

The reference is the same net on the CPU, where a view is the memory itself; its blobs are read again each time.
"""

from __future__ import annotations

import numpy as np
import pytest

from pycaffe_lms.backend import get_device
from pycaffe_lms.errors import DiscardedRead
from pycaffe_lms.lms.config import LMSConfig

from ..seeds import seeded
from .nets import conv, inputs, ip, layer, loss, make_solver, relu
from .open_sim import OpenSim
from .test_exported_views import On

TEXT = (
    inputs(x=(3, 3, 6, 6), label=(3,))
    + conv("c", "x", 4)
    + layer("n", "BatchNorm", "c", "c2")
    + layer("s", "Scale", "c2", "c3")
    + relu("r", "c3")
    + ip("a", "c3", 300)
    + layer("d", "Dropout", "a")
    + relu("q", "d", "e")
    + ip("f", "e", 3)
    + loss("f")
)
NAMES = ("x", "c", "c2", "c3", "a", "d", "e", "f")


class User:
    """Does the same to two nets: `ours` on a device, with held arrays, and `theirs` on the CPU, without."""

    def __init__(self, seed: int, lms: LMSConfig | None):
        self.rng = seeded(seed)
        self.numbers = np.random.default_rng(seed)
        self.device = OpenSim(256 << 20, order="random", seed=seed)
        self.ours, self.theirs = make_solver(TEXT, On(self.device, lms)), make_solver(TEXT, On(get_device("cpu")))
        self.moves = lms is not None
        self.ran_forward = False
        self.host: dict = {}  # (name, which) -> a view that is held
        self.gpu: dict = {}
        for solver in (self.ours, self.theirs):
            solver.net.blobs["label"].data[...] = [0, 1, 2]

    def blob(self, solver, name):
        return solver.net.params[name[1:]][0] if name[0] == "*" else solver.net.blobs[name]

    def act(self) -> str:
        name = self.rng.choice((*NAMES, "*a", "*c"))
        which = self.rng.choice(("data", "diff"))
        action = self.rng.choice(("hold", "hold", "drop", "gpu", "write", "write", "forward", "backward", "step"))
        key = name, which
        if action == "hold" and key not in self.gpu:
            self._take(key, self.host, which)
        elif action == "gpu" and key not in self.host and not self.moves:
            self._take(key, self.gpu, f"gpu_{which}")
        elif action == "drop":
            (self.host if self.rng.random() < 0.5 else self.gpu).pop(key, None)
        elif action == "write" and (held := self.host.get(key, self.gpu.get(key))) is not None:
            if not np.isnan(held).any():
                values = self.numbers.normal(size=held.shape).astype(np.float32) / 20
                held[...] = values
                setattr(self.blob(self.theirs, name), which, values)
        elif action in ("forward", "backward"):
            for solver in (self.ours, self.theirs):
                if action == "forward" or not self.ran_forward:  # a backward needs what a step may have dropped
                    solver.net.forward_range()
                if action == "backward":
                    solver.net.backward_range()
            self.ran_forward = True
        elif action == "step":
            self.ran_forward = False
            for solver in (self.ours, self.theirs):
                solver.step(1)
        return f"{action} {name}.{which}"

    def _take(self, key, held, attribute) -> None:
        try:
            held[key] = getattr(self.blob(self.ours, key[0]), attribute)
        except DiscardedRead:
            assert key not in held or np.isnan(held[key]).all()

    def check(self) -> int:
        """Every array that is held; returns how many showed values."""
        shown = 0
        for (name, which), view in (self.host | self.gpu).items():
            dropped = self.ours.net.memory.runtime.active and np.isnan(view).all()
            try:
                expected = getattr(self.blob(self.theirs, name), f"read_{which}")()
            except DiscardedRead:
                dropped = True
            if dropped:
                assert np.isnan(view).all(), (name, which)
                with pytest.raises(DiscardedRead):
                    getattr(self.blob(self.ours, name), f"read_{which}")()
            else:
                np.testing.assert_array_equal(view, expected, err_msg=f"{name}.{which}")
                shown += 1
        return shown


@pytest.mark.parametrize("lms", [None, LMSConfig(threshold_kb=1), LMSConfig(threshold_kb=2, ahead=1)])
@pytest.mark.parametrize("seed", range(5))
def test_never_stale(seed, lms):
    user = User(seed, lms)
    story, shown = [], 0
    for _ in range(70):
        story.append(user.act())
        try:
            shown += user.check()
        except AssertionError as error:
            raise AssertionError(f"after {'; '.join(story)}") from error
    assert shown > 50
