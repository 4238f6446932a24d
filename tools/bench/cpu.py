"""Forward and backward of image nets on the CPU, beside PyTorch: the same net, weights and pictures, in one process.

python tools/bench/cpu.py --net alexnet resnet-50 --rounds 10 --threads 2 --json out.json
python tools/bench/cpu.py --net googlenet --prototxt googlenet=path/to/train_val.prototxt
python tools/bench/cpu.py --net alexnet --no_torch --layers      # our layers one by one

Both run in turn, round by round; the ratio is of the least wall times. CPU time is that of all threads.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import sys
import time
from pathlib import Path

SIZE = {"alexnet": 227}


def arguments():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--net", nargs="+", default=["alexnet", "resnet-50"], help="folders of models/, or named prototxts")
    p.add_argument("--prototxt", nargs="*", default=[], metavar="NAME=FILE", help="prototxts from elsewhere")
    p.add_argument("--batch", type=int, default=10)
    p.add_argument("--rounds", type=int, default=10)
    p.add_argument("--threads", type=int, default=2)
    p.add_argument("--json", type=Path)
    p.add_argument("--no_torch", action="store_true", help="ours only")
    p.add_argument("--layers", action="store_true", help="least time of each of our layers")
    return p.parse_args()


ARGS = arguments()
for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):  # before NumPy is imported
    os.environ[variable] = str(ARGS.threads)

import numpy as np  # noqa: E402

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from pycaffe_lms.formats.prototxt.parser import read_net  # noqa: E402
from pycaffe_lms.net.net import Net  # noqa: E402
from pycaffe_lms.net.tuning import Tuning  # noqa: E402
from pycaffe_lms.proto import caffe_pb2  # noqa: E402


def message(name: str, batch: int, *, dropout: bool = True):
    """The training net with Input layers of `batch` pictures in place of its data layers."""
    files = dict(pair.split("=", 1) for pair in ARGS.prototxt)
    source = read_net(files.get(name) or ROOT / "models" / name / "train_val.prototxt").message
    net = caffe_pb2.NetParameter(name=source.name)
    size = SIZE.get(name, 224)
    for top, shape in (("data", (batch, 3, size, size)), ("label", (batch,))):
        layer = net.layer.add(name=top, type="Input", top=[top])
        layer.input_param.shape.add(dim=shape)
    for layer in source.layer:
        if layer.type in ("Data", "DummyData", "ImageData", "Accuracy"):
            continue
        kept = net.layer.add()
        kept.CopyFrom(layer)
        if layer.type == "Dropout" and not dropout:
            kept.dropout_param.dropout_ratio = 0.0
    return net


def ours(name: str, batch: int, **options) -> Net:
    net = Net(message(name, batch, **options), 0, seed=1, tuning=Tuning())  # as a solver runs it
    rng = np.random.default_rng(2)
    net.blobs["data"].data = 50 * rng.standard_normal(net.blobs["data"].shape, dtype=np.float32)
    net.blobs["label"].data = rng.integers(0, 1000, batch)
    return net


def theirs(net: Net):
    """(module, data, label) of PyTorch, with the weights and inputs of our net."""
    import torch
    from torch_net import TorchNet

    torch.set_num_threads(ARGS.threads)
    params = {name: [np.asarray(b.data) for b in blobs] for name, blobs in net.params.items()}
    module = TorchNet([node.layer.param for node in net.graph.nodes], params)
    data = torch.from_numpy(np.array(net.blobs["data"].data))
    return module, data, torch.from_numpy(np.array(net.blobs["label"].data)).long()


def agreement(name: str, batch: int) -> tuple[float, float, float]:
    """(our loss, theirs, distance of the gradients of all parameters in units of their norm), without dropout."""
    net = ours(name, batch, dropout=False)
    net.iteration(True, key="check")
    module, data, label = theirs(net)
    loss = module(data, label)
    loss.backward()
    apart = norm = 0.0
    for layer, tensors in module.weights.items():
        for blob, tensor in zip(net.params[layer], tensors, strict=True):
            a, b = np.asarray(blob.diff, np.float64), tensor.grad.numpy().astype(np.float64).reshape(blob.shape)
            apart, norm = apart + float(np.square(a - b).sum()), norm + float(np.square(b).sum())
    result = float(net.loss()), float(loss.detach()), (apart / norm) ** 0.5
    net.close()
    return result


def timed(run) -> tuple[float, float]:
    """(wall seconds, CPU seconds of all threads) of one call."""
    cpu, wall = time.process_time(), time.perf_counter()
    run()
    return time.perf_counter() - wall, time.process_time() - cpu


def compare(name: str) -> dict:
    result = {"net": name, "batch": ARGS.batch, "threads": ARGS.threads, "rounds": ARGS.rounds}
    if not ARGS.no_torch:
        mine, peer, gradient = agreement(name, ARGS.batch)
        result["agreement"] = {"loss": mine, "torch_loss": peer, "gradient": gradient}
        if not (abs(mine - peer) <= 1e-4 * abs(peer) and gradient < 0.05):  # ReLU and pooling turn roundings into steps
            raise SystemExit(f"{name}: our loss is {mine}, PyTorch's {peer}, the gradients are {gradient:.1e} apart")
    net = ours(name, ARGS.batch)
    runs = {"ours": lambda: net.iteration(True, key="bench")}
    if not ARGS.no_torch:
        module, data, label = theirs(net)

        def torch_step():
            module.zero_grad(set_to_none=True)
            module(data, label).backward()

        runs["torch"] = torch_step
    result["first_call_s"] = {who: timed(run)[0] for who, run in runs.items()}
    times = {who: [] for who in runs}
    for _ in range(ARGS.rounds):
        for who, run in runs.items():
            times[who].append(timed(run))
    for who, values in times.items():
        walls, cpus = zip(*values, strict=True)
        result[who] = {
            "median_ms": 1e3 * statistics.median(walls),
            "least_ms": 1e3 * min(walls),
            "cpu_ms": 1e3 * min(cpus),
        }
    if ARGS.layers:
        result["layers"] = layer_times(net)
    net.close()
    return result


def layer_times(net: Net) -> list[dict]:
    """Least milliseconds of every layer's forward and backward, slowest first."""
    marks: list[float] = []
    best: dict = {}
    net.memory.timer = lambda: marks.append(time.perf_counter())
    for _ in range(ARGS.rounds):
        marks.clear()
        net.iteration(True, key="bench")
        for step, a, b in zip(net.memory.steps("bench"), marks, marks[1:], strict=False):
            key = (step.node, step.forward)
            best[key] = min(best.get(key, 1e9), 1e3 * (b - a))
    net.memory.timer = None
    rows = [
        {"layer": n.name, "type": n.layer.param.type, **{w: best.get((n.index, w == "forward"), 0.0) for w in WAYS}}
        for n in net.graph.nodes
    ]
    return sorted(rows, key=lambda r: -sum(r[w] for w in WAYS))


