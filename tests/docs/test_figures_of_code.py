"""Figures that pages state in sentences are those of code, models and other pages, or follow by arithmetic."""

from __future__ import annotations

import json
import re

import pytest

from pycaffe_lms import ops
from pycaffe_lms.cli.views.plan_nets import Nets
from pycaffe_lms.formats.prototxt.parser import read_net
from pycaffe_lms.layers.conv import attention
from pycaffe_lms.lms.config import LMSConfig
from pycaffe_lms.lms.cost.machine import MACHINES
from pycaffe_lms.lms.rules import AUTO, LONG, SEARCH
from pycaffe_lms.lms.runtime import runtime
from pycaffe_lms.net.program import scatter_reduction
from pycaffe_lms.ops import attention_plan
from pycaffe_lms.parallel import communicator, pulse
from pycaffe_lms.solvers.rules import RULES

from .pages import ROOT

MIB, GIB = 1 << 20, 1 << 30
H200, T4, WAIT = MACHINES["h200"], MACHINES["t4"], communicator.WARN_S


def words(page: str) -> str:
    """A page in one line."""
    return " ".join((ROOT / page).read_text().split())


def said(page: str, pattern: str) -> list[float]:
    """The figures of the only sentence of a page that matches."""
    [found] = re.findall(pattern, words(page))
    return [float(x.replace(",", "")) for x in ([found] if isinstance(found, str) else found)]


FACTS = {
    "docs/benchmark.md": [f"then plans get {1 - runtime.RESERVE:.0%} of what is free"],
    "docs/bits.md": [f"256 images. It has {4096 * 1024 * 4 // MIB} MiB", "it is read and written 256 times"],
    "docs/differences.md": [f"here they name it after {WAIT:.0f} seconds"],
    "docs/how_lms_works.md": [f"256 images of 16 channels and 64 x 64 pixels: {256 * 16 * 64 * 64 * 4 // MIB} MiB"],
    "docs/many_hosts.md": [
        f"after {WAIT:.0f} seconds, and all ranks end after",
        f"`-hang_timeout` seconds (default {pulse.HANG_S:.0f}; 0: never)",
        f"take {pulse.PATIENCE} times as long as the longest iteration so far",
        f"has not run for {pulse.HANG_S:.0f} s",
    ],
    "docs/performance.md": [
        f"about {H200.link_in / 1e9:.0f} GB/s each way with PCIe 5",
        f"with PCIe 5, {MACHINES['a100'].link_in / 1e9:.0f} GB/s with PCIe 4",
        f"with PCIe 4, {MACHINES['v100'].link_in / 1e9:.0f} GB/s with PCIe 3",
    ],
    "docs/plan_search.md": [
        f"{AUTO[2].checkpoint_density:.0f}, {AUTO[3].checkpoint_density:.0f} and {AUTO[4].checkpoint_density:.0f} "
        f"checkpoints for a hundred steps, and {AUTO[2].memory_share:.0%} of the memory",
        f"One of these leaves {1 - LONG[1].memory_share:.0%} of the memory free",
        "Four more are tried since",
        "These ten are tried, and one for small budgets",
    ],
    "docs/speed.md": [
        f"and used if it promises {1 - SEARCH.replan:.0%}",
        f"bottoms of (64, 128, 56, 56), {64 * 128 * 56 * 56 * 4 / 1e6:.0f} MB",
        f"At {H200.link_in / 1e9:.0f} GB/s each way, one direction",
    ],
    "docs/tools.md": [f"for another says after {WAIT:.0f} seconds"],
    "docs/transformers.md": [
        f"takes up to {2 * attention._BLOCK_BYTES // MIB} MiB of workspace",
        f"as many items at a time as {attention_plan.BACKWARD_BYTES // MIB} MiB of workspace allow",
    ],
    "docs/tutorials/4_larger_than_memory.md": [f"fit a GPU with {T4.memory // GIB} GiB, such as a T4"],
    "docs/tutorials/5_several_gpus.md": [
        f"the log names it after {WAIT:.0f} seconds",
        f"Gradients of {scatter_reduction.SHARES.alone // MIB} MiB and more are summed by a reduce-scatter",
        f"(default {communicator.TIMEOUT_S:.0f})",
    ],
    "models/README.md": [f"at most {ops.WORKSPACE_LIMIT['cuda'] // MIB} MB in one convolution"],
    "models/alexnet/README.md": [f"momentum are {256 * 6 * 6 * 4096 * 4 // MIB} MiB each"],
    "models/digits/README.md": [
        f"`-lms_frac 0.4` is {0.4 * 2048:.1f} KiB of this device",
        f"`label` ({(128 * 8 * 8 + 128) * 4 / 1024:.1f} KiB) come before",
    ],
    "models/vgg-16/README.md": [f"momentum are {512 * 7 * 7 * 4096 * 4 // MIB} MiB each"],
}


