"""What pages say in words about measurements follows from the tables and records of these measurements."""

from __future__ import annotations

import json
import re

import pytest

from .pages import ROOT

DOCS = ROOT / "docs"
SPEED = (DOCS / "speed.md").read_text()


def words(page: str) -> str:
    """A page's text in one line."""
    return " ".join((ROOT / page).read_text().split())


def rows(columns: int, text: str = SPEED) -> list[list[str]]:
    """The rows of tables with as many columns, cell by cell."""
    lines = [line.strip("|").split("|") for line in text.splitlines() if line[:1] == "|"]
    return [[cell.strip() for cell in line] for line in lines if len(line) == columns]


def said(page: str, pattern: str) -> list[str]:
    """The figures of the only sentence of a page that matches."""
    [found] = re.findall(pattern, words(page))
    return [found] if isinstance(found, str) else list(found)


def near(figure: str, value: float) -> bool:
    """Whether a figure is a value rounded to its digits, computed from figures that are rounded, too."""
    return abs(float(figure) - value) <= 0.55 * 10 ** -len(figure.partition(".")[2]) + 0.004 * abs(value)


IN_CORE = {r[0]: r for r in rows(13) if r[1] == "256" or r[0] in ("vgg-16", "alexnet")}
MORE = {(r[0], r[2]): r for r in rows(8) if r[2] in ("TF32", "bf16")}
BUDGETS = {(r[1], r[3]): r for r in rows(12) if r[0] == "resnet-152" and r[2] == "256"}
CPU = {
    r[0].partition(" ")[0]: float(r[1]) for r in rows(5) if r[0].startswith(("AlexNet (", "GoogLeNet (", "ResNet-50 ("))
}
PLAIN_CPU = {r[0].partition(",")[0]: float(r[1]) for r in rows(5) if r[0].endswith("without oneDNN")}
INFERENCE = {(r[0], r[1]): r for r in rows(8) if r[1] in ("1", "8") and r[2][0].isdigit()}


# -- docs/speed.md -----------------------------------------------------------------------------------------------------
def test_what_to_expect_of_speed():
    """The ranges and shares at the top of the page are those of its tables."""
    full = [r for r in rows(13) if r[1].isdigit()]
    compiled = [float(r[12]) for r in full if r[1] != "16"] + [float(r[7]) for r in MORE.values() if r[2] == "TF32"]
    eager = [float(r[7]) for r in full]
    inference = [float(r[7]) for r in INFERENCE.values()]
    onednn = [float(r[3]) for r in rows(5) if r[0].startswith(("AlexNet (", "GoogLeNet (", "ResNet-50 ("))]
    for pattern, found in (
        (r"take ([\d.]+) to ([\d.]+) times as long as compiled PyTorch", compiled),
        (r"PyTorch, and ([\d.]+) to ([\d.]+) times as long as PyTorch that is not compiled", eager),
        (r"takes ([\d.]+) to ([\d.]+) times as long as a CUDA graph of PyTorch", inference),
        (r"with oneDNN: ([\d.]+) to ([\d.]+) times as long as PyTorch", onednn),
    ):
        assert [float(x) for x in said("docs/speed.md", pattern)] == [min(found), max(found)], pattern
    [transformer] = said("docs/speed.md", r"A transformer takes ([\d.]+) times as long as compiled PyTorch")
    assert [transformer] == said("docs/speed.md", r"ours takes ([\d.]+) times as long as the compiled net with 8 seq")
    [taken] = said("docs/speed.md", r"ResNet-152 at batch 256 takes ([\d.]+) GiB")
    assert taken == BUDGETS["16.0", "memory"][9]
    one, two = said("docs/speed.md", r"(\d+) images/s on one, (\d+) on two")
    [gain] = said("docs/speed.md", r"\*\*Two GPUs\*\* train ([\d.]+) times as fast as one")
    assert near(gain, int(two) / int(one))
    assert all(near(r[3].removesuffix("%"), 0.5) for r in rows(5) if r[3].endswith("%"))  # half a percent of a snapshot


