"""The shape of the package, read from its source: who imports whom, who is pure, how long a file may be."""

from __future__ import annotations

import ast
import importlib
import inspect
import re

import pytest

from pycaffe_lms.layers.registry import LAYERS
from pycaffe_lms.ops import load_ops

from .structure import (
    NAME,
    ROOT,
    child,
    cycles,
    everything_imported,
    file_of,
    imports,
    module_name,
    parents,
    sources,
    strings,
    tree,
)

pytestmark = pytest.mark.pure

# Imports point left.
ORDER = (
    "search_path",
    "version",
    "errors",
    "options",
    "faults",
    "activity",
    "uncopied",
    "arrays",
    *("proto", "formats", "backend", "ops", "memory", "blob", "vectors", "random", "filler", "data"),
    *(
        "layers",
        "lms",
        "net",
        "solvers",
        "parallel",
        "viz",
        "onnx_export",
        "caffe_export",
        "onnx_import",
        "net_spec",
        "progress",
        "log",
    ),
    *(
        "coord_map",
        "draw",
        "io",
        "pycaffe",
        "classifier",
        "detector",
        "language",
        "_caffe",
        "install",
        "__init__",
        "cli",
    ),
    "__main__",
)
RANK = {name: rank for rank, name in enumerate(ORDER)}
ARRAYS = {"numpy", "cupy"}
# They add up pages and steps with NumPy, and see no values.
COUNTING = [f"{NAME}.lms.{n}" for n in ("layout.packing", "layout.paging", "plan.occupancy")]
# Neither they nor anything else they import knows an array.
PURE = [
    *("errors", "memory.states", "ops.update_rules", "backend.sim.streams"),
    *(f"lms.{n}" for n in ("config", "managed", "program", "rules")),
    *(f"lms.cost.{n}" for n in ("machine", "timing")),
    "lms.layout.inplace_reuse",
    *(f"lms.plan.{n}" for n in ("live_ranges", "plan", "statistics", "verify")),
    *(f"lms.planfile.{n}" for n in ("pages", "write")),
    *(
        f"lms.planner.{n}"
        for n in ("choose", "copy_reordering", "dropped_steps", "evict", "host_slots", "lookahead", "lowering")
    ),
    *(f"lms.planner.{n}" for n in ("carry_over", "optimise")),
    *(f"lms.remat.{n}" for n in ("candidates", "cost", "requested")),
    *(f"lms.report.{n}" for n in ("device_time", "layer_costs", "page", "page_charts", "text")),
    *("lms.runtime.counters", "net.build.filter", "net.build.splits"),
    *(f"solvers.{n}" for n in ("lr_policy", "rules", "settings")),
]
# They know layers, which know arrays, but hold none themselves.
NO_ARRAYS = [
    *(f"net.build.{n}" for n in ("gradients", "graph", "source", "wiring")),
    *(f"net.passes.{n}" for n in ("compression", "masks", "micro_batch", "regions")),
    *(f"net.program.{n}" for n in ("buffers", "costs", "lms_requests", "programs", "reduction", "steps")),
    *(f"net.memory.{n}" for n in ("forecast", "micro_batch_choice", "choice")),
    "net.inspect.table",
]
# A folder that shows more than this is cut into folders; commands are one module each, as layers of a family are.
MODULES = {"cli": 17, "cli.commands": 38, "__init__": 23}
USUALLY = 16


def _top(name: str) -> str:
    """ "pycaffe_lms.lms.plan.plan" -> "lms"; the package itself is "__init__"."""
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


def test_arrows_between_folders_run_one_way():
    """In every folder: what lies side by side in it, modules and folders, imports each other without a cycle."""
    graph = _module_graph()
    folders = {parent for m in graph for parent in parents(m)}
    wrong = {}
    for folder in sorted(folders | {""}):
        arrows: dict[str, set[str]] = {}
        for module, targets in graph.items():
            for target in targets:
                ends = child(folder, module), child(folder, target)
                if None not in ends and ends[0] != ends[1]:
                    arrows.setdefault(ends[0], set()).add(ends[1])
        if found := cycles(arrows):
            wrong[folder] = found
    assert not wrong


