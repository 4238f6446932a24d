"""Pages that are made of the code, or name what is in it, are current and whole."""

from __future__ import annotations

import ast
import math
import re
from pathlib import Path

import pytest

import pycaffe_lms as caffe
from pycaffe_lms.layers.registry import LAYERS, layer_class
from pycaffe_lms.lms.config import AUTO_BYTES
from pycaffe_lms.proto.caffe_pb2 import SolverParameter
from pycaffe_lms.solvers import SOLVERS
from pycaffe_lms.solvers.lr_policy import USES, learning_rate

from .pages import ROOT

DOCS = ROOT / "docs"


@pytest.fixture
def tool(monkeypatch):
    import importlib

    monkeypatch.syspath_prepend(str(ROOT / "tools"))
    return importlib.import_module


@pytest.mark.parametrize("name", ["gen_solver_docs", "gen_readme", "gen_import_docs"])
def test_the_file_is_current(tool, name):
    assert tool(name).main(["--check"]) == 0, f"run: python tools/{name}.py"


def test_pictures_of_the_small_net_are_current(tool):
    assert tool("gen_plan_pictures").main(["--check", "--small"]) == 0, "run: python tools/gen_plan_pictures.py"


@pytest.mark.thorough
def test_the_picture_of_the_readme_is_current(tool):
    assert tool("gen_plan_pictures").main(["--check"]) == 0, "run: python tools/gen_plan_pictures.py"


def test_a_picture_of_another_plan_is_not_current(tool):
    pictures, text = tool("gen_plan_pictures"), (DOCS / "memory_over_time.svg").read_text()
    label = re.search(r"without LMS: ([\d.]+) GiB", text)
    assert pictures.is_current(
        text, text.replace(label.group(), f"without LMS: {1.01 * float(label.group(1)):.1f} GiB")
    )
    assert not pictures.is_current(text, text.replace(label.group(), "without LMS: 12.3 GiB"))
    assert not pictures.is_current(text, text.replace("copied in", "copied out"))


def test_boxes_of_a_plan_are_what_it_says(tool):
    """At the most bytes of any step, copies and names: `plan` counts the same."""
    pictures = tool("gen_plan_pictures")
    plan = pictures.planned(*pictures.SMALL, "1000").plan
    steps = pictures.columns(plan)
    assert max(sum(plan.buffers[b].nbytes for b in c.held) for c in steps) == plan.held_bytes
    assert sum(plan.buffers[b].nbytes for c in steps for b in c.copied_in) == plan.bytes_in
    assert sum(plan.buffers[b].nbytes for c in steps for b in c.copied_out) == plan.bytes_out


def test_rates_are_those_of_the_solver(tool):
    """The page's formula of every policy, computed with Python's operators."""
    rates = tool("gen_solver_docs")._RATES
    assert tuple(rates) == tuple(USES)
    p = SolverParameter(base_lr=0.5, gamma=0.25, power=2.0, stepsize=4, max_iter=50, stepvalue=[3])
    p.stagelr[:], p.stageiter[:] = [0.5, 0.25, 0.125], [8, 9, 20]
    names = {f: getattr(p, f) for f in ("base_lr", "gamma", "power", "stepsize", "max_iter", "stagelr")}
    for policy, formula in rates.items():
        formula = re.sub(r"\(number of .*\)", "1", formula).replace("^", "**")
        formula = re.sub(r"the first `stagelr` .*", "stagelr[1]", formula)
        p.lr_policy = policy
        expected = eval(
            formula, {"floor": math.floor, "exp": math.exp, "cos": math.cos, "pi": math.pi, "iter": 9, **names}
        )
        steps = 1 if policy == "plateau" else 0  # so far: they depend on losses
        assert learning_rate(p, 9, steps).rate == pytest.approx(expected), policy


def test_every_field_of_a_solver_is_described():
    rows = re.findall(r"^\| `(\w+)` \| .* \| (.*) \|$", (DOCS / "solvers.md").read_text(), re.MULTILINE)
    assert {name for name, _ in rows} == {f.name for f in SolverParameter.DESCRIPTOR.fields}
    assert all(said for _, said in rows)


def _rows(columns):
    """Rows of docs/speed.md with as many columns, cell by cell."""
    lines = [line.strip("|").split("|") for line in (DOCS / "speed.md").read_text().splitlines() if line[:1] == "|"]
    return [[cell.strip() for cell in line] for line in lines if len(line) == columns]


