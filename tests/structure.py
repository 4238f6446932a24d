"""Reads the package's source without importing it: files, imports, string literals."""

from __future__ import annotations

import ast
from collections.abc import Collection
from functools import cache
from pathlib import Path

import pycaffe_lms

ROOT = Path(pycaffe_lms.__file__).parent
NAME = ROOT.name


def sources(*parts: str) -> list[Path]:
    """Our source files, of the whole package or of one folder; generated code is not among them."""
    return sorted(p for p in ROOT.joinpath(*parts).rglob("*.py") if p.name != "caffe_pb2.py")


def module_name(path: Path) -> str:
    """pycaffe_lms/lms/plan/plan.py -> "lms.plan"; a package is its folder, the top one is "__init__"."""
    parts = path.relative_to(ROOT).with_suffix("").parts
    if parts[-1] == "__init__" and len(parts) > 1:
        parts = parts[:-1]
    return ".".join(parts)


@cache
def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(), str(path))


def imports(path: Path, *, annotations: bool = True) -> set[str]:
    """Absolute names that a file imports anywhere in it, also through importlib with a literal: "numpy",
    "pycaffe_lms.lms.plan.plan". A name imported from a package of ours is its submodule where there is one.
    annotations: also what is imported for type checkers only."""
    package = [NAME, *path.relative_to(ROOT).parent.parts]
    found: set[str] = set()
    for node in _nodes(tree(path), annotations):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            above = package[: len(package) - node.level + 1] if node.level else []
            base = ".".join([*above, *(node.module.split(".") if node.module else [])])
            found |= {f"{base}.{a.name}" if _is_ours(f"{base}.{a.name}") else base for a in node.names}
        elif isinstance(node, ast.Call) and getattr(node.func, "attr", "") == "import_module":
            first = node.args[0]
            if isinstance(first, ast.Constant):
                found.add(first.value)
            elif isinstance(first, ast.JoinedStr):
                found.add(first.values[0].value.rstrip("."))
    return found


def _nodes(node: ast.AST, annotations: bool):
    yield node
    if isinstance(node, ast.If) and getattr(node.test, "id", "") == "TYPE_CHECKING" and not annotations:
        return
    for child in ast.iter_child_nodes(node):
        yield from _nodes(child, annotations)


def _is_ours(name: str) -> bool:
    parts = name.split(".")
    if parts[0] != NAME:
        return False
    path = ROOT.joinpath(*parts[1:])
    return path.is_dir() or path.with_suffix(".py").is_file()


def file_of(name: str) -> Path:
    """The file of one of our modules, by its absolute name."""
    path = ROOT.joinpath(*name.split(".")[1:])
    return path / "__init__.py" if path.is_dir() else path.with_suffix(".py")


def everything_imported(path: Path, but: Collection[str] = ()) -> set[str]:
    """What a file imports, what those of our files import, and so on, `but` those files. Packages around a module do
    not count."""
    seen: set[str] = set()
    todo = [path]
    while todo:
        for name in imports(todo.pop(), annotations=False) - seen:
            seen.add(name)
            if name.split(".")[0] == NAME and name not in but:
                todo.append(file_of(name))
    return seen


def strings(path: Path) -> set[str]:
    """String literals of a file, docstrings aside."""
    documentation = set()
    for node in ast.walk(tree(path)):
        body = getattr(node, "body", None)
        if isinstance(body, list) and body and isinstance(body[0], ast.Expr):
            documentation.add(id(body[0].value))
    return {
        node.value
        for node in ast.walk(tree(path))
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in documentation
    }


def parents(module: str) -> list[str]:
    """ "lms.plan.verify" -> ["lms", "lms.plan"]."""
    parts = module.split(".")
    return [".".join(parts[:i]) for i in range(1, len(parts))]


def child(folder: str, module: str) -> str | None:
    """What of a folder a module is, or lies in: ("lms", "lms.plan.verify") -> "plan"; None where it is elsewhere."""
    inside = module.removeprefix(f"{folder}.") if folder else module
    return inside.split(".")[0] if not folder or inside != module else None


def cycles(arrows: dict[str, set[str]]) -> list[list[str]]:
    """The strongly connected components of more than one node (Tarjan 1972), each sorted."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found: list[list[str]] = []

    def visit(node: str) -> None:
        index[node] = low[node] = len(index)
        stack.append(node)
        for other in sorted(arrows.get(node, ())):
            if other not in index:
                visit(other)
                low[node] = min(low[node], low[other])
            elif other in stack:
                low[node] = min(low[node], index[other])
        if low[node] == index[node]:
            component = stack[stack.index(node) :]
            del stack[stack.index(node) :]
            if len(component) > 1:
                found.append(sorted(component))

    for node in sorted(arrows):
        if node not in index:
            visit(node)
    return found
