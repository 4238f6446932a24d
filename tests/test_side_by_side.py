"""Tests in several processes: when, with how many threads, and where their compiled kernels are kept."""

from __future__ import annotations

import enum
import importlib
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from numba.core.caching import IndexDataCacheFile

from . import sampling, side_by_side

TOOLS = Path(__file__).resolve().parents[1] / "tools"


class Source(enum.Enum):
    ARGS = 1
    TESTPATHS = 2


def _config(source=Source.TESTPATHS, **options):
    options = {"numprocesses": None, "dist": "no", "usepdb": False, "collectonly": False} | options
    return SimpleNamespace(option=SimpleNamespace(**options), args_source=source, ArgsSource=Source)


@pytest.mark.parametrize(("cpus", "processes"), [(1, None), (2, 2), (64, side_by_side.MOST)])
def test_all_tests_run_in_as_many_processes_as_there_are_cpus(cpus, processes, monkeypatch):
    monkeypatch.setattr(side_by_side, "cpus", lambda: cpus)
    config = _config()
    side_by_side.choose_processes(config)
    assert config.option.numprocesses == processes
    assert config.option.dist == ("worksteal" if processes else "no")


def test_some_tests_and_those_of_a_worker_run_in_this_process(monkeypatch):
    monkeypatch.setattr(side_by_side, "cpus", lambda: 2)
    worker = _config()
    worker.workerinput = {}
    for config in (_config(Source.ARGS), _config(usepdb=True), _config(collectonly=True), worker):
        side_by_side.choose_processes(config)
        assert config.option.numprocesses is None
    given = _config(numprocesses=0)
    side_by_side.choose_processes(given)
    assert given.option.numprocesses == 0


def test_modules_are_compiled_once_where_they_may_not_lie_beside_their_sources(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    monkeypatch.setattr(sys, "pycache_prefix", None)
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    monkeypatch.delenv("PYTHONPYCACHEPREFIX", raising=False)
    side_by_side.keep_compiled(tmp_path / "kept")
    assert sys.pycache_prefix is None and "PYTHONPYCACHEPREFIX" not in os.environ  # Python writes them where it likes
    sys.dont_write_bytecode = True
    side_by_side.keep_compiled(tmp_path / "kept")
    assert not sys.dont_write_bytecode and sys.pycache_prefix == str(tmp_path / "kept")
    (tmp_path / "mine.py").write_text("")
    subprocess.run([sys.executable, "-c", "import mine"], cwd=tmp_path, check=True)
    assert [path.name.partition(".")[0] for path in (tmp_path / "kept").rglob("mine*.pyc")] == ["mine"]
    assert not (tmp_path / "__pycache__").exists()


def test_processes_share_the_cpus(monkeypatch):
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(side_by_side, "cpus", lambda: 16)
    monkeypatch.setenv("PYTEST_XDIST_WORKER", "gw0")
    monkeypatch.setenv("PYTEST_XDIST_WORKER_COUNT", "12")
    side_by_side.share_the_cpus()
    assert side_by_side.os.environ["OMP_NUM_THREADS"] == "2"
    assert side_by_side.os.environ["OPENBLAS_NUM_THREADS"] == "1"


def test_two_processes_that_compile_a_function_at_a_time_write_two_files(tmp_path, monkeypatch):
    """The index of the one is overwritten by the other's: it must not name the other's code."""

    class InAnotherProcess(IndexDataCacheFile):
        pass

    original = IndexDataCacheFile._data_name
    for kept in (IndexDataCacheFile, InAnotherProcess):
        monkeypatch.setattr(kept, "_data_name", original, raising=False)
        side_by_side.keep_kernels_apart(kept)
    one, other = (c(str(tmp_path), "f", "stamp") for c in (IndexDataCacheFile, InAnotherProcess))
    late = one._load_index()  # before the other saves
    other.save("float64", "code for float64")
    monkeypatch.setattr(one, "_load_index", lambda: late)
    one.save("float32", "code for float32")
    monkeypatch.undo()
    read = IndexDataCacheFile(str(tmp_path), "f", "stamp")
    assert read.load("float32") == "code for float32" and read.load("float64") is None
    assert len(list(tmp_path.glob("f.*.nbc"))) == 2


def test_a_sample_and_its_rest_are_everything_once():
    for cases in (range(300), range(7), ["a", "b"]):
        some, rest = sampling.sample("x", cases, 2).args[1]
        assert len(some.values[0]) == 2 and sorted([*some.values[0], *rest.values[0]]) == sorted(cases)
        assert [m.name for m in rest.marks] == ["thorough"] and not some.marks
    assert sampling.sample("x", range(9), 2, also=(4, 7)).args[1][0].values[0] == (0, 4, 7)


class Item:
    def __init__(self, nodeid: str, *marks: str):
        self.nodeid, self.marks = nodeid, list(marks)

    def get_closest_marker(self, name):
        return name if name in self.marks else None

    def add_marker(self, mark):
        self.marks.append(mark.name)


def test_of_long_files_some_cases_run():
    file, every = next((f, n) for f, n in sampling.SAMPLED.items() if n == 7)
    cases = [Item(f"tests/{file}::test_a[{k}]") for k in range(17)]
    others = [Item(f"tests/{file}::test_b"), Item(f"tests/{sampling.LONG[0]}"), Item("tests/test_it.py::test_a[1]")]
    on_gpu = [Item(f"tests/{file}::test_a[gpu{k}]", "gpu") for k in range(4)]
    sampling.leave_the_rest([on_gpu[0], *cases[:2], *on_gpu[1:], *cases[2:], *others])
    assert [k for k, item in enumerate(cases) if "thorough" not in item.marks] == [0, 7, 14]
    assert [item.marks for item in others] == [[], ["thorough"], []] and all(i.marks == ["gpu"] for i in on_gpu)


def test_what_needs_a_gpu_is_left_out_unless_asked_for():
    items = [Item("a"), Item("b", "gpu"), Item("c", "thorough", "gpu")]
    assert sampling.of_a_gpu(items, "not thorough") == sampling.of_a_gpu(items, "") == items[1:]
    assert sampling.of_a_gpu(items, "gpu") == sampling.of_a_gpu(items, "gpu and not thorough") == []


def test_files_that_are_sampled_are_there():
    tests = Path(sampling.__file__).parent
    assert all((tests / file).exists() and n > 1 for file, n in sampling.SAMPLED.items())
    for test in sampling.LONG:
        file, _, name = test.partition("::")
        assert f"def {name}(" in (tests / file).read_text(), test


def test_of_each_type_some_cases_run():
    cases = [(f"{k}", Item(f"{k}")) for k in range(9)]
    for k, (_, case) in enumerate(cases):
        case.type, case.text = "AB"[k > 4], "pool: MAX" if k == 2 else "size: 3"
    chosen = [p.id for p in sampling.of_each_type(cases, every=4) if not p.marks]
    assert chosen == ["0", "2", "4", "5", "8"]


def test_mutants_change_code_that_is_there():
    sys.path.insert(0, str(TOOLS))
    try:
        mutants = importlib.import_module("mutants")
    finally:
        sys.path.remove(str(TOOLS))
    for mutant in mutants.MUTANTS:
        text = (TOOLS.parent / "pycaffe_lms" / mutant.file).read_text()
        assert text.count(mutant.old) == 1 and mutant.new != mutant.old, mutant.name
