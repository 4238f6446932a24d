"""What every number and mechanism of the plan search gains: each is changed or left out, one at a time, over the zoo.

python tools/bench/ablation.py --processes 16 --seconds 470 --json ablation.json
python tools/bench/ablation.py --json measured.json --measure --seconds 470
python tools/bench/ablation.py --json ablation.json --seconds 0 --ratios docs/plan_search.json --table table.md
python tools/bench/ablation.py --json measured.json --seconds 0 --measured docs/plan_measured.json --table table.md

The first line needs no GPU: iterations are predicted for an H200, at three budgets for each net, 5%, 25% and 60% of the
way from the least budget to all that the net takes in core, and at published ones. The second one trains six nets on
this machine's GPU at one budget each, as they are and with each change that moves the prediction of that net at that
budget by 0.3% or more (predicted first, where it is not in the file). Jobs that are in the JSON file are not repeated:
the same command goes on where --seconds ended it. The other lines only show them, and write the numbers and the tables
that docs/plan_search.md has. Ratios are seconds of an iteration with the change by
those without it: 1.02 means that what was changed gains 2%. "planning" is the processor time of planning, likewise.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import pickle
import re
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import replace
from pathlib import Path

for threads in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(threads, "1")

from common import ROOT  # noqa: E402

from pycaffe_lms.cli.views.plan_nets import Nets  # noqa: E402
from pycaffe_lms.errors import CaffeError, OutOfDeviceMemory  # noqa: E402
from pycaffe_lms.formats.prototxt.parser import read_net  # noqa: E402
from pycaffe_lms.lms.config import LMSConfig, parse_size  # noqa: E402
from pycaffe_lms.lms.cost.machine import Costs, find_machine  # noqa: E402
from pycaffe_lms.lms.planner.choose import choose_plan  # noqa: E402
from pycaffe_lms.lms.planner.optimise import NotFaster  # noqa: E402
from pycaffe_lms.lms.rules import SEARCH, Rules, SearchBudget  # noqa: E402
from pycaffe_lms.lms.runtime import runtime as runtimes  # noqa: E402
from pycaffe_lms.solvers.rules import RULES  # noqa: E402

FRACTIONS = (0.05, 0.25, 0.6)  # of the way from the least budget to all memory
PUBLISHED = {"resnet-152": ("2GB", "2.4GB", "3GB", "4GB", "8GB", "16GB"), "resnet-50": ("2.8GB",), "unet-3d": ("16GB",)}
PUBLISHED |= {"googlenet": ("2.5GB",)}
MODES = (  # of -lms
    "auto",  # by predicted time, with rematerialization
    "1000",  # copies alone, of what exceeds 1000 KB
    "1000 -lms_pages off",  # in a contiguous arena
)
WORKSPACE = 36 << 20  # bytes of a convolution, as `pycaffe-lms plan -gpu` assumes
NETS = {  # -shape of the data
    "resnet-50": "data=256,3,224,224",
    "unet-3d": "",
    "resnet-152": "data=256,3,224,224",
    "alexnet": "data=1024,3,227,227",
    "vgg-16": "data=128,3,224,224",
    "googlenet": "data=256,3,224,224",
    "inception-v3": "data=64,3,299,299",
    "densenet-121": "data=64,3,224,224",
    "mobilenet-v2": "data=128,3,224,224",
    "squeezenet-1.1": "data=256,3,227,227",
    "resnet-18": "data=256,3,224,224",
    "c3d": "data=30,3,16,112,112",
}
MEASURED = {"resnet-152": (256, "4GB"), "resnet-50": (256, "2.8GB"), "unet-3d": (1, "16GB")}
MEASURED |= {"googlenet": (256, "2.5GB"), "vgg-16": (128, "6GB"), "alexnet": (1024, "3.5GB")}
EFFECT = 0.003  # the least predicted one of what is measured


def _with_rules(field: str, value: float | bool) -> SearchBudget:
    """One field of all rules fixed."""
    auto = [replace(rules, **{field: value}) for rules in SEARCH.auto if rules.remats]
    return replace(SEARCH, auto=(*dict.fromkeys(auto), SEARCH.auto[-1]))


def _values() -> Iterator[tuple[str, SearchBudget]]:
    """Fields with the values that they are tried at, and mechanisms that are left out by one value."""
    never = 1 << 62
    tried = {
        "reorder_work": (0, SEARCH.reorder_work // 4),
        "page_waste_parts": (1, 8),
        "piece": (never, 1 << 20, 16 << 20),
        "large_parts": (0, 24),
        "dwarf_factor": (never,),
        "evict_in_place": (False,),
        "checkpoint_seconds": (0.0,),
        "work": (SEARCH.work // 3, SEARCH.work * 3),
        "steps_per_second": (SEARCH.steps_per_second // 3, SEARCH.steps_per_second * 3),
        "passes": (3,),
        "memory_factor": (0.9,),
        "reordered_share": (0.5,),
        "copy_margin": (1.0,),
        "ahead_tries": (1,),
        "split_slow": (math.inf, 1.0),
        "params_share": (0.0,),
        "few_pages": (1,),
        "packing_tries": (1,),
        "packing_hopeless": (1.0,),
        "extension_shares": ((0.0,), (1.0, 0.0)),
        "large_lifetime_parts": (0,),
    }
    for field, values in tried.items():
        for value in values:
            yield f"{field} = {value}", replace(SEARCH, **{field: value})


def changes() -> dict[str, SearchBudget]:
    """Every change by its name; those that leave most out come first."""
    found = dict(_values())
    fields = {"checkpoint_density": 0.0, "surplus_weight": 1.0, "linked_weight": 0.0, "displacement": False}
    for name, value in fields.items():
        found[f"all rules: {name} = {value}"] = _with_rules(name, value)
    for i, rules in enumerate(SEARCH.auto):
        found[f"without rules {i}: {described(rules)}"] = replace(SEARCH, auto=SEARCH.auto[:i] + SEARCH.auto[i + 1 :])
    found["no sets for long programs"] = replace(SEARCH, long=())
    found["only the first rules, and copies"] = replace(SEARCH, auto=(SEARCH.auto[0], SEARCH.auto[-1]))
    return dict(sorted(found.items(), key=lambda one: "= 0" not in one[0] and "= False" not in one[0]))


def described(rules: Rules) -> str:
    """Return the fields that differ from the default."""
    return ", ".join(f"{k}={v:g}" for k, v in vars(rules).items() if v != getattr(Rules(), k))


# -- predicted ---------------------------------------------------------------------------------------------------------
def nets_of(net: str, mode: str, budget: int | None) -> Nets:
    file = ROOT / "models" / net / "train_dummy.prototxt"
    file = file if file.exists() else file.with_name("train_val.prototxt")
    auto = LMSConfig(auto=True, budget=budget)
    return Nets(
        read_net(str(file)),
        [NETS[net]] if NETS[net] else [],
        level=0,
        stages=(),
        rule=RULES["SGD"],
        machine=find_machine("h200"),
        lms=LMSConfig(int(mode.split()[0]), budget=budget, pages="off" not in mode) if mode != "auto" else auto,
        workspace=WORKSPACE,
    )


def asked(net: str, mode: str, budget: int, search: SearchBudget) -> list[tuple]:
    """Return the arguments of `choose_plan` for whole backwards and for split ones; empty: nothing is managed.

    Told that the program does not fit, a net asks for the one with split backwards too."""
    nets, found = nets_of(net, mode, budget), []

    def refuse(*args, on_demand):
        found.append(args[:-1])
        raise OutOfDeviceMemory("not planned", needed=1, free=0)

    before = runtimes.SEARCH, runtimes.kept_plan
    runtimes.SEARCH, runtimes.kept_plan = search, refuse
    try:
        built, tail = nets.build(nets.lms)
        built.plan_only(tail)
    except OutOfDeviceMemory:
        pass
    finally:
        runtimes.SEARCH, runtimes.kept_plan = before
    return found


def seconds_of(cases: list[tuple], search: SearchBudget) -> float:
    """Return the predicted seconds of an iteration, with a split backward where `split_backward.py` takes one."""
    try:
        plan = choose_plan(*cases[0], search)
    except OutOfDeviceMemory:
        return choose_plan(*cases[-1], search).seconds
    costs = next(one if isinstance(one, Costs) else one.costs for one in cases[0] if _has_costs(one))
    alone = sum(costs.steps)
    if plan.seconds <= search.split_slow * alone:
        return plan.seconds
    request, *more = cases[-1]
    try:
        return min(plan.seconds, choose_plan(replace(request, below=plan.seconds), *more, search).seconds)
    except (OutOfDeviceMemory, NotFaster):
        return plan.seconds


def _has_costs(one: object) -> bool:
    return isinstance(one, Costs) or isinstance(getattr(one, "costs", None), Costs)


def prepare(net: str, mode: str, sizes: tuple[str, ...], fractions: tuple[float, ...], folder: Path) -> list:
    """Write what the planner is asked for at each budget of a net; return (name, budget in bytes) of each."""
    budgets = {size: parse_size(size, "budget") for size in sizes}
    if fractions:
        least, core = nets_of(net, mode, None).least().nbytes, nets_of(net, mode, None).in_core().nbytes
        budgets |= {f"{100 * f:.0f}%": int(least + f * (core - least)) for f in fractions}
    found = []
    for label, budget in budgets.items():
        cases, name = asked(net, mode, budget, SEARCH), f"{net} {label}" + (f" -lms {mode}" if mode != "auto" else "")
        if cases:
            (folder / name).write_bytes(pickle.dumps(cases))
            found.append((name, budget))
    return found


REBUILT = ("params_share", "few_pages")  # fields that decide what is managed


def predict(case: str, budget: int, change: str, folder: Path) -> dict:
    """Return {"seconds": of an iteration, None where nothing fits, "planning": processor seconds}."""
    search, net, mode = SEARCH if not change else changes()[change], case.split()[0], case.partition(" -lms ")[2]
    rebuilt = any(getattr(search, f) != getattr(SEARCH, f) for f in REBUILT)
    cases = asked(net, mode or "auto", budget, search) if rebuilt else pickle.loads((folder / case).read_bytes())
    begun = time.process_time()
    try:
        seconds = seconds_of(cases, search)
    except CaffeError:
        seconds = None
    return {"case": case, "change": change, "seconds": seconds, "planning": time.process_time() - begun}


def predict_all(done: list[dict], cases_of: list[tuple], only: str, processes: int, end: float, save) -> None:
    """Predict every case with every change, those not done yet, until the time `end`.

    Args:
        cases_of: (net, mode, sizes of budgets, fractions of the way to all memory) of each net.
    """
    known = {(r["case"], r["change"]) for r in done}
    names = ["", *(name for name in changes() if only in name)]
    with tempfile.TemporaryDirectory() as folder, ProcessPoolExecutor(processes) as pool:
        at = Path(folder)
        jobs = [pool.submit(prepare, *one, at) for one in cases_of]
        cases = [case for job in jobs for case in job.result()]
        print(f"{len(cases)} cases, {len(names) - 1} changes", flush=True)
        left = [(case, budget, name) for name in names for case, budget in cases if (case, name) not in known]
        left.reverse()
        running = set()
        while (left and time.monotonic() < end) or running:
            while left and len(running) < 2 * processes and time.monotonic() < end:
                running.add(pool.submit(predict, *left.pop(), at))
            ended = next(as_completed(running))
            running.discard(ended)
            if ended.exception() is not None:
                print(f"failed: {ended.exception()!r}", flush=True)
                continue
            done.append(ended.result())
            if len(done) % 50 == 0:
                save()
                print(f"{len(done)} of {len(done) + len(left) + len(running)}", flush=True)
    save()


# -- measured ----------------------------------------------------------------------------------------------------------
def measure_all(done: list[dict], only: str, iterations: int, processes: int, end: float, save) -> None:
    """Train six nets on the GPU, with each change that a net's prediction feels, until the time `end`."""
    from lms import measure, settings

    predict_all(done, [(net, "auto", (size,), ()) for net, (_, size) in MEASURED.items()], only, processes, end, save)
    predicted = {(r["case"], r["change"]): r["seconds"] for r in done}
    for net, (batch, size) in MEASURED.items():
        if (f"{net} {size}", "") not in predicted:
            continue  # the time ended before
        plain, case = predicted[f"{net} {size}", ""], f"measured {net} {size}"
        felt = [name for name in changes() if _felt(predicted.get((f"{net} {size}", name), plain), plain)]
        for name in ["", *felt]:
            if (case, name) in predicted or time.monotonic() > end:
                continue
            runtimes.SEARCH = changes()[name] if name else SEARCH
            try:
                found = measure(net, batch, settings("auto", parse_size(size, "budget")), iterations)["seconds"]
            except CaffeError as error:
                print(f"{case}, {name}: {error}", flush=True)
                found = None
            finally:
                runtimes.SEARCH = SEARCH
            done.append({"case": case, "change": name, "seconds": found, "planning": 0.0})
            expected = predicted[f"{net} {size}", name]
            shown = f"{1e3 * found:.1f} ms" if found else "does not fit"
            print(f"{case}, {name or 'as it is'}: {shown}, predicted {1e3 * (expected or 0):.1f}", flush=True)
            save()


