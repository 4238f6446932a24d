"""Throughput of training under a memory budget.

python tools/bench/lms.py --model resnet-152 --batch 64 128 256 --budget 16GB
"""

from __future__ import annotations

import argparse
import gc
import json
import sys
import time

from common import LMSConfig, make_solver, versions

from pycaffe_lms.errors import CaffeError, human_bytes
from pycaffe_lms.lms.config import parse_size


def measure(model: str, batch: int, lms: LMSConfig, iterations: int) -> dict:
    """Median iteration after two for warming up; bytes copied per iteration; memory."""
    start = time.perf_counter()
    solver = make_solver(model, batch, lms)
    built = time.perf_counter() - start
    times = []
    for i in range(iterations + 2):
        begin = time.perf_counter()
        solver.step(1)
        solver.runtime.device.synchronize()
        times.append(time.perf_counter() - begin)
        if i == 1:
            before = (solver.runtime.stats.bytes_in, solver.runtime.stats.bytes_out)
    median = sorted(times[2:])[iterations // 2]
    runtime, plan = solver.runtime, solver.net.memory.plans().get("train")
    result = {
        "model": model,
        "batch": batch,
        "seconds": median,
        "images_per_s": batch / median,
        "loss": solver.net.loss(),
        "bytes_in": (runtime.stats.bytes_in - before[0]) / iterations,
        "bytes_out": (runtime.stats.bytes_out - before[1]) / iterations,
        "resident": runtime.resident_bytes,
        "workspace": runtime.workspace_bytes,
        "arena": plan.arena_bytes if plan else 0,
        "max_live": plan.live_bytes if plan else 0,
        "host": runtime.slab.nbytes,
        "device_peak": runtime.device.in_use(),
        "build_s": built,
    }
    solver.close()
    runtime.close()
    return result


def main() -> int:
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--model", default="resnet-152")
    p.add_argument("--batch", type=int, nargs="+", default=[64])
    p.add_argument("--budget", default=None, help="such as 16GB")
    p.add_argument("--lms", type=int, default=1000, help="KB; 0: off")
    p.add_argument("--frac", type=float, default=0.0)
    p.add_argument("--ahead", type=int, default=LMSConfig().ahead)
    p.add_argument("--host", default=None, help="most pinned host memory")
    p.add_argument("--iterations", type=int, default=5)
    p.add_argument("--json", default=None, help="also write the results to this file")
    args = p.parse_args()
    size = lambda text, flag: None if text is None else parse_size(text, flag)  # noqa: E731
    lms = LMSConfig(args.lms, args.frac, size(args.budget, "--budget"), args.ahead, 0, size(args.host, "--host"))
    print(versions())
    results = []
    for batch in args.batch:
        try:
            r = measure(args.model, batch, lms, args.iterations)
        except CaffeError as error:
            print(f"{args.model} batch {batch}: {error}", flush=True)
            continue
        results.append(r)
        print(
            f"{args.model} batch {batch}: {r['images_per_s']:.1f} images/s ({r['seconds'] * 1e3:.0f} ms), "
            f"in {human_bytes(r['bytes_in'])} out {human_bytes(r['bytes_out'])} an iteration, device "
            f"{human_bytes(r['device_peak'])} (resident {human_bytes(r['resident'])}, workspace "
            f"{human_bytes(r['workspace'])}, arena {human_bytes(r['arena'])}, max live {human_bytes(r['max_live'])}), "
            f"host {human_bytes(r['host'])}, built in {r['build_s']:.1f} s, loss {r['loss']:.4g}",
            flush=True,
        )
        gc.collect()
    if args.json:
        with open(args.json, "w") as out:
            json.dump({"versions": versions(), "lms": repr(lms), "results": results}, out, indent=1)
    return 0


if __name__ == "__main__":
    sys.exit(main())
