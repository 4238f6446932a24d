"""A small net around one layer: its bottoms are learnable or fixed, every top that has a gradient ends in a loss."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from pycaffe_lms.formats.prototxt.parser import parse_solver
from pycaffe_lms.layers.base import TEST
from pycaffe_lms.layers.registry import LAYERS
from pycaffe_lms.solvers import SGDSolver
from tests.layers.case_run import Run
from tests.layers.cases import Case

_SOLVER = "base_lr: 0.001 momentum: 0.9 lr_policy: 'fixed' max_iter: 9 random_seed: 7 snapshot_after_train: false"


@dataclass(frozen=True)
class LayerNet:
    """text: a solver's prototxt. params, blobs: first values by layer name and position, and by blob name."""

    text: str
    params: Mapping[tuple[str, int], np.ndarray]
    blobs: Mapping[str, np.ndarray]

    def solver(self, device, lms=None, dtype="float32") -> SGDSolver:
        parsed = parse_solver(self.text, "case.prototxt")
        more = {"device": device, "lms": lms, "dtype": dtype}
        solver = SGDSolver(parsed.message, file=parsed.filename, lines=parsed.lines, **more)
        for (layer, i), values in self.params.items():
            solver.net.params[layer][i].data = values
        for name, values in self.blobs.items():
            solver.net.blobs[name].data = values
        return solver


def around(case: Case) -> LayerNet:
    """The net of a case. Bottoms that take a gradient are Parameter layers; labels and the like are DummyData. Bottom 0
    has a second reader, so gradients add up."""
    run, cls = Run(case), LAYERS[case.type]
    fixed = {*dict(case.integer_bottoms), *(cls.declares.no_backward or ()), *cls.declares.ignores_force_backward}
    learns = run.learns and case.n_top > 0
    if case.in_place and not learns:
        fixed |= {0}  # nothing else may read it, so nothing would give it a gradient
    fixed |= {i for i, shape in enumerate(case.shapes) if 0 in shape}  # a Parameter of no elements is refused
    lines, params, blobs = [], {}, {}
    if case.type == "MultinomialLogisticLoss":
        run.bottoms[0] = np.exp(run.bottoms[0]) / 8  # probabilities
    for i, (shape, values) in enumerate(zip(case.shapes, run.bottoms, strict=True)):
        dims = "shape { " + " ".join(f"dim: {d}" for d in shape) + " }"
        if i in fixed:
            lines.append(f'layer {{ name: "b{i}" type: "DummyData" top: "b{i}" dummy_data_param {{ {dims} }} }}')
            blobs[f"b{i}"] = values
        else:
            lines.append(f'layer {{ name: "p{i}" type: "Parameter" top: "b{i}" parameter_param {{ {dims} }} }}')
            params[f"p{i}", 0] = values
    for i in range(len(case.shapes)):
        if i not in fixed and (i == 0 or not learns) and not case.in_place:
            lines.append(_loss(f"again{i}", f"b{i}", case.shapes[i]))
    tops = ["b0"] if case.in_place else [f"t{j}" for j in range(case.n_top)]
    names = " ".join([f'bottom: "b{i}"' for i in range(len(case.shapes))] + [f'top: "{t}"' for t in tops])
    phase = "phase: TEST" if case.phase == TEST else ""
    lines.append(f'layer {{ name: "l" type: "{case.type}" {names} {phase} {case.text} }}')
    params |= {("l", i): values for i, values in enumerate(run.params)}
    if learns and not cls.declares.is_loss:
        for j, (top, values) in enumerate(zip(tops, run.forward(), strict=True)):
            if np.abs(values).max(initial=0.0) > 1e18:  # a window with nothing in it
                lines.append(f'layer {{ name: "small{j}" type: "TanH" bottom: "{top}" top: "small{j}" }}')
                top = f"small{j}"
            lines.append(_loss(f"loss{j}", top, values.shape))
    net = "\n".join(lines)
    return LayerNet(f'{_SOLVER}\nnet_param {{ name: "case"\n{net}\n}}\n', params, blobs)


def _loss(name: str, bottom: str, shape: tuple) -> str:
    """A hundredth of the sum of squares; of a number, which Reduction does not take, its square."""
    how = (
        'type: "Reduction" reduction_param { operation: SUMSQ coeff: 0.01 }'
        if shape
        else 'type: "Power" power_param { power: 2 scale: 0.1 }'
    )
    return f'layer {{ name: "{name}" bottom: "{bottom}" top: "{name}" loss_weight: 1 {how} }}'


def train(solver: SGDSolver, iterations: int = 2) -> tuple:
    """(losses, outputs, parameters, gradients) of some iterations, to the bit."""
    seen = []
    for _ in range(iterations):
        solver.step(1)
        seen.append(solver.net.loss())
        seen += [solver.net.blobs[name].read_data().tobytes() for name in solver.net.outputs]
    seen += [b.read_data().tobytes() + b.read_diff().tobytes() for b in solver.net.learnable_params]
    return tuple(seen)