def _felt(seconds: float | None, plain: float) -> bool:
    return seconds is not None and abs(seconds / plain - 1) >= EFFECT


# -- shown -------------------------------------------------------------------------------------------------------------
def summary(done: list[dict], measured: bool = False) -> dict[str, dict]:
    """Return, by change: geometric mean, worst and best ratio of seconds, cases, those lost, ratio of planning time."""
    done = [r for r in done if r["case"].startswith("measured ") == measured]
    plain = {r["case"]: r for r in done if not r["change"]}
    found: dict[str, dict] = {}
    for name in dict.fromkeys(r["change"] for r in done if r["change"]):
        mine = [r for r in done if r["change"] == name and plain.get(r["case"], r)["seconds"] and r["case"] in plain]
        ratios = {r["case"]: r["seconds"] / plain[r["case"]]["seconds"] for r in mine if r["seconds"]}
        if not ratios:
            continue
        worst, best = max(ratios, key=ratios.__getitem__), min(ratios, key=ratios.__getitem__)
        found[name] = {
            "mean": math.exp(sum(map(math.log, ratios.values())) / len(ratios)),
            "worst": (ratios[worst], worst),
            "best": (ratios[best], best),
            "cases": len(ratios),
            "lost": [r["case"] for r in mine if not r["seconds"]],
            "planning": sum(r["planning"] for r in mine) / max(1e-9, sum(plain[r["case"]]["planning"] for r in mine)),
        }
    return found