def test_ratios_of_more_nets():
    assert len(MORE) == 12
    for r in MORE.values():
        assert r[7] == "-" or near(r[7], float(r[3]) / float(r[5])), r


def test_later_times_of_three_nets():
    squeezenet, unet, *ratios = said(
        "docs/speed.md", r"take ([\d.]+) and ([\d.]+) ms \(([\d.]+) and ([\d.]+); the same"
    )
    for ms, ratio, net in ((squeezenet, ratios[0], "squeezenet-1.1"), (unet, ratios[1], "unet-2d")):
        assert near(ratio, float(ms) / float(MORE[net, "TF32"][5])) and float(ms) < float(MORE[net, "TF32"][3])
    assert said("docs/speed.md", r"VGG-16 takes [\d.]+ instead of ([\d.]+)\.") == [IN_CORE["vgg-16"][2]]


def test_vision_transformers():
    compiled, memory, auto = [r for r in rows(6) if r[0] == "vit-l-16"]
    for r in (compiled, memory, auto):
        assert near(r[5], 256 / float(r[3]) * 1e3)
    [ratio] = said("docs/speed.md", r"Ours takes ([\d.]+) times as long as the compiled net")
    assert near(ratio, float(memory[3]) / float(compiled[3]))
    longer, low = said(
        "docs/speed.md", r"In 8 GB it takes ([\d.]+) times as long as in memory; the prediction is (\d+)% too low"
    )
    assert near(longer, float(auto[3]) / float(memory[3])) and near(low, 100 * (1 - float(auto[4]) / float(auto[3])))


def test_rates_of_volumes():
    """Voxels by time, compared to the volume in memory."""
    small, *large = [r for r in rows(5, (DOCS / "lms.md").read_text()) if re.fullmatch(r"\d+ x \d+ x \d+", r[0])]
    before, after = (eval(r[0].replace("x", "*")) for r in (small, large[0]))
    assert len(large) == 3
    for r in large:
        assert r[0] == large[0][0] and near(r[4], after / float(r[2]) / (before / float(small[2]))), r
    assert said("docs/lms.md", r"The large volume has (\d+) million voxels") == [f"{after / 1e6:.0f}"]


def test_starts():
    """The least and the most of the table's columns."""
    found = [r for r in rows(6) if re.fullmatch(r"[\w.-]+:\d+ \w+", r[0])]
    assert len(found) == 10
    words_of = said(
        "docs/speed.md",
        r"building a net takes ([\d.]+) to ([\d.]+) s if it was built before .*?, else ([\d.]+) to ([\d.]+) s; "
        r"with three iterations ([\d.]+) to ([\d.]+) s, else ([\d.]+) to ([\d.]+) s",
    )
    columns = [[float(r[k]) for r in found] for k in (4, 1, 5, 2)]
    assert [float(w) for w in words_of] == [x for column in columns for x in (min(column), max(column))]
    assert all(float(r[1]) < float(r[2]) and float(r[4]) < float(r[5]) for r in found)


def test_larger_transformers():
    """Rates are tokens by time; the ratio and how low predictions are follow from the rows."""
    found = {(r[0], r[2]): r for r in rows(8) if r[0] in ("2.7b", "6.7b")}
    assert len(found) == 3
    for r in found.values():
        batch, length = map(int, r[1].split(" x "))
        assert float(r[6].replace(",", "")) == pytest.approx(1e3 * batch * length / float(r[4]), rel=3e-3), r
    memory, small, large = found["6.7b", "in memory"], found["2.7b", "auto"], found["6.7b", "auto"]
    [share] = said("docs/speed.md", r"does ([\d.]+) of the tokens per second in 24 GB that it does in memory")
    assert near(share, float(large[6].replace(",", "")) / float(memory[6].replace(",", "")))
    low = said("docs/speed.md", r"These predictions are (\d+)% and (\d+)% too low")
    assert all(near(p, 100 * (1 - float(r[5]) / float(r[4]))) for p, r in zip(low, (small, large), strict=True))
    into, back = said("docs/speed.md", r"in a step (\d+) bytes of each parameter go to the GPU .* and (\d+) come back")
    assert (int(into), int(back)) == (4 * (2 + 2), 4 * 3)  # float32: the weight twice and two moments; all three