@pytest.mark.parametrize(("page", "fact"), [(page, fact) for page, facts in FACTS.items() for fact in facts])
def test_figures_are_those_of_the_code(page, fact):
    assert fact in words(page)


def test_sets_of_rules_are_counted():
    assert len(AUTO) == 4 + 11 and sum(not rules.remats for rules in AUTO) == 1 and not AUTO[-1].remats
    assert sum(rules.memory_share < 1 for rules in AUTO) == 4


# -- of the models' prototxts ------------------------------------------------------------------------------------------
def test_multipliers_of_models():
    quick = (ROOT / "models/cifar10_full/train_val.prototxt").read_text()
    [decay] = said("models/cifar10_full/README.md", r"under strong weight decay \((\d+) times the solver's\)")
    assert re.findall(r"decay_mult: ([\d.]+)", quick).count(f"{decay:.1f}") == 1
    [weight] = said(
        "models/googlenet/README.md", r"`inception_4a` and `inception_4d`\) ([\d.]+) times, `loss3/loss3` once"
    )
    losses = re.findall(r"loss_weight: ([\d.]+)", (ROOT / "models/googlenet/train_val.prototxt").read_text())
    assert sorted(map(float, losses)) == [weight, weight, 1]


def _row(model: str) -> list[str]:
    """The cells of a model's row in models/README.md."""
    [row] = re.findall(rf"^\| \[{re.escape(model)}\]\(.*\) \| (.*) \|$", (ROOT / "models/README.md").read_text(), re.M)
    return row.split(" | ")


def test_squeezenet_does_fewer_operations():
    [fewer] = said("models/squeezenet-1.1/README.md", r"([\d.]+) times fewer operations than 1\.0")
    old, new = (float(_row(f"squeezenet-1.{k}")[1].split()[0]) for k in (0, 1))
    assert fewer == round(old / new, 1)


def test_a_volume_in_core():
    [size] = said("models/unet-3d/README.md", r"One volume of 192x192x192 takes ([\d.]+) GiB without LMS")
    assert f"{size} GiB" in _row("unet-3d")


def test_the_net_of_seven_billion_values():
    budget, least = said(
        "docs/transformers.md", r"7 billion values trains in (\d+) GB, and its least budget is ([\d.]+) GiB"
    )
    assert f"-lms_budget {budget:.0f}GB" in words("models/llama-7b/README.md")
    assert f"{least} GiB |" in words("models/llama-7b/README.md")


def test_memory_of_transformers():
    rows = _table("docs/transformers.md", 3)
    rows = [r for r in rows if r[0].startswith("[") and r[1].endswith("GiB")]
    for said_of, whole, least in rows:
        model, batch = re.match(r"\[([\w.-]+)\]\(\S+\), (\d+)", said_of).groups()
        assert f"| {batch} | {whole} | {least} |" in (ROOT / "models" / model / "README.md").read_text()
    assert len(rows) == 5


def test_a_snapshot_of_resnet_50_is_its_parameters_and_their_momentum():
    [size] = said("docs/speed.md", r"what a snapshot of (\d+) MiB costs")
    assert size == round(2 * 4 * int(_row("resnet-50")[0].replace(",", "")) / MIB)


