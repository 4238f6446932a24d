"""Training in memory beside PyTorch: the same nets and batches, one GPU, float32 with TF32, pictures on the device.

python tools/bench/incore.py --json incore.json                                  # ours, eager, channels-last
python tools/bench/incore.py --nets resnet-152:256 --compile --json incore.json  # compiled too, into the same table
python tools/bench/incore.py --nets resnet-50:16 --peers                         # ours alone
python tools/bench/incore.py --peers compile --math bf16 --json bf16.json       # hidden activations as bfloat16

An iteration is forward, backward and the SGD update with momentum and weight decay; its time is the median after some
to warm up, each up to the device's end. "host ms" is what issuing an iteration takes, without waiting for the device.
Memory: ours, what is taken from the device's pool (workspace too); PyTorch's, torch.cuda.max_memory_allocated. Every
net and runner has a process of its own. What fails is in the table, with the reason.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import time
from pathlib import Path

from incore_table import OURS, PEERS, load, markdown, merge, save, short, with_ratios

NETS = ("resnet-152:256", "resnet-50:256", "resnet-50:16", "vgg-16:128", "alexnet:1024", "googlenet:256")
COMPILED = ("compile", "compile_graphs")


def ours(net: str, batch: int, warmup: int, iterations: int, backend: str, half: bool = False) -> dict:
    """Our solver. Reading the loss after an iteration is part of it."""
    from common import LMSConfig, make_solver, versions

    begun = time.perf_counter()
    solver = make_solver(net, batch, LMSConfig(), backend=backend, half=half)
    device = solver.runtime.device
    times, first = _times(lambda: solver.step(1), device.synchronize, warmup, iterations, begun)
    # The solver reads the loss, which waits for the device; to see what issuing takes, run what it runs before that.
    key, start, tail = solver.updates.kinds()[0]
    issue = _issue_times(lambda: solver.net.iteration(start, tail, key=key), device.synchronize, iterations)
    on_gpu = not device.is_host
    result = {
        "ms": statistics.median(times),
        "least_ms": min(times),
        "issue_ms": statistics.median(issue),
        "first_s": first,
        "loss": solver.net.loss(),
        "memory": device.in_use() if on_gpu else None,
        "reserved": device.pool.total_bytes() if hasattr(device, "pool") else None,
        "versions": versions() if backend == "cuda" else device.describe(),
    }
    solver.close()
    return result


def peer(net: str, batch: int, warmup: int, iterations: int, backend: str, who: str, half: bool = False) -> dict:
    """PyTorch as its users run it; half: under autocast to bfloat16, with float32 parameters as ours."""
    import numpy as np
    import torch
    from common import dummy_net
    from torch_net import TorchNet, VisionTransformer

    from pycaffe_lms.net.net import Net

    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = True
    torch.backends.cudnn.benchmark = True
    torch.manual_seed(1)
    cuda, begun = backend == "cuda", time.perf_counter()
    ours = Net(dummy_net(net, batch), 0, fill=False)
    shapes = {name: [blob.shape for blob in blobs] for name, blobs in ours.params.items()}
    with torch.device(backend):
        layers = [node.layer.param for node in ours.graph.nodes]
        attends = any(layer.type == "Attention" for layer in layers)
        module = (VisionTransformer if attends else TorchNet)(layers, shapes).train()
    rng = np.random.default_rng(1)
    data = torch.from_numpy(rng.standard_normal(ours.blobs["data"].shape, dtype=np.float32)).to(backend)
    scores = next(n.bottom[0] for n in (node.layer.param for node in ours.graph.nodes) if n.type == "SoftmaxWithLoss")
    shape = ours.blobs["label"].shape
    label = torch.from_numpy(rng.integers(0, ours.blobs[scores].shape[1], shape)).to(backend)
    if who != "eager":
        module, data = (x.to(memory_format=torch.channels_last) for x in (module, data))
    optimizer = torch.optim.SGD(module.parameters(), lr=0.01, momentum=0.9, weight_decay=1e-4)
    modes = {"compile": "default", "compile_graphs": "reduce-overhead"}
    run = torch.compile(module, mode=modes[who]) if who in modes else module
    losses = []

    def step():
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast(backend, torch.bfloat16, enabled=half):
            loss = run(data, label)
        loss.backward()
        optimizer.step()
        losses[:] = [loss.detach()]

    synchronize = torch.cuda.synchronize if cuda else lambda: None
    times, first = _times(step, synchronize, warmup, iterations, begun)
    peak = torch.cuda.max_memory_allocated() if cuda else None
    issue = _issue_times(step, synchronize, iterations)
    name = f"{torch.cuda.get_device_name()}, CUDA {torch.version.cuda}" if cuda else "CPU"
    return {
        "ms": statistics.median(times),
        "least_ms": min(times),
        "issue_ms": statistics.median(issue),
        "first_s": first,
        "loss": float(losses[0]),
        "memory": peak,
        "reserved": torch.cuda.max_memory_reserved() if cuda else None,
        "versions": f"{name}, PyTorch {torch.__version__}",
    }


def _times(step, synchronize, warmup: int, iterations: int, begun: float) -> tuple[list[float], float]:
    """(milliseconds of each iteration, seconds from `begun` to the end of the first one)."""
    times, first = [], 0.0
    for i in range(warmup + iterations):
        synchronize()
        start = time.perf_counter()
        step()
        synchronize()
        times.append(1e3 * (time.perf_counter() - start))
        if i == 0:
            first = time.perf_counter() - begun
    return times[warmup:], first


def _issue_times(step, synchronize, iterations: int) -> list[float]:
    """Milliseconds until the host has issued an iteration, the device being idle before."""
    times = []
    for _ in range(iterations):
        synchronize()
        start = time.perf_counter()
        step()
        times.append(1e3 * (time.perf_counter() - start))
    synchronize()
    return times


def child(args) -> dict:
    """Run one runner on one net in this process."""
    name, batch = _net(args.nets[0])
    size = (name, batch, args.warmup, args.iterations, args.backend)
    half = args.math == "bf16"
    return ours(*size, half) if args.child == OURS else peer(*size, args.child, half)


def apart(args, net: str, who: str) -> dict:
    """Run one runner on one net in a process of its own."""
    python = sys.executable if who == OURS else args.torch_python
    command = [python, str(Path(__file__).resolve()), "--child", who, "--nets", net, "--backend", args.backend]
    command += ["--warmup", str(args.warmup), "--iterations", str(args.iterations), "--math", args.math]
    name, batch = _net(net)
    result = {"net": name, "batch": batch, "who": who}
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=args.limit)
    except subprocess.TimeoutExpired:
        return result | {"error": f"longer than {args.limit} s"}
    if done.returncode:
        said = [line for line in done.stderr.splitlines() if line.strip()]
        return result | {"error": _reason(said) or f"exit code {done.returncode}", "stderr": said[-15:]}
    return result | json.loads(done.stdout.splitlines()[-1])


def _reason(said: list[str]) -> str:
    """The line of a traceback that names the error, or the last line."""
    named = [line for line in said if line[:1].strip() and ("Error" in line or "OutOf" in line)]
    return (named or said or [""])[-1]


def _net(text: str) -> tuple[str, int]:
    name, _, batch = text.partition(":")
    if not batch.isdigit() or int(batch) < 1:
        raise SystemExit(f"--nets {text}: write NAME:BATCH, such as resnet-50:256")
    return name, int(batch)


def arguments(argv=None):
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument(
        "--nets", nargs="+", default=list(NETS), metavar="NAME:BATCH", help="of models/, with a softmax loss"
    )
    p.add_argument("--peers", nargs="*", default=None, choices=list(PEERS), help="default: eager channels_last")
    p.add_argument("--compile", action="store_true", help="the compiled peers too; they take minutes to compile")
    p.add_argument("--no_ours", action="store_true", help="peers only; ours are in the JSON file already")
    p.add_argument("--iterations", type=int, default=10)
    p.add_argument("--warmup", type=int, default=5)
    p.add_argument("--limit", type=int, default=560, metavar="S", help="most seconds for one net and runner")
    p.add_argument("--json", type=Path, help="add the results to this file, and show all that are in it")
    p.add_argument("--torch_python", default=sys.executable, help="the interpreter that has PyTorch")
    p.add_argument("--backend", default="cuda", choices=("cuda", "cpu"))
    p.add_argument("--math", default="tf32", choices=("tf32", "bf16"), help="keep bf16 in a JSON file of its own")
    p.add_argument("--child", default="", help=argparse.SUPPRESS)
    args = p.parse_args(argv)
    if args.peers is None:
        args.peers = [who for who in PEERS if who not in COMPILED]
    args.peers += [who for who in COMPILED if args.compile and who not in args.peers]
    for net in args.nets:
        _net(net)
    return args


def main(argv=None) -> int:
    args = arguments(argv)
    if args.child:
        print(json.dumps(child(args)))
        return 0
    results = load(args.json) if args.json else []
    for net in args.nets:
        for who in ([] if args.no_ours else [OURS]) + args.peers:
            found = apart(args, net, who)
            results = with_ratios(merge(results, [found]))
            said = f"{found['ms']:.1f} ms, issued in {found['issue_ms']:.1f}" if "ms" in found else found["error"]
            print(f"{net} {who}: {said if 'ms' in found else short(said)}", file=sys.stderr, flush=True)
            if args.json:
                save(args.json, results)
    print(markdown(results))
    for versions in dict.fromkeys(r["versions"] for r in results if "versions" in r):
        print(f"\n{versions}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
