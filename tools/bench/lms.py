"""Training under a memory budget, beside PyTorch: time, memory and bytes copied per iteration, one run on one machine.

python tools/bench/lms.py --model resnet-152 --batch 8 16 32 64 128 256 --budget 16GB --modes off 1000 auto
python tools/bench/lms.py --batch 256 --budget 16GB 8GB 4GB --modes auto --peers save_on_cpu offload --json lms.json
python tools/bench/lms.py --json lms.json --plot lms.png       # nothing is run, what is in the file is shown
python tools/bench/lms.py --table docs/speed.md --plot docs/lms_memory.svg --scenarios docs/lms_scenarios.svg

Modes: off (no Large Model Support), memory (off, with all of the GPU), a number of KB (-lms N), auto (-lms auto), swap
(-lms auto -lms_recompute off). Peers: see lms_peers.py. Images and labels are made once; an iteration is forward,
backward and the SGD update. Times are medians after warming up, each up to the device's end.
"""

from __future__ import annotations

import argparse
import gc
import json
import subprocess
import sys
import time
from pathlib import Path

from common import make_solver, versions
from lms_figures import scenarios
from lms_peers import PEERS
from lms_table import markdown, plot, read_markdown

from pycaffe_lms.cli.bench.measure import timed
from pycaffe_lms.errors import CaffeError
from pycaffe_lms.lms.config import LMSConfig, parse_size

WARMUP = 18  # convolutions are chosen, -lms auto has measured and planned again, a recording was weighed


def settings(mode: str, budget: int | None, **more) -> LMSConfig:
    """What a mode means."""
    if mode == "memory":
        return LMSConfig()
    if mode in ("auto", "swap"):
        return LMSConfig(auto=True, budget=budget, recompute=mode == "auto", **more)
    return LMSConfig(0 if mode == "off" else int(mode), budget=budget, **more)


def measure(model: str, batch: int, lms: LMSConfig, iterations: int, half: bool = False, warmup: int = WARMUP) -> dict:
    """Median seconds of an iteration; bytes copied per iteration; memory; what the plan said."""
    start = time.perf_counter()
    solver = make_solver(model, batch, lms, half=half)
    built, runtime = time.perf_counter() - start, solver.runtime
    found = timed(solver, iterations, warmup, time.perf_counter)
    plan = solver.net.memory.plans().get("train")
    result = {
        "seconds": sorted(found.seconds)[iterations // 2],
        "loss": solver.net.loss(),
        "bytes_in": found.bytes_in,
        "bytes_out": found.bytes_out,
        "resident": runtime.resident_bytes,
        "workspace": runtime.workspace_bytes,
        "arena": plan.arena_bytes if plan else 0,
        "live": plan.live_bytes if plan else 0,
        "replayed": plan.rematerialized if plan else 0,
        "predicted_s": plan.seconds if plan else None,
        "stall_s": plan.stall if plan else None,
        "host": runtime.slab.nbytes,
        "device_peak": runtime.device.in_use(),
        "link": [runtime.machine.link_in, runtime.machine.link_out, runtime.machine.link_both],
        "recorded": runtime.stats.described()["programs"].get("train", {}).get("measured"),
        "build_s": built,
        "versions": versions(),
    }
    solver.close()
    runtime.close()
    return result


def peer(who: str, model: str, batch: int, budget: int | None, iterations: int) -> dict:
    """One of PyTorch's ways, in a process of its own."""
    command = [sys.executable, str(Path(__file__).with_name("lms_peers.py")), "--who", who, "--model", model]
    command += ["--batch", str(batch), "--iterations", str(iterations)]
    command += [] if budget is None else ["--budget", str(budget)]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        said = [line for line in done.stderr.splitlines() if line[:1].strip()]
        return {"error": (said or ["failed"])[-1][:200]}
    return json.loads(done.stdout.splitlines()[-1])


def one(who: str, model: str, batch: int, budget: int | None, iterations: int, half: bool, warmup: int, **more) -> dict:
    """A result, or why there is none."""
    result = {"model": model, "batch": batch, "budget": budget, "who": who}
    if who.startswith("torch:"):
        return result | peer(who[6:], model, batch, budget, iterations)
    try:
        return result | measure(model, batch, settings(who, budget, **more), iterations, half, warmup)
    except CaffeError as error:
        return result | {"error": str(error).splitlines()[0]}
    finally:
        gc.collect()


def main() -> int:
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--model", default="resnet-152", help="one of models/ with a train_dummy.prototxt")
    p.add_argument("--batch", type=int, nargs="*", default=[])
    p.add_argument("--budget", nargs="+", default=["16GB"], help="such as 16GB; none: all of the GPU")
    p.add_argument("--modes", nargs="*", default=["auto"])
    p.add_argument("--peers", nargs="*", default=[], choices=PEERS)
    p.add_argument("--math", default="tf32", choices=("tf32", "bf16"), help="ours; keep bf16 in a JSON file of its own")
    p.add_argument("--host", default=None, help="most pinned host memory")
    p.add_argument("--split", default=None, choices=("auto",), help="layers in parts where they do not fit whole")
    p.add_argument("--iterations", type=int, default=5)
    p.add_argument("--warmup", type=int, default=WARMUP, help="iterations before, of ours")
    p.add_argument("--json", type=Path, help="keep the results in this file, and show all that are in it")
    p.add_argument(
        "--plot", type=Path, help="draw those of --model: images/s and memory against batch, images/s against memory"
    )
    p.add_argument("--scenarios", type=Path, help="draw memory and relative time of each batch: off, 1000, auto")
    p.add_argument("--table", type=Path, help="begin with the results that a table in this text shows")
    args = p.parse_args()
    results = json.loads(args.json.read_text()) if args.json and args.json.exists() else []
    results += read_markdown(args.table.read_text()) if args.table else []
    host = None if args.host is None else parse_size(args.host, "--host")
    for text in args.budget:
        budget = None if text == "none" else parse_size(text, "--budget")
        for batch in args.batch:
            for who in (*args.modes, *(f"torch:{name}" for name in args.peers)):
                found = one(
                    who,
                    args.model,
                    batch,
                    budget,
                    args.iterations,
                    args.math == "bf16",
                    args.warmup,
                    host_limit=host,
                    split=args.split,
                )
                key = ("model", "batch", "budget", "who")
                results = [r for r in results if any(r[k] != found[k] for k in key)] + [found]
                print(markdown([found]).splitlines()[-1], flush=True)
                if args.json:
                    args.json.write_text(json.dumps(results, indent=1) + "\n")
    if not args.table:
        print(markdown(results))
    if args.plot:
        plot(results, args.model, args.plot)
    if args.scenarios:
        scenarios(results, args.model, parse_size(args.budget[0], "--budget"), args.scenarios)
    return 0


if __name__ == "__main__":
    sys.exit(main())