def test_no_folder_shows_more_than_about_a_dozen_modules():
    shown: dict[str, int] = {}
    for path in sources():
        if path.name != "__init__.py":
            folder = ".".join(module_name(path).split(".")[:-1]) or "__init__"
            shown[folder] = shown.get(folder, 0) + 1
    assert not {folder: n for folder, n in shown.items() if n > MODULES.get(folder, USUALLY)}


# Users write these names; the classes of the core that they stand on are called the same.
PUBLIC = {
    "Net",
    "SGDSolver",
    "NesterovSolver",
    "AdaGradSolver",
    "RMSPropSolver",
    "AdaDeltaSolver",
    "AdamSolver",
    "AdamWSolver",
    "LionSolver",
    "BlobVec",
}


def test_no_two_classes_share_a_name():
    found: dict[str, list[str]] = {}
    for path in sources():
        for node in ast.walk(tree(path)):
            if isinstance(node, ast.ClassDef):
                found.setdefault(node.name, []).append(module_name(path))
    assert not {name: where for name, where in found.items() if len(where) > 1 and name not in PUBLIC}


def _module_graph() -> dict[str, set[str]]:
    """Module -> the modules that it imports, late ones too; `__init__.py` and annotations aside."""
    files = [p for p in sources() if p.name != "__init__.py"]
    named = {p: module_name(p) for p in files}
    return {
        named[p]: {
            named[f] for n in imports(p, annotations=False) if n.split(".")[0] == NAME and (f := file_of(n)) in named
        }
        - {named[p]}
        for p in files
    }


def test_only_the_backend_imports_cupy():
    users = {module_name(p) for p in sources() if any(n.split(".")[0] == "cupy" for n in imports(p))}
    assert users == {"backend.cuda", "backend.cuda.cublas", "backend.cuda.kernels"}


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


def test_every_file_says_what_it_is():
    assert not [module_name(p) for p in sources() if not ast.get_docstring(tree(p))]


def test_files_that_comments_name_exist():
    """Between backticks, with as much of the path as tells which."""
    names = {str(p.relative_to(ROOT.parent)) for p in [*sources(), *ROOT.parent.glob("t*/**/*.py")]}
    missing = {
        f"{module_name(path)}: {name}"
        for path in sources()
        for name in re.findall(r"`([\w/]+/[\w/]+\.py|[a-z_]+\.py)`", path.read_text())
        if not any(known == name or known.endswith(f"/{name}") for known in names)
    }
    assert missing == {"search_path: numpy.py"}  # a user's file there


def test_the_table_of_contents_of_layers_is_complete():
    """Every file that registers a layer type is imported by layers/__init__.py."""
    contents = imports(ROOT / "layers" / "__init__.py")
    registering = {module_name(p) for p in sources("layers") if "@register_layer(" in p.read_text()}
    assert {n.removeprefix(f"{NAME}.") for n in contents if n.startswith(f"{NAME}.layers.")} == registering


def test_cpu_and_cuda_operations_are_the_same_but_for_what_is_inside():
    """Names and parameter names; a machine without a GPU and without CuPy can load both."""
    assert load_ops("cpu").signatures() == load_ops("cuda").signatures()


def test_cuda_operations_are_described_as_those_of_the_cpu():
    """The first lines of their docstrings; those of plans may say what the device does."""
    described = [
        {n: inspect.getdoc(f).split("\n\n")[0] for n, f in load_ops(d).functions().items() if not n.endswith("_plan")}
        for d in ("cpu", "cuda")
    ]
    assert described[0] == described[1]


def test_operations_take_few_arguments():
    """What belongs together is handed together, in the records of ops/records.py."""
    assert {name: parameters for name, parameters in load_ops("cpu").signatures().items() if len(parameters) > 8} == {}


def test_every_family_of_operations_is_loaded():
    """A file that exports operations is a family, on both devices; the others are the families' own parts."""
    for device in ("cpu", "cuda"):
        files = [p for p in sources("ops", device) if "__all__" in p.read_text()]
        exporting = {module_name(p).removeprefix(f"ops.{device}.") for p in files}
        assert exporting == set(importlib.import_module(f"{NAME}.ops").FAMILIES), device
