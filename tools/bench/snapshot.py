"""What snapshots cost a training: iterations with one every K beside iterations without, and what the loop waits.

python tools/bench/snapshot.py --model resnet-50 --batch 256 --every 25 --iterations 100 --json out.json

"iteration": mean milliseconds from one iteration's begin to the next on the device's clock, without snapshots and with.
"lost": how much longer the two iterations around a snapshot took than others, median, and as a share of an iteration.
"call": how long the training thread was in the call that writes a snapshot, median; of it, "copies" are the issue of
the copies of all values, which the device runs later: where iterations are queued ahead, none of that is lost. "written
in": from the call to whole files. The first snapshot is not counted: it takes the memory.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path
from unittest.mock import patch

from common import make_solver, versions

from pycaffe_lms.lms.config import LMSConfig, parse_size
from pycaffe_lms.solvers.snapshots import snapshot

WARMUP = 8  # convolutions are chosen, a graph is recorded


class Clock:
    """Entered around every iteration: when each began, on the device's clock where it has one."""

    def __init__(self, device):
        self.device, self.events = device, []

    @contextmanager
    def iteration(self):
        self.events.append(time.perf_counter() if self.device.is_host else self.device.timed_event())
        yield

    def take(self) -> list[float]:
        """Milliseconds from each begin to the next, since the last call."""
        events, self.events = self.events, []
        if self.device.is_host:
            return [1e3 * (b - a) for a, b in zip(events, events[1:], strict=False)]
        self.device.synchronize()
        return [self.device.elapsed_ms(a, b) for a, b in zip(events, events[1:], strict=False)]


def timed(times: list[float], function):
    """The function, which notes how many milliseconds each call takes."""

    def run(*args, **kwargs):
        start = time.perf_counter()
        try:
            return function(*args, **kwargs)
        finally:
            times.append(1e3 * (time.perf_counter() - start))

    return run


def measure(args: argparse.Namespace, folder: str) -> dict:
    """The numbers of the table."""
    budget = parse_size(args.budget, "--budget") if args.budget else None
    lms = LMSConfig(auto=args.lms == "auto", threshold_kb=int(args.lms) if args.lms.isdigit() else 0, budget=budget)
    solver = make_solver(args.model, args.batch, lms, backend=args.backend)
    clock = Clock(solver.net.device)
    solver.around_iteration = clock.iteration
    solver.param.snapshot_prefix = f"{folder}/s"
    solver.snapshots.keep = 1
    solver.step(WARMUP)
    clock.take()
    solver.step(args.iterations)
    without = clock.take()

    calls, copies, written = [], [], []
    solver.param.snapshot = args.every
    first = solver.iter
    with (
        patch.object(solver.snapshots, "write", timed(calls, solver.snapshots.write)),
        patch.object(snapshot, "copy", timed(copies, snapshot.copy)),
        patch.object(snapshot, "write", timed(written, snapshot.write)),
    ):
        solver.step(args.iterations + args.every)
    within = clock.take()[args.every :]  # the first snapshot takes memory
    times = dict(enumerate(within, first + args.every))  # of iteration k; a snapshot of k + 1 is taken at its end
    plain = statistics.median(ms for k, ms in times.items() if k % args.every < args.every - 1)
    lost = [ms + times[k + 1] - 2 * plain for k, ms in times.items() if (k + 1) % args.every == 0 and k + 1 in times]
    device = solver.net.device
    found = {
        "model": args.model,
        "batch": args.batch,
        "lms": args.lms,
        "every": args.every,
        "snapshots": len(calls),
        "bytes": sum(m.nbytes for m in {id(m): m for m in snapshot.memories(solver)}.values()),
        "iteration_ms": statistics.mean(without),
        "with_ms": statistics.mean(within),
        "lost_ms": statistics.median(lost),
        "call_ms": statistics.median(calls[1:]),
        "copies_ms": statistics.median(copies[1:]),
        "written_ms": statistics.median(written[1:]),
        "device": device.describe(),
    }
    found["lost_share"] = found["lost_ms"] / found["iteration_ms"]
    solver.close()
    return found


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="resnet-50")
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument(
        "--every",
        type=int,
        default=25,
        help="iterations between two snapshots: more than writing one takes, and at least 3",
    )
    parser.add_argument("--iterations", type=int, default=100)
    parser.add_argument("--lms", default="off", help="off, auto or a number of KB")
    parser.add_argument("--budget", default="")
    parser.add_argument("--backend", default="cuda", choices=("cuda", "cpu", "sim"))
    parser.add_argument("--folder", default=None, help="where snapshots are written (default: a temporary folder)")
    parser.add_argument("--json", type=Path, default=None)
    args = parser.parse_args()
    if args.every < 3 or args.iterations < 2 * args.every:
        parser.error("--every takes 3 or more, --iterations at least twice as many")
    with tempfile.TemporaryDirectory(dir=args.folder) as folder:
        found = measure(args, folder)
    if args.backend == "cuda":
        found["versions"] = versions()
    print(
        f"{args.model}, batch {args.batch}, a snapshot of {found['bytes'] / 2**20:.0f} MiB every {args.every} of "
        f"{args.iterations} iterations"
    )
    for label, key in (
        ("iteration without", "iteration_ms"),
        ("iteration with", "with_ms"),
        ("lost", "lost_ms"),
        ("call", "call_ms"),
        ("of it copies", "copies_ms"),
        ("written in", "written_ms"),
    ):
        print(f"{label:>18} {found[key]:10.3f} ms")
    print(f"{'lost':>18} {100 * found['lost_share']:10.3f} % of an iteration")
    if args.json is not None:
        args.json.write_text(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