def test_what_to_expect_is_what_was_measured():
    """Shares of the speed in memory, and predictions, against the tables of docs/speed.md."""
    text, top = (DOCS / "performance.md").read_text(), (DOCS / "speed.md").read_text().partition("## Measure")[0]
    ms = {(r[1], r[3]): float(r[4]) for r in _rows(12) if r[0] == "resnet-152" and r[2] == "256" and r[4][0].isdigit()}
    shares = re.findall(r"(\d+)% (?:of its full speed )?in (\d+) GB", " ".join((text + top).split()))
    assert len(shares) == 4 + 3
    for share, budget in shares:
        assert round(100 * ms["16.0", "memory"] / ms[f"{budget}.0", "auto"]) == int(share)
    flags = ("without LMS", "`-lms")
    ratios = [float(r[5]) for r in _rows(6) if r[0].startswith(("resnet", "unet")) and r[2].startswith(flags)]
    assert (
        "within an eighth" in text
        and "within an eighth" in top
        and len(ratios) > 20
        and all(7 / 8 <= ratio <= 9 / 8 for ratio in ratios)
    )


def test_sixteen_bits_cost_what_was_measured():
    """docs/lms.md and the ratios of docs/speed.md, against its table and its line about -math bf16."""
    words = " ".join((DOCS / "speed.md").read_text().split())
    (ms50, gib50, ms152, gib152, *ratios) = re.search(
        r"ResNet-50 at batch 256 ([\d.]+) ms and ([\d.]+) GiB, ResNet-152 ([\d.]+) ms and ([\d.]+) GiB: "
        r"([\d.]+) and ([\d.]+) of the time above, and ([\d.]+) of the memory",
        words,
    ).groups()
    of32 = {r[0]: (r[2], r[5]) for r in _rows(13) if r[1] == "256"}
    said = " ".join((DOCS / "lms.md").read_text().split())
    ms, gib = of32["resnet-50"]
    assert f"batch 256: {ms} ms and {gib} GiB with `tf32`, {ms50} ms and {gib50} GiB with `bf16`" in said
    found = [float(a) / float(b) for a, b in ((ms50, ms), (ms152, of32["resnet-152"][0]))]
    assert [f"{r:.2f}" for r in found] == ratios[:2]
    for memory, model in ((gib50, "resnet-50"), (gib152, "resnet-152")):
        assert float(memory) / float(of32[model][1]) == pytest.approx(float(ratios[2]), abs=0.01)


def test_ratios_of_speed_are_those_of_their_cells():
    """Columns `ours / it` and `ratio`: of the two times before, to the digits that these have."""

    def near(ratio, a, b):
        digits = [0.5 * 10.0 ** -len(x.partition(".")[2]) for x in (a, b)]
        low, high = (float(a) - digits[0]) / (float(b) + digits[1]), (float(a) + digits[0]) / (float(b) - digits[1])
        assert low - 0.0051 <= float(ratio) <= high + 0.0051, (ratio, a, b)

    incore = [r for r in _rows(13) if r[1].isdigit()]
    predicted = [r for r in _rows(6) if r[2].startswith(("without LMS", "`-lms"))]
    cpu = [r for r in _rows(5) if r[0].startswith(("AlexNet", "GoogLeNet", "ResNet"))]
    assert len(incore) >= 6 and len(predicted) >= 20 and len(cpu) == 6
    for r in incore:
        for its, ratio in ((6, 7), (8, 9), (11, 12)):
            near(r[ratio], r[2], r[its])
        near(r[3], str(1000 * int(r[1])), r[2])
    for r in predicted:
        near(r[5], r[4], r[3])
    for r in cpu:
        near(r[3], r[1], r[2])


VGG = ("vgg-16/train_val.prototxt", "-shape data=64,3,224,224", "layers whole")
UNET_3D = ("unet-3d/train_dummy.prototxt", "", "layers of the volume whole")


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("net", "flags"),
    [
        (VGG, ""),
        (VGG, "-lms_split 64"),
        (VGG, "-lms_split 64 -lms_split_outputs 16"),
        (UNET_3D, ""),
        (UNET_3D, "-lms_split_slabs 12"),
        (UNET_3D, "-lms_split_slabs 48"),
    ],
)
def test_least_budgets_are_those_of_plan(net, flags, capsys):
    """The tables of layers in parts and in slabs in docs/lms.md: figures, and the step that sets each."""
    from pycaffe_lms.cli.main import main

    file, more, whole = net
    row = f"`{flags}`" if flags else whole
    budget, step, layer = re.search(
        rf"^\| {re.escape(row)} \| (\d+) \| (\w+) of `(\w+)`", (DOCS / "lms.md").read_text(), re.MULTILINE
    ).groups()
    argv = ["plan", "-model", str(ROOT / "models" / file), "-lms", "auto", "-cache", "off", *more.split()]
    assert main([*argv, *flags.split()]) == 0
    said = capsys.readouterr().out
    assert re.search(rf'^Least budget .*-lms_budget {budget}MB\n  set by the {step} of "{layer}\b', said, re.MULTILINE)