def test_transformers():
    """Rates are tokens by time, operations by time have one factor; words repeat cells."""
    found = {(r[1], r[2]): r for r in rows(8) if r[0] == "1.3b"}
    assert len(found) == 9
    factors = []
    for (tokens, _), r in found.items():
        batch, length = map(int, tokens.split(" x "))
        rate = float(r[6].replace(",", ""))
        assert rate == pytest.approx(1e3 * batch * length / float(r[4]), rel=3e-3), r
        factors.append(float(r[7]) / rate)
    assert max(factors) / min(factors) < 1.005
    ratios = said("docs/speed.md", r"([\d.]+) times as long as the compiled net with 8 .*, and ([\d.]+) times with 16")
    ways = ("in memory, scores in chunks", "PyTorch, compiled")
    ours = {tokens: [float(found[tokens, way][4]) for way in ways] for tokens, _ in found}
    [longer] = said("docs/speed.md", r"as ours always is, PyTorch takes ([\d.]+) times as long as ours")
    assert near(longer, float(found["8 x 2048", "PyTorch, compiled, deterministic"][4]) / ours["8 x 2048"][0])
    assert all(near(ratio, memory / compiled) for ratio, (memory, compiled) in zip(ratios, ours.values(), strict=True))
    parts = said(
        "docs/speed.md", r"Of (\d+) ms of kernels.* take (\d+) .*, attention (\d+), the update (\d+), RMSNorm (\d+)\."
    )
    whole, *parts = map(float, parts)
    assert sum(parts) < whole <= float(found["8 x 2048", "in memory"][4])
    products = 2 * 3 * 8 * 2048 * 24 * (4 * 2048**2 + 3 * 2048 * 5504) + 2 * 3 * 8 * 2048 * 2048 * 32_000
    [rate] = said("docs/speed.md", r"\((\d+) TFLOP/s\), attention")
    assert near(rate, products / parts[0] / 1e9)
    chunks = found["8 x 2048", "auto, scores in chunks"], found["16 x 2048", "auto, scores in chunks"]
    longer = said(
        "docs/speed.md",
        r"8 GB the step takes ([\d.]+) times as long as in memory.* with 16 sequences ([\d.]+) times",
    )
    for times, (tokens, auto) in zip(longer, zip(ours, chunks, strict=True), strict=True):
        assert near(times, float(auto[4]) / float(found[tokens, "in memory, scores in chunks"][4]))
    low = said("docs/speed.md", r"Predictions are (\d+)% and (\d+)% too low")
    assert all(near(percent, 100 * (1 - float(r[5]) / float(r[4]))) for percent, r in zip(low, chunks, strict=True))


def test_ratios_of_inference():
    assert len(INFERENCE) == 12
    for r in INFERENCE.values():
        optimised, graph, half = float(r[4]), float(r[6]), 0.005  # times have two digits
        assert (
            (optimised - half) / (graph + half) - half <= float(r[7]) <= (optimised + half) / (graph - half) + half
        ), r


def test_what_onednn_gains():
    """docs/install.md says what GoogLeNet gains."""
    [gain] = said("docs/install.md", r"GoogLeNet trains ([\d.]+) times as fast on a CPU with oneDNN")
    assert near(gain, PLAIN_CPU["GoogLeNet"] / CPU["GoogLeNet"])


# -- other pages that repeat these tables ------------------------------------------------------------------------------
def test_optimised_nets():
    [gain] = said("docs/python.md", r"On an H200 it makes ResNet-50 ([\d.]+) times as fast")
    _, _, ours, _, optimised, *_ = INFERENCE["resnet-50", "1"]
    assert near(gain, float(ours) / float(optimised))


