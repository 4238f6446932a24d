"""What ships: metadata, source distribution, image and conda recipe agree. `.ci/package` builds them."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from pycaffe_lms.version import __version__

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib  # pytest needs it there

pytestmark = pytest.mark.pure
ROOT = Path(__file__).resolve().parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
EXTRAS = PROJECT["optional-dependencies"]
DOCKERFILE = ROOT / "tools" / "docker" / "Dockerfile"
RECIPE = ROOT / "tools" / "conda" / "recipe.yaml"
CUDA = {"cuda12", "cuda13", "multigpu12", "multigpu13"}  # one's choice; no extra for everybody has them
CONDA_NAMES = {
    "lmdb": "python-lmdb",
    "opencv-python-headless": "py-opencv",
    "matplotlib": "matplotlib-base",
    "tensorboardX": "tensorboardx",
    "cupy-cuda12x": "cupy",
    "nvidia-cudnn-cu12": "cudnn",
    "nvidia-nccl-cu12": "nccl",
}
# The wheel's versions are those of oneAPI; release 2023.1 has oneDNN 3.1.
ONEDNN = ("onednn-cpu-gomp>=2023.1", "onednn-cpu-omp >=3.1")


def parts(requirement):
    """(name, versions, marker) of "name[extra]>=1,<2; marker"."""
    what, _, marker = requirement.partition(";")
    name, versions = re.fullmatch(r"([\w.-]+)(?:\[\w+\])?(.*)", what.strip()).groups()
    return name, versions.strip(), marker.strip()


def test_the_version_is_one():
    assert PROJECT["version"] == __version__
    assert f'\n  version: "{__version__}"\n' in RECIPE.read_text()


def test_the_extra_all_holds_every_other_but_cuda():
    own, *others = EXTRAS["all"]
    listed = set(re.fullmatch(r"pycaffe-lms\[([\w,]+)\]", own)[1].split(","))
    assert listed == set(EXTRAS) - CUDA - {"all", "cpu", "docs", "mpi", "test", "leveldb"}  # mpi needs a library of MPI
    assert [parts(r)[:2] for r in others] == [parts(r)[:2] for r in EXTRAS["leveldb"]]
    assert "pycaffe-lms[all]" in EXTRAS["test"]


def test_onednn_is_a_default_where_it_has_a_wheel():
    (default,) = [r for r in PROJECT["dependencies"] if parts(r)[0] == "onednn-cpu-gomp"]
    assert parts(default)[2] == "sys_platform == 'linux' and platform_machine == 'x86_64'"
    assert EXTRAS["cpu"] == [default]  # scripts name it


def test_every_requirement_has_a_floor():
    named = PROJECT["dependencies"] + [
        r for extra in EXTRAS.values() for r in extra if not r.startswith("pycaffe-lms[")
    ]
    assert not [r for r in named if ">=" not in parts(r)[1]]


def test_metadata_that_an_index_takes():
    assert all(len(label) <= 32 and url.startswith("https://") for label, url in PROJECT["urls"].items())
    pythons = {c.rpartition(" ")[2] for c in PROJECT["classifiers"] if re.search(r":: 3\.\d+$", c)}
    assert pythons == {"3.10", "3.11", "3.12", "3.13"} and PROJECT["requires-python"] == ">=3.10"
    assert (ROOT / PROJECT["readme"]).is_file() and all((ROOT / f).is_file() for f in PROJECT["license-files"])


def test_the_top_level_is_what_a_reader_expects():
    """Beside packages, models, docs and tests only what tools look for."""
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True)
    if listed.returncode:
        pytest.skip("not a git checkout")
    wanted = "pycaffe_lms proto models tools tests docs pyproject.toml README.md CHANGES.md CONTRIBUTING.md SECURITY.md"
    wanted += " LICENSE MANIFEST.in .ci .gitignore .pre-commit-config.yaml"
    assert {name.split("/")[0] for name in listed.stdout.splitlines()} == set(wanted.split())


def test_the_source_distribution_has_what_its_tests_read():
    lines = (ROOT / "MANIFEST.in").read_text().splitlines()
    grafted = {line.split()[1] for line in lines if line.startswith("graft ")}
    included = {name for line in lines if line.startswith("include ") for name in line.split()[1:]}
    by_default = {"pyproject.toml", "README.md", "LICENSE", "MANIFEST.in", "pycaffe_lms"}
    top = {"proto", "models", "tools", "tests", "docs", ".ci"}
    assert grafted == top and all((ROOT / name).exists() for name in grafted | included | by_default)
    read = {name for p in (ROOT / "tests").rglob("*.py") for name in re.findall(r'\bROOT / "([^"/]+)"', p.read_text())}
    assert {name for name in read if (ROOT / name).exists()} <= grafted | included | by_default
    patterns = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["package-data"]["pycaffe_lms"]
    files = [p for p in (ROOT / "pycaffe_lms").rglob("*") if p.is_file() and p.parent.name != "__pycache__"]
    data = {p for p in files if p.suffix != ".py"}
    assert data == {p for pattern in patterns for p in (ROOT / "pycaffe_lms").glob(pattern)}


def recipe_list(section):
    """The requirements of a section of the recipe, with what depends on the platform."""
    text = RECIPE.read_text().partition(f"\n  {section}:\n")[2]
    lines = re.match(r"(?:    .*\n)+", text)[0].splitlines()
    return [re.sub(r"^\s*(- |then: )", "", line) for line in lines if "- if:" not in line]


def conda(requirement):
    """A requirement as the recipe writes it."""
    name, versions, _ = parts(requirement)
    text = f"{CONDA_NAMES.get(name, name)} {versions}".strip()
    return ONEDNN[1] if requirement.startswith(ONEDNN[0]) else text


def test_the_recipe_requires_what_pyproject_requires():
    assert recipe_list("run") == [f"python {PROJECT['requires-python']}", *map(conda, PROJECT["dependencies"])]
    assert "- if: linux and x86_64\n      then: onednn-cpu-omp" in RECIPE.read_text()
    optional = {
        conda(r)
        for name, extra in EXTRAS.items()
        if name not in {"all", "cpu", "docs", "test", "cuda13", "multigpu13"}
        for r in extra
        if not r.startswith("nvidia-cudnn-frontend")  # conda-forge has no package of its Python part
    }
    assert set(recipe_list("run_constraints")) == optional
    build = tomllib.loads((ROOT / "pyproject.toml").read_text())["build-system"]["requires"]
    assert recipe_list("host") == ["python", "pip", *map(conda, build)]
    text = RECIPE.read_text()
    assert "\n  noarch: python" in text  # else it is a package of the newest Python alone
    commands = [f"{name} = {function}" for name, function in PROJECT["scripts"].items()]
    assert re.search(r"\n    entry_points:\n((?:      - .*\n)+)", text)[1].split("\n") == [
        *(f"      - {command}" for command in commands),
        "",
    ]
    assert f'summary: "{PROJECT["description"]}"' in text and f"license: {PROJECT['license']}\n" in text


def test_the_recipe_renders():
    rattler_build = pytest.importorskip("rattler_build")
    (variant,) = rattler_build.Stage0Recipe.from_file(str(RECIPE)).render(rattler_build.VariantConfig())
    assert variant.recipe.package.version == __version__
    assert [str(r) for r in variant.recipe.requirements.run] == recipe_list("run")


def test_the_image_installs_extras_that_exist():
    text = DOCKERFILE.read_text()
    assert re.findall(r"^FROM \S+ AS (\w+)$", text, re.M) == ["wheel", "base", "cuda", "cpu"]
    installed = re.findall(r"\$\{wheel\}\[([^\]]+)\]", text)
    assert len(installed) == 2
    for version in ("12", "13"):
        names = {n for extras in installed for n in extras.replace("${CUDA}", version).split(",")}
        assert names <= set(EXTRAS)
        assert any(r.startswith(f"cupy-cuda{version}x[ctk]") for r in EXTRAS[f"cuda{version}"])  # the host has a driver
    kept = {
        line[1:] for line in (DOCKERFILE.parent / "Dockerfile.dockerignore").read_text().splitlines() if line[0] == "!"
    }
    assert {"pycaffe_lms", "pyproject.toml", PROJECT["readme"], *PROJECT["license-files"]} <= kept


def test_the_dockerfile_passes_its_linter():
    if shutil.which("hadolint") is None:
        pytest.skip("hadolint is not installed")
    done = subprocess.run(["hadolint", DOCKERFILE], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout
