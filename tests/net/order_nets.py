"""Nets that store weights channels-last like their images, and the same nets with weights channels-first to compare."""

from __future__ import annotations

import pytest

from pycaffe_lms.backend.sim.device import SimDevice
from pycaffe_lms.formats.prototxt.parser import parse_solver
from pycaffe_lms.net.passes import param_order
from pycaffe_lms.net.passes.memory_order import matters
from pycaffe_lms.net.tuning import Tuning
from pycaffe_lms.solvers import solver_class
from tests.lms import nets

from .nets import layer

_UP = (
    'layer { name: "up" type: "Deconvolution" bottom: "%s" top: "up" %s convolution_param { num_output: %d '
    'kernel_size: 3 stride: %d pad: 1 weight_filler { type: "xavier" } } }\n'
)
_VOLUMES = """
layer { name: "data" type: "DummyData" top: "data" top: "label" dummy_data_param {
  shape { dim: 3 dim: 2 dim: 5 dim: 6 dim: 4 } shape { dim: 3 }
  data_filler { type: "gaussian" } data_filler { type: "uniform" min: 0 max: 4.99 } } }
"""
_NAMED = 'param { name: "w" } param { lr_mult: 2 decay_mult: 0 } '
NETS = {
    "chain": nets.NETS["chain"],
    "groups": nets.NETS["groups"],
    "residual": nets.NETS["residual"],
    "shared": nets.NETS["shared"],
    "deconvolution": nets._DATA + nets.conv("c", "data", 6) + _UP % ("c", "", 4, 2) + nets.head("up"),
    "volumes": _VOLUMES + nets.conv("c", "data", 4) + nets.conv("d", "c", 3) + nets.head("d"),
    "two bottoms": nets._DATA
    + nets.conv("a", "data", 3)
    + layer(
        "c",
        "Convolution",
        "data a",
        "c d",
        'convolution_param { num_output: 4 kernel_size: 3 weight_filler { type: "xavier" } }',
    )
    + nets._eltwise("sum", "c", "d")
    + nets.head("sum"),
    "tied": nets._DATA
    + nets.conv("c", "data", 4).replace("convolution_param", f"{_NAMED} convolution_param")
    + _UP % ("c", _NAMED, 3, 1)
    + nets.head("up"),
    # the weights are also a top, of a layer that has no order
    "looked at": nets._DATA
    + nets.conv("c", "data", 4).replace("convolution_param", f"{_NAMED} convolution_param")
    + layer("w", "Parameter", text='param { name: "w" } parameter_param { shape { dim: 4 dim: 3 dim: 3 dim: 3 } }')
    + layer("decay", "Reduction", "w", text="loss_weight: 0.1 reduction_param { operation: SUMSQ }")
    + nets.head("c"),
}


def make(net: str, last: bool = True, device=None, lms=None, dtype="float32", **options):
    """A solver on one of NETS, or on layers as text, whose images lie channels-last or not."""
    fields = {
        "base_lr": 0.05,
        "momentum": 0.9,
        "weight_decay": 0.01,
        "lr_policy": '"fixed"',
        "max_iter": 100,
        "random_seed": 7,
        "snapshot_after_train": "false",
    } | options
    text = "\n".join(f"{name}: {value}" for name, value in fields.items())
    parsed = parse_solver(f"{text}\nnet_param {{ name: 'n'\n{NETS.get(net, net)} }}\n", "n.prototxt")
    more = {"device": device or SimDevice(64 << 20), "lms": lms, "tuning": Tuning(channels_last=last)}
    return solver_class(parsed.message)(parsed.message, lines=parsed.lines, dtype=dtype, **more)


def make_transposing(net: str, **options):
    """The solver of `make`, whose layers transpose channels-first weights in workspace."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(param_order, "may_store_last", lambda graph, users: False)
        solver = make(net, **options)
    graph = solver.net.run_graph
    assert not any(p.channels_last for p in graph.params)
    taken = ((n, i) for n in graph.nodes for i, p in enumerate(n.params) if matters(graph.params[p].shape))
    assert {f"{n.name}.order.param{i}" for n, i in taken if param_order.takes_last(n, i)} <= copies(solver.net)
    return solver


def copies(net) -> set[str]:
    """Copies of parameters that layers ask for, "layer.scratch"."""
    everyone = net.run_graph.everyone()
    return {f"{n.name}.{s}" for n in everyone for s in n.layer.scratches if s.startswith("order.param")}


def values(solver) -> list[bytes]:
    """Parameters, what was last taken off them, and histories."""
    blobs = [b for b in solver.history_blobs() if not isinstance(b, tuple)]
    params = solver.net.learnable_params
    return [b.read_data().tobytes() for b in (*params, *blobs)] + [b.read_diff().tobytes() for b in params]


def train(solver, n: int = 5) -> list:
    """Losses of n iterations, and `values` after them."""
    losses = []
    for _ in range(n):
        solver.step(1)
        losses.append(solver.net.loss())
    return [losses, values(solver)]