def test_resnet_152_in_tutorials_and_performance():
    taken, rate, budget, less = said(
        "docs/tutorials/4_larger_than_memory.md",
        r"256 pictures takes ([\d.]+) GiB and trains on (\d+) pictures a second\. In (\d+) GiB .* (\d+) a second",
    )
    assert [taken, rate] == [BUDGETS["16.0", "memory"][9], BUDGETS["16.0", "memory"][5]]
    assert less == BUDGETS[f"{budget}.0", "auto"][5]
    assert said("docs/performance.md", r"ResNet-152 at batch 256 takes ([\d.]+) GiB") == [taken]


def test_copies_of_a_small_net():
    """The tutorial's sentences about the lines that it shows, which the tests of its blocks compare with a run's."""
    page = "docs/tutorials/4_larger_than_memory.md"
    copied = said(page, r"So in every iteration (\d+) KiB were copied to the device, and (\d+) KiB to")
    assert [f"{kib}.0" for kib in copied] == said(page, r"for them, ([\d.]+) KiB in and ([\d.]+) KiB out per run")
    trained, tested = said(page, r"The runs are (\d+) iterations of training and (\d+) forward passes")
    assert [str(int(trained) + int(tested))] == said(page, r"LMS: (\d+) runs,")
    [host] = said(page, r"(\S+ GiB) of values go to host memory and back")
    assert [host] == said(page, r"with -lms auto \S+ GiB (\S+ GiB)")


def test_two_gpus():
    one, two = said("docs/speed.md", r"(\d+) images/s on one, (\d+) on two")
    [gain] = said("docs/tutorials/5_several_gpus.md", r"Two H200s train ResNet-50 ([\d.]+) times as fast as one")
    assert near(gain, int(two) / int(one))


def test_objects():
    """The tutorial has the log of the model's README, whose last row is among the results that it names."""
    page = "docs/tutorials/7_detect_objects.md"
    log = [r for r in rows(3, (ROOT / page).read_text()) if r[0].isdigit()]
    readme = (ROOT / "models" / "shapes_ssd" / "README.md").read_text()
    assert len(log) == 9 and log == [r for r in rows(3, readme) if r[0].isdigit()]
    first, second = said("models/shapes_ssd/README.md", r"test pictures: ([\d.]+) and ([\d.]+) were measured here")
    [other] = said(page, r"ended with ([\d.]+):")
    assert near(log[-1][2], float(first)) and near(other, float(second))
    *classes, mean = said(page, r"class1: ([\d.]+) class2: ([\d.]+) class3: ([\d.]+) detection_eval = ([\d.]+)")
    assert float(mean) == pytest.approx(sum(map(float, classes)) / 3, abs=1e-5) and near(first, float(mean))
    whole, least = said(page, r"It needs ([\d.]+ GiB) at batch 32\. .* trains it in ([\d.]+ GiB)")
    assert f"| 32 | {whole} | {least} |" in (ROOT / "models" / "ssd-300" / "README.md").read_text()


def test_letters():
    [guessed] = said("docs/tutorials/8_write_text.md", r"the net guesses ([\d.]+) of the letters of the unseen tales")
    assert said("models/char_gpt/README.md", r"of the tales: ([\d.]+) of the bytes of `val.bin`") == [guessed]


# -- docs/plan_search.md -----------------------------------------------------------------------------------------------
MEASURED = json.loads((DOCS / "plan_measured.json").read_text())
RATIOS = json.loads((DOCS / "plan_search.json").read_text())
PAGE = "docs/plan_search.md"


def _cells(name: str) -> dict[str, tuple[float, float]]:
    """{net and budget: (measured, predicted) ratio} of a change."""
    return {
        case: tuple(a / b for a, b in zip(one[name], one[""], strict=True))
        for case, one in MEASURED.items()
        if name in one
    }


