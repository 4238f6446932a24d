"""`pycaffe-lms time`: benchmark a model, layer by layer; under -lms what is timed is LMS."""

from __future__ import annotations

import argparse
import logging
import time
from collections import Counter
from collections.abc import Sequence
from functools import partial
from typing import Any

from ...backend import cuda
from ...backend.device import Device
from ...data.sets.zoo import find_model
from ...errors import UsageError, human_bytes
from ...net.memory.fit import Need, fit
from ...net.net import Net
from ...net.program.costs import layer_bytes, step_flops
from ...net.program.programs import HostedStep
from ...net.program.steps import LayerStep, node_of
from .. import devices, flags, overrides
from ..synthetic import Synthetic, add_shape
from ..views import profile, roofline, time_table
from ..zoo_names import net_with_data

_log = logging.getLogger(__name__)
_TRIES = 3  # iterations in a row whose shapes may change
Label = tuple[int, str]  # index of a layer, direction
Totals = dict[Label, float]  # milliseconds


class _Clock:
    """Time queued work: by events on a GPU, the model clock on a simulated one, the wall clock on the CPU."""

    def __init__(self, device: Device):
        self.device = device
        self.seconds = devices.clock(device)
        self.marks: list[Any] = []  # events, or seconds on the CPU

    def mark(self) -> None:
        """Mark the end of what is queued."""
        self.marks.append(time.perf_counter() if self.device.is_host else self.device.timed_event())

    def take(self) -> list[float]:
        """Return the milliseconds between neighbouring marks, and forget the marks."""
        marks, self.marks = self.marks, []
        pairs = zip(marks, marks[1:], strict=False)
        if self.device.is_host:
            return [(b - a) * 1e3 for a, b in pairs]
        return [self.device.elapsed_ms(a, b) for a, b in pairs]


def build_parser() -> flags.Parser:
    """Return the parser."""
    p = flags.parser("time", __doc__, common="iterations phase set profile gpu backend lms lms_budget math")
    flags.add_word(p, "model", "prototxt of the net to be timed, or a model of the zoo")
    p.add_argument(
        "--weights", default="", metavar="FILES", help="accepted for compatibility; timing does not depend on values"
    )
    p.add_argument(
        "--iterations",
        type=int,
        default=50,
        metavar="N",
        help="how many iterations are timed, after one that builds kernels",
    )
    p.add_argument(
        "--phase",
        choices=tuple(flags.PHASES),
        default="TRAIN",
        help="TRAIN: forward and backward of the net's TRAIN phase; TEST: of its TEST phase",
    )
    add_shape(p)
    flags.add_tuning(p, fuse="off", pack="off", without=("graph",))
    flags.add_profile(p, "the timed iterations")
    overrides.add_set(p, "the net", "layer.data.data_param.batch_size=10")
    flags.add_state(p)
    flags.add_device(p)
    return p


def run(args: argparse.Namespace) -> int:
    """Print the average forward and backward time of every layer, as Caffe does; then what each moves and computes."""
    if args.iterations < 1:
        raise UsageError(f"-iterations {args.iterations} is not positive", fix="give 1 or more")
    phase = flags.PHASES[args.phase]
    args.model = find_model(args.model) if args.shape else net_with_data(args.model, phase)
    device = devices.choose(args, flags.lms_config(args))
    limits = _limits(device, flags.half(args))  # before the net takes memory
    net = devices.build_net(args, phase, device=device, synthetic=Synthetic(args.shape))
    record = profile.Profile(args.profile, net.runtime, f"pycaffe-lms time: {net.name}, {device.describe()}")
    backward = any(node.need_backward for node in net.run_graph.nodes)
    if backward:
        kinds: list[tuple[str, bool, Sequence[HostedStep]]] = [("time", True, ())]
        prepare, seconds = partial(net.prepare_iterations, kinds), partial(net.predicted_seconds, kinds)
        fit(net.runtime, [Need(net, prepare, seconds)])
    else:
        net.prepare_test()
    if device.simulated:
        _log.info("All times are those of the simulated device's model clock, as an H200 would take; none is measured.")
    _log.info("Performing Forward%s", " and Backward" if backward else "")
    groups = sum(len(group.members) > 1 for group in net.run_graph.groups)
    if groups:
        _log.info("Groups of layers that run as one, their time logged for the last one: %d.", groups)
    totals = _benchmark(net, args.iterations, backward, record)
    record.write()
    _print_table(net, totals, args.iterations, limits)
    net.close()
    return 0


def _limits(device: Device, half: bool) -> roofline.Roofline | None:
    """Return and log what the GPU can do at most; None: not known. half: products of bfloat16, too."""
    if device.operations != "cuda":
        _log.info("No limits to compare with: only a GPU's are measured, and this is the %s.", device.describe())
        return None
    limits = roofline.measure(device, half=half)
    if limits is None:
        _log.info("No limits to compare with: there is too little free device memory to measure them.")
    else:
        _log.info(
            "Limits of this GPU, measured now: %.0f GB/s of memory (a copy, read and written), %.1f TFLOP/s (a product "
            "of matrices, math %s).",
            limits.bytes_per_s / 1e9,
            limits.flops_per_s / 1e12,
            cuda.math(),
        )
        if limits.half_flops_per_s is not None:
            _log.info("Products of bfloat16: %.1f TFLOP/s.", limits.half_flops_per_s / 1e12)
    return limits


