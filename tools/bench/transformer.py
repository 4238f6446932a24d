"""Training of LLaMA-type nets: ours in memory or under a budget, beside PyTorch, each in a process of its own.

python tools/bench/transformer.py --net 1.3b --batch 8 --modes memory torch:eager torch:compile
python tools/bench/transformer.py --net 1.3b --batch 8 16 --budget 8GB --modes auto --json transformer.json

All keep float32 parameters and AdamW moments, and compute on bfloat16 activations (PyTorch under autocast). Tokens and
labels are drawn once; a step is forward, backward and update. The host issues a step while the one before runs, as in
training: a time is that of --in_a_row steps up to the device's end, divided by them, and the row has the median of
--iterations. Modes: memory (all of the GPU), auto (-lms auto within --budget), torch:eager, torch:compile,
torch:deterministic (compiled, with algorithms that give the same bits in each run, as all of ours do), torch:checkpoint
(compiled, and every block made again in the backward). TFLOP/s are 6 operations for each parameter in a product and
token, and 6 T width for each block's causal attention, whatever is computed again.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple


class Size(NamedTuple):
    """A LLaMA-type net."""

    width: int
    blocks: int
    heads: int
    hidden: int  # of a block's gated unit
    words: int = 32_000

    @property
    def products(self) -> int:
        """Parameters that take part in products."""
        return self.blocks * self.width * (4 * self.width + 3 * self.hidden) + self.words * self.width

    def flops(self, batch: int, length: int) -> int:
        """Operations of a step."""
        return batch * length * 6 * (self.products + self.blocks * self.width * length)


NETS = {
    "tiny": Size(256, 2, 4, 688, 1000),
    "1.3b": Size(2048, 24, 16, 5504),
    "2.7b": Size(2560, 32, 20, 6912),
    "6.7b": Size(4096, 32, 32, 11008),
}


def net_of(size: Size, batch: int, length: int, chunks: bool = False):
    """The net as a NetParameter; its tokens and labels stay what somebody writes into them.

    chunks: the loss makes the scores of some positions at a time; the function is the same.
    """
    from pycaffe_lms import NetSpec
    from pycaffe_lms import layers as L

    shape = {"dim": [batch, length]}
    fill = {"type": "gaussian", "std": 0.02}

    def product(x, outputs):
        return L.InnerProduct(x, num_output=outputs, axis=2, bias_term=False, weight_filler=fill)

    n = NetSpec()
    n.tokens, n.targets = L.DummyData(ntop=2, shape=[shape, shape], data_filler={"type": "constant"})
    n.embedding = L.Embed(n.tokens, input_dim=size.words, num_output=size.width, bias_term=False, weight_filler=fill)
    x = n.embedding
    for i in range(size.blocks):
        normed = L.RMSNorm(x)
        q, k, v = (product(normed, size.width) for _ in range(3))
        q, k = (L.RotaryEmbedding(a, heads=size.heads) for a in (q, k))
        mixed = L.Attention(q, k, v, heads=size.heads, causal=True)
        x = L.Eltwise(x, product(mixed, size.width))
        normed = L.RMSNorm(x)
        gated = L.GatedUnit(product(normed, size.hidden), product(normed, size.hidden))
        x = L.Eltwise(x, product(gated, size.width))
        n[f"block{i}"] = x
    n.last = L.RMSNorm(x)
    if chunks:
        scores = {"num_output": size.words, "axis": 2, "bias_term": False, "weight_filler": fill}
        n.loss = L.LinearSoftmaxWithLoss(n.last, n.targets, inner_product_param=scores)
    else:
        n.scores = product(n.last, size.words)
        n.loss = L.SoftmaxWithLoss(n.scores, n.targets, softmax_param={"axis": 2})
    return n.to_proto()


def times_of(
    args, steps: Callable[[int], None], synchronize: Callable[[], None], loss: Callable[[], float]
) -> tuple[float, float, list[float]]:
    """Return the seconds of the first step, the median milliseconds of a later one, and the first three losses.

    steps: does so many steps.
    """
    seconds, losses = [], []
    for number in range(args.warmup + args.iterations):
        count = 1 if number < args.warmup else args.in_a_row
        synchronize()
        start = time.perf_counter()
        steps(count)
        synchronize()
        seconds.append((time.perf_counter() - start) / count)
        if number < 3:
            losses.append(loss())
    return seconds[0], 1e3 * statistics.median(seconds[args.warmup :]), losses


def ours(size: Size, args) -> dict:
    """Our solver."""
    import numpy as np
    from common import Tuning, caffe_pb2, get_device, versions

    from pycaffe_lms.lms.config import LMSConfig, parse_size
    from pycaffe_lms.solvers import solver_class

    param = caffe_pb2.SolverParameter(type="AdamW", base_lr=1e-4, lr_policy="fixed", max_iter=10**6, random_seed=1)
    param.weight_decay, param.snapshot_after_train = 0.1, False
    param.net_param.CopyFrom(net_of(size, args.batch[0], args.length, args.loss == "chunks"))
    device, begun = get_device(args.backend), time.perf_counter()
    budget = parse_size(args.budget, "--budget") if args.modes[0] == "auto" else None
    lms = LMSConfig(auto=True, budget=budget) if args.modes[0] == "auto" else LMSConfig()
    tuning = Tuning(pack=True, half=args.math == "bf16")
    solver = solver_class(param)(param, device=device, lms=lms, tuning=tuning)
    built = time.perf_counter() - begun
    rng, blobs = np.random.default_rng(1), solver.net.blobs
    for name in ("tokens", "targets"):
        blobs[name].data = rng.integers(0, size.words, blobs[name].shape)
    first, ms, losses = times_of(args, solver.step, device.synchronize, solver.net.loss)
    plan = solver.net.memory.plans().get("train")
    return {
        "ms": ms,
        "losses": losses,
        "memory": None if device.is_host else device.in_use(),
        "host": solver.runtime.slab.nbytes if args.modes[0] == "auto" else 0,
        "predicted_ms": 1e3 * plan.seconds if plan and plan.seconds else None,
        "built_s": built,
        "first_s": first,
        "versions": versions() if args.backend == "cuda" else device.describe(),
    }


def torch_step(size: Size, args):
    """PyTorch's step, as its users write it: a module under autocast, AdamW that is fused."""
    import torch
    from torch import nn
    from torch.nn import functional as F
    from torch.utils.checkpoint import checkpoint

    head = size.width // size.heads
    positions = torch.arange(args.length, device=args.backend, dtype=torch.float32)
    angles = torch.outer(positions, 10000.0 ** (-torch.arange(0, head, 2, device=args.backend) / head))
    cosine, sine = angles.cos(), angles.sin()

    def turn(x):
        a, b = x.chunk(2, -1)
        c, s = (t[None, :, None].to(x.dtype) for t in (cosine, sine))
        return torch.cat((a * c - b * s, b * c + a * s), -1)

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm1, self.norm2 = nn.RMSNorm(size.width, eps=1e-5), nn.RMSNorm(size.width, eps=1e-5)
            self.q, self.k, self.v, self.out = (nn.Linear(size.width, size.width, bias=False) for _ in range(4))
            self.gate, self.up = (nn.Linear(size.width, size.hidden, bias=False) for _ in range(2))
            self.down = nn.Linear(size.hidden, size.width, bias=False)

        def forward(self, x):
            normed = self.norm1(x)
            q, k, v = (p(normed).view(*x.shape[:2], size.heads, head) for p in (self.q, self.k, self.v))
            q, k, v = (a.transpose(1, 2) for a in (turn(q), turn(k), v))
            mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
            x = x + self.out(mixed.transpose(1, 2).reshape(x.shape))
            normed = self.norm2(x)
            return x + self.down(F.silu(self.gate(normed)) * self.up(normed))

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.embedding = nn.Embedding(size.words, size.width)
            self.blocks = nn.ModuleList(Block() for _ in range(size.blocks))
            self.norm = nn.RMSNorm(size.width, eps=1e-5)
            self.scores = nn.Linear(size.width, size.words, bias=False)

        def forward(self, tokens, targets):
            x = self.embedding(tokens).to(torch.bfloat16)
            for block in self.blocks:
                x = checkpoint(block, x, use_reentrant=False) if who == "checkpoint" else block(x)
            return F.cross_entropy(self.scores(self.norm(x)).flatten(0, 1), targets.flatten())

    who = args.modes[0].removeprefix("torch:")
    if who == "deterministic":
        os.environ["CUBLAS_WORKSPACE_CONFIG"] = ":4096:8"  # what PyTorch asks for then
        torch.use_deterministic_algorithms(True)
    torch.manual_seed(1)
    torch.backends.cuda.matmul.allow_tf32 = True
    with torch.device(args.backend):
        net = Net()
        for parameter in net.parameters():
            if parameter.dim() == 2:
                nn.init.normal_(parameter, std=0.02)
        tokens, targets = (torch.randint(size.words, (args.batch[0], args.length)) for _ in range(2))
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-4, weight_decay=0.1, fused=True)
    run = net if who == "eager" else torch.compile(net)

    def step():
        with torch.autocast(args.backend, torch.bfloat16):
            loss = run(tokens, targets)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return loss.detach()

    return step


