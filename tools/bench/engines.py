"""What starting a net on a GPU costs, and which of cuDNN's engines wins at which place of its own order.

    python tools/bench/engines.py --seconds 225 --json engines.json
    python tools/bench/engines.py --nets googlenet:256 --math bf16 --start --json engines.json
    python tools/bench/engines.py --nets --start "googlenet:256 bf16" "resnet-50:256 tf32" --json starts.json

First a solver of each `--start` is built and runs three iterations in a process of its own, with empty caches, then
again with what the first one kept: seconds, by what took them, and ms of a later iteration. `start_s` leaves out the
benchmark's own images. Then every distinct pass of
the nets' convolutions (forward, with bias and ReLU, both gradients): seconds of cuDNN's heuristics and of building each
engine, milliseconds of a run, in cuDNN's order; the engine that is chosen of all, and of the first few; bytes and
seconds of storing a built engine. One process works alone for a while (`"beside": 1`), then as many as `--jobs`; runs
are timed one at a time. Last a new process loads stored engines, and another builds the same ones by name.

Passes come in a random but fixed order, and the file is written as they come: a run that is cut short has a sample.
"""

from __future__ import annotations

import argparse
import base64
import contextlib
import cProfile
import functools
import json
import logging
import multiprocessing
import os
import pstats
import queue
import random
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

import common
from common import ROOT, dummy_net, make_solver, versions

from pycaffe_lms.backend import cuda, get_device
from pycaffe_lms.errors import CaffeError
from pycaffe_lms.lms.config import LMSConfig
from pycaffe_lms.lms.runtime.arena import Arena
from pycaffe_lms.net.first_values import FirstValues
from pycaffe_lms.net.memory.bound_programs import BoundPrograms
from pycaffe_lms.net.net import Net
from pycaffe_lms.net.tuning import Tuning
from pycaffe_lms.ops.cuda import basic
from pycaffe_lms.ops.cuda.cudnn import build, choice, library
from pycaffe_lms.ops.cuda.cudnn.graph import Fused, describe
from pycaffe_lms.pycaffe import classes
from pycaffe_lms.solvers.update.updates import Updates

NETS = ("resnet-50:256", "googlenet:256", "mobilenet-v2:256", "densenet-121:128")
IMAGES = "the benchmark's images"
_ALONE_S, _LOADED = 12.0, 40
_FEW = (1, 2, 3, 4, 6)  # first engines among which a choice is compared with that of all


# -- passes of a net ---------------------------------------------------------------------------------------------------


def passes(net: str, half: bool) -> list[build.Wanted]:
    """Return what a net for training asks of cuDNN, without building any of it."""
    name, _, batch = net.partition(":")
    asked: dict[build.Wanted, None] = {}

    def found(wanted: build.Wanted) -> build.CudnnGraph:
        asked[wanted] = None
        return build.CudnnGraph(lambda *_: None, 0, "not built", 0)

    before, stored = build._build, build._stored
    build._build, build._stored = found, found
    try:
        made = Net(
            dummy_net(name, int(batch)), 0, device=get_device("cuda"), lms=LMSConfig(), tuning=Tuning(half=half),
            fill=False,
        )  # fmt: skip
        made.close()
    finally:
        build._build, build._stored = before, stored
        build._graphs.clear()
    return [w for w in asked if w.types.half == half]


# -- one pass ----------------------------------------------------------------------------------------------------------


def _timed(work) -> float:
    begin = time.perf_counter()
    work()
    return time.perf_counter() - begin


def _described(wanted: build.Wanted, modes: list, seconds: dict):
    """Return the frontend's graph with its candidates, as `build.py` makes it, and note what each part took."""
    frontend, own = library.load()[0], build.handle(wanted.device)
    begin = time.perf_counter()
    graph = describe(frontend, wanted.geometry, wanted.direction, wanted.fused, wanted.types, own)
    graph.validate()
    graph.build_operation_graph()
    seconds["describe_s"] = time.perf_counter() - begin
    seconds["heuristics_s"] = _timed(lambda: graph.create_execution_plans(modes))
    graph.deselect_numeric_notes([getattr(frontend.numerical_note, note) for note in build.NEVER])
    if wanted.limit is not None:
        graph.deselect_workspace_greater_than(wanted.limit)
    seconds["check_s"] = _timed(graph.check_support)
    return graph