def table(done: list[dict]) -> str:
    """Return all as Markdown, what gains most first."""
    predicted, measured = summary(done), summary(done, measured=True)
    lines = [
        "| change | mean | worst | best | cases | planning | measured mean, worst |",
        "|---|---:|---|---|---:|---:|---|",
    ]
    for name, row in sorted(predicted.items(), key=lambda one: -one[1]["mean"]):
        real = measured.get(name)
        shown = f"{real['mean']:.3f}, {real['worst'][0]:.3f} {real['worst'][1][9:]}" if real else ""
        lost = f"; {len(row['lost'])} do not fit: {', '.join(row['lost'])}" if row["lost"] else ""
        lines.append(
            f"| {name} | {row['mean']:.4f} | {row['worst'][0]:.3f} {row['worst'][1]}{lost} | "
            f"{row['best'][0]:.3f} {row['best'][1]} | {row['cases']} | {row['planning']:.2f} | {shown} |"
        )
    return "\n".join(lines) + "\n"


NAMES = {  # of changes, in the page's table; "(taken)": the planner is so since then
    "large_lifetime_parts = 0": "no second order of packing",
    "split_slow = inf": "no split backward",
    "split_slow = 1.0": "split backward tried for every plan",
    "params_share = 0.0": "parameters leave the device like other values",
    "copy_margin = 1.0": "no margin on times of copies",
    "reorder_work = 0": "no reordering of copies",
    "reorder_work = 500000": "a quarter of the work of reordering (taken)",
    "all rules: checkpoint_density = 0.0": "no checkpoints",
    "checkpoint_seconds = 0.0": "checkpoints cost no more to rematerialize than other values",
    "page_waste_parts = 8": "pages where at most an eighth of a buffer's bytes is wasted (a half)",
    "page_waste_parts = 1": "pages where at most as many bytes are wasted as a buffer has (a half)",
    "all rules: linked_weight = 0.0": "a step that runs again costs nothing for others that must run again for it",
    "passes = 3": "at most three eviction passes for a set of rules (six)",
    "memory_factor = 0.9": "a tenth less memory in each further eviction pass (a twentieth)",
    "evict_in_place = False": "no eviction with in-place reuse",
    f"piece = {1 << 62}": "copies never cut",
    "piece = 16777216": "pieces of 16 MB (4)",
    "piece = 1048576": "pieces of 1 MB",
    "reorder_tries = 1": "one late copy tried for a waiting step (taken; before: four)",
    "all rules: displacement = False": "rematerializing a large value has no further cost",
    "large_parts = 0": "no value counts as large (from a twelfth of the memory on)",
    "ahead_tries = 1": "one try of a fixed look-ahead (none of the cases has one)",
    f"dwarf_factor = {1 << 62}": "a small value is rematerialized even if that needs a large one",
    "large_parts = 24": "values count as large from half as many bytes on",
    "steps_per_second = 2000000": "a third of the planning for each second that it may save",
    "steps_per_second = 18000000": "three times the planning for each second that it may save",
    "work = 3000000": "a third of the work of planning (taken until 2026-11-24)",
    "work = 27000000": "three times the work of planning",
    "reorder_depth = 4": "reordering looks back over 4 copies (now: as many as wait)",
    "close = 1.0": "a plan within 1% of its steps does not end the search (taken)",
    "least_gain = 1e-12": "reordering counts gains of 1e-12 s (1e-7)",
    "carry_over_factor = 0.0": "no carry-over",
    "all rules: surplus_weight = 1.0": "bytes freed beyond the shortfall count in full",
    "extension_shares = (0.0,)": "live ranges are not lengthened for earlier copies",
    "only the first rules, and copies": "only the first set of rules, and the one that copies",
}


