"""Functions that run a solver whose programs are replayed, each in another way, and return every bit that it computes.

Tests run them on the simulated device and on a GPU, with and without graphs.
"""

from __future__ import annotations

import numpy as np

from pycaffe_lms.formats.prototxt.parser import parse_solver
from pycaffe_lms.net.tuning import Tuning
from pycaffe_lms.solvers import SGDSolver, solver_class

from ..lms.nets import _DATA, HOST_DATA, NETS, solver_text

STOCHASTIC = """
layer { name: "data" type: "DummyData" top: "data" top: "label" dummy_data_param {
  shape { dim: 4 dim: 3 dim: 16 dim: 16 } shape { dim: 4 }
  data_filler { type: "uniform" min: 0 max: 1 } data_filler { type: "uniform" min: 0 max: 4.99 } } }
layer { name: "pool" type: "Pooling" bottom: "data" top: "pool" pooling_param {
  pool: STOCHASTIC kernel_size: 2 stride: 2 } }
layer { name: "drop" type: "Dropout" bottom: "pool" top: "drop" dropout_param { dropout_ratio: 0.3 } }
layer { name: "fc" type: "InnerProduct" bottom: "drop" top: "fc" inner_product_param { num_output: 5
  weight_filler { type: "xavier" } } }
layer { name: "loss" type: "SoftmaxWithLoss" bottom: "fc" bottom: "label" top: "loss" }
"""
ON_HOST = NETS["residual"].replace(_DATA, HOST_DATA)
TEXTS = {"stochastic": STOCHASTIC, "on host": ON_HOST}  # besides NETS


def make(net, device, graph: bool, *, pack: bool = False, lms=None, **options) -> SGDSolver:
    """A solver on one of NETS, or on a net's text."""
    text = solver_text(net if net in NETS else "chain", **options)
    if net not in NETS:
        text = text.replace(NETS["chain"], net)
    parsed = parse_solver(text, "replay.prototxt")
    tuning = Tuning(graph=graph, pack=pack)
    more = {"file": parsed.filename, "lines": parsed.lines, "device": device, "tuning": tuning, "lms": lms}
    return solver_class(parsed.message)(parsed.message, **more)


def bits(solver) -> list[bytes]:
    """Parameters (running statistics too), gradients and history."""
    net = solver.net
    blobs = [b for blobs in net.params.values() for b in blobs]
    history = [b for b in solver.history_blobs() if not isinstance(b, tuple)]
    found = [b.read_data().tobytes() for b in (*blobs, *history)]
    return [*found, *(b.read_diff().tobytes() for b in net.learnable_params)]


def recorded(solver) -> set[str]:
    """Programs of the solver's that have a recording now."""
    nets = [("", solver.net), *((f"test net {i}: ", n) for i, n in enumerate(solver.test_nets))]
    return {
        name + key
        for name, net in nets
        for key, bound in net.memory.programs.bound.items()
        if bound.replay is not None and bound.replay.ready and not bound.sequenced.by_hand
    }


def steps(solver, n: int = 6) -> list:
    losses = []
    for _ in range(n):
        solver.step(1)
        losses.append(solver.net.loss())
    return [losses, bits(solver)]


def written_between(solver) -> list:
    """Weights, gradients and values that the user writes and reads between iterations are used, and seen."""
    weights, seen = solver.net.learnable_params[0], []
    solver.net.keep("fc")
    outputs = solver.net.blobs["fc"]
    for i in range(8):
        solver.step(1)
        if i == 3:
            weights.data = np.full_like(weights.read_data(), 0.01)
        elif i == 4:
            weights.data[...] *= 0.5
        elif i == 5:
            weights.diff = 1
            solver.apply_update()
        elif i == 6:
            outputs.data = 7
            seen.append(outputs.read_data().tobytes())
        seen += [solver.net.loss(), outputs.read_data().tobytes()]
    return [seen, bits(solver)]


def passes_by_hand(solver) -> list:
    """forward and backward by the user between iterations: gradients add up, random layers go on."""
    seen = []
    for _ in range(5):
        solver.step(1)
        seen.append(solver.net.forward_range())
        solver.net.backward_range()
        seen += bits(solver)
    return seen


def nobody_waits(solver) -> list:
    """Iterations, and passes by hand, of which nobody reads anything before the next is queued."""
    net = solver.net
    solver.step(8)
    for _ in range(3):
        net.iteration(True, solver.updates.tail, key="train")
        net._forward_by_hand(0, len(net.graph.nodes) - 1)
        net.iteration(True, solver.updates.tail, key="train")
    return [net.loss(), bits(solver)]


def managed_written(solver) -> list:
    """Every parameter, gradient and history, and an activation and its gradient that are kept, is read and written
    between iterations, now and then through a view that is held for a while."""
    net, seen, views = solver.net, [], []
    middle = next(n for n in ("conv2", "c3", "cat", "s2") if n in net.blobs)
    net.keep(middle)
    for i in range(9):
        solver.step(1)
        history = [b for b in solver.history_blobs() if not isinstance(b, tuple)]
        values = [*(b for p in net.params.values() for b in p), *history, net.blobs[middle]]
        if i in (3, 6):
            views = [b.data for b in values]
        if i == 5:
            views.clear()
        for k in range(len(views)):
            views[k] *= 0.9 + 0.01 * k
        if i == 5:
            for b in net.learnable_params:
                b.diff = 0.5
            solver.apply_update()
        if i == 2:
            net.blobs[middle].data = 3
        seen += [net.loss(), *(b.read_data().tobytes() for b in values), net.blobs[middle].read_diff().tobytes()]
    return [seen, bits(solver)]


def kept(solver) -> list:
    """A blob that is kept from now on: programs are made anew."""
    start = steps(solver, 4)
    solver.net.keep("fc")
    end = steps(solver, 4)
    return [*start, *end, solver.net.blobs["fc"].read_diff().tobytes()]


def resumed(solver, folder) -> list:
    """Back to an earlier snapshot in the middle, with another seed of random layers in between."""
    start = steps(solver, 5)
    solver.param.snapshot_prefix = f"{folder}/r"
    solver.snapshot()
    on = steps(solver, 3)
    for node in solver.net.graph.nodes:
        if "seed" in (state := node.layer.state()):
            node.layer.set_state(state | {"seed": 12345})
    other = steps(solver, 2)
    solver.restore(f"{folder}/r_iter_5.solverstate")
    again = steps(solver, 3)
    assert again == on and other != on
    return [start, on, other]