def _benchmark(net: Net, iterations: int, backward: bool, record: profile.Profile) -> Totals:
    """Run the iterations; return the milliseconds of all by (layer, direction)."""
    clock = _Clock(net.device)
    totals: Totals = {}
    _once(net, clock, backward)  # builds kernels and plans
    before = (net.runtime.stats.bytes_in, net.runtime.stats.bytes_out)
    _log.info("*** Benchmark begins ***")
    _log.info("Testing for %d iterations.", iterations)
    start, wall = clock.seconds(), time.perf_counter()
    for i in range(iterations):
        begun = clock.seconds()
        with record.iteration():
            steps = _once(net, clock, backward)
        for step, ms in zip(steps, clock.take(), strict=True):
            totals[_label(step)] = totals.get(_label(step), 0.0) + ms
        _log.info("Iteration: %d forward-backward time: %.6g ms.", i + 1, (clock.seconds() - begun) * 1e3)
    _report(net, totals, (clock.seconds() - start) * 1e3, iterations, before)
    if net.device.simulated:
        _log.info("Simulating that took %.6g ms here, by the wall clock.", (time.perf_counter() - wall) * 1e3)
    return totals


def _once(net: Net, clock: _Clock, backward: bool) -> Sequence[LayerStep]:
    """Run an iteration with a mark after every step; return the steps.

    A layer may find in the middle that its tops need other shapes; what ran then is no whole iteration, so another one
    is timed. Raises UsageError if that happens each time.
    """
    for _ in range(_TRIES):
        clock.marks.clear()
        net.memory.timer = clock.mark
        try:
            done = net.iteration(True, key="time") if backward else net.test_forward()
        finally:
            net.memory.timer = None
        net.device.synchronize()
        if done:
            return _steps(net, "time" if backward else "test")
    raise UsageError(
        f"shapes change in the middle of every iteration ({_TRIES} in a row), because a layer's tops depend on values",
        fix="time the net on inputs that give the same shapes every time",
    )


def _steps(net: Net, key: str) -> list[LayerStep]:
    """Return the steps of a program; without a solver all are of layers."""
    return [step for step in net.memory.steps(key) if isinstance(step, LayerStep)]


def _label(step: LayerStep) -> Label:
    """Return (layer, of a group the last one; direction). What a layer reads before its forward counts as forward."""
    return step.node, "forward" if step.forward else "backward"


def _report(net: Net, totals: Totals, total: float, iterations: int, before: tuple[int, int]) -> None:
    _log.info("Average time per layer: ")
    sums = {"forward": 0.0, "backward": 0.0}
    for node in net.run_graph.nodes:
        for direction in sums:
            ms = totals.get((node.index, direction), 0.0) / iterations
            sums[direction] += ms
            _log.info("%10s\t%s: %.6g ms.", node.name, direction, ms)
    _log.info("Average Forward pass: %.6g ms.", sums["forward"])
    _log.info("Average Backward pass: %.6g ms.", sums["backward"])
    _log.info("Average Forward-Backward: %.6g ms.", total / iterations)
    _log.info("Total Time: %.6g ms.", total)
    if net.runtime.active:
        stats = net.runtime.stats
        _log.info(
            "LMS: %s in, %s out per iteration; at most %s of managed buffers on the device.",
            human_bytes((stats.bytes_in - before[0]) / iterations),
            human_bytes((stats.bytes_out - before[1]) / iterations),
            human_bytes(stats.held_peak),
        )
    _log.info("*** Benchmark ends ***")


def _print_table(net: Net, totals: Totals, iterations: int, limits: roofline.Roofline | None) -> None:
    """Print every pass of every layer (of a group of layers under all their names), then totals by type."""
    memory, key = net.memory, "time" if any(d == "backward" for _, d in totals) else "test"
    sizes = {b: m.nbytes for b, m in memory.memories.items()}
    nbytes: Counter[Label] = Counter()
    flops: Counter[Label] = Counter()
    on_device, runs = set(), {}
    for step in _steps(net, key):
        label = _label(step)
        runs[label] = node_of(net.run_graph, step)
        if not step.step.host:
            on_device.add(label)
            nbytes[label] += layer_bytes(net.run_graph, step, memory.buffers, sizes)
            flops[label] += step_flops(net.run_graph, step)
    rows = [
        time_table.row(
            runs[label].name,
            runs[label].layer.param.type,
            direction,
            totals[label] / iterations,
            nbytes[label],
            flops[label],
            limits if label in on_device else None,
            runs[label].half,
        )
        for node in net.run_graph.nodes
        for direction in ("forward", "backward")
        if (label := (node.index, direction)) in totals
    ]
    total = sum(r.ms for r in rows)
    tables = (time_table.text(some, total, simulated=net.device.simulated) for some in (rows, time_table.by_type(rows)))
    print(*tables, sep="\n\n")