def ratios_of(done: list[dict]) -> dict:
    """Return {"cases": names, "ratios": change -> case -> ratio of predicted seconds}, for docs/plan_search.md.

    Ratios of 1 are left out; None: nothing fits. Changes that were tried on a part of the cases only are left out, too.
    """
    plain = {r["case"]: r["seconds"] for r in done if not r["change"] and not r["case"].startswith("measured ")}
    cases = sorted(case for case, seconds in plain.items() if seconds)
    found: dict[str, dict] = {}
    for r in done:
        if r["change"] and r["case"] in cases:
            ratio = round(r["seconds"] / plain[r["case"]], 4) if r["seconds"] else None
            found.setdefault(r["change"], {})[r["case"]] = ratio
    whole = {change: ratios for change, ratios in found.items() if len(ratios) == len(cases)}
    return {
        "cases": cases,
        "ratios": {
            change: {case: one for case, one in sorted(ratios.items()) if one != 1} for change, ratios in whole.items()
        },
    }


def page_table(record: dict) -> str:
    """Return the table of docs/plan_search.md as Markdown, what gains most first. record: of `ratios_of`."""
    cases = {mode: [c for c in record["cases"] if (c.partition(" -lms ")[2] or "auto") == mode] for mode in MODES}
    heads = ("`-lms auto`", "`-lms 1000`", "`-lms 1000` without pages")
    rows = []
    for change, ratios in record["ratios"].items():
        cells, means = [], []
        for mode in MODES:
            known = {case: one for case in cases[mode] if (one := ratios.get(case, 1.0)) is not None}
            mean = math.exp(sum(map(math.log, known.values())) / len(known))
            worst = max(known, key=known.__getitem__)
            lost = f"; {len(cases[mode]) - len(known)} does not fit" if len(known) < len(cases[mode]) else ""
            shown = f"{known[worst]:.3f} {worst.partition(' -lms ')[0]}" if known[worst] >= 1.0005 else "-"
            cells += [f"{mean:.4f}", shown + lost]
            means.append(mean)
        rows.append((-math.prod(means), f"| {NAMES.get(change, change)} | {' | '.join(cells)} |"))
    head = f"| change | {' | '.join(f'{one}: mean | worst' for one in heads)} |"
    return "\n".join([head, "|---" + "|---:|---" * len(heads) + "|", *(row for _, row in sorted(rows))]) + "\n"


