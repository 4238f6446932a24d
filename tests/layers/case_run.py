"""Run one case repeatedly from the same start, with any value spoilt or changed between forward and backward."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from pycaffe_lms.layers.base import Lives

from .cases import Case
from .harness import LayerBench


class Run:
    """A case's bench, with bottoms and positive parameters drawn from the case's seed.

    `forward` starts from the same parameters, states and counters each time, so it can be repeated.
    """

    def __init__(self, case: Case, dtype=np.float64, bottoms=None, **changes):
        self.case = replace(case, **changes)
        self.bench: LayerBench = self.case.bench(dtype)
        self.layer = self.bench.layer
        self.params = [np.asarray(np.abs(p) + 0.25) for p in self.bench.params]  # a running variance is positive
        self.rng = np.random.default_rng(case.seed)
        self.bottoms = self.case.make_bottoms(self.rng) if bottoms is None else bottoms
        self._counters = self.layer.state()

    @property
    def learns(self) -> bool:
        return any(self.bench.propagate_down) or any(self.bench.param_propagate)

    def forward(self) -> list[np.ndarray]:
        bench = self.bench
        bench.params = [np.array(p) for p in self.params]
        self.layer.set_state(self._counters)
        for scratch in self.layer.scratches.values():
            if scratch.lives is Lives.STATE:
                bench.scratch[scratch.name][...] = 0
            else:
                spoil(bench.scratch[scratch.name])
        self.tops = bench.forward(self.bottoms)
        return self.tops

    def backward(self, top_diffs, **options) -> dict[tuple[str, int], np.ndarray]:
        """Return {("bottom" or "param", index): gradient} of everything that is propagated."""
        bottoms, params = self.bench.backward([None if d is None else np.array(d) for d in top_diffs], **options)
        found = {("bottom", i): g for i, g in enumerate(bottoms) if g is not None}
        return found | {("param", i): g for i, g in enumerate(params) if g is not None}

    def top_diffs(self) -> list[np.ndarray]:
        """Return fixed random gradients of the tops."""
        rng = np.random.default_rng(99)
        return [rng.normal(size=s) for s in self.bench.top_shapes]

    def wants(self, only: tuple[str, int] | None = None, without: tuple[str, int] | None = None) -> None:
        """Propagate one target only, or all but one."""
        bench = self.bench
        if not hasattr(self, "_all"):
            self._all = tuple(bench.propagate_down), tuple(bench.param_propagate)
        pick = lambda kind, flags: tuple(  # noqa: E731
            f and (only is None or only == (kind, i)) and without != (kind, i) for i, f in enumerate(flags)
        )
        bench.propagate_down, bench.param_propagate = pick("bottom", self._all[0]), pick("param", self._all[1])

    def targets(self) -> list[tuple[str, int]]:
        """Return everything that has a gradient."""
        self.wants()
        return [("bottom", i) for i, f in enumerate(self.bench.propagate_down) if f] + [
            ("param", i) for i, f in enumerate(self.bench.param_propagate) if f
        ]


def spoil(array: np.ndarray) -> None:
    """Write NaN into every float, -1 into every signed integer."""
    array.reshape(-1).view(np.uint8)[...] = 0xFF


def spoilt(shape, dtype) -> np.ndarray:
    array = np.empty(shape, dtype)
    spoil(array)
    return array


def spoil_undeclared(run: Run) -> None:
    """Spoil, between forward and backward, all that backward did not declare, also what it gets as None."""
    bench, layer = run.bench, run.layer
    needs = layer.backward_needs(list(bench.propagate_down), list(bench.param_propagate))
    groups = ((bench._bottom, needs.bottoms), (bench._top, needs.tops), (bench._param, needs.params))
    declared = [a for arrays, wanted in groups for i, a in enumerate(arrays) if i in wanted]
    for arrays, wanted in groups:
        for i, array in enumerate(arrays):
            if i not in wanted and not any(np.shares_memory(array, d) for d in declared):
                spoil(array)
    for scratch in layer.scratches.values():
        if scratch.lives is Lives.CALL or not scratch.backward:
            spoil(bench.scratch[scratch.name])


def hand_over_poison(run: Run, method: str) -> None:
    """Give backward NaN arrays in place of None, so that a layer cannot just test for None."""
    bench, inner = run.bench, getattr(run.layer, method)

    def wrapped(io):
        for name, shapes in (
            ("bottom", bench.bottom_shapes),
            ("top", bench.top_shapes),
            ("param", [p.shape for p in run.layer.params]),
        ):
            arrays = getattr(io, name)
            setattr(io, name, [spoilt(s, bench.dtype) if a is None else a for a, s in zip(arrays, shapes, strict=True)])
        inner(io)

    setattr(run.layer, method, wrapped)


def disturb(array: np.ndarray, high: int | None = None) -> None:
    """Write other legal values: labels below `high`, else values of the same array, floats also larger."""
    if high is not None:
        array[...] = (array + 1) % high
        return
    before = array.copy()
    array.reshape(-1)[...] = np.roll(before.reshape(-1), 1)
    if array.dtype.kind == "f":
        array *= np.random.default_rng(5).uniform(1.2, 1.9, size=array.shape)
    elif np.array_equal(array, before):
        array[...] = before ^ 1 if before.max() <= 1 else 0