def theirs(size: Size, args) -> dict:
    """PyTorch."""
    import torch

    step, loss = torch_step(size, args), 0.0

    def steps(count: int) -> None:
        nonlocal loss
        for _ in range(count):
            loss = step()

    cuda = args.backend == "cuda"
    first, ms, losses = times_of(args, steps, torch.cuda.synchronize if cuda else lambda: None, lambda: float(loss))
    return {
        "ms": ms,
        "losses": losses,
        "memory": torch.cuda.max_memory_allocated() if cuda else None,
        "first_s": first,
        "versions": f"PyTorch {torch.__version__}" + (f", {torch.cuda.get_device_name()}" if cuda else ", CPU"),
    }


def apart(args, batch: int, mode: str) -> dict:
    """Run one mode in a process of its own."""
    command = [sys.executable, str(Path(__file__).resolve()), "--child", "--net", args.net, "--batch", str(batch)]
    command += ["--modes", mode, "--budget", args.budget, "--backend", args.backend, "--math", args.math]
    command += ["--loss", args.loss]
    for name in ("length", "iterations", "warmup", "in_a_row"):
        command += [f"--{name}", str(getattr(args, name))]
    result = {"net": args.net, "batch": batch, "length": args.length, "mode": mode, "math": args.math}
    if not mode.startswith("torch:"):
        result["loss"] = args.loss
    result["budget"] = args.budget if mode == "auto" else None
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        said = [line for line in done.stderr.splitlines() if line[:1].strip()]
        return result | {"error": (said or ["failed"])[-1][:300], "stderr": done.stderr[-3000:]}
    return result | json.loads(done.stdout.splitlines()[-1])


