"""`pycaffe-lms time`: benchmark a model, layer by layer; under -lms what is timed is LMS."""

from __future__ import annotations

import logging
import time

from ..errors import UsageError, human_bytes
from ..net.net import Net
from . import devices, flags

_log = logging.getLogger(__name__)


class _Clock:
    """Milliseconds of queued work: device events on a GPU, the wall clock elsewhere."""

    def __init__(self, device):
        self.device = device
        self.marks: list = []

    def mark(self) -> None:
        if hasattr(self.device, "timed_event"):
            self.marks.append(self.device.timed_event())
        else:
            self.device.synchronize()
            self.marks.append(time.perf_counter())

    def take(self) -> list[float]:
        """Milliseconds between neighbouring marks; forgets them."""
        marks, self.marks = self.marks, []
        if hasattr(self.device, "elapsed_ms"):
            return [self.device.elapsed_ms(a, b) for a, b in zip(marks, marks[1:], strict=False)]
        return [(b - a) * 1e3 for a, b in zip(marks, marks[1:], strict=False)]


def run(argv: list[str]) -> int:
    """Print the average forward and backward time of every layer, as Caffe does."""
    p = flags.parser("time", __doc__)
    p.add_argument("--model", required=True, help="net prototxt")
    p.add_argument("--weights", default="", help="accepted for compatibility; timing does not depend on values")
    p.add_argument("--iterations", type=int, default=50, help="iterations")
    p.add_argument("--phase", choices=("TRAIN", "TEST"), default="TRAIN")
    flags.add_state(p)
    flags.add_device(p)
    args = flags.parse(p, argv)
    if args.iterations < 1:
        raise UsageError(f"-iterations {args.iterations} is not positive", fix="give 1 or more")
    lms = flags.lms_config(args)
    device = devices.choose(args, lms)
    phase = 0 if args.phase == "TRAIN" else 1
    net = Net(args.model, phase, level=args.level, stages=flags.stages(args), device=device, lms=lms)
    backward = any(node.need_backward for node in net.graph.nodes)
    if backward:
        net.prepare_iterations([("time", True, ())])
    else:
        net.prepare_test()
    _log.info("Performing Forward%s", " and Backward" if backward else "")
    _benchmark(net, args.iterations, backward)
    net.close()
    return 0


def _benchmark(net: Net, iterations: int, backward: bool) -> None:
    clock, totals = _Clock(net.device), {}
    once = _iteration if backward else _forward
    once(net, clock)  # builds kernels and plans
    net.device.synchronize()
    clock.marks.clear()
    before = (net.runtime.stats.bytes_in, net.runtime.stats.bytes_out)
    _log.info("*** Benchmark begins ***")
    _log.info("Testing for %d iterations.", iterations)
    start = time.perf_counter()
    for i in range(iterations):
        begun = time.perf_counter()
        names = once(net, clock)
        net.device.synchronize()
        for name, ms in zip(names, clock.take(), strict=True):
            totals[name] = totals.get(name, 0.0) + ms
        _log.info("Iteration: %d forward-backward time: %.6g ms.", i + 1, (time.perf_counter() - begun) * 1e3)
    total = (time.perf_counter() - start) * 1e3
    _report(net, totals, total, iterations, before)


def _report(net: Net, totals: dict, total: float, iterations: int, before: tuple[int, int]) -> None:
    _log.info("Average time per layer: ")
    sums = {"forward": 0.0, "backward": 0.0}
    for node in net.graph.nodes:
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


def _iteration(net: Net, clock: _Clock) -> list:
    net.memory.timer = clock.mark
    try:
        net.iteration(True, key="time")
    finally:
        net.memory.timer = None
    return _labels(net, "time")


def _forward(net: Net, clock: _Clock) -> list:
    net.memory.timer = clock.mark
    try:
        net.test_forward()
    finally:
        net.memory.timer = None
    return _labels(net, "test")


def _labels(net: Net, key: str) -> list[tuple[int, str]]:
    """(layer, direction) of every step of a program."""
    return [(s.node, "forward" if s.forward else "backward") for s in net.memory.steps(key)]
