"""Run one layer alone, on the CPU or a GPU, and check its gradient. Shares no code with the net or the planner.

Everything a layer was not promised is poison: outputs and scratch start as NaN, and what `backward_needs` did not ask
for is None. So an undeclared read fails here, and an unwritten element shows as NaN.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from google.protobuf import text_format

from pycaffe_lms.errors import CaffeError
from pycaffe_lms.layers.base import TRAIN, BuildContext, Lives, Pass, ShapesChanged
from pycaffe_lms.layers.registry import layer_class
from pycaffe_lms.ops import load_ops
from pycaffe_lms.proto import caffe_pb2


class HostArrays:
    """The CPU as a device for tests."""

    name = "cpu"

    def __init__(self):
        self.ops = load_ops("cpu")

    def put(self, array):
        return np.array(array, order="C")

    def get(self, array):
        return np.array(array)


class CudaArrays:
    """A real GPU for tests (use under the `gpu` marker)."""

    name = "cuda"

    def __init__(self):
        from pycaffe_lms.backend import cuda

        self._cupy = cuda.require()
        self.ops = load_ops("cuda")

    def put(self, array):
        return self._cupy.array(np.array(array, order="C"))

    def get(self, array):
        return self._cupy.asnumpy(array)


@dataclass
class LayerBench:
    """One layer with its arrays. `text` is the inside of `layer { }`; bottoms are named b0.., tops t0.. if absent."""

    type: str
    text: str = ""
    bottom_shapes: tuple = ()
    n_top: int = 1
    dtype: type = np.float64
    phase: int = TRAIN
    device: object = None
    propagate_down: tuple | None = None
    param_propagate: tuple | None = None
    needs_backward: bool = True
    in_place: bool = False
    ranks: int = 1
    params: list = field(default_factory=list)

    def __post_init__(self):
        self.device = self.device or HostArrays()
        message = text_format.Parse(self.text, caffe_pb2.LayerParameter())
        message.type = self.type
        message.name = message.name or "l"
        if not message.bottom:
            message.bottom.extend(f"b{i}" for i in range(len(self.bottom_shapes)))
        if not message.top:
            message.top.extend(f"b{i}" if self.in_place else f"t{i}" for i in range(self.n_top))
        context = BuildContext(phase=self.phase, dtype=self.dtype, solver_count=self.ranks)
        self.layer = layer_class(self.type)(message, context)
        self.layer.check_counts(len(message.bottom), len(message.top))
        try:
            self.layer.setup([tuple(s) for s in self.bottom_shapes])
        except CaffeError as error:  # as `net/build/wiring.py` does
            raise error.at(layer=message.name, type=message.type) from error.__cause__
        self.layer.update_context(needs_backward=self.needs_backward)
        if self.propagate_down is None:
            blocked = self.layer.declares.no_backward
            self.propagate_down = tuple(
                blocked is not None and i not in blocked and self.needs_backward for i in range(len(self.bottom_shapes))
            )
        if self.param_propagate is None:
            self.param_propagate = tuple(p.lr_mult != 0 and self.needs_backward for p in self.layer.params)
        self.reshape(self.bottom_shapes)
        rng = np.random.default_rng(7)
        self.params = [rng.normal(size=p.shape).astype(self.dtype) for p in self.layer.params]

    def reshape(self, bottom_shapes):
        self.bottom_shapes = [tuple(s) for s in bottom_shapes]
        self.layer.scratches.clear()
        self.top_shapes = [tuple(s) for s in self.layer.infer_shapes(self.bottom_shapes)]
        self.layer.declare(self.bottom_shapes, self.top_shapes, self.device.ops)
        self.scratch = {
            s.name: self.device.put(
                _poison(s.shape, s.dtype) if s.lives is not Lives.STATE else np.zeros(s.shape, s.dtype)
            )
            for s in self.layer.scratches.values()
        }

    def rematerialize(self):
        """Compute the tops of the last `forward` again, after spoiling what it wrote, except scratch that is kept.
        Returns (tops, scratch that forward writes for backward)."""
        d, layer, needs = self.device, self.layer, self.layer.remat_needs()
        spare = {i for i in range(len(self._top)) if i not in layer.shares_data()}
        self._top = [d.put(_poison(t.shape, self.dtype)) if i in spare else t for i, t in enumerate(self._top)]
        written = {n: s for n, s in layer.scratches.items() if s.forward and s.lives is Lives.SAVED}
        for name, scratch in written.items():
            if not scratch.remat_reads:
                self.scratch[name] = d.put(np.full(scratch.shape, -1).astype(scratch.dtype))
        layer.rematerialize(
            Pass(
                ops=d.ops,
                bottom=[b if i in needs.bottoms else None for i, b in enumerate(self._bottom)],
                top=self._top,
                param=[p if i in needs.params else None for i, p in enumerate(self._param)],
                scratch={n: a for n, a in self.scratch.items() if layer.scratches[n].forward},
            )
        )
        return [d.get(t) for t in self._top], {n: d.get(self.scratch[n]) for n in written}

    def close(self):
        self.layer.close()

    def forward(self, bottoms):
        """Return the tops (NumPy), given the bottoms. Running statistics in `self.params` (NumPy) change."""
        read = sorted(self.layer.declares.dynamic_shape_bottoms)
        if read:
            try:
                self.layer.read_dynamic_shapes([np.asarray(bottoms[i], self.dtype) for i in read])
            except ShapesChanged:
                self.reshape(self.bottom_shapes)
        d, needs = self.device, self.layer.forward_needs()
        self._bottom = [d.put(np.asarray(b, self.dtype)) for b in bottoms]
        self._top = []
        for i, shape in enumerate(self.top_shapes):
            if i in self.layer.shares_data():
                self._top.append(self._bottom[self.layer.shares_data()[i]].reshape(shape))
            elif self.in_place:
                self._top.append(self._bottom[i])
            else:
                self._top.append(d.put(_poison(shape, self.dtype)))
        self._param = [d.put(p) for p in self.params]
        io = Pass(
            ops=d.ops,
            bottom=[b if i in needs.bottoms else None for i, b in enumerate(self._bottom)],
            top=self._top,
            param=[p if i in needs.params | self.layer.forward_updates() else None for i, p in enumerate(self._param)],
            scratch={n: a for n, a in self.scratch.items() if self.layer.scratches[n].forward},
        )
        scalars = any(s.lives is Lives.STEP_SCALAR for s in self.layer.scratches.values())
        for name, numbers in self.layer.next_step_scalars().items() if scalars else ():
            self.scratch[name] = io.scratch[name] = d.put(np.array(numbers, np.uint64))
        if self.layer.declares.runs_on.value != "nowhere":
            try:
                self.layer.forward(io)
            except ShapesChanged:
                self.reshape(self.bottom_shapes)
                return self.forward(bottoms)
        self.params = [d.get(p) for p in self._param]
        return [d.get(t) for t in self._top]

    def backward(self, top_diffs, *, accumulate=None, param_diffs=None, add_to=None):
        """Return (bottom diffs, parameter diffs); None where not propagated. A top diff may be None (all zeros).

        add_to: {bottom: what its gradient is added to}."""
        d = self.device
        needs = self.layer.backward_needs(list(self.propagate_down), list(self.param_propagate))
        shared = self.layer.shares()
        tops = [None if g is None else d.put(np.asarray(g, self.dtype)) for g in top_diffs]
        bottom_diff = [
            d.put(_poison(s, self.dtype)) if p else None
            for s, p in zip(self.bottom_shapes, self.propagate_down, strict=True)
        ]
        if self.in_place:
            bottom_diff = [tops[i] if b is not None else None for i, b in enumerate(bottom_diff)]
        for t, b in shared.items():
            bottom_diff[b] = tops[t].reshape(self.bottom_shapes[b])
        for b, start in (add_to or {}).items():
            assert b in self.layer.accumulates_into
            bottom_diff[b] = d.put(np.array(start, self.dtype))
        accumulate = accumulate or [False] * len(self.params)
        param_diff = []
        for i, want in enumerate(self.param_propagate):
            start = param_diffs[i] if param_diffs is not None else _poison(self.params[i].shape, self.dtype)
            param_diff.append(d.put(start) if want else None)
        io = Pass(
            ops=d.ops,
            bottom=[b if i in needs.bottoms else None for i, b in enumerate(self._bottom)],
            top=[t if i in needs.tops else None for i, t in enumerate(self._top)],
            param=[p if i in needs.params else None for i, p in enumerate(self._param)],
            scratch={n: a for n, a in self.scratch.items() if self.layer.scratches[n].backward},
            top_diff=tops,
            bottom_diff=bottom_diff,
            param_diff=param_diff,
            accumulate=accumulate,
            bottom_adds=[i in (add_to or {}) for i in range(len(bottom_diff))],
        )
        if not (self.layer.declares.runs_on.value == "nowhere" and shared):
            self.layer.backward(io)
        return (
            [None if b is None else d.get(b) for b in bottom_diff],
            [None if p is None else d.get(p) for p in param_diff],
        )


def _poison(shape, dtype):
    array = np.empty(shape, dtype)
    array.reshape(-1).view(np.uint8)[...] = 0xFF  # NaN in every float type, -1 in every signed integer
    return array


def check_gradient(bench, bottoms, *, eps=1e-5, tol=1e-6, seed=1701, kinks=(), only_bottoms=None, refill=None):
    """Compare backward with central differences of L = sum(top * fixed random weights), in float64.

    Checks every propagated bottom and every propagated parameter. Elements within 2 eps of a kink are skipped.
    The error is relative, its scale no less than 1, as in Caffe's checker. `refill(bench)` is called before each
    forward (to reset a random layer's counter, say).
    """
    rng = np.random.default_rng(seed)
    bottoms = [np.array(b, np.float64) for b in bottoms]
    params = [np.array(p) for p in bench.params]

    def loss():
        bench.params = [np.array(p) for p in params]
        if refill:
            refill(bench)
        tops = bench.forward(bottoms)
        return sum(float((t * w).sum()) for t, w in zip(tops, weights, strict=True))

    if refill:
        refill(bench)
    tops = bench.forward(bottoms)
    weights = [rng.normal(size=t.shape) for t in tops]
    bottom_diffs, param_diffs = bench.backward([np.array(w) for w in weights])
    targets = [(f"bottom {i}", bottoms[i], g) for i, g in enumerate(bottom_diffs) if g is not None]
    targets += [(f"param {i}", params[i], g) for i, g in enumerate(param_diffs) if g is not None]
    if only_bottoms is not None:
        targets = [t for t in targets if t[0] in {f"bottom {i}" for i in only_bottoms}]
    assert targets, "nothing to check"
    for what, array, gradient in targets:
        assert gradient.shape == array.shape, what
        flat, expected = array.reshape(-1), np.asarray(gradient, np.float64).reshape(-1)
        for i in range(flat.size):
            value = flat[i]
            if any(abs(value - k) < 2 * eps for k in kinks):
                continue
            flat[i] = value + eps
            up = loss()
            flat[i] = value - eps
            down = loss()
            flat[i] = value
            numeric = (up - down) / (2 * eps)
            scale = max(abs(numeric), abs(expected[i]), 1.0)
            assert abs(numeric - expected[i]) <= tol * scale, f"{what}[{i}]: numeric {numeric}, backward {expected[i]}"
