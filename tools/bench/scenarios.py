"""PowerAI's scenarios of Large Model Support on one or several GPUs: ResNet-152, batches of 8 (A) to 256 (F) on each.

python tools/bench/scenarios.py --ranks 1 4 --json scenarios.json --seconds 480      # again, until nothing is left
python tools/bench/scenarios.py --ranks 4 --network --json scenarios.json            # four ranks on one GPU: bits
python tools/bench/scenarios.py --backend plan --ranks 1 2 4 --json scenarios.json   # predictions; needs no GPU
python tools/bench/scenarios.py --backend sim --model cifar10_resnet-20 --budget 60MB --ranks 4 --json sim.json
python tools/bench/scenarios.py --json scenarios.json --batch --plot scenarios.svg   # nothing is run

Variations: memory (no Large Model Support, all of the GPU), off (none, within the budget), a number (-lms N), tuned
(-lms N -lms_exclude M: the N of the least predicted time, and what leaves the budget of the device's memory), auto. A
row is a process per rank, which trains as `train -gpu 0,1,2,3`: every rank has images of its own, gradients are summed
beside the backward; --capture records iterations with their sums as CUDA graphs, as `train` does; without it they run
step by step. With --apart every rank trains by itself, all at the same time: a rank that is slower with sums is slower
because of them. A time is that of --iterations in a row, as `train` runs them, divided by their number: the median of
three of rank 0 after warming up; with --apart that of the slowest rank. Memory and bytes copied are those of the rank
with the most. Rows that the file has are not run again, unless --again.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

from common import ROOT, dummy_net, over_network, ranked_solver, versions  # noqa: F401  (ROOT's import path is set there)
from scenario_table import figure, markdown

from pycaffe_lms.backend import cuda, get_device
from pycaffe_lms.backend.device import Device
from pycaffe_lms.cli.bench.measure import driver_bytes, timed
from pycaffe_lms.cli.devices import clock
from pycaffe_lms.cli.views.plan_nets import PAGE, Nets, Outcome
from pycaffe_lms.errors import CaffeError, OutOfDeviceMemory, OutOfHostMemory
from pycaffe_lms.formats.atomic import atomic_write
from pycaffe_lms.formats.prototxt.parser import Parsed
from pycaffe_lms.lms.config import LMSConfig, parse_size
from pycaffe_lms.lms.cost.machine import find_machine
from pycaffe_lms.lms.cost.network import Cluster, Timeline, predict
from pycaffe_lms.log import only_warnings
from pycaffe_lms.parallel.launch import Rank, run_ranks
from pycaffe_lms.parallel.meeting import Meeting
from pycaffe_lms.parallel.nccl import NCCL
from pycaffe_lms.solvers.rules import RULES

Row = dict[str, Any]
KEY = ("backend", "model", "budget", "math", "batch", "who", "ranks", "network", "capture", "apart")
WARMUP = {"cuda": 18, "sim": 4}  # convolutions are chosen, -lms auto has measured and planned again
TUNED_KB = (1, 100, 1000, 3000, 10000, 30000)  # thresholds that are tried
WORKSPACE = 36 << 20  # bytes that a GPU's convolution is assumed to use, as `plan` does
NODE_GPUS = 8
TIMES = 3  # that are taken; the median counts
WAIT_S = 120.0  # for another rank


def settings(row: Row, memory: int) -> LMSConfig:
    """What the variation of a row means on a device with so many bytes."""
    who, budget = row["who"], row["budget"]
    if who == "memory":
        return LMSConfig()
    if who == "auto":
        return LMSConfig(auto=True, budget=budget)
    if who == "tuned":
        return LMSConfig(row["kb"], exclude=max(0, memory - budget) >> 20 << 20, budget=budget)
    return LMSConfig(0 if who == "off" else int(who), budget=budget)


# -- predictions -------------------------------------------------------------------------------------------------------
def nets(row: Row) -> Nets:
    """The net of a row, to be planned for one H200, or for the simulated device."""
    machine, half, real = find_machine("h200"), row["math"] == "bf16", row["backend"] != "sim"
    return Nets(
        Parsed(dummy_net(row["model"], row["batch"]), [], row["model"]),
        (),
        level=0,
        stages=(),
        rule=RULES["SGD"],
        machine=machine.with_math("bf16") if half else machine,
        lms=settings(row, machine.memory),
        workspace=WORKSPACE if real else None,
        half=half,
        page=PAGE if real else None,
    )


def tuned(row: Row, rows: Sequence[Row]) -> int:
    """The threshold in KB with the least predicted time, of another row or found by planning; if none fits, the least
    of all."""
    alike = ("model", "budget", "math", "batch", "who")
    for other in rows:
        if "kb" in other and all(other[k] == row[k] for k in alike):
            return other["kb"]
    first = nets(row | {"kb": TUNED_KB[0]})
    with only_warnings():
        core = first.in_core()
        found = [(nets(row | {"kb": kb}).outcome(core=core), kb) for kb in TUNED_KB]
    return min((o.refused is not None, o.seconds, kb) for o, kb in found)[2]


@lru_cache(maxsize=1)
def _plan(text: str) -> tuple[Nets, Outcome, Timeline | None]:
    """The plan of a row as JSON, and the iteration of one of several ranks; None: it does not fit."""
    made = nets(json.loads(text))
    with only_warnings():
        found = made.outcome()
        return made, found, None if found.refused else made.timeline()


def planned(row: Row) -> Row:
    """What planning predicts for all ranks, as GPUs of one machine."""
    made, found, timeline = _plan(json.dumps(row | {"ranks": 1}))
    if timeline is None:
        return {"fits": False, "error": str(found.refused).splitlines()[0]}
    prediction, plan = predict(timeline, found.seconds, Cluster(row["ranks"], NODE_GPUS, 0.0), made.machine), found.plan
    return {
        "seconds": prediction.seconds if row["ranks"] > 1 else found.seconds,
        "memory": found.device,
        "bytes_in": plan.bytes_in if plan else 0,
        "bytes_out": plan.bytes_out if plan else 0,
    }


# -- measurements ------------------------------------------------------------------------------------------------------
def work(out: str, row: Row, iterations: int, warmup: int, places: Sequence[bytes | str], rank: Rank) -> int:
    """Run one rank, and write a file of what was measured: rank 0 for all, or with `apart` each rank for itself. A rank
    that finds no memory writes a file that says so. places: where each rank meets itself, with `apart`."""
    if row["network"]:
        over_network(rank)
    number = rank.index
    index = {"index": number % cuda.device_count()} if row["backend"] == "cuda" else {}
    device = get_device(row["backend"], **index)
    if row["apart"]:
        rank = replace(rank, index=0, count=1, place=places[number])
    try:
        found = _trained(row, iterations, warmup, rank, device)
    except (OutOfDeviceMemory, OutOfHostMemory) as error:
        Path(f"{out}.{number}").write_text(str(error).splitlines()[0])
        raise
    if rank.index == 0:
        Path(f"{out}-{number}").write_text(json.dumps(found))
    return 0


def _trained(row: Row, iterations: int, warmup: int, rank: Rank, device: Device) -> list[Row]:
    """Train; return what every rank measured."""
    before = driver_bytes(device)
    solver, parallel = ranked_solver(
        row["model"],
        row["batch"],
        settings(row, device.capacity()),
        rank,
        device=device,
        capture=row["capture"],
        half=row["math"] == "bf16",
        timeout=WAIT_S,
    )
    if rank.count > 1:
        parallel.join(layer_wise=True)
    found = timed(solver, TIMES, warmup, clock(device), in_a_row=iterations)
    driver, digest = driver_bytes(device), hashlib.sha256()
    if rank.count > 1:
        parallel.copy_statistics()  # BatchNorm's averages are those of each rank until a snapshot
    for blob in solver.net.learnable_params:
        digest.update(blob.read_data().tobytes())
    mine = {
        "seconds": found.seconds,
        "bytes_in": found.bytes_in,
        "bytes_out": found.bytes_out,
        "memory": device.in_use() if driver is None else driver,
        "memory_before": before,
        "loss": float(solver.net.loss()),
        "digest": digest.hexdigest(),
        "device": device.describe(),
        "versions": versions() if driver is not None else "",
    }
    told = [json.loads(text) for text in parallel.gather(json.dumps(mine).encode())]
    parallel.close()
    solver.close()
    solver.runtime.close()
    return told


def measured(row: Row, iterations: int, warmup: int) -> Row:
    """Run a row's ranks; what they measured together, or why nothing was."""
    on_gpus, count = row["backend"] == "cuda", row["ranks"]
    names = [f"{'GPU' if on_gpus else row['backend']} {i}" for i in range(count)]
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        out = Path(folder) / "out.json"
        meetings = [stack.enter_context(Meeting()).path for _ in range(count if row["apart"] else 1)]
        try:
            places = [NCCL.new_uid() for _ in meetings] if on_gpus else meetings
            run_ranks(work, (str(out), row, iterations, warmup, places), places[0], names)
        except CaffeError as error:
            short = [path.read_text() for path in sorted(out.parent.glob("out.json.*"))]
            return {"fits": not short, "error": short[0] if short else str(error)}
        ranks = [r for path in sorted(out.parent.glob("out.json-*")) for r in json.loads(path.read_text())]
    each = [statistics.median(r["seconds"]) for r in ranks] if row["apart"] else ranks[0]["seconds"]
    return {
        "seconds": max(each) if row["apart"] else statistics.median(each),
        "each": each,
        "memory": max(r["memory"] for r in ranks),
        "memory_before": max(r["memory_before"] or 0 for r in ranks),
        "bytes_in": max(r["bytes_in"] for r in ranks),
        "bytes_out": max(r["bytes_out"] for r in ranks),
        "losses": [r["loss"] for r in ranks],
        "digests": [r["digest"] for r in ranks],
        "iterations": TIMES * iterations + warmup,
        "device": ranks[0]["device"],
        "versions": ranks[0]["versions"],
    }


