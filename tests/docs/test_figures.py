"""Figures that pages state in words or small tables are those of the code, or follow from measured tables."""

from __future__ import annotations

import importlib
import re
import sys
from math import log2

import numpy as np
import pytest

from pycaffe_lms.cli.main import main
from pycaffe_lms.cli.views.plan_nets import PAGE, Nets
from pycaffe_lms.formats.prototxt.parser import Lines, Parsed, read_net
from pycaffe_lms.lms.config import LMSConfig
from pycaffe_lms.lms.cost.machine import MACHINES
from pycaffe_lms.lms.program import Mode
from pycaffe_lms.lms.rules import SEARCH
from pycaffe_lms.lms.runtime import compression, link_rates
from pycaffe_lms.net.inspect.account import buffer_kinds
from pycaffe_lms.net.program import programs
from pycaffe_lms.net.run import replay_benchmark
from pycaffe_lms.net.tuning import Tuning
from pycaffe_lms.solvers.rules import RULES

from .pages import ROOT

GIB = 1 << 30
LMS, SPEED = (" ".join((ROOT / "docs" / name).read_text().split()) for name in ("lms.md", "speed.md"))
_WORDS = {4: "four", 6: "sixth"}


@pytest.fixture
def tool(monkeypatch):
    """Import a module of tools/ or tools/bench/."""
    monkeypatch.syspath_prepend(str(ROOT / "tools" / "bench"))
    monkeypatch.syspath_prepend(str(ROOT / "tools"))
    yield importlib.import_module
    for name, module in [*sys.modules.items()]:  # other tests import their own
        if str(getattr(module, "__file__", None)).startswith(f"{ROOT / 'tools'}/"):
            del sys.modules[name]


# -- docs/lms.md -------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    "said",
    [
        f"any free pages of {PAGE >> 20} MiB are mapped",
        f"an arena of less than {SEARCH.few_pages} pages",
        f"at least a {_WORDS[programs.SMALL]} of the elements of the largest",
        f"at most {SEARCH.split_slow} times that of its steps",
        f"cut in two (at a multiple of {SEARCH.piece >> 20} MiB;",
        f"more than {link_rates.CLOSE:.0%} faster or slower",
        f"at most {compression.PIECE >> 20} MB for each direction, and at most a {compression.SHARE}th of",
        f"fp16 keeps {np.finfo(np.float16).nmant + 1} binary digits",
        f"finite values beyond {np.finfo(np.float16).max:.0f} become",
        f"VGG-16's `fc6` is {4 * 512 * 7 * 7 * 4096 >> 20} MiB",
    ],
)
def test_numbers_of_lms_are_those_of_the_code(said):
    assert said in LMS


def test_fp16_loses_digits_where_the_page_says():
    assert log2(6e-5) == pytest.approx(log2(np.finfo(np.float16).tiny), abs=0.1) and "Values below 6e-5" in LMS
    assert float(np.float16(3.1e-8)) > 0 == float(np.float16(2.9e-8)) and "below 3e-8 none" in LMS


def test_a_transformer_in_memory_is_predicted_within_a_tenth(tool):
    """Of 269 ms, measured on an H200 (docs/speed.md) with the scores as a whole."""
    transformer = tool("transformer")
    net = Parsed(transformer.net_of(transformer.NETS["1.3b"], 8, 2048), Lines(), None)
    more = {"level": 0, "stages": (), "rule": RULES["AdamW"], "lms": LMSConfig(), "workspace": None, "half": True}
    assert Nets(net, (), machine=MACHINES["h200"], **more).in_core().seconds == pytest.approx(0.269, rel=0.1)


def _kept(model: str, shape: str, masks: bool) -> float:
    """MiB of activations and saved choices that forward makes and a later step reads, arranged as on a GPU."""
    tuning = Tuning(channels_last=True, fuse=True, pack=True, masks=masks)
    more = {"level": 0, "stages": (), "rule": RULES["SGD"], "machine": MACHINES["h200"], "workspace": None}
    parsed = read_net(str(ROOT / "models" / model / ("train_val.prototxt" if shape else "train_dummy.prototxt")))
    nets = Nets(parsed, [shape] if shape else [], lms=LMSConfig(1), tuning=tuning, **more)
    net, updates = nets.build(nets.lms)
    kinds, made, seen, kept = buffer_kinds(net.memory), set(), set(), set()
    for step in net.program_of(updates).program.steps:
        for access in step.accesses:
            b = access.buffer
            if kinds[b] in ("parameters", "gradients"):
                continue
            if step.name.startswith("forward:"):
                made |= {b} if access.mode is not Mode.READ else set()
            elif b not in seen:
                seen.add(b)
                kept |= {b} & made if access.mode is not Mode.OVERWRITE else set()
    return sum(net.memory.buffers[b].nbytes for b in kept) / (1 << 20)