def test_predictions_overstate():
    share, less, cells = said(
        PAGE, r"predicted to cost (\d+)% or more costs less when it is measured in (\d+) of (\d+) cells"
    )
    every = [cell for name in {n for one in MEASURED.values() for n in one} - {""} for cell in _cells(name).values()]
    costly = [(m, p) for m, p in every if p >= 1 + int(share) / 100]
    assert (sum(m < p for m, p in costly), len(costly)) == (int(less), int(cells))


def test_what_the_measured_table_shows():
    first = _cells("only the first rules, and copies")
    params = _cells("params_share = 0.0")
    surplus = _cells("all rules: surplus_weight = 1.0")
    reordering, predicted = _cells("reorder_work = 0")["vgg-16 6GB"]
    facts = {
        r"and the one that copies, AlexNet takes (\d+)% longer": first["alexnet 3.5GB"][0] - 1,
        r"Reordering of copies is predicted to gain (\d+)% for VGG-16": predicted - 1,
        r"ResNet-152 in 4 GB would be (\d+)% faster if parameters": 1 - params["resnet-152 4GB"][0],
        r"managed too, and ([\d.]+)% if bytes beyond": 1 - surplus["resnet-152 4GB"][0],
        r"the first one is predicted to cost GoogLeNet (\d+)%": params["googlenet 2.5GB"][1] - 1,
        r"GoogLeNet \d+%, and costs it ([\d.]+)% as measured": params["googlenet 2.5GB"][0] - 1,
    }
    for pattern, share in facts.items():
        [figure] = said(PAGE, pattern)
        assert near(figure, 100 * share), (pattern, 100 * share)
    assert abs(reordering - 1) < 0.005  # "nothing as measured there"
    useful = ("all rules: checkpoint_density = 0.0", "evict_in_place = False", "extension_shares = (0.0,)")
    low, high = map(
        int, said(PAGE, r"sets of rules gain (\d+)% to (\d+)% for the net that they help most, as measured")
    )
    gains = [max(m for m, _ in _cells(name).values()) - 1 for name in (*useful, "only the first rules, and copies")]
    assert [round(100 * gain) for gain in (min(gains), max(gains))] == [low, high], gains


def test_what_the_predicted_table_shows():
    ratios, auto = RATIOS["ratios"], [c for c in RATIOS["cases"] if " -lms " not in c]
    copies = [c for c in RATIOS["cases"] if c.endswith("-lms 1000")]
    assert said(PAGE, r"There are (\d+) cases with `-lms auto` and (\d+) with `-lms 1000`") == [
        str(len(auto)),
        str(len(copies)),
    ]
    assert len({c.split()[0] for c in auto}) == int(*said(PAGE, r"with `-lms 1000`: (\d+) nets of the zoo"))
    facts = {
        r"second order gains up to (\d) times the speed": max(ratios["large_lifetime_parts = 0"].values()),
        r"without this rule GoogLeNet takes ([\d.]+)% longer": 100 * (ratios["large_parts = 0"]["googlenet 5%"] - 1),
        r"longer in one case, ResNet-152 ([\d.]+)% in 3 GB": 100 * (ratios["large_parts = 0"]["resnet-152 3GB"] - 1),
        r"Cutting copies gains (\d+)% for ResNet-152 in 2 GB": 100
        * (ratios[f"piece = {1 << 62}"]["resnet-152 2GB"] - 1),
        r"for them up to (\d+)% is predicted, and nothing": 100
        * (max(r for c, r in ratios["reorder_work = 0"].items() if c.endswith("-lms 1000")) - 1),
    }
    for pattern, value in facts.items():
        [figure] = said(PAGE, pattern)
        assert near(figure, value), (pattern, value)


def test_a_figure_that_is_off_is_found():
    assert near("1.6", 1.604) and not near("1.6", 1.71) and near("17", 17.3) and not near("17", 18)