def measured_of(done: list[dict]) -> dict:
    """Return {"net budget": {change: [measured, predicted seconds]}} of what was measured; the change "": as it is."""
    predicted = {(r["case"], r["change"]): r["seconds"] for r in done}
    found: dict[str, dict] = {}
    for r in done:
        case = r["case"].removeprefix("measured ")
        if case != r["case"]:
            numbers = (r["seconds"], predicted[case, r["change"]])
            found.setdefault(case, {})[r["change"]] = [one and round(one, 6) for one in numbers]
    return found


def measured_table(record: dict) -> str:
    """Return the table of what was measured, a row for each change, a column for each net. record: of `measured_of`."""
    rows = [f"| change | {' | '.join(record)} |", "|---" * (len(record) + 1) + "|"]
    plain = [f"{1e3 * one[''][0]:.1f} ms ({1e3 * one[''][1]:.1f})" for one in record.values()]
    rows.append(f"| none | {' | '.join(plain)} |")
    for change in dict.fromkeys(name for one in record.values() for name in one if name):
        cells = []
        for one in record.values():
            both = [a and a / b for a, b in zip(one.get(change, (0, 0)), one[""], strict=True)]
            cells.append(f"{both[0]:.3f} ({both[1]:.3f})" if all(both) else "does not fit" if change in one else "")
        rules = re.match(r"without rules \d+: (.*)", change)  # which number a set has differs from day to day
        shown = f"without the set of rules `{rules[1]}`" if rules else NAMES.get(change, change)
        rows.append(f"| {shown} | {' | '.join(cells)} |")
    return "\n".join(rows) + "\n"