MASKED = {
    "vgg-16": "data=32,3,224,224",
    "googlenet": "data=32,3,224,224",
    "alexnet": "data=128,3,227,227",
    "resnet-50": "data=32,3,224,224",
}


@pytest.mark.parametrize(
    "model", [pytest.param(m, marks=pytest.mark.thorough if m in ("vgg-16", "resnet-50") else ()) for m in MASKED]
)
def test_bytes_that_masks_save(model):
    row = re.search(rf"\| {model}(?: \([^)]*\))? \| ([\d.]+) \| ([\d.]+) \|", LMS)
    assert row.groups() == tuple(f"{_kept(model, MASKED[model], masks):.1f}" for masks in (False, True))


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("model", "size"), [("densenet-121", 224), ("inception-v3", 299), ("mobilenet-v2", 224), ("unet-3d", 0)]
)
def test_masks_save_nothing_in(model, size):
    [named] = re.findall(r"\| ([^|]*) \| the same with both", LMS)
    shape = f"data=32,3,{size},{size}" if size else ""  # unet-3d's file has its own
    assert model in named and _kept(model, shape, False) == _kept(model, shape, True)


@pytest.mark.thorough
def test_copies_in_16_bits_cost_what_the_table_says(tool, tmp_path):
    """Errors to their first digit, since libraries sum in other orders; bytes as they are."""
    lossy = tool("lossy")
    assert main(["dataset", "digits", "-out", str(tmp_path)]) == 0
    for kind, *errors, accuracy, copied in lossy.rows(tmp_path):
        cells = re.search(rf"\| {kind} \| (\S+) \| (\S+) \| (\S+) \| (\S+) \| (\S+) \|", LMS).groups()
        assert [float(c) for c in cells[:3]] == [pytest.approx(e, rel=0.3) for e in errors]
        assert float(cells[3]) == pytest.approx(accuracy, abs=0.01) and cells[4] == f"{copied:.2f}"


# -- docs/speed.md -----------------------------------------------------------------------------------------------------
@pytest.fixture
def measured(tool):
    """{(net, batch, budget in GiB, mode): row} of the table of training under a budget."""
    found = tool("lms_table").read_markdown((ROOT / "docs" / "speed.md").read_text())
    return {(r["model"], r["batch"], r["budget"] and round(r["budget"] / GIB, 2), r["who"]): r for r in found}


def _close(said: str, value: float) -> bool:
    """Whether a figure is a value rounded to its digits, which was computed from figures that are rounded too."""
    said = said.rstrip(".")  # of a sentence
    digits = len(said.partition(".")[2])
    return abs(float(said) - value) <= 0.55 * 10**-digits + 0.002 * abs(value)


