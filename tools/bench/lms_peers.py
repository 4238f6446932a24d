"""PyTorch under a memory budget: what its users would do with a net that does not fit. Run by lms.py, one per process.

plain: nothing, within the budget. memory: nothing, with all of the GPU. save_on_cpu: torch.autograd.graph.save_on_cpu
with pinned memory. offload: every saved activation of 1 MB or more goes to pinned memory on a second stream, its source
kept for five more of them, and comes back on that stream when backward asks: the method of torchtune's
OffloadActivations with streams, written here because that package is not always there.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import statistics
import sys
import time
from collections import deque

PEERS = ("plain", "memory", "save_on_cpu", "offload")
STASH = 5
LEAST_BYTES = 1 << 20


class Offload:
    """Hooks for torch.autograd.graph.saved_tensors_hooks."""

    def __init__(self, torch, parameters):
        self.torch, self.side = torch, torch.cuda.Stream()
        self.kept = {p.data_ptr() for p in parameters}
        self.stash: deque = deque()

    def pack(self, tensor):
        torch = self.torch
        if tensor.nbytes < LEAST_BYTES or not tensor.is_cuda or tensor.data_ptr() in self.kept:
            return tensor
        main = torch.cuda.current_stream()
        self.side.wait_stream(main)
        with torch.cuda.stream(self.side):
            home = torch.empty_like(tensor, device="cpu", pin_memory=True)
            home.copy_(tensor, non_blocking=True)
            done = self.side.record_event()
        self.stash.append((tensor, done))
        if len(self.stash) > STASH:
            main.wait_event(self.stash.popleft()[1])  # then its memory may be used again
        return (home,)

    def unpack(self, packed):
        torch = self.torch
        if not isinstance(packed, tuple):
            return packed
        self.stash.clear()
        main = torch.cuda.current_stream()
        with torch.cuda.stream(self.side):
            tensor = packed[0].to("cuda", non_blocking=True)
        main.wait_stream(self.side)
        tensor.record_stream(main)
        return tensor


def run(who: str, model: str, batch: int, budget: int | None, iterations: int) -> dict:
    """Median seconds of an iteration (forward, backward, SGD), channels-last, TF32, and the memory that it took."""
    import numpy as np
    import torch
    from common import dummy_net
    from torch_net import TorchNet

    from pycaffe_lms.net.net import Net

    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = True
    torch.backends.cudnn.benchmark = True
    if budget is not None and who != "memory":
        torch.cuda.set_per_process_memory_fraction(budget / torch.cuda.get_device_properties(0).total_memory)
    torch.manual_seed(1)
    ours = Net(dummy_net(model, batch), 0, fill=False)
    shapes = {name: [blob.shape for blob in blobs] for name, blobs in ours.params.items()}
    with torch.device("cuda"):
        module = TorchNet([node.layer.param for node in ours.graph.nodes], shapes).train()
    last = torch.channels_last_3d if len(ours.blobs["data"].shape) == 5 else torch.channels_last
    module = module.to(memory_format=last)
    rng = np.random.default_rng(1)
    data = torch.from_numpy(rng.standard_normal(ours.blobs["data"].shape, dtype=np.float32)).cuda()
    data = data.to(memory_format=last)
    label = torch.from_numpy(rng.integers(0, 2 if data.dim() == 5 else 1000, ours.blobs["label"].shape)).cuda()
    optimizer = torch.optim.SGD(module.parameters(), lr=0.01, momentum=0.9, weight_decay=1e-4)
    if who == "save_on_cpu":
        saving = lambda: torch.autograd.graph.save_on_cpu(pin_memory=True)  # noqa: E731
    elif who == "offload":
        hooks = Offload(torch, module.parameters())
        saving = lambda: torch.autograd.graph.saved_tensors_hooks(hooks.pack, hooks.unpack)  # noqa: E731
    else:
        saving = contextlib.nullcontext
    times = []
    for _ in range(iterations + 2):
        torch.cuda.synchronize()
        start = time.perf_counter()
        optimizer.zero_grad(set_to_none=True)
        with saving():
            loss = module(data, label)
        loss.backward()
        optimizer.step()
        torch.cuda.synchronize()
        times.append(time.perf_counter() - start)
    return {
        "seconds": statistics.median(times[2:]),
        "device_peak": torch.cuda.max_memory_allocated(),
        "loss": float(loss.detach()),
        "versions": f"PyTorch {torch.__version__}, CUDA {torch.version.cuda}",
    }


def main() -> int:
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--who", choices=PEERS, required=True)
    p.add_argument("--model", required=True)
    p.add_argument("--batch", type=int, required=True)
    p.add_argument("--budget", type=int, default=None, help="bytes")
    p.add_argument("--iterations", type=int, default=5)
    args = p.parse_args()
    print(json.dumps(run(args.who, args.model, args.batch, args.budget, args.iterations)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
