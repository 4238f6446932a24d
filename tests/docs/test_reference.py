"""Pages that are made of the code, or name what is in it, are current and whole."""

from __future__ import annotations

import ast
import math
import re
from pathlib import Path

import pytest

import pycaffe_lms as caffe
from pycaffe_lms.layers.registry import LAYERS, layer_class
from pycaffe_lms.proto.caffe_pb2 import SolverParameter
from pycaffe_lms.solvers.lr_policy import USES, learning_rate

from .pages import ROOT

DOCS = ROOT / "docs"


@pytest.fixture
def tool(monkeypatch):
    import importlib

    monkeypatch.syspath_prepend(str(ROOT / "tools"))
    return importlib.import_module


@pytest.mark.parametrize("name", ["gen_solver_docs", "gen_readme"])
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
    names = {f: getattr(p, f) for f in ("base_lr", "gamma", "power", "stepsize", "max_iter")}
    for policy, formula in rates.items():
        formula = re.sub(r"\(number of .*\)", "1", formula).replace("^", "**")
        p.lr_policy = policy
        expected = eval(formula, {"floor": math.floor, "exp": math.exp, "iter": 9, **names})
        assert learning_rate(p, 9).rate == pytest.approx(expected), policy


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
    text = (DOCS / "performance.md").read_text()
    ms = {(r[1], r[3]): float(r[4]) for r in _rows(12) if r[0] == "resnet-152" and r[2] == "256" and r[4][0].isdigit()}
    for share, budget in re.findall(r"(\d+)% (?:of that speed )?in (\d+) GB", " ".join(text.split())):
        assert round(100 * ms["16.0", "memory"] / ms[f"{budget}.0", "auto"]) == int(share)
    flags = ("in core", "`-lms")
    ratios = [float(r[5]) for r in _rows(6) if r[0].startswith(("resnet", "unet")) and r[2].startswith(flags)]
    assert len(ratios) > 20 and all(0.895 <= ratio <= 1.105 for ratio in ratios)


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
    for extra in extras:
        assert f"`{extra}`" in text, extra


def _read(tree: ast.AST) -> set[str]:
    """Names that a module reads from os.environ: literals, and constants of the module."""
    constants = {
        target.id: node.value.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant)
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in ("get", "getenv"):
            where = ast.unparse(node.func)
            if "environ" in where or where == "os.getenv":
                name = node.args[0]
                found.add(name.value if isinstance(name, ast.Constant) else constants.get(ast.unparse(name)))
    return found - {None}


def test_every_environment_variable_is_on_its_page():
    text = (DOCS / "environment.md").read_text()
    files = [*Path(ROOT, "pycaffe_lms").rglob("*.py"), *Path(ROOT, "tests").rglob("*.py")]
    read = set().union(*(_read(ast.parse(file.read_text())) for file in files))
    assert {"PYCAFFE_LMS_ONEDNN", "PYCAFFE_LMS_CACHE", "OMP_NUM_THREADS", "PYCAFFE_LMS_SEED"} <= read
    for name in read:
        assert f"`{name}`" in text, name
    for name in re.findall(r"`(PYCAFFE_LMS_\w+)`", text):
        assert name in read, name
