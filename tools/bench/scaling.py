"""Images/s of one training on 1, 2, 4 .. GPUs of a machine, each with a batch of its own (weak scaling).

python tools/bench/scaling.py --model resnet-50 --batch 128 --gpus 1 2 4 --modes off auto --budget 16GB --json out.json

Modes: off (no Large Model Support), a number of KB (-lms N), auto. Every mode runs with gradients summed layer by
layer, beside the backward, and all at the end; --apart adds a run in which ranks exchange nothing, so that it shows
how fast these GPUs are by themselves, at the same time: an iteration of all together takes as long as the slowest
one's. --capture records iterations as CUDA graphs with the sums in them, as `train` does; without it they run step by
step, as with `-graph off`. --ctas limits the blocks, and so the multiprocessors, that a kernel of NCCL takes from the
layers (its variable NCCL_MAX_CTAS): fewer are slower, which sums beside the backward can afford. A run is a process
per GPU; an iteration is forward, backward, sums and the SGD update on images that are made once. As in `train`, the
host issues an iteration while the one before runs: a time is that of --iterations in a row, up to the device's end,
divided by their number, and what counts is rank 0's median of three such (with --apart, each rank's), after warming
up. A GPU that has run for some seconds may be slower, for its power is limited: see --warm. "efficiency" is images/s
per GPU over those of one, "of apart" images/s over those without exchange.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from common import ROOT, over_network, ranked_solver, versions  # noqa: F401  (ROOT's import path is set there)

import pycaffe_lms as caffe
from pycaffe_lms.backend import get_device
from pycaffe_lms.cli.bench.measure import timed
from pycaffe_lms.errors import CaffeError
from pycaffe_lms.lms.config import LMSConfig, parse_size
from pycaffe_lms.parallel.launch import Rank, run_ranks
from pycaffe_lms.parallel.meeting import Meeting

WARMUP = 8  # convolutions are chosen, -lms auto has measured and planned again, a graph is recorded
TIMES = 3  # that are taken; the median counts
SUMS = {True: "beside the backward", False: "at the end", None: "none, each by itself"}


def settings(mode: str, budget: str | None) -> LMSConfig:
    """What a mode means."""
    size = parse_size(budget, "--budget") if budget and mode != "off" else None
    if mode == "auto":
        return LMSConfig(auto=True, budget=size)
    return LMSConfig(0 if mode == "off" else int(mode), budget=size)


def work(out: str, args: argparse.Namespace, mode: str, layer_wise: bool | None, rank: Rank) -> int:
    """One rank, which writes what it measured. layer_wise: None: no sums."""
    if args.ctas:
        os.environ["NCCL_MAX_CTAS"] = str(args.ctas)
    if args.network:
        over_network(rank)
    index = {"index": rank.index} if args.backend == "cuda" else {}
    device = get_device(args.backend, **index)
    lms, virtual = settings(mode, args.budget), args.virtual_ranks
    solver, parallel = ranked_solver(
        args.model,
        args.batch,
        lms,
        rank,
        device=device,
        capture=args.capture,
        half=args.math == "bf16",
        virtual_ranks=virtual,
    )
    if rank.count > 1 and layer_wise is not None:
        parallel.join(layer_wise=layer_wise)
    if args.warm:
        [once] = timed(solver, 1, WARMUP, time.perf_counter).seconds
        [count] = parallel.largest([math.ceil(args.warm / once)])  # ranks take as many steps
        solver.step(count)
    times = timed(solver, TIMES, WARMUP, time.perf_counter, in_a_row=args.iterations).seconds
    found = {
        "seconds": statistics.median(times),
        "iterations": args.iterations,
        "versions": versions() if args.backend == "cuda" else args.backend,
    }
    (Path(out) / f"{rank.index}.json").write_text(json.dumps(found))
    parallel.close()
    solver.close()
    return 0


def measure(args: argparse.Namespace, gpus: int, mode: str, layer_wise: bool | None) -> dict:
    """One run, as a line of the table. layer_wise: None: no sums."""
    line = {"gpus": gpus, "mode": mode, "layer_wise": layer_wise, "batch": args.batch}
    with tempfile.TemporaryDirectory() as folder, Meeting() as meeting:
        names = [f"{args.backend} {i}" for i in range(gpus)]
        try:
            place = caffe.NCCL.new_uid() if args.backend == "cuda" else meeting.path
            run_ranks(work, (folder, args, mode, layer_wise), place, names)
        except CaffeError as error:
            return line | {"error": str(error)}
        each = [json.loads((Path(folder) / f"{rank}.json").read_text()) for rank in range(gpus)]
    seconds = [one["seconds"] for one in each]
    rate = gpus * args.batch / seconds[0] if layer_wise is not None else sum(args.batch / s for s in seconds)
    return line | each[0] | {"images_per_s": rate}


def markdown(lines: Sequence[dict]) -> str:
    """A table; efficiency is against the same mode on one GPU, the last column against GPUs that exchange nothing."""
    one = {x["mode"]: x["images_per_s"] for x in lines if x["gpus"] == 1 and "images_per_s" in x}
    apart = {(x["gpus"], x["mode"]): x.get("images_per_s") for x in lines if x["layer_wise"] is None}
    rows = ["| GPUs | LMS | sums | batch per GPU | images/s | efficiency | of apart |", "|---|---|---|---|---|---|---|"]
    for x in lines:
        sums = "-" if x["gpus"] == 1 else SUMS[x["layer_wise"]]
        if "error" in x:
            said = x["error"].splitlines()[0].replace("|", "/")
            rows.append(f"| {x['gpus']} | {x['mode']} | {sums} | {x['batch']} | {said} | | |")
            continue
        base = one.get(x["mode"])
        share = f"{x['images_per_s'] / x['gpus'] / base:.1%}" if base else ""
        alone = apart.get((x["gpus"], x["mode"]))
        of_apart = f"{x['images_per_s'] / alone:.1%}" if alone else ""
        first = f"| {x['gpus']} | {x['mode']} | {sums} | {x['batch']}"
        rows.append(f"{first} | {x['images_per_s']:.0f} | {share} | {of_apart} |")
    return "\n".join(rows)


def main(argv: Sequence[str] | None = None) -> int:
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--model", default="resnet-50", help="a folder of models/ with a train_dummy.prototxt")
    p.add_argument("--batch", type=int, default=128, help="images per GPU and iteration")
    p.add_argument("--gpus", type=int, nargs="+", default=[1, 2, 4])
    p.add_argument("--modes", nargs="+", default=["off", "auto"], help="off, auto or a number of KB")
    p.add_argument("--budget", help="device memory of the modes with LMS, such as 16GB")
    p.add_argument(
        "--virtual_ranks", type=int, help="sums in the tree of train's -virtual_ranks; as many as GPUs: what it costs"
    )
    p.add_argument("--iterations", type=int, default=20, help="in a row, for one time")
    p.add_argument("--capture", action="store_true", help="record iterations with their sums")
    p.add_argument("--math", default="tf32", choices=("tf32", "bf16"))
    p.add_argument("--ctas", type=int, help="most blocks of a kernel of NCCL (default: as NCCL chooses)")
    p.add_argument("--network", action="store_true", help="sums go through sockets, as between hosts")
    p.add_argument("--end", choices=("on", "off"), default="on", help="off: only sums beside the backward")
    p.add_argument("--apart", action="store_true", help="also run all GPUs at the same time without any exchange")
    p.add_argument("--warm", type=float, default=0.0, help="seconds of training before what is measured")
    p.add_argument("--backend", choices=("cuda", "cpu", "sim"), default="cuda")
    p.add_argument("--json", help="write the results here")
    args = p.parse_args(argv)
    lines = []
    for mode in args.modes:
        for gpus in args.gpus:
            several = (*(None,) * args.apart, True, *(False,) * (args.end == "on"))
            for layer_wise in several if gpus > 1 else (True,):
                lines.append(measure(args, gpus, mode, layer_wise))
                print(lines[-1], file=sys.stderr, flush=True)
                if args.json:
                    Path(args.json).write_text(json.dumps(lines, indent=1))
    print(markdown(lines))
    return int(any("error" in x for x in lines))


if __name__ == "__main__":
    sys.exit(main())