def main() -> int:
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--processes", type=int, default=os.cpu_count())
    p.add_argument("--nets", nargs="*", default=list(NETS), choices=list(NETS))
    p.add_argument("--only", default="", help="changes whose name has this in it")
    p.add_argument("--seconds", type=float, default=470, help="begin no new job after this time")
    p.add_argument("--measure", action="store_true", help="on the GPU, in place of predictions")
    p.add_argument("--iterations", type=int, default=10, help="measured ones")
    p.add_argument("--json", type=Path, default=Path("ablation.json"), help="results; begins with those in it")
    p.add_argument(
        "--table", type=Path, help="write a table of docs/plan_search.md here: of --measured, or of --ratios"
    )
    p.add_argument("--ratios", type=Path, help="write the ratios here that the table is made of")
    p.add_argument("--measured", type=Path, help="write what was measured here")
    args = p.parse_args()
    end = time.monotonic() + args.seconds
    done = json.loads(args.json.read_text()) if args.json.exists() else []

    def save() -> None:
        args.json.write_text("[\n" + ",\n".join(json.dumps(r) for r in done) + "\n]\n")
        if args.table:
            args.table.write_text(measured_table(measured_of(done)) if args.measured else page_table(ratios_of(done)))
        if args.measured:
            lines = ",\n".join(f"{json.dumps(case)}: {json.dumps(one)}" for case, one in measured_of(done).items())
            args.measured.write_text(f"{{\n{lines}\n}}\n")
        if args.ratios:
            record = ratios_of(done)
            lines = ",\n".join(f"{json.dumps(change)}: {json.dumps(one)}" for change, one in record["ratios"].items())
            args.ratios.write_text(f'{{"cases": {json.dumps(record["cases"])},\n"ratios": {{\n{lines}\n}}}}\n')

    if args.measure:
        measure_all(done, args.only, args.iterations, args.processes, end, save)
    elif args.seconds:
        every = [(net, mode, PUBLISHED.get(net, ()), FRACTIONS) for mode in MODES for net in args.nets]
        predict_all(done, every, args.only, args.processes, end, save)
    save()
    print(table(done))
    return 0


if __name__ == "__main__":
    sys.exit(main())