def test_what_is_said_of_the_table_of_budgets_follows_from_it(measured):
    def ms(*key):
        return 1e3 * measured[key]["seconds"]

    def gib(*key):
        return measured[key]["device_peak"] / GIB

    r152, r50, unet = ("resnet-152", 256), ("resnet-50", 256), ("unet-3d", 1)
    core, core50 = ms(*r152, 16.0, "memory"), ms(*r50, 16.0, "memory")
    for batch in (8, 16, 32, 64):
        assert abs(ms("resnet-152", batch, 16.0, "auto") / ms("resnet-152", batch, 16.0, "memory") - 1) <= 0.02
    facts = {
        r"At batch 128, where ([\d.]+) GiB are missing": gib("resnet-152", 128, 16.0, "memory") - 16,
        r"are missing, it takes ([\d.]+) times as long": ms("resnet-152", 128, 16.0, "auto")
        / ms("resnet-152", 128, 16.0, "memory"),
        r"runs at (\d+) images/s in 16 GB, about as fast": 1024e3 / ms("resnet-152", 1024, 16.0, "auto"),
        r"as PyTorch runs batch 256 in ([\d.]+) GiB": gib(*r152, 16.0, "torch:memory"),
        r"\(`-lms_split auto`\) at (\d+) images/s": 2048e3 / ms("resnet-152", 2048, 16.0, "auto"),
        r"is 2\.0 GiB, (\d+)% of what it takes in memory": 100 * 2 / gib(*r152, 16.0, "memory"),
        r"in memory, at ([\d.]+) of its full speed": core / ms(*r152, 2.0, "auto"),
        r"full speed and ([\d.]+) times that of `save_on_cpu`": ms(*r152, 16.0, "torch:save_on_cpu")
        / ms(*r152, 2.0, "auto"),
        r"In 3\.0 GiB it runs at ([\d.]+)": core / ms(*r152, 3.0, "auto"),
        r"The 3-D U-Net in 16 GB runs at ([\d.]+)": ms(*unet, 16.0, "memory") / ms(*unet, 16.0, "auto"),
        r"speed in memory, ([\d.]+) times as fast as `save_on_cpu`": ms(*unet, None, "torch:save_on_cpu")
        / ms(*unet, 16.0, "auto"),
        r"`save_on_cpu`, which needs ([\d.]+) GiB": gib(*unet, None, "torch:save_on_cpu"),
        r"an iteration takes ([\d.]+) ms and copies": ms(*r152, 16.0, "1000"),
        r"copies [\d.]+ GiB in and [\d.]+ out: (\d+) images/s": 256e3 / ms(*r152, 16.0, "1000"),
        r"images/s, ([\d.]+) times the throughput of offloading": ms(*r152, 16.0, "torch:offload")
        / ms(*r152, 16.0, "1000"),
        r"ResNet-50 at batch 256 needs ([\d.]+) GiB in memory": gib(*r50, 16.0, "memory"),
        r"In 2\.56 GiB, which is (\d+)% of that": 100 * 2.56 / gib(*r50, 16.0, "memory"),
        r"of that, it runs at ([\d.]+) of its full speed, and in": core50 / ms(*r50, 2.56, "auto"),
        r"and in 2\.8 GiB at ([\d.]+)": core50 / ms(*r50, 2.8, "auto"),
        r"that PyTorch needs, it runs at ([\d.]+)": core50 / ms(*r50, 3.0, "auto"),
        r"Batch 1440, which needs ([\d.]+) GiB in memory": gib("resnet-50", 1440, 16.0, "memory"),
        r"GiB in memory, runs in 16 GB at ([\d.]+) of its full speed": ms("resnet-50", 1440, 16.0, "memory")
        / ms("resnet-50", 1440, 16.0, "auto"),
        r"A tensor of ResNet-50's second stage has (\d+) MiB": 256 * 256 * 56 * 56 * 4 / (1 << 20),
        r"of which 2\.56 GiB hold ([\d.]+)": 2.56 * GIB / (256 * 256 * 56 * 56 * 4),
        r"PCIe 5 x16: (\d+) GB/s each way": MACHINES["h200"].link_in / 1e9,
        r"GB/s each way, (\d+) both": MACHINES["h200"].link_both / 1e9,
    }
    for pattern, value in facts.items():
        found = re.search(pattern, SPEED)
        assert found, pattern
        assert _close(found[1], value), (pattern, found[1], value)
    copied = [float(x) for x in re.search(r"copies ([\d.]+) GiB in and ([\d.]+) out", SPEED).groups()]
    [share] = re.findall(r"the copies would take (\d+)% of that time", SPEED)
    assert _close(share, 100 * sum(copied) * GIB / 55e9 / (ms(*r152, 16.0, "1000") / 1e3))


def test_images_per_second_of_the_table_of_budgets_follow_from_its_times():
    rows = [
        [c.strip() for c in line.strip("|").split("|")] for line in (ROOT / "docs/speed.md").read_text().splitlines()
    ]
    rows = [r for r in rows if len(r) == 12 and r[5].isdigit()]
    assert len(rows) > 40
    for r in rows:
        assert abs(int(r[5]) - 1e3 * int(r[2]) / float(r[4])) <= 0.5 + 0.06 * 1e3 * int(r[2]) / float(r[4]) ** 2, r


