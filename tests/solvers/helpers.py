"""Makes solvers from text, on the CPU or the simulated device, and reads log lines and parameters, to the bit."""

from __future__ import annotations

import numpy as np

from pycaffe_lms.backend import get_device
from pycaffe_lms.backend.sim.device import SimDevice
from pycaffe_lms.formats.prototxt.parser import parse_solver
from pycaffe_lms.lms.config import LMSConfig
from pycaffe_lms.solvers import SGDSolver, solver_class

# Where a solver's nets run: device and LMS of a fresh solver.
PLACES = {
    "cpu": lambda: {"device": get_device("cpu")},
    "sim": lambda: {"device": SimDevice(64 << 20)},
    "sim with LMS": lambda: {"device": SimDevice(64 << 20), "lms": LMSConfig(threshold_kb=1, ahead=1)},
}

INPUT = """
layer { name: "x" type: "Input" top: "x" input_param { shape { dim: 4 dim: 3 } } }
layer { name: "label" type: "Input" top: "label" input_param { shape { dim: 4 } } }
"""
GAUSSIAN = """
layer { name: "data" type: "DummyData" top: "x" top: "label" dummy_data_param {
  shape { dim: 4 dim: 3 } shape { dim: 4 }
  data_filler { type: "gaussian" } data_filler { type: "uniform" min: 0 max: 4.99 } } }
"""
CONSTANT = """
layer { name: "data" type: "DummyData" top: "x" top: "label" dummy_data_param {
  shape { dim: 4 dim: 3 } shape { dim: 4 }
  data_filler { type: "constant" value: 0.5 } data_filler { type: "constant" value: 1 } } }
"""


def inner(name="ip", bottom="x", top="", outputs=5, extra="", params="") -> str:
    """Return the text of an InnerProduct with random weights and biases."""
    return (
        f'layer {{ name: "{name}" type: "InnerProduct" bottom: "{bottom}" top: "{top or name}" {params} '
        f'inner_product_param {{ num_output: {outputs} {extra} weight_filler {{ type: "gaussian" std: 0.5 }} '
        'bias_filler { type: "gaussian" std: 0.5 } } }\n'
    )


def loss(bottom="ip", name="loss", weight="") -> str:
    bottoms = f'bottom: "{bottom}" bottom: "label"'
    return f'layer {{ name: "{name}" type: "SoftmaxWithLoss" {bottoms} top: "{name}" {weight} }}\n'


def solver_text(net: str, **options) -> str:
    """Return the text of a solver of the layers `net`. options: SolverParameter fields; a list repeats its field, None
    omits it."""
    fields = {"base_lr": 0.1, "lr_policy": '"fixed"', "random_seed": 3, "snapshot_after_train": "false"} | options
    lines = []
    for name, value in fields.items():
        for v in value if isinstance(value, list) else [] if value is None else [value]:
            lines.append(f"{name} {v}" if str(v).startswith("{") else f"{name}: {v}")
    return "\n".join([*lines, f"net_param {{ name: 'small'\n{net} }}"]) if net else "\n".join(lines)


def make(net: str, place="cpu", *, file=None, action=None, dtype="float32", **options) -> SGDSolver:
    """Make a solver of `net`, SGD unless `type` says another.

    place: one of PLACES, or a function like theirs. file: the path that the solver takes for its own."""
    parsed = parse_solver(solver_text(net, **options), file)
    more = {"file": file, "lines": parsed.lines, "action": action, "dtype": dtype}
    return solver_class(parsed.message)(parsed.message, **more, **(place() if callable(place) else PLACES[place]()))


def messages(caplog) -> list[str]:
    """Return the log messages of the package since the last `caplog.clear()`."""
    return [r.getMessage() for r in caplog.records if r.name.startswith("pycaffe_lms")]


def bits(solver) -> list[bytes]:
    """Return the bytes of every parameter (running statistics included) and gradient of the train net."""
    blobs = [b for blobs in solver.net.params.values() for b in blobs]
    return [b.read_data().tobytes() for b in blobs] + [b.read_diff().tobytes() for b in solver.net.learnable_params]


def values(solver, name="ip") -> list[np.ndarray]:
    """Return copies of a layer's parameters."""
    return [b.read_data().copy() for b in solver.net.params[name]]
