"""How near to the copy bandwidth of a GPU the fused normalisation comes: ResNet-152's shapes, in both memory layouts.

    python tools/bench/fused_norm.py                batch 256
    python tools/bench/fused_norm.py --batch 32

Forward is the batch's statistics, then normalisation, scale, bias and ReLU; `+` rows add a residual, and their backward
masks the top's gradient where it lies, for the residual's. Bytes are those that the passes read and write, every pass
from device memory. A share of 1 is the speed of a copy of one such array, measured in the same way; small arrays stay
in the cache, for the copy too. Each time is that of a CUDA graph of many calls, so the host does not count.
"""

from __future__ import annotations

import argparse
import sys

import numpy as np
from common import versions

from pycaffe_lms.backend import cuda
from pycaffe_lms.ops import load_ops
from pycaffe_lms.ops.records import (
    Affine,
    AffineGradients,
    BatchNorm,
    FusedNormGradients,
    Grid,
    Moments,
    Rectified,
    RunningSums,
)
from pycaffe_lms.ops.sum_parts import fused_norm_work

SHAPES = [  # channels, height and width, whether a residual is added
    *((64, 112, False), (64, 56, False), (256, 56, False), (256, 56, True)),
    *((128, 56, False), (128, 28, False), (512, 28, False), (512, 28, True)),
    *((256, 28, False), (256, 14, False), (1024, 14, False), (1024, 14, True)),
    *((512, 14, False), (512, 7, False), (2048, 7, False), (2048, 7, True)),
]
CALLS, ROUNDS = 10, 7


def seconds(run) -> float:
    """Of one call: the median over several launches of a graph of `CALLS` calls."""
    cupy, found = cuda.require(), []
    stream = cupy.cuda.Stream(non_blocking=True)
    cupy.cuda.Device().synchronize()
    with stream:
        run(stream)  # compiled here, not within the graph
        stream.synchronize()
        stream.begin_capture()
        for _ in range(CALLS):
            run(stream)
        graph = stream.end_capture()
        for k in range(ROUNDS + 2):
            start, end = cupy.cuda.Event(), cupy.cuda.Event()
            start.record(stream)
            graph.launch(stream)
            end.record(stream)
            end.synchronize()
            if k >= 2:
                found.append(cupy.cuda.get_elapsed_time(start, end) / 1e3 / CALLS)
    return float(np.median(found))


class Case:
    """One shape's arrays, and its passes."""

    def __init__(self, ops, n, c, s, residual):
        cupy = cuda.require()
        self.ops, self.rule, self.residual = ops, BatchNorm(Grid(n, c, s), 1e-5, 0.9), residual
        rng = cupy.random.default_rng(1)
        self.x, self.dy = (rng.standard_normal(n * c * s, dtype=np.float32) for _ in range(2))
        self.r = rng.standard_normal(n * c * s, dtype=np.float32) if residual else None
        self.y, self.dx = cupy.empty_like(self.x), cupy.empty_like(self.x)
        self.channel = {k: cupy.ones(c, np.float32) for k in ("mean", "inv_std", "gamma", "beta", "dgamma", "dbeta")}
        self.running = [cupy.ones(c, np.float32), cupy.ones(c, np.float32), cupy.ones(1, np.float32)]
        self.work = cupy.empty(fused_norm_work(n, c, s), np.float32)

    def copy(self, stream):
        runtime = cuda.require().cuda.runtime
        runtime.memcpyAsync(self.y.data.ptr, self.x.data.ptr, self.x.nbytes, 3, stream.ptr)

    def statistics(self, stream):
        k = self.channel
        moments, running = Moments(k["mean"], k["inv_std"]), RunningSums(*self.running)
        self.ops.batch_norm_statistics(self.x, moments, running, self.work, self.rule)

    def forward(self, stream):
        mean, inv_std, *affine = (self.channel[k] for k in ("mean", "inv_std", "gamma", "beta"))
        self.statistics(stream)
        values = self.x, self.r, self.y, Moments(mean, inv_std), Affine(*affine)
        self.ops.fused_norm.forward(*values, True, self.rule.grid)

    def backward(self, stream):
        mean, inv_std, gamma, beta, *gradients = self.channel.values()
        channel = Moments(mean, inv_std), Affine(gamma, beta)
        y, dr = (self.y, self.dy) if self.residual else (None, None)
        results = FusedNormGradients(self.dx, dr, AffineGradients(*gradients))
        self.ops.fused_norm.backward(self.x, self.dy, results, Rectified(y), *channel, self.work, self.rule)


def main() -> int:
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--batch", type=int, default=256)
    args = p.parse_args()
    ops = load_ops("cuda")
    print(f"{versions()}\nbatch {args.batch}, float32\n")
    print("| shape | layout | MB | copy GB/s | statistics us | share | forward us | share | backward us | share |")
    print("|---|---|---:|---:|---:|---:|---:|---:|---:|---:|")
    for c, side, residual in SHAPES:
        for layout in ("NCHW", "channels-last"):
            space = side * side
            size = (args.batch, c, space) if layout == "NCHW" else (args.batch * space, c, 1)
            case = Case(ops, *size, residual)
            nbytes = case.x.nbytes
            speed = 2 * nbytes / seconds(case.copy)
            cells = []
            for run, arrays in (
                (case.statistics, 1),
                (case.forward, 4 if residual else 3),
                (case.backward, 7 if residual else 5),
            ):
                took = seconds(run)
                cells.append(f"{took * 1e6:.1f} | {arrays * nbytes / took / speed:.2f}")
            name = f"{c} x {side} x {side}{' +' if residual else ''}"
            print(f"| {name} | {layout} | {nbytes / 1e6:.0f} | {speed / 1e9:.0f} | {' | '.join(cells)} |", flush=True)
            del case
            cuda.require().get_default_memory_pool().free_all_blocks()
    return 0


if __name__ == "__main__":
    sys.exit(main())