WAYS = ("forward", "backward")


def cpu_name() -> str:
    path = Path("/proc/cpuinfo")
    lines = path.read_text().splitlines() if path.exists() else []
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor()


def versions() -> dict:
    import numba

    from pycaffe_lms.ops.cpu.onednn import library

    found = {
        "cpu": cpu_name(),
        "python": platform.python_version(),
        "numpy": np.__version__,
        "numba": numba.__version__,
        "convolutions": library.describe() or "our own kernels (pip install '.[cpu]' brings oneDNN)",
    }
    if not ARGS.no_torch:
        import torch

        found["torch"] = torch.__version__
    return found


def show(result: dict) -> None:
    print(
        f"{result['net']}, batch {result['batch']}, {result['threads']} threads, first call of ours "
        f"{result['first_call_s']['ours']:.2f} s"
    )
    if "agreement" in result:
        a = result["agreement"]
        print(f"  loss {a['loss']:.6f}, PyTorch {a['torch_loss']:.6f}; gradients {a['gradient']:.1e} apart")
    for who in ("ours", "torch"):
        if who in result:
            r = result[who]
            print(
                f"  {who:6s} median {r['median_ms']:7.1f} ms   least {r['least_ms']:7.1f} ms   "
                f"CPU {r['cpu_ms']:7.1f} ms"
            )
    if "torch" in result:
        result["ratio"] = {k: result["ours"][k] / result["torch"][k] for k in result["ours"]}
        r = result["ratio"]
        print(f"  ours / torch: median {r['median_ms']:.2f}, least {r['least_ms']:.2f}, CPU {r['cpu_ms']:.2f}")
    by_type: dict = {}
    for row in result.get("layers", []):
        sums = by_type.setdefault(row["type"], dict.fromkeys(WAYS, 0.0))
        for way in WAYS:
            sums[way] += row[way]
    for kind, sums in sorted(by_type.items(), key=lambda item: -sum(item[1].values())):
        print(f"    {kind:18s} forward {sums['forward']:7.1f}  backward {sums['backward']:7.1f} ms")
    for row in result.get("layers", [])[:25]:
        print(f"      {row['layer']:30s} {row['forward']:7.2f} {row['backward']:7.2f}")
    sys.stdout.flush()


def main() -> int:
    found = {"versions": versions(), "results": []}
    print(", ".join(f"{k} {v}" for k, v in found["versions"].items()))
    for name in ARGS.net:
        found["results"].append(compare(name))
        show(found["results"][-1])
        if ARGS.json:
            ARGS.json.write_text(json.dumps(found, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