def refusals() -> tuple[type[BaseException], ...]:
    """Return the exceptions by which the frontend refuses a graph."""
    return (library.load()[0].cudnnGraphNotSupportedError, RuntimeError, ValueError, NotImplementedError)


def examine(wanted: build.Wanted, most: int, alone=contextlib.nullcontext) -> dict:
    """Return all that is known of one pass; `alone()`: a context in which nobody else times runs."""
    mode, row = library.load()[0].heur_mode, {}
    try:
        first: dict = {}
        row["mode_a"] = {"candidates": _described(wanted, [mode.A], first).get_execution_plan_count()} | first
        graph = _described(wanted, [mode.A, mode.FALLBACK], row)
    except refusals() as error:
        return row | {"error": build.first_line(error)}
    engines, seen = [], set()
    row |= {"candidates": graph.get_execution_plan_count(), "refused_s": 0.0, "refused": 0, "engines": engines}
    built: list[choice.Engine] = []
    for index in range(row["candidates"]):
        name = graph.get_plan_name_at_index(index)
        if name in seen or len(built) == most:
            continue
        seen.add(name)
        begin = time.perf_counter()
        engine = next(choice._built(graph, index, name, refusals(), wanted.limit), None)
        spent = time.perf_counter() - begin
        if engine is None:
            row["refused"], row["refused_s"] = row["refused"] + 1, row["refused_s"] + spent
            continue
        built.append(engine)
        engines.append({"index": index, "name": name, "work": engine.workspace_bytes, "build_s": spent})
    with alone():
        begin = time.perf_counter()
        times = build._measure(wanted, choice.Candidates(graph, refusals(), wanted.limit), built) if built else None
        row["measure_s"] = time.perf_counter() - begin
    if times is None:
        return row
    for engine, ms in zip(engines, times, strict=True):
        engine["ms"] = ms
    best = choice.fastest(times)
    row |= {"best": best, "of_first": {str(n): choice.fastest(times[:n]) for n in _FEW}}
    graph.build_plan_at_index(built[best].index)  # what is stored is what was built last
    stored: list = []
    row["store_s"] = _timed(lambda: stored.append(bytes(graph.serialize())))
    row |= {"stored_bytes": len(stored[0]), "stored": base64.b64encode(stored[0]).decode()}
    return row


def _work(order, next_one, results, turn, others, first: bool, most: int) -> None:
    """Examine passes until there are none; all but the first process wait for their start."""
    if not first:
        others.wait()
    while True:
        with next_one.get_lock():
            key = next_one.value
            next_one.value += 1
        if key >= len(order):
            return
        beside = 2 if others.is_set() else 1
        try:
            row = examine(order[key], most, lambda: turn)
        except (CaffeError, *refusals()) as error:
            row = {"error": f"{type(error).__name__}: {build.first_line(error)}"}
        results.put((key, beside, row))


def sweep(args, keep, until: float) -> None:
    """Examine the passes of all nets in `args.jobs` processes, and keep each result as it comes."""
    wanted: dict[build.Wanted, list[str]] = {}
    for net in args.nets:
        for math in args.math:
            for one in passes(net, math == "bf16"):
                wanted.setdefault(one, []).append(f"{net} {math}")
    order = list(wanted)
    random.Random(1).shuffle(order)
    keep({"passes": len(order)})
    context = multiprocessing.get_context("spawn")
    next_one, results, turn, others = context.Value("i", 0), context.Queue(), context.Lock(), context.Event()
    workers = [
        context.Process(target=_work, args=(order, next_one, results, turn, others, i == 0, args.most), daemon=True)
        for i in range(args.jobs)
    ]
    for worker in workers:
        worker.start()
    begin, done, first_row = time.perf_counter(), 0, None
    while done < len(order) and time.perf_counter() < until and any(w.is_alive() for w in workers):
        if first_row is not None and time.perf_counter() - first_row > _ALONE_S:
            others.set()
        try:
            key, beside, row = results.get(timeout=0.5)
        except queue.Empty:
            continue
        first_row, done = first_row or time.perf_counter(), done + 1
        one = order[key]
        about = {"pass": str(one), "direction": one.direction, "fused": any(one.fused), "nets": wanted[one]}
        keep({"row": about | {"math": one.math, "beside": 1 if beside == 1 else args.jobs} | row}, one)
        if done % 25 == 0:
            print(f"{done} of {len(order)} passes, {time.perf_counter() - begin:.0f} s", file=sys.stderr, flush=True)
    for worker in workers:
        worker.terminate()


