"""Pictures in, outputs out: `net.forward()` as a pycaffe user calls it, beside torchvision's net of the same name.

python tools/bench/inference.py                                                  # these nets, batches 1 and 8
python tools/bench/inference.py --nets resnet-50 --batch 1 8 32 --json inference.json
python tools/bench/inference.py --math bf16                                      # hidden activations as bfloat16
python tools/bench/inference.py --backend cpu --nets lenet --batch 1 --peers     # ours alone, on the CPU

A call copies a batch from the host, runs the net and copies its output back; its time is the median after some to warm
up. Weights are as fillers leave them. ours: with a recording, from the third call on; steps: without one, as
Tuning(graph=False) asks for; optimised: built with optimise=True. eager and graph: PyTorch in inference mode, layer by
layer and as a CUDA graph captured by hand; TF32 where we use it, with --math bf16 the whole net in bfloat16.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
from common import ROOT, versions

import pycaffe_lms as caffe
from pycaffe_lms.backend import get_device
from pycaffe_lms.formats.prototxt.parser import parse_net
from pycaffe_lms.net.tuning import Tuning

PEERS = ("eager", "graph")
NETS = {
    "resnet-50": "resnet50",
    "resnet-152": "resnet152",
    "vgg-16": "vgg16",
    "googlenet": "googlenet",
    "mobilenet-v2": "mobilenet_v2",
    "densenet-121": "densenet121",
}


def input_shape(model: str, batch: int) -> tuple[int, ...]:
    """Of the model's first input."""
    net = parse_net((ROOT / "models" / model / "deploy.prototxt").read_text(), model).message
    return (batch, *net.layer[0].input_param.shape[0].dim[1:])


def ours(model: str, shape: tuple[int, ...], backend: str, who: str, half: bool) -> Callable[[np.ndarray], object]:
    """What runs a batch."""
    path, device = str(ROOT / "models" / model / "deploy.prototxt"), get_device(backend)
    if who == "optimised":
        with tempfile.TemporaryDirectory() as folder:
            weights = str(Path(folder) / "weights.caffemodel")
            caffe.Net(path, caffe.TEST).save(weights)
            tuning = Tuning(pack=True, half=half)
            net = caffe.Net(path, caffe.TEST, weights=weights, device=device, optimise=True, tuning=tuning)
    else:
        tuning = replace(caffe.Net.tuning_by_hand, graph=who == "ours", half=half)
        net = caffe.Net(path, caffe.TEST, device=device, tuning=tuning)
    blob = net.blobs[net.inputs[0]]
    blob.reshape(*shape)

    def run(pictures):
        blob.data[...] = pictures
        return next(iter(net.forward().values()))

    return run


def peer(model: str, shape: tuple[int, ...], backend: str, who: str, half: bool) -> Callable[[np.ndarray], object]:
    """What runs a batch."""
    import torch
    import torchvision

    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = True
    torch.backends.cudnn.benchmark = True
    more = {"init_weights": False} if model == "googlenet" else {}
    dtype = torch.bfloat16 if half else torch.float32
    net = getattr(torchvision.models, NETS[model])(**more).to(backend, dtype).eval()
    if who == "eager":

        def run(pictures):
            with torch.inference_mode():
                return net(torch.from_numpy(pictures).to(backend, dtype)).float().cpu().numpy()

        return run
    with torch.inference_mode():
        data = torch.zeros(shape, device=backend, dtype=dtype)
        aside = torch.cuda.Stream()
        with torch.cuda.stream(aside):
            for _ in range(3):
                net(data)
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            out = net(data)

    def run(pictures):
        with torch.inference_mode():
            data.copy_(torch.from_numpy(pictures))
            graph.replay()
            return out.float().cpu().numpy()

    return run


def milliseconds(run: Callable[[np.ndarray], object], shape: tuple[int, ...], warmup: int, calls: int) -> float:
    """The median of a call."""
    pictures = np.random.default_rng(1).standard_normal(shape, dtype=np.float32)
    times = []
    for _ in range(warmup + calls):
        start = time.perf_counter()
        run(pictures)
        times.append(1e3 * (time.perf_counter() - start))
    return statistics.median(times[warmup:])


def markdown(results: list[dict], columns: list[str]) -> str:
    """A line for each net and batch."""
    rows = list(dict.fromkeys((r["net"], r["batch"]) for r in results))
    found = {(r["net"], r["batch"], r["who"]): f"{r['ms']:.2f}" for r in results}
    lines = ["| net | batch | " + " | ".join(f"{c} ms" for c in columns) + " |", "|---|" + "---:|" * (1 + len(columns))]
    lines += [f"| {n} | {b} | " + " | ".join(found.get((n, b, c), "-") for c in columns) + " |" for n, b in rows]
    return "\n".join(lines)


def main(argv=None) -> int:
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--nets", nargs="+", default=list(NETS), help="models with a deploy.prototxt")
    p.add_argument("--batch", nargs="+", type=int, default=[1, 8])
    p.add_argument("--peers", nargs="*", default=list(PEERS), choices=PEERS)
    p.add_argument("--backend", default="cuda", choices=("cuda", "cpu", "sim"))
    p.add_argument("--math", default="tf32", choices=("tf32", "bf16"))
    p.add_argument("--warmup", type=int, default=8)
    p.add_argument("--calls", type=int, default=30)
    p.add_argument("--json", type=Path, help="write the results to this file")
    args = p.parse_args(argv)
    if args.peers and (others := [model for model in args.nets if model not in NETS]):
        p.error(f"torchvision's twin of {', '.join(others)} is not known: give --peers alone, or of {', '.join(NETS)}")
    results, columns = [], ["ours", "steps", "optimised", *args.peers]
    for model in args.nets:
        for batch in args.batch:
            shape = input_shape(model, batch)
            for who in columns:
                if who in PEERS:
                    run = peer(model, shape, args.backend, who, args.math == "bf16")
                else:
                    run = ours(model, shape, args.backend, who, args.math == "bf16")
                ms = milliseconds(run, shape, args.warmup, args.calls)
                results.append({"net": model, "batch": batch, "who": who, "ms": ms})
            print(markdown(results, columns).splitlines()[-1], file=sys.stderr, flush=True)
    print(markdown(results, columns))
    print(versions() if args.backend == "cuda" else get_device(args.backend).describe())
    if args.json:
        args.json.write_text(json.dumps(results, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