@pytest.mark.thorough
def test_memory_of_batch_1024():
    [size] = said("docs/speed.md", r"Batch 1024, which would take (\d+) GiB, runs")
    parsed = read_net(str(ROOT / "models/resnet-152/train_val.prototxt"))
    more = {"level": 0, "stages": (), "rule": RULES["SGD"], "lms": LMSConfig(), "workspace": 36 * 10**6}
    nets = Nets(parsed, ["data=1024,3,224,224"], machine=H200, **more)
    assert nets.in_core().nbytes == pytest.approx(size * GIB, rel=0.01)


# -- of tables and records ---------------------------------------------------------------------------------------------
def _table(page: str, columns: int) -> list[list[str]]:
    lines = [line.strip("|").split("|") for line in (ROOT / page).read_text().splitlines() if line[:1] == "|"]
    return [[cell.strip() for cell in line] for line in lines if len(line) == columns]


def test_sums_on_two_gpus_cost_more_than_predicted():
    low, high = said(
        "docs/benchmark.md", r"\(scaling\.md#compared-with-our-measurements\) were (\d+) to (\d+) points lower"
    )
    errors = [float(r[5].split()[0]) for r in _table("docs/scaling.md", 7) if r[5].endswith("points")]
    assert len(errors) == 4 and low <= min(errors) and high - 1 < max(errors) <= high


def test_what_flags_do_on_two_gpus():
    rows = {(r[0], r[1]): float(r[4].rstrip("%")) for r in _table("docs/scaling.md", 5) if r[4].endswith("%")}
    recorded, steps = said("docs/many_hosts.md", r"bf16 is ([\d.]+)% recorded and ([\d.]+)% step by step, on")
    few, both = said("docs/many_hosts.md", r"it reaches ([\d.]+)% step by step, or ([\d.]+)% recorded")
    found = [rows["bf16", how] for how in ("recorded", "step by step")]
    found += [rows["bf16", f"{how}, `NCCL_MAX_CTAS=4`"] for how in ("step by step", "recorded")]
    assert [recorded, steps, few, both] == found
    later = {r[1]: float(r[5].rstrip("%")) for r in _table("docs/scaling.md", 6) if r[0] == "ResNet-50, bf16"}
    slow = said("docs/many_hosts.md", r"on two H200s, where the host was too slow, ([\d.]+)% and ([\d.]+)%")
    assert list(slow) == [later["recorded, another day"], later["step by step"]]


def test_what_a_driver_reports_beyond_a_budget():
    beyond, two, four = said(
        "docs/benchmark.md",
        r"recorded graphs besides, here ([\d.]+) GiB; with two GPUs NCCL takes ([\d.]+) GiB more, with four ([\d.]+)\.",
    )
    page = (ROOT / "docs/benchmark.md").read_text()
    for part, ranks, more in (("cuda", "1", 0), ("several", "2, recorded", two), ("several", "4, recorded", four)):
        rows = re.search(f"<!-- scenarios {part}: generated -->(.*?)<!-- scenarios {part}: end -->", page, re.DOTALL)[1]
        memory = re.findall(rf"\| -lms auto \| {ranks} \| tf32 \| \S+ \| \S+ \| ([\d.]+) GiB", rows)
        assert memory and max(map(float, memory)) == pytest.approx(16 + beyond + more)


def test_resnet_50_of_pytorch():
    [row] = [r for r in _table("docs/speed.md", 13) if r[:2] == ["resnet-50", "256"]]
    budget, share, size = said("docs/speed.md", r"In ([\d.]+) GiB, (\d+)% of the ([\d.]+) GiB that PyTorch needs")
    assert f"{size:.1f}" == row[10] and share == round(100 * budget / size)