# -- a later process ---------------------------------------------------------------------------------------------------


def again(entries: list[dict], how: str) -> list[dict]:
    """Return what it takes a new process to have engines: `stored` loads them, `named` builds them by name."""
    mode, rows = library.load()[0].heur_mode, []
    for entry in entries:
        wanted, row = entry["wanted"], {"pass": str(entry["wanted"])}
        try:
            if how == "stored":
                graph = library.load()[0].pygraph(handle=build.handle(wanted.device))
                data = list(base64.b64decode(entry["stored"]))
                row["load_s"] = _timed(lambda graph=graph, data=data: graph.deserialize(data))
                engine = choice.Engine(0, entry["name"], entry["work"])
            else:
                graph = _described(wanted, [mode.A, mode.FALLBACK], row)
                found: list = []
                row["build_s"] = _timed(
                    lambda graph=graph, entry=entry, wanted=wanted, found=found: found.append(
                        choice.named_engine(graph, entry["name"], refusals(), wanted.limit)
                    )
                )
                engine = found[0]
            row["ms"] = build._measure(wanted, choice.Candidates(graph, refusals(), wanted.limit), [engine])
        except refusals() as error:
            row["error"] = build.first_line(error)
        rows.append(row)
    return rows


# -- the start of a whole net ------------------------------------------------------------------------------------------