@pytest.mark.parametrize(
    "said",
    [
        f"in {_WORDS[replay_benchmark.RUNS]} timed runs of each",
        f"A graph that takes at most {replay_benchmark.CLOSE - 1:.0%} longer is preferred",
        "A plan assumes 36 MB of workspace for every convolution",
    ],
)
def test_numbers_of_speed_are_those_of_the_code(said, tool):
    assert said in SPEED and tool("gen_plan_pictures").WORKSPACE == "36MB"


def test_two_gpus_and_snapshots():
    one, two, share = re.search(r"(\d+) images/s on one, (\d+) on two \(([\d.]+)% of twice as many\)", SPEED).groups()
    assert _close(share, 50 * int(two) / int(one))
    for iteration, lost, part in re.findall(r"\| ([\d.]+) \| ([\d.]+) \| ([\d.]+)% \| \d+ \|", SPEED):
        assert _close(part, 100 * float(lost) / float(iteration))


def test_shares_of_a_copy_are_those_of_the_rates():
    """Each layer's table: of the rate of a copy within device memory."""
    copy = int(re.search(r"a copy within device memory \((\d+) GB/s", SPEED)[1])
    rows = [
        [c.strip() for c in line.strip("|").split("|")] for line in (ROOT / "docs/speed.md").read_text().splitlines()
    ]
    pairs = [(r[2 + k], r[3 + k]) for r in rows if len(r) == 7 for k in (0, 3) if r[3 + k][:1].isdigit()]
    assert len(pairs) > 80
    for rate, share in pairs:
        assert _close(share, int(rate) / copy), (rate, share)


@pytest.mark.thorough
def test_predictions_are_those_of_plan(tool):
    assert tool("gen_predictions").main(["--check"]) == 0, "run: python tools/gen_predictions.py"


def test_limits_are_those_of_the_nets_and_below_what_was_measured(tool):
    roofline = tool("gen_roofline")
    assert roofline.main(["--check"]) == 0, "run: python tools/gen_roofline.py"
    text = (ROOT / "docs" / "speed.md").read_text()
    for math, rate in roofline.PRODUCTS.items():
        assert f"{rate / 1e12:.0f} TFLOP/s ({math})" in " ".join(text.split())
    assert f"the bytes at {roofline.MEMORY / 1e12:.1f} TB/s" in " ".join(text.split())
    # ResNet-50 by hand: 3.86 billion multiplications and additions a picture (He et al. 2015), three passes; the first
    # layer needs no gradient of the pictures
    work = roofline.work_of("resnet-50", 256, "TF32")
    assert work.flops == pytest.approx(3 * 2 * 3.86e9 * 256, rel=0.03) and work.ms < 64.8


def test_predictions_may_be_off_by_a_little_and_measured_times_not_at_all(tool):
    predictions, text = tool("gen_predictions"), (ROOT / "docs" / "speed.md").read_text()
    row = "| resnet-152 | 256 | without LMS | 143.5 | 139.6 | 0.97 |"
    assert row in text and predictions.is_current(text, text.replace(row, row.replace("139.6", "141.0")))
    for old, new in (("139.6", "145.0"), ("143.5", "143.6"), ("without LMS", "without")):
        assert not predictions.is_current(text, text.replace(row, row.replace(old, new)))
    known = predictions.measured(text)
    for net, batch, mode in predictions.cases():
        way, _, budget = mode.partition(" ")
        flags = f"`-lms {way}`, {budget.removesuffix('.0')} GB" if budget else "without LMS"
        assert f"| {net} | {batch} | {flags} | {known[net, str(batch), mode]} |" in text


def test_the_largest_layers_of_batch_2048_are_as_large_as_said():
    """Three blobs of the first block and the saved bits, for 2048 images."""
    [said] = re.findall(r"Batch 2048, whose layers would need ([\d.]+) GiB as a whole", SPEED)
    blob = 2048 * 256 * 56 * 56 * 4
    assert 3 * blob < float(said) * GIB < 3.2 * blob


def test_a_figure_that_is_off_is_found():
    assert _close("0.34", 0.3357) and not _close("0.34", 0.352) and _close("599", 598.8) and not _close("599", 605.0)
