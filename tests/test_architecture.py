"""docs/architecture.md and docs/glossary.md: pictures are current, and what they and other pages name exists."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from . import structure

pytestmark = pytest.mark.pure

ROOT = Path(__file__).resolve().parents[1]
ARCHITECTURE, GLOSSARY = ROOT / "docs" / "architecture.md", ROOT / "docs" / "glossary.md"
PAGES = [ROOT / n for n in ("README.md", "CONTRIBUTING.md", "SECURITY.md")] + sorted((ROOT / "docs").glob("*.md"))
TREES = ("pycaffe_lms/", "tests/", "tools/", "docs/", "models/", "proto/")


@pytest.fixture
def gen_architecture(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "tools"))
    import gen_architecture

    return gen_architecture


def quoted(path: Path) -> list[str]:
    """Return what stands in backticks, code blocks aside."""
    return re.findall(r"`([^`\n]+)`", re.sub(r"^```.*?^```", "", path.read_text(), flags=re.DOTALL | re.MULTILINE))


def exists(name: str) -> bool:
    """Say whether `lms.plan.verify.verify` or `ops.Ops` is a module, or a function, class or constant in one."""
    parts = name.split(".")
    for cut in range(len(parts), 0, -1):
        path = structure.ROOT.joinpath(*parts[:cut])
        file = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
        if file.is_file():
            return _defines(structure.tree(file), parts[cut:])
    return False


def _defines(node: ast.AST, names: list[str]) -> bool:
    if not names:
        return True
    for child in node.body:
        if getattr(child, "name", None) == names[0]:
            return len(names) == 1 or (isinstance(child, ast.ClassDef) and _defines(child, names[1:]))
        targets = child.targets if isinstance(child, ast.Assign) else [getattr(child, "target", None)]
        if len(names) == 1 and any(getattr(target, "id", None) == names[0] for target in targets):
            return True
    return False


def walks() -> list[list[str]]:
    """Return the numbered lists of the three roads, hop by hop."""
    roads = ARCHITECTURE.read_text().partition("\n## The road")[2].partition("\n## Eight files")[0]
    found = [re.findall(r"^\d+\. (.*)$", block, re.MULTILINE) for block in roads.split("\n\n")]
    return [hops for hops in found if hops]


def room(hop: str) -> str:
    """Return the package of a hop; inside `lms` and `net`, the one below."""
    parts = re.search(r"`([\w.]+)`", hop).group(1).split(".")
    return ".".join(parts[: 2 if parts[0] in ("lms", "net") else 1])


def test_pictures_and_sizes_are_current(gen_architecture):
    assert gen_architecture.main(["--check"]) == 0, "run: python tools/gen_architecture.py"


def test_arrows_that_follow_from_others_are_left_out(gen_architecture, monkeypatch):
    imported = {"a": {"b", "c", "d"}, "b": {"c"}, "c": {"d"}, "d": set()}
    files = {name: structure.ROOT / "lms" / f"{name}.py" for name in imported}
    monkeypatch.setattr(structure, "sources", lambda *parts: list(files.values()))
    monkeypatch.setattr(structure, "imports", lambda path, **_: {f"pycaffe_lms.lms.{n}" for n in imported[path.stem]})
    assert gen_architecture.arrows("lms") == {"a": {"b"}, "b": {"c"}, "c": {"d"}, "d": set()}


def test_sizes_may_be_off_by_a_tenth_and_nothing_else(gen_architecture, monkeypatch):
    text = ARCHITECTURE.read_text()
    rows = gen_architecture.sizes()
    monkeypatch.setattr(gen_architecture, "sizes", lambda: [re.sub(r"\b(\d{4,})\b", _more(1.05), r) for r in rows])
    assert gen_architecture.is_current(gen_architecture.filled(text, {"sizes": rows}))
    monkeypatch.setattr(gen_architecture, "sizes", lambda: [re.sub(r"\b(\d{4,})\b", _more(1.3), r) for r in rows])
    assert not gen_architecture.is_current(gen_architecture.filled(text, {"sizes": rows}))
    assert not gen_architecture.is_current(text.replace("box_net --> box_lms\n", ""))


def _more(factor: float):
    return lambda match: str(int(int(match.group()) * factor))


def test_every_name_exists():
    names = [name for name in quoted(ARCHITECTURE) if re.fullmatch(r"[a-z_]\w*(\.\w+)+", name)]
    names = [name for name in names if not name.endswith((".py", ".md"))]
    assert len(names) > 50 and not [name for name in names if not exists(name)]


@pytest.mark.parametrize(
    "name",
    [
        "lms.plan.verify.verify",
        "ops.Ops",
        "memory.states",
        "net.net.Net.iteration",
        "lms.config.LMSConfig.min_bytes",
        "lms.program.Buffer.nbytes",
    ],
)
def test_what_exists(name):
    assert exists(name)
    assert not exists(f"{name}_not")


def test_no_walk_goes_back_unsaid():
    """A hop in a room that an earlier hop left says so."""
    found = walks()
    assert len(found) == 9
    for hops in found:
        rooms = [room(hop) for hop in hops]
        for i, where in enumerate(rooms):
            if where in rooms[:i] and rooms[i - 1] != where:
                assert "goes back" in hops[i], hops[i]


def test_the_eight_files_exist():
    listed = ARCHITECTURE.read_text().partition("\n## Eight files")[2].partition("\n## Size")[0]
    files = re.findall(r"^\d+\. `([^`]+)`", listed, re.MULTILINE)
    assert len(files) == 8 and all((ROOT / file).is_file() for file in files)


def test_contributing_stays_short():
    assert len((ROOT / "CONTRIBUTING.md").read_text().splitlines()) <= 60


def groups() -> dict[str, list[list[str]]]:
    """Return the rows of the glossary's tables by heading."""
    found = {}
    for section in GLOSSARY.read_text().split("\n## ")[1:]:
        lines = [line for line in section.splitlines() if line.startswith("| ")]
        found[section.partition("\n")[0]] = [[cell.strip() for cell in line[1:-1].split("|")] for line in lines[1:]]
    return found


def test_the_glossary_is_sorted_and_has_every_term_once():
    terms = []
    for heading, rows in groups().items():
        here = [row[0].lower() for row in rows]
        assert rows and here == sorted(here), heading
        assert all(len(row) == 4 for row in rows), heading
        terms += here
    assert len(terms) == len(set(terms)) > 60


def test_places_in_the_glossary_exist():
    places = [place for rows in groups().values() for row in rows for place in re.findall(r"`([^`]+)`", row[3])]
    assert places
    missing = [p for p in places if not any((structure.ROOT / f"{p}{end}").exists() for end in ("", ".py"))]
    assert not missing


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_path_in_the_docs_exists(page):
    """`pycaffe_lms/net/net.py`, `tests/lms/test_auto.py::test_x` and, from the package, `lms/plan/plan.py`."""
    inside = tuple(f"{p.name}/" for p in structure.ROOT.iterdir() if p.is_dir())
    wrong = []
    for name in quoted(page):
        file, _, test = name.partition("::")
        if not re.fullmatch(r"[\w./-]+", file) or not file.startswith(TREES + inside):
            continue
        places = [base / file for base in (ROOT, structure.ROOT) if (base / file).exists()]
        if file.startswith(inside) and not file.endswith(".py"):
            continue  # data/imagenet_lmdb of a user, not a module
        if not places or (test and not re.search(rf"def {test.split('[')[0]}\b", places[0].read_text())):
            wrong.append(name)
    assert not wrong