def row(size: Size, found: dict) -> str:
    """A line of the table."""
    budget = found["budget"] or "-"
    first = f"| {found['net']} | {found['batch']} x {found['length']} | {found['mode']} | {budget} |"
    if "error" in found:
        return f"{first} {found['error']} | | | | |"
    seconds, tokens = found["ms"] / 1e3, found["batch"] * found["length"]
    memory = f"{found['memory'] / 2**30:.1f}" if found["memory"] else "-"
    predicted = f"{found['predicted_ms']:.0f}" if found.get("predicted_ms") else "-"
    rate = size.flops(found["batch"], found["length"]) / seconds / 1e12
    return f"{first} {found['ms']:.0f} | {predicted} | {tokens / seconds:,.0f} | {rate:.0f} | {memory} |"


def main(argv=None) -> int:
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--net", default="1.3b", choices=NETS)
    p.add_argument("--batch", type=int, nargs="+", default=[8])
    p.add_argument("--length", type=int, default=2048, help="tokens of a sequence")
    p.add_argument("--modes", nargs="+", default=["memory"])
    p.add_argument("--budget", default="8GB", help="of device memory, for auto")
    p.add_argument("--math", default="bf16", choices=("tf32", "bf16"), help="ours")
    p.add_argument(
        "--loss", default="chunks", choices=("chunks", "whole"), help="ours: scores in chunks, or all at once"
    )
    p.add_argument("--iterations", type=int, default=5, help="times of which the median is taken")
    p.add_argument("--in_a_row", type=int, default=4, help="steps of one time")
    p.add_argument("--warmup", type=int, default=6, help="steps before; -lms auto plans again in the first few")
    p.add_argument("--backend", default="cuda", choices=("cuda", "cpu"))
    p.add_argument("--json", type=Path, help="add the results to this file")
    p.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    args = p.parse_args(argv)
    size = NETS[args.net]
    if args.child:
        print(json.dumps((theirs if args.modes[0].startswith("torch:") else ours)(size, args)))
        return 0
    results = json.loads(args.json.read_text()) if args.json and args.json.exists() else []
    print(
        "| net | tokens | mode | budget | ms | predicted | tokens/s | TFLOP/s | GiB |\n" + "|---" * 9 + "|", flush=True
    )
    for batch in args.batch:
        for mode in args.modes:
            results.append(apart(args, batch, mode))
            print(row(size, results[-1]), flush=True)
            if "error" in results[-1]:
                print(results[-1]["stderr"], file=sys.stderr)
            if args.json:
                args.json.write_text(json.dumps(results, indent=1))
    for versions in dict.fromkeys(r["versions"] for r in results if "versions" in r):
        print(f"\n{versions}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
