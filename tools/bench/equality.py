"""Bit-for-bit: train ResNet-50 with Large Model Support off and on, compare every loss and every parameter.

python tools/bench/equality.py [--model resnet-50] [--batch 32] [--iterations 20]
"""

from __future__ import annotations

import argparse
import gc
import hashlib
import sys
import time

from common import LMSConfig, make_solver, versions

from pycaffe_lms.errors import human_bytes

CONFIGS = {
    "off": LMSConfig(),
    "-lms 1000": LMSConfig(threshold_kb=1000),
    "-lms 1000 -lms_frac 0.4": LMSConfig(threshold_kb=1000, frac=0.4, budget=8 << 30),
    "-lms auto -lms_budget 2GB": LMSConfig(auto=True, budget=2 << 30),
    "-lms auto -lms_budget 1GB": LMSConfig(auto=True, budget=1 << 30),
    "-lms 1 -lms_recompute on": LMSConfig(threshold_kb=1, budget=2 << 30, recompute=True),
    "-lms 1": LMSConfig(threshold_kb=1, budget=2 << 30),
    "-lms 1 -lms_ahead 0": LMSConfig(threshold_kb=1, ahead=0),
    "-lms 1000 -lms_ahead 1": LMSConfig(threshold_kb=1000, ahead=1),
}


def run(model: str, batch: int, iterations: int, lms: LMSConfig) -> dict:
    """Losses, a digest of all parameters, and what LMS did."""
    solver = make_solver(model, batch, lms)
    first = solver.net.memory.plans().get("train")  # -lms auto plans once more
    losses, start = [], time.perf_counter()
    for _ in range(iterations):
        solver.step(1)
        losses.append(solver.net.loss())
    seconds = time.perf_counter() - start
    digest = hashlib.sha256()
    for blob in solver.net.learnable_params:
        digest.update(blob.read_data().tobytes())
    plan = solver.net.memory.plans().get("train")
    stats = solver.runtime.stats
    if plan is not None:
        most = max(first.held_bytes, plan.held_bytes)
        assert stats.held_peak <= most <= max(first.arena_bytes, plan.arena_bytes), "more than the plan said"
    result = {
        "losses": losses,
        "digest": digest.hexdigest(),
        "seconds": seconds,
        "held": stats.held_peak,
        "planned": plan.held_bytes if plan else 0,
        "in": stats.bytes_in / iterations,
        "out": stats.bytes_out / iterations,
    }
    solver.close()
    solver.runtime.close()
    del solver
    gc.collect()
    return result


def main() -> int:
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("--model", default="resnet-50")
    p.add_argument("--batch", type=int, default=32)
    p.add_argument("--iterations", type=int, default=20)
    args = p.parse_args()
    print(versions())
    print(f"{args.model}, batch {args.batch}, {args.iterations} iterations")
    first, failed = None, False
    for name, lms in CONFIGS.items():
        r = run(args.model, args.batch, args.iterations, lms)
        first = first or r
        same = r["losses"] == first["losses"] and r["digest"] == first["digest"]
        failed |= not same
        print(
            f"{name:<26} {'EQUAL' if same else 'DIFFERENT'}  loss {r['losses'][0]:.9g} -> {r['losses'][-1]:.9g}  "
            f"parameters {r['digest'][:16]}  {r['seconds']:.1f} s  managed on device {human_bytes(r['held'])} "
            f"(plan {human_bytes(r['planned'])})  in {human_bytes(r['in'])} out {human_bytes(r['out'])} an iteration",
            flush=True,
        )
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
