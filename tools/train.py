"""Caffe's python/train.py: train on one or several GPUs, one process each, through the Python interface.

python tools/train.py --solver solver.prototxt --gpus 0 1 [--snapshot run_iter_1000.solverstate] [--timing]

`pycaffe-lms train -gpu 0,1` does the same with all of its flags; this is how it is done from Python. The solver's type
is SGD, whatever the file says. --timing logs, at every display, how long layers took: they then run one by one.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import pycaffe_lms as caffe  # noqa: E402
from pycaffe_lms.errors import CaffeError, UsageError  # noqa: E402
from pycaffe_lms.parallel.launch import Rank, run_ranks  # noqa: E402


class LayerTimes:
    """Milliseconds per layer, forward and backward, summed since the last report."""

    def __init__(self, solver):
        self._solver, net = solver, solver.net
        self._names = [str(name) for name in net._layer_names]
        self._times = {way: [0.0] * len(self._names) for way in ("forward", "backward")}
        self._timer = caffe.Timer()
        for way in self._times:
            getattr(net, f"before_{way}")(lambda layer: self._timer.start())
            getattr(net, f"after_{way}")(lambda layer, way=way: self._stop(way, layer))
        self._whole, self._count = caffe.Timer(), 0
        solver.add_callback(self._whole.start, self._report)

    def _stop(self, way: str, layer: int) -> None:
        self._timer.stop()
        self._times[way][layer] += self._timer.ms

    def _report(self) -> None:
        self._whole.stop()
        self._count += 1
        every = self._solver.param.display
        if not every or self._solver.iter % every:
            return
        for i, name in enumerate(self._names):
            spent = (f"{way} {times[i] / self._count:.3f} ms" for way, times in self._times.items())
            caffe.log(f"{name}: {', '.join(spent)}")
        caffe.log(f"forward, backward and sums of the last iteration: {self._whole.ms:.3f} ms")
        self._times = {way: [0.0] * len(self._names) for way in self._times}
        self._count = 0


def solve(file: str, snapshot: str, gpus: Sequence[int], timing: bool, rank: Rank) -> int:
    """In a process of its own: train as one rank."""
    caffe.init_log(0 if rank.index == 0 else 1, True)
    caffe.set_device(gpus[rank.index])
    caffe.set_mode_gpu()
    caffe.set_solver_count(rank.count)
    caffe.set_solver_rank(rank.index)
    caffe.set_multiprocess(True)
    solver = caffe.SGDSolver(file)
    if snapshot:
        solver.restore(snapshot)
    nccl = caffe.NCCL(solver, rank.place)
    nccl.bcast()
    if timing and rank.index == 0:
        LayerTimes(solver)
    solver.add_callback(nccl)
    if solver.param.layer_wise_reduce:
        solver.net.after_backward(nccl)
    solver.step(solver.param.max_iter - solver.iter)
    nccl.close()
    return 0


def main(argv: Sequence[str] | None = None) -> int:
    """Start a process per GPU; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--solver", required=True, help="solver prototxt")
    parser.add_argument("--snapshot", default="", help=".solverstate to go on from")
    parser.add_argument("--gpus", type=int, nargs="+", default=[0], help="numbers of the GPUs")
    parser.add_argument("--timing", action="store_true", help="log how long layers take")
    args = parser.parse_args(argv)
    try:
        if len(set(args.gpus)) < len(args.gpus):
            raise UsageError(f"--gpus {' '.join(map(str, args.gpus))}: one is listed twice")
        work = (args.solver, args.snapshot, args.gpus, args.timing)
        return run_ranks(solve, work, caffe.NCCL.new_uid(), [f"GPU {gpu}" for gpu in args.gpus])
    except CaffeError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code


if __name__ == "__main__":
    sys.exit(main())