def test_where_the_net_fits():
    low, high, budget, percent = said(
        "docs/speed.md",
        r"At batches (\d+) to (\d+) in (\d+) GB, `auto` takes as long as `memory` and `off`, within (\d+)%",
    )
    rows = [r for r in _table("docs/speed.md", 12) if r[0] == "resnet-152" and r[1] == f"{budget}"]
    rows = [r for r in rows if low <= float(r[2]) <= high]
    ms = {(r[2], r[3]): float(r[4]) for r in rows}
    assert len(rows) == 16
    pairs = [(batch, other) for batch in ("8", "16", "32", "64") for other in ("memory", "off")]
    most = max(abs(ms[batch, "auto"] / ms[batch, other] - 1) for batch, other in pairs)
    assert percent - 1 < 100 * most <= percent


def test_copies_only():
    budget, batch, ms, into, out = said(
        "docs/speed.md",
        r"(\d+) GB and batch (\d+), an iteration takes ([\d.]+) ms and copies ([\d.]+) GiB in and ([\d.]+) out",
    )
    cells = ["resnet-152", f"{budget:.1f}", f"{batch:.0f}", "1000", f"{ms:.1f}"]
    [row] = [r for r in _table("docs/speed.md", 12) if r[:5] == cells]
    assert row[6:8] == [f"{into:.1f}", f"{out:.1f}"]


def test_hosts_that_limit_pytorch():
    """An iteration takes as long as the host takes to issue it, or longer."""
    text = r"limits DenseNet and Inception \((\d+) and (\d+) ms to issue an iteration, ours ([\d.]+) and ([\d.]+)\)"
    theirs, ours = (lambda f: (f[:2], f[2:]))(said("docs/speed.md", text))
    rows = [r for r in _table("docs/speed.md", 8) if r[2] == "bf16" and r[0] in ("densenet-121", "inception-v3")]
    for row, their, our in zip(rows, theirs, ours, strict=True):
        assert 0.8 * float(row[5]) < their < float(row[5]) and our < float(row[3]) < their


def test_planned_cases():
    shares = said("docs/plan_search.md", r"of the zoo, at (\d+)%, (\d+)% and (\d+)% of the way from the least budget")
    assert shares == [5, 25, 60]
    cases = json.loads((ROOT / "docs/plan_search.json").read_text())["cases"]
    for share in shares:
        assert len([case for case in cases if case.split()[1] == f"{share:.0f}%"]) >= 12
    ratios = json.loads((ROOT / "docs/plan_search.json").read_text())["ratios"]["work = 3000000"]
    more, less = said("docs/plan_search.md", r"ResNet-152 in 3 GB changes by \+([\d.]+)% and in 2\.4 GB by -([\d.]+)%")
    assert (more, less) == (
        round(100 * (ratios["resnet-152 3GB"] - 1), 1),
        round(100 * (1 - ratios["resnet-152 2.4GB"]), 1),
    )


def test_what_is_measured_of_the_search():
    [least] = said("docs/plan_search.md", r"each change that moves its own prediction by ([\d.]+)% or more")
    assert f"EFFECT = {least / 100:g}" in (ROOT / "tools/bench/ablation.py").read_text()
    [vgg] = said("docs/plan_search.md", r"VGG-16 in 6 GB stays at ([\d.]+) ms")
    measured = json.loads((ROOT / "docs/plan_measured.json").read_text())
    assert vgg == round(1e3 * measured["vgg-16 6GB"][""][1], 1)
    [gain] = said("docs/plan_search.md", r"the sets gain (\d+)% for ResNet-152 in 2 GB, in less time")
    [row] = [r for r in _table("docs/plan_search.md", 4) if r[0] == "resnet-152, 2 GB"]
    assert gain == round(100 * (1 - float(row[2]) / float(row[1])))
    plain = [r for r in _table("docs/plan_search.md", 4) if " GB" in r[0] and re.fullmatch(r"[\d.]+", r[1])]
    [worse] = [r[0] for r in plain if float(r[2]) > float(r[1])]
    assert worse == "resnet-50, 2.56 GB" and "ResNet-50 in 2.56 GB is the one figure that got worse" in words(
        "docs/plan_search.md"
    )