class Parts:
    """Split seconds into parts: a part that begins within another one interrupts it."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self.counts: dict[str, int] = {}
        self._open = ["rest"]
        self._since = time.perf_counter()

    def _change(self, change) -> None:
        now = time.perf_counter()
        self.seconds[self._open[-1]] = self.seconds.get(self._open[-1], 0.0) + now - self._since
        self._since = now
        change()

    @contextlib.contextmanager
    def part(self, name: str):
        """Count what is within as this part."""
        self._change(lambda: self._open.append(name))
        try:
            yield
        finally:
            self._change(self._open.pop)

    def watch(self, owner, function: str, name: str) -> None:
        """Count calls of a function as a part."""
        inner = getattr(owner, function)

        @functools.wraps(inner)
        def timed(*args, **kwargs):
            self.counts[name] = self.counts.get(name, 0) + 1
            with self.part(name):
                return inner(*args, **kwargs)

        setattr(owner, function, timed)

    def so_far(self) -> dict:
        """Return seconds and calls of every part."""
        self._change(lambda: None)
        return {k: {"s": round(v, 3), "calls": self.counts.get(k, 0)} for k, v in sorted(self.seconds.items())}


def start(net: str, math: str, profiled: str) -> dict:
    """Build a solver and run three iterations, and say how long each part took."""
    name, _, batch = net.partition(":")
    profile, spans, parts = cProfile.Profile(), {"imports_s": time.time() - float(os.environ["STARTED"])}, Parts()
    logging.basicConfig(level=logging.INFO, format="%(relativeCreated)d ms %(name)s %(message)s", stream=sys.stderr)
    parts.watch(build._Stored, "load", "engines loaded")
    parts.watch(build, "_build", "engines built")
    parts.watch(choice, "measure", "engines measured")
    parts.watch(build, "handle", "cuDNN handle")
    parts.watch(basic, "compile_kernels", "kernels compiled or read ahead")
    parts.watch(library, "load", "cuDNN's libraries")
    parts.watch(common, "get_device", "device")
    parts.watch(common, "give_images", IMAGES)
    parts.watch(FirstValues, "fill_params", "first values")
    parts.watch(FirstValues, "fill_constants", "constant tops")
    parts.watch(classes, "read_solver", "prototxt")
    parts.watch(Net, "_ordered", "arrangement")
    parts.watch(Net, "_arrange", "arrangement")
    parts.watch(BoundPrograms, "bind", "plans")
    parts.watch(Updates, "_make_steps", "updates")
    parts.watch(cuda.CudaDevice, "take", "device memory taken")
    parts.watch(cuda.CudaDevice, "host_take", "host memory taken")
    parts.watch(cuda.CudaDevice, "trim", "device memory given back")
    parts.watch(cuda.CudaDevice, "capture", "graph recorded")
    parts.watch(Arena, "prepare", "arena")
    compiled = cuda.kernel

    @functools.cache
    def kernel(source: str, name: str, dtype: str = "float32"):
        parts.counts["kernels compiled or read later"] = parts.counts.get("kernels compiled or read later", 0) + 1
        with parts.part("kernels compiled or read later"):
            return compiled(source, name, dtype)

    cuda.kernel = kernel
    if profiled:
        profile.enable()
    begin = time.perf_counter()
    solver = make_solver(name, int(batch), LMSConfig(), half=math == "bf16")
    spans["build_s"] = time.perf_counter() - begin
    spans["parts_of_build"] = parts.so_far()
    spans["iterations_s"] = [_timed(lambda: (solver.step(1), solver.runtime.device.synchronize())) for _ in range(3)]
    spans["parts"] = parts.so_far()
    profile.disable()
    spans["start_s"] = spans["build_s"] + sum(spans["iterations_s"]) - parts.seconds[IMAGES]
    spans["step_ms"] = 100 * _timed(lambda: (solver.step(10), solver.runtime.device.synchronize()))
    return spans | ({"functions": _functions(profile)} if profiled else {})


def _functions(profile) -> list[dict]:
    """Return the functions that took most of the time."""
    rows = []
    for (file, line, function), (_, calls, own, total, _) in pstats.Stats(profile).stats.items():
        where = f"{Path(file).name}:{line} {function}" if line else function
        rows.append({"what": where, "calls": calls, "own_s": round(own, 3), "total_s": round(total, 3)})
    most = sorted(rows, key=lambda r: -r["own_s"])[:40] + sorted(rows, key=lambda r: -r["total_s"])[:60]
    return list({r["what"]: r for r in most}.values())


def _child(*words: str, env: dict | None = None, limit: float = 240.0) -> dict | list:
    """Run this file with other flags in a new process, and return what it says."""
    command = [sys.executable, str(Path(__file__).resolve()), *words]
    try:
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            timeout=max(1.0, limit),
            env=os.environ | (env or {}) | {"STARTED": str(time.time())},
            cwd=ROOT,
        )
    except subprocess.TimeoutExpired:
        return {"error": f"longer than {limit:.0f} s"}
    if done.returncode:
        return {"error": done.stderr.strip().splitlines()[-30:]}
    said = json.loads(done.stdout.splitlines()[-1])
    if isinstance(said, dict):
        said["log"] = [line for line in done.stderr.splitlines() if "engine" in line][-20:]
    return said


# -- everything --------------------------------------------------------------------------------------------------------


def summary(rows: list[dict]) -> dict:
    """Return per math and kind of pass: how often each rank wins, and what the first few would lose, in ms and %."""
    found: dict[str, dict] = {}
    for row in rows:
        if "best" not in row:
            continue
        kind = f"{row['math']} {row['direction']}" + " fused" * row["fused"]
        one = found.setdefault(
            kind, {"passes": 0, "ranks": {}, "ms": 0.0, "ms_of_first": dict.fromkeys(map(str, _FEW), 0.0)}
        )
        ms = [e["ms"] for e in row["engines"]]
        if ms[row["best"]] is None:
            continue
        one["passes"] += 1
        one["ranks"][str(row["best"])] = one["ranks"].get(str(row["best"]), 0) + 1
        one["ms"] += ms[row["best"]]
        for n, pick in row["of_first"].items():
            one["ms_of_first"][n] += 3 * ms[row["best"]] if ms[pick] is None else ms[pick]  # None: it failed
    return found


def main(argv=None) -> int:
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--nets", nargs="*", default=list(NETS), metavar="NAME:BATCH", help="nothing: starts alone")
    p.add_argument("--math", nargs="+", default=["bf16", "tf32"], choices=("tf32", "bf16"))
    p.add_argument(
        "--start", nargs="*", default=["googlenet:256 bf16"], metavar='"NAME:BATCH MATH"', help="starts that are timed"
    )
    p.add_argument("--profile", action="store_true", help="list the functions that took the time, which slows them")
    p.add_argument("--seconds", type=float, default=225.0, help="of everything")
    p.add_argument("--jobs", type=int, default=12)
    p.add_argument("--most", type=int, default=12, help="engines of a pass that are built")
    p.add_argument("--json", type=Path, required=True)
    p.add_argument("--child", nargs="+", default=[], help=argparse.SUPPRESS)
    args = p.parse_args(argv)
    cuda.set_math("tf32")
    if args.child:
        print(json.dumps(_as_child(*args.child)))
        return 0
    until, said, chosen = time.perf_counter() + args.seconds, {"versions": versions(), "rows": []}, []
    written = time.perf_counter()

    def keep(more: dict, wanted: build.Wanted | None = None) -> None:
        nonlocal written
        row = more.pop("row", None)
        if row is not None:
            stored = row.pop("stored", None)
            if stored is not None and len(chosen) < _LOADED:
                best = row["engines"][row["best"]]
                chosen.append({"wanted": wanted, "stored": stored, "name": best["name"], "work": best["work"]})
            said["rows"].append(row)
        said.update(more)
        if row is None or time.perf_counter() - written > 2:
            written = time.perf_counter()
            args.json.write_text(json.dumps(said | {"summary": summary(said["rows"])}, indent=1))

    with tempfile.TemporaryDirectory() as folder:
        names = ("HOME", "XDG_CACHE_HOME", "CUPY_CACHE_DIR", "CUDA_CACHE_PATH")
        caches = {name: f"{folder}/{name}" for name in names}
        for number, one in enumerate(args.start):
            own = {name: f"{path}{number}" for name, path in caches.items()}
            for again in ("cold", "again"):
                words = (*one.split(), "profiled" * args.profile)
                limit = until - time.perf_counter()
                said_now = _child("--json", str(args.json), "--child", "start", *words, env=own, limit=limit)
                keep({f"start {one} {again}": said_now})
                print(f"start {one} {again}", json.dumps(said_now, indent=1), flush=True)
        if not args.nets:
            return 0
        sweep(args, keep, until - 35)
        file = Path(folder) / "chosen.json"
        file.write_text(json.dumps([entry | {"wanted": _plain(entry["wanted"])} for entry in chosen]))
        for how in ("stored", "named"):
            limit = until - time.perf_counter()
            keep({how: _child("--json", str(args.json), "--child", "again", how, str(file), limit=limit)})
    print(json.dumps(summary(said["rows"]), indent=1))
    return 0


def _as_child(what: str, *words: str):
    if what == "start":
        return start(*words)
    how, file = words
    entries = json.loads(Path(file).read_text())
    return again([entry | {"wanted": _wanted(entry["wanted"])} for entry in entries], how)


def _plain(wanted: build.Wanted) -> dict:
    """Return a pass as JSON's types."""
    g = wanted.geometry
    return {
        "geometry": {name: getattr(g, name) for name in g.__dataclass_fields__},
        "rest": [wanted.direction, list(wanted.fused), wanted.limit, wanted.device, wanted.mode, list(wanted.types)],
    }


def _wanted(plain: dict) -> build.Wanted:
    """Return the pass that `_plain` wrote."""
    sizes = {name: tuple(v) if isinstance(v, list) else v for name, v in plain["geometry"].items()}
    direction, fused, limit, device, mode, types = plain["rest"]
    whole = build.Wanted(build.ConvGeometry(**sizes), direction, Fused(*fused), limit, device, mode)
    return replace(whole, types=type(whole.types)(*types))


if __name__ == "__main__":
    sys.exit(main())