def test_what_auto_never_manages_is_said():
    for page in ("lms.md", "lms_first_steps.md"):
        assert f"at most {AUTO_BYTES >> 10} KiB always stay on the" in (DOCS / page).read_text(), page


def test_supported_lists_every_solver():
    [named] = re.findall(r"^\| solvers \| ([\w, ]+); L1", (DOCS / "supported.md").read_text(), re.MULTILINE)
    assert set(named.split(", ")) == set(SOLVERS)


def test_supported_lists_every_layer_once():
    layer_class("ReLU")  # registers every type
    text = (DOCS / "supported.md").read_text().partition("\n## Everything else")[0]
    rows = re.findall(r"^\| [\w ]+ \| (`.*) \|$", text, re.MULTILINE)
    named = [name for row in rows for name in re.findall(r"`(\w+)`", row)]
    assert sorted(named) == sorted(set(LAYERS))


def test_every_public_name_is_in_the_python_reference():
    """`caffe.io`, `caffe.layers` and their like are modules or makers of names: told of by their short names."""
    text = (DOCS / "python_api.md").read_text()
    for name in set(caffe.__all__) - {"_caffe", "__version__", "proto"}:
        assert f"pycaffe_lms.{name}\n" in text or f"`caffe.{name}`" in text, name


@pytest.mark.parametrize("page", ["README.md", "docs/supported.md"])
def test_the_number_of_models_is_that_of_their_folders(page):
    [number] = re.findall(r"\[(\d+) models\]", (ROOT / page).read_text())
    assert int(number) == len(list((ROOT / "models").glob("*/README.md")))


def test_every_extra_is_on_the_page_of_installation():
    project = (ROOT / "pyproject.toml").read_text().partition("[project.optional-dependencies]\n")[2]
    extras = re.findall(r"^([a-z0-9]+) = ", project.partition("\n[")[0], re.MULTILINE)
    text = (DOCS / "install.md").read_text()
    assert len(extras) > 10
    table = re.findall(r"^\| (`[^|]*`) \|", text, re.MULTILINE)
    assert sorted(re.findall(r"`(\w+)`", " ".join(table))) == sorted(extras)  # each once


_READERS = ("os.getenv", *(f"os.environ.{method}" for method in ("get", "setdefault", "pop")))


def _read(tree: ast.AST) -> set[str]:
    """Names that a module reads from os.environ: literals, and constants of the module."""
    values: dict[str, list[ast.expr]] = {}  # of a name: what is assigned to it, and what a loop lets it run over
    asked: list[ast.expr] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign):
            for target in node.targets:
                values.setdefault(ast.unparse(target), []).append(node.value)
        elif isinstance(node, (ast.For, ast.comprehension)) and isinstance(node.iter, ast.Tuple):
            values.setdefault(ast.unparse(node.target), []).extend(node.iter.elts)
        elif isinstance(node, ast.Call) and ast.unparse(node.func) in _READERS:
            asked.append(node.args[0])
        elif isinstance(node, ast.Subscript) and ast.unparse(node.value) == "os.environ":
            asked.append(node.slice)
        elif isinstance(node, ast.Compare) and ast.unparse(node.comparators[0]) == "os.environ":
            asked.append(node.left)
    found, seen = set(), set()
    while asked:
        name = asked.pop()
        if isinstance(name, ast.Constant):
            found.add(name.value)
        elif (text := ast.unparse(name)) not in seen:
            seen.add(text)
            asked += values.get(text, [])
    return {name for name in found if isinstance(name, str)}


def test_every_way_to_read_a_variable_is_seen():
    text = """
NAME = "A"
os.environ.get(NAME), os.getenv("B"), os.environ["C"], "D" in os.environ, os.environ.setdefault("E", "")
any(v in os.environ for v in (NAME, "F"))
for w in ("G", "H"):
    os.environ.pop(w)
d.get("I"), d["J"]
"""
    assert _read(ast.parse(text)) == set("ABCDEFGH")


def test_every_environment_variable_is_on_its_page():
    text = (DOCS / "environment.md").read_text()
    files = [*Path(ROOT, "pycaffe_lms").rglob("*.py"), *Path(ROOT, "tests").rglob("*.py")]
    texts = [file.read_text() for file in files]  # what reads a variable says "environ" or "getenv"
    read = set().union(*(_read(ast.parse(t)) for t in texts if "environ" in t or "getenv" in t))
    assert {"PYCAFFE_LMS_ONEDNN", "PYCAFFE_LMS_CACHE", "OMP_NUM_THREADS", "PYCAFFE_LMS_SEED"} <= read
    for name in read - {"PATH"}:  # tests put commands there
        assert f"`{name}`" in text, name
    for name in re.findall(r"`(PYCAFFE_LMS_\w+)`", text):
        assert name in read, name