# -- all rows ----------------------------------------------------------------------------------------------------------
def wanted(args: argparse.Namespace) -> Iterator[Row]:
    """Yield the rows that a command line asks for, without their results."""
    for math in args.math:
        for batch in args.batch:
            for who in args.modes:
                for ranks in args.ranks:
                    row = {"backend": args.backend, "model": args.model, "budget": args.budget, "math": math}
                    row |= {"batch": batch, "who": who, "ranks": ranks}
                    yield row | {name: getattr(args, name) and ranks > 1 for name in ("network", "capture", "apart")}


def _same(a: Row, b: Row) -> bool:
    return all(a.get(k, False) == b.get(k, False) for k in KEY)


def main(argv: Sequence[str] | None = None) -> int:
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--model", default="resnet-152", help="a folder of models/")
    p.add_argument("--batch", type=int, nargs="*", default=[8, 16, 32, 64, 128, 256], help="images of every rank")
    p.add_argument("--modes", nargs="+", default=["memory", "off", "1000", "tuned", "auto"])
    p.add_argument("--ranks", type=int, nargs="+", default=[1, 4])
    p.add_argument("--budget", type=partial(parse_size, flag="--budget"), default=16 << 30, help="such as 16GB")
    p.add_argument("--math", nargs="+", default=["tf32"], choices=("tf32", "bf16"))
    p.add_argument("--backend", choices=("cuda", "sim", "plan"), default="cuda")
    p.add_argument("--network", action="store_true", help="sums go through sockets, as between hosts; ranks share GPUs")
    p.add_argument("--capture", action="store_true", help="record iterations of several ranks with their sums")
    p.add_argument("--apart", action="store_true", help="several ranks at the same time, each by itself, without sums")
    p.add_argument("--iterations", type=int, default=10, help="in a row, for one of three times")
    p.add_argument("--warmup", type=int, help="iterations before (default: 18 on GPUs, 4 on simulated devices)")
    p.add_argument("--seconds", type=float, default=float("inf"), help="begin no row that may end later than this")
    p.add_argument("--again", action="store_true", help="run rows that the file has, too")
    p.add_argument("--json", type=Path, required=True, help="keep rows in this file, and show all that are in it")
    p.add_argument("--plot", type=Path, help="draw the rows of --backend with the most ranks")
    args = p.parse_args(argv)
    if args.apart and (args.network or args.capture or args.backend == "plan"):
        p.error("--apart has no sums: leave out --network and --capture; it is measured, --backend plan predicts")
    rows: list[Row] = json.loads(args.json.read_text()) if args.json.exists() else []
    begin, longest, left = time.monotonic(), 0.0, 0
    for row in wanted(args):
        if not args.again and any(_same(row, other) for other in rows):
            continue
        since = time.monotonic()
        if since - begin + longest > args.seconds:
            left += 1
            continue
        if row["who"] == "tuned":
            row["kb"] = tuned(row, rows)
        if args.backend == "plan":
            row |= planned(row)
        else:
            row |= measured(row, args.iterations, WARMUP[args.backend] if args.warmup is None else args.warmup)
        longest = max(longest, time.monotonic() - since)
        rows = [other for other in rows if not _same(row, other)] + [row]
        atomic_write(str(args.json), (json.dumps(rows, indent=1) + "\n").encode(), error=CaffeError)
        print(markdown([row]).splitlines()[-1], file=sys.stderr, flush=True)
    print(markdown(rows))
    if left:
        print(f"\n{left} rows are left: run the same command again.")
    if args.plot:
        figure([r for r in rows if r["backend"] == args.backend and r["model"] == args.model], args.plot)
    return 1 if any("error" in row and row.get("fits", True) for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
