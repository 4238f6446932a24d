"""How fast a net's convolutions are on a GPU: every distinct one, in both orders of the axes, beside PyTorch's.

    python tools/bench/conv.py                              ResNet-152 at batch 256
    python tools/bench/conv.py --net alexnet --batch 128 --engines
    PYCAFFE_LMS_CUDNN=heuristic python tools/bench/conv.py  with the engines that cuDNN recommends

Milliseconds (TFLOP/s) of y, dx and dw, each alone, by device events; totals count each as often as the net has it, and
dx only where the net needs it. PyTorch, if it is installed, runs channels-last with TF32 and cudnn.benchmark.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from dataclasses import replace

import numpy as np
from common import ROOT, versions

import pycaffe_lms.layers  # noqa: F401  (registers the layer types)
from pycaffe_lms.backend import cuda
from pycaffe_lms.formats.prototxt.parser import read_net
from pycaffe_lms.net.build.source import load_source
from pycaffe_lms.net.build.wiring import wire
from pycaffe_lms.ops import load_ops
from pycaffe_lms.ops.geometry import ConvGeometry

ROLES = ("y", "dx", "dw")


def convolutions(model: str, batch: int) -> Counter:
    """(ConvGeometry, whether dx is needed) -> how often models/<model>/train_dummy.prototxt has it."""
    net = read_net(ROOT / "models" / model / "train_dummy.prototxt").message
    dummy = next(layer for layer in net.layer if layer.type == "DummyData").dummy_data_param
    for shape in dummy.shape:
        shape.dim[0] = batch
    source = load_source(net, phase=0)
    graph = wire(source.message, source.lines, file=None, dtype=np.dtype(np.float32))
    found: Counter = Counter()
    for node in graph.nodes:
        if node.message.type != "Convolution":
            continue
        layer, (bottom,) = node.layer, node.bottoms
        shape, out = graph.values[bottom].shape, graph.values[node.tops[0]].shape
        g = ConvGeometry(
            shape[0],
            shape[1],
            layer.num_output,
            layer.group,
            tuple(shape[2:]),
            tuple(out[2:]),
            layer.kernel,
            layer.stride,
            layer.pad,
            layer.dilation,
        )
        found[g, node.propagate[0]] += 1
    return found


def milliseconds(cupy, run, rounds: int = 3) -> float:
    """Of one call: the least of some rounds of about 20 ms each, after one that warms up."""
    count, best = 2, float("inf")
    for _ in range(rounds + 1):
        start, end = cupy.cuda.Event(), cupy.cuda.Event()
        run()  # keeps the device busy while the others are queued
        start.record()
        for _ in range(count):
            run()
        end.record()
        end.synchronize()
        spent = cupy.cuda.get_elapsed_time(start, end) / count
        best = min(best, spent)
        count = max(2, min(100, int(20 / max(spent, 1e-3))))
    return best


def ours(ops, g: ConvGeometry):
    """(milliseconds of y, dx and dw, engines' names, seconds to plan)."""
    cupy = cuda.require()
    begin = time.perf_counter()
    plan = ops.conv.plan(g, np.dtype(np.float32), ops.workspace_limit)
    planned = time.perf_counter() - begin

    def values(*shape):
        return cupy.random.default_rng(1).standard_normal(shape, dtype=np.float32)  # only its size matters

    x, w = values(g.batch * g.channels * g.in_size), values(g.out_channels * g.rows)
    y = values(g.batch * g.out_channels * g.out_size)
    dy, dx, dw = cupy.empty_like(y), cupy.empty_like(x), cupy.empty_like(w)
    dy[...] = y
    work = cupy.empty(max(1, plan.workspace_bytes), np.uint8)
    calls = (
        lambda: ops.conv.forward(plan, x, w, None, y, work),
        lambda: ops.conv.backward_data(plan, dy, w, dx, work),
        lambda: ops.conv.backward_filter(plan, x, dy, dw, work, False),
    )
    names = plan.cudnn.engines if plan.cudnn is not None else {"all": "column matrices"}
    return [milliseconds(cupy, call) for call in calls], names, planned


def theirs(torch, g: ConvGeometry):
    """PyTorch's milliseconds of y, dx and dw."""

    def values(*shape):
        return torch.randn(shape, device="cuda").to(memory_format=torch.channels_last)

    x, w = values(g.batch, g.channels, *g.in_spatial), values(g.out_channels, g.group_channels, *g.kernel)
    dy = values(g.batch, g.out_channels, *g.out_spatial)
    steps = list(g.stride), list(g.pad), list(g.dilation)

    def backward(*mask):
        rest = (None, *steps, False, [0, 0], g.group, [*mask, False])
        return torch.ops.aten.convolution_backward(dy, x, w, *rest)

    calls = (
        lambda: torch.nn.functional.conv2d(x, w, None, *steps, g.group),
        lambda: backward(True, False),
        lambda: backward(False, True),
    )
    cupy = cuda.require()
    with cupy.cuda.ExternalStream(torch.cuda.current_stream().cuda_stream):  # where the events must be recorded
        return [milliseconds(cupy, call) for call in calls]


def pytorch():
    """PyTorch, set to what is compared; None where it is not installed."""
    try:
        import torch
    except ImportError:
        return None
    torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = True
    torch.backends.cudnn.benchmark = True
    return torch


def main() -> int:
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--net", default="resnet-152", help="a folder of models/ with a train_dummy.prototxt")
    p.add_argument("--batch", type=int, default=256)
    p.add_argument("--engines", action="store_true", help="name cuDNN's engine of every cell")
    args = p.parse_args()
    cuda.set_math("tf32")
    ops, torch, cupy = load_ops("cuda"), pytorch(), cuda.require()
    print(versions() + (f", PyTorch {torch.__version__}" if torch else ", no PyTorch") + "\n")
    rows = ["channels first", "channels last"] + ["PyTorch"] * (torch is not None)
    totals = {(row, role): 0.0 for row in rows for role in ROLES}
    planning = 0.0
    print("| convolution | times | run by | " + " | ".join(f"{role} ms (TFLOP/s)" for role in ROLES) + " |")
    print("|---|---:|---|---:|---:|---:|")
    for (g, needs_dx), times in convolutions(args.net, args.batch).items():
        flop = 2 * g.batch * g.out_channels * g.out_size * g.rows
        what = f"{g.channels}x{g.in_spatial[0]} -> {g.out_channels}, {g.kernel[0]}x{g.kernel[0]} stride {g.stride[0]}"
        for row in rows:
            names: dict = {}
            if row == "PyTorch":
                spent = theirs(torch, g)
                torch.cuda.empty_cache()
            else:
                last = replace(g, channels_last=row == "channels last")
                if last.channels_last and not ops.conv_channels_last_plan(last, np.float32):
                    print(f"| {what} | {times} | {row} | no engine | | |")
                    totals.update({(row, role): float("nan") for role in ROLES})
                    continue
                spent, names, planned = ours(ops, last)
                planning += planned
                cupy.get_default_memory_pool().free_all_blocks()
            for role, ms in zip(ROLES, spent, strict=True):
                totals[row, role] += ms * times * (needs_dx or role != "dx")
            cells = " | ".join(f"{ms:.3f} ({flop / ms / 1e9:.0f})" for ms in spent)
            print(f"| {what} | {times} | {row} | {cells} |", flush=True)
            if args.engines:
                for direction, name in names.items():
                    print(f"    {direction}: {name}")
    print("\n| all of the net's, ms | " + " | ".join(ROLES) + " | sum |\n|---|---:|---:|---:|---:|")
    for row in rows:
        spent = [totals[row, role] for role in ROLES]
        print(f"| {row} | " + " | ".join(f"{ms:.1f}" for ms in [*spent, sum(spent)]) + " |")
    print(f"\nplanning: {planning:.1f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
