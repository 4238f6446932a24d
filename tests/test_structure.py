"""The shape of the package, read from its source: who imports whom, who is pure, how long a file may be."""

from __future__ import annotations

import ast
import importlib

import pytest

from pycaffe_lms.layers.registry import LAYERS
from pycaffe_lms.ops import load_ops

from .structure import NAME, ROOT, everything_imported, file_of, imports, module_name, sources, strings, tree

pytestmark = pytest.mark.pure

# Imports point left.
ORDER = (
    "search_path",
    "version",
    "errors",
    "faults",
    "uncopied",
    *("proto", "formats", "backend", "ops", "memory", "blob", "vectors", "random", "filler", "data"),
    *(
        "layers",
        "lms",
        "net",
        "solvers",
        "parallel",
        "viz",
        "onnx_export",
        "net_spec",
        "progress",
        "net_batches",
        "log",
        "mode",
        "lms_face",
        "net_face",
    ),
    *("coord_map", "draw", "io", "pycaffe", "timer", "classifier", "detector", "_caffe", "install", "__init__", "cli"),
    "__main__",
)
RANK = {name: rank for rank, name in enumerate(ORDER)}
ARRAYS = {"numpy", "cupy"}
# They add up pages and steps with NumPy, and see no values.
COUNTING = [f"{NAME}.lms.{n}" for n in ("paging", "cells", "placing")]
# Neither they nor anything else they import knows an array.
PURE = [
    *(
        f"lms.{n}"
        for n in (
            "arena",
            "choose",
            "config",
            "emit",
            "homes",
            "plan",
            "planner",
            "policy",
            "remake",
            "schedule",
            "verify",
        )
    ),
    *(f"lms.{n}" for n in ("account", "counters", "measured", "page", "page_charts", "stats")),
    *(f"lms.{n}" for n in ("planfile", "timing", "machine")),
    *("memory.states", "net.filter", "net.splits", "solvers.lr_policy", "backend.sim_streams", "errors"),
    *("solvers.ranks", "solvers.rules", "solvers.settings", "ops.update_rules"),
]
# They know layers, which know arrays, but hold none themselves.
NO_ARRAYS = [
    *(f"net.{n}" for n in ("access", "backprop", "buffers", "flops", "folding", "forecast", "graph", "halve", "masks")),
    *(f"net.{n}" for n in ("policies", "programs", "reduction", "regions", "source", "splitting", "staying", "table")),
    *(f"net.{n}" for n in ("unfold", "wiring")),
]


def _top(name: str) -> str:
    """ "pycaffe_lms.lms.plan" -> "lms"; the package itself is "__init__"."""
    parts = name.split(".")
    return parts[1] if len(parts) > 1 else "__init__"


def _file(module: str):
    return ROOT.joinpath(*module.split(".")).with_suffix(".py")


def test_every_module_has_its_place_in_the_order():
    assert {module_name(p).split(".")[0] for p in sources()} == set(RANK)


def test_imports_point_left():
    wrong = []
    for path in sources():
        mine = module_name(path).split(".")[0]
        for name in imports(path):
            if name.split(".")[0] == NAME and mine != _top(name) and RANK[_top(name)] >= RANK[mine]:
                wrong.append(f"{module_name(path)} imports {name}")
    assert not wrong


def test_no_two_modules_import_each_other():
    """Not even late, inside functions; for annotations they may. (A package's table of contents stands above it.)"""
    contents = {p for p in sources() if p.name == "__init__.py"}
    files = [p for p in sources() if p not in contents]
    graph = {p: {file_of(n) for n in imports(p, annotations=False) if n.split(".")[0] == NAME} for p in files}
    wrong = [(module_name(a), module_name(b)) for a in files for b in graph[a] if a in graph.get(b, ())]
    assert not wrong


def test_only_the_backend_imports_cupy():
    users = {module_name(p) for p in sources() if any(n.split(".")[0] == "cupy" for n in imports(p))}
    assert users == {"backend.cuda", "backend.cublas"}


@pytest.mark.parametrize("module", PURE)
def test_pure_files_reach_no_arrays(module):
    reached = everything_imported(_file(module), but=COUNTING)
    assert not {n.split(".")[0] for n in reached} & ARRAYS


@pytest.mark.parametrize("module", NO_ARRAYS)
def test_planning_a_net_holds_no_arrays(module):
    assert not {n.split(".")[0] for n in imports(_file(module))} & ARRAYS


@pytest.mark.parametrize("folder", ["net", "memory", "lms"])
def test_no_layer_type_is_named_where_layers_are_only_scheduled(folder):
    importlib.import_module(f"{NAME}.layers")
    named = {module_name(p): sorted(strings(p) & set(LAYERS)) for p in sources(folder)}
    assert not {module: names for module, names in named.items() if names}


def test_no_file_is_longer_than_500_lines():
    long = {module_name(p): n for p in sources() if (n := len(p.read_text().splitlines())) > 500}
    assert not long


def test_every_file_says_what_it_is():
    assert not [module_name(p) for p in sources() if not ast.get_docstring(tree(p))]


def test_the_table_of_contents_of_layers_is_complete():
    """Every file that registers a layer type is imported by layers/__init__.py, and listed there."""
    contents = imports(ROOT / "layers" / "__init__.py")
    families = {p.stem for p in sources("layers") if "@register_layer(" in p.read_text()}
    assert {n.split(".")[-1] for n in contents if n.startswith(f"{NAME}.layers.")} == families
    assert set(importlib.import_module(f"{NAME}.layers").__all__) == families


def test_cpu_and_cuda_operations_are_the_same_but_for_what_is_inside():
    """Names and parameter names; a machine without a GPU and without CuPy can load both."""
    assert load_ops("cpu").signatures() == load_ops("cuda").signatures()


def test_every_family_of_operations_is_loaded():
    """A file that exports operations is a family, on both devices; the others are the families' own parts."""
    for device in ("cpu", "cuda"):
        exporting = {p.stem for p in sources("ops", device) if "__all__" in p.read_text()}
        assert exporting == set(importlib.import_module(f"{NAME}.ops").FAMILIES), device
