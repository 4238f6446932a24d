"""Plans in the cache folder: the next start reads what the first one found, all of it; another search is another file;
what is damaged, foreign or off costs a search and nothing else."""

from __future__ import annotations

import copy
import dataclasses
import functools
import gzip
import json
import logging
import math
import os
import subprocess
import sys
from enum import Enum
from pathlib import Path

import pytest

from pycaffe_lms.backend.sim.device import SimDevice
from pycaffe_lms.errors import OutOfDeviceMemory
from pycaffe_lms.formats import cache_folder, kept_files
from pycaffe_lms.lms.planfile import kept_plans
from pycaffe_lms.lms.planfile.kept_plans import FOLDER, kept_plan, key_of, source_digest
from pycaffe_lms.lms.planner.choose import choose_plan
from pycaffe_lms.lms.planner.optimise import NotFaster
from pycaffe_lms.lms.rules import AUTO
from pycaffe_lms.lms.runtime import runtime

from ..structure import NAME, ROOT, everything_imported
from .nets import NETS, make_solver, train
from .plan_files import ITERATIONS, SETTINGS, SLOW, lms_of, without

NET, KIND = "residual", "auto"
AT_ONCE = ("ahead", "demand")  # of fixed look-ahead: nothing is searched for


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """An empty cache folder, in which plans of small programs are kept too; returns that of plans."""
    monkeypatch.setattr(kept_plans, "LEAST_STEPS", 0)
    monkeypatch.setattr(cache_folder, "_chosen", tmp_path / "cache")
    return tmp_path / "cache" / FOLDER


@pytest.fixture
def searches(monkeypatch):
    """The programs that are searched for."""
    names: list[str] = []

    def counting(request, *more, **named):
        names.append(request.program.name)
        return choose_plan(request, *more, **named)

    monkeypatch.setattr(kept_plans, "choose_plan", counting)
    return names


def _solver(net, kind, **device):
    with pytest.MonkeyPatch.context() as patch:
        if kind == "slow link":
            patch.setattr(runtime, "machine_of", lambda name, memory: SLOW)
        return make_solver(net, SimDevice(64 << 20, **device), lms_of(net, kind))


@functools.cache
def _asked(net=NET, kind=KIND):
    """(arguments, keyword arguments) of the search for the plan of an iteration."""
    asked = {}

    def noting(request, *more, **named):
        asked[request.program.name] = (request, *more), named
        return choose_plan(request, *more, **named)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(runtime, "kept_plan", noting)
        _solver(net, kind)
    return asked["train"]


def _find(net=NET, kind=KIND, **changed):
    """The plan of an iteration. changed: fields of the request that are others."""
    (request, *more), named = _asked(net, kind)
    return kept_plan(dataclasses.replace(request, **changed), *more, **named)


def _all_of(plan):
    """All fields of a plan, also those that equality leaves out."""
    return [(f.name, getattr(plan, f.name)) for f in dataclasses.fields(plan)]


# -- the same plan -------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("kind", SETTINGS)
@pytest.mark.parametrize("net", NETS)
def test_what_is_read_is_what_was_found(net, kind, folder, searches):
    (request, *more), named = _asked(net, kind)
    expected = choose_plan(request, *more, **named)
    assert _all_of(_find(net, kind)) == _all_of(expected) and searches == ["train"]
    assert _all_of(_find(net, kind)) == _all_of(expected) and len(searches) == (2 if kind in AT_ONCE else 1)
    assert not folder.exists() if kind in AT_ONCE else len(list(folder.iterdir())) == 1


def test_some_plans_here_copy_rematerialize_and_lie_in_pages():
    plans = [_find(net, kind) for net in NETS for kind in ("slow link", "pages")]
    assert any(plan.copies for plan in plans) and any(plan.rematerialized for plan in plans)
    assert any(plan.paging is not None and plan.paging.pages for plan in plans)
    assert any(plan.how is not None for plan in plans)


def test_the_next_start_trains_with_the_plan_of_the_first_without_a_search(searches, caplog):
    first = _solver(NET, KIND)
    assert searches and train(first, ITERATIONS) == without(NET)
    searches.clear()
    with caplog.at_level(logging.INFO, "pycaffe_lms"):
        second = _solver(NET, KIND, order="random", seed=7)
    plans = [
        {name: plan and _all_of(plan) for name, plan in solver.net.memory.plans().items()} for solver in (first, second)
    ]
    assert plans[0] == plans[1] and not searches
    assert caplog.text.count("LMS: the plan of train is read from") == 1
    assert train(second, ITERATIONS) == without(NET)


def _start(folder):
    """Start the training in another process, as a test here does."""
    cache_folder.use_cache_folder(folder)
    kept_plans.LEAST_STEPS = 0
    _solver(NET, KIND)


def test_another_process_reads_it(folder, searches):
    script = f"from tests.lms.test_kept_plans import _start; _start({str(folder.parent)!r})"
    hashed = os.environ | {"PYTHONHASHSEED": "7", "PYTHONPATH": str(ROOT.parent)}
    others = [subprocess.Popen([sys.executable, "-c", script], cwd=ROOT.parent, env=hashed) for _ in range(2)]
    assert [other.wait() for other in others] == [0, 0]  # both search, and write the same
    files = sorted(folder.iterdir())
    _solver(NET, KIND)
    assert files and sorted(folder.iterdir()) == files and not searches


def test_that_there_is_none_is_kept_too(searches):
    (request, config, limit, *more), named = _asked()
    raised = []
    for _ in range(2):
        with pytest.raises(NotFaster):
            _find(below=1e-9)
        with pytest.raises(OutOfDeviceMemory) as caught:
            kept_plan(request, config, 4096, *more, **named)
        error = caught.value
        raised.append((error.message, error.where, error.fix, error.needed, error.free))
    assert len(searches) == 2 and raised[0] == raised[1]
    assert raised[0][1].layer is not None and raised[0][4] == 4096


# -- another search ------------------------------------------------------------------------------------------------
def _changed(value, path=""):
    """Yield (path, the same value with one part changed) for the parts of a value; of sequences the first entry."""
    if dataclasses.is_dataclass(value):
        for field in dataclasses.fields(value):
            for where, part in _changed(getattr(value, field.name), f"{path}.{field.name}"):
                other = copy.copy(value)  # `replace` would refuse settings that contradict each other
                object.__setattr__(other, field.name, part)
                yield where, other
    elif isinstance(value, dict):
        for k, v in list(value.items())[:1]:
            yield from ((where, value | {k: part}) for where, part in _changed(v, f"{path}[{k}]"))
            yield f"{path} without {k}", {other: value[other] for other in value if other != k}
        yield f"{path} turned", dict(reversed(value.items())) if len(value) > 1 else {0: 0}
    elif isinstance(value, (tuple, list)):
        for v in value[:1]:
            yield from ((where, [part, *value[1:]]) for where, part in _changed(v, f"{path}[0]"))
        yield f"{path} longer", [*value, *(value[-1:] or [0])]
    elif isinstance(value, frozenset):
        yield f"{path} larger", value | {max(value, default=0) + 1}
    elif isinstance(value, Enum):
        yield path, next(other for other in type(value) if other is not value)
    elif isinstance(value, bool):
        yield path, not value
    elif isinstance(value, str):
        yield path, value + "x"
    elif value is None:
        yield path, 0
    else:
        yield path, math.nextafter(value, 0) or 1.0 if isinstance(value, float) else value + 1


def test_a_change_of_any_part_is_another_search():
    (request, *more), named = _asked(kind="slow link")
    request = dataclasses.replace(request, first=AUTO[0])
    asked = [request, *more, *named.values()]
    keys = {"same": key_of(*asked)}
    for i, part in enumerate(asked):
        for where, other in _changed(part):
            keys[f"{i}{where}"] = key_of(*asked[:i], other, *asked[i + 1 :])
    for where in (".program.steps[0].accesses[0].mode", ".costs.machine.link_in", ".first.memory_share", ".below"):
        assert f"0{where}" in keys
    assert len(keys) > 100 and len(set(keys.values())) == len(keys)


def test_the_order_of_a_set_does_not_matter():
    sets = frozenset([8, 0]), frozenset([0, 8])  # both numbers want the same place in the set's table
    assert list(sets[0]) != list(sets[1]) and key_of(sets[0]) == key_of(sets[1])


def test_what_has_no_name_is_refused():
    with pytest.raises(TypeError, match="which has no name"):
        key_of(object())


def test_another_source_searches_anew(searches, monkeypatch):
    for digest in "one", "two", "one":
        monkeypatch.setattr(kept_plans, "code", lambda digest=digest: digest)
        _find()
    assert len(searches) == 2


def test_the_digest_of_the_source(tmp_path):
    digests = set()
    for name, text in [("a/x.py", "1"), ("a/x.py", "2"), ("a/y.py", "2"), ("z.py", ""), ("z.py", "2")]:
        (tmp_path / "a").mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
        digests |= {source_digest(tmp_path, "3.11"), source_digest(tmp_path, "3.12")}
    assert len(digests) == 10
    (tmp_path / "notes.txt").write_text("no source")
    assert source_digest(tmp_path, "3.11") in digests


def test_the_digest_covers_what_plans_are_made_by():
    """`options` declares the flags of settings, whose values are in the key; `errors` is asked for words alone."""
    ours = {n for n in everything_imported(ROOT / "lms" / "planner" / "choose.py") if n.split(".")[0] == NAME}
    assert {n for n in ours if not n.startswith(f"{NAME}.lms.")} == {f"{NAME}.errors", f"{NAME}.options"}


# -- what is not used ----------------------------------------------------------------------------------------------
def _file(folder) -> Path:
    (file,) = folder.iterdir()
    return file


def _contents(file):
    """(name, content of the file) of damages and of files from elsewhere."""
    good = file.read_bytes()
    line, _, message = gzip.decompress(good).partition(b"\n")
    about = json.loads(line)

    def packed(message=message, **changed):
        return gzip.compress(json.dumps(about | changed).encode() + b"\n" + message)

    other = kept_plans.program_message(_find("chain")).SerializeToString()
    yield "empty", b""
    yield "nonsense", b"nonsense"
    yield "cut off", good[:-9]
    yield "a byte", good[:40] + bytes([good[40] ^ 1]) + good[41:]
    yield "no JSON", gzip.compress(b"{")
    yield "no text", gzip.compress(b"\xff")
    yield "another type", gzip.compress(b"[1]")
    yield "deep", gzip.compress(b"[" * 100_000)
    yield "no key", gzip.compress(b"{}")
    yield "another search", packed(key="0" * 64)
    yield "no plan", packed(b"")
    yield "no message", packed(b"\xff" * 99)
    yield "a cut message", packed(message[: len(message) // 2])
    yield "another net", packed(other)
    yield "other rules", packed(how={"copies": 7})
    yield "no number", packed(live_bytes="x")
    yield "no end", packed(live_bytes=math.inf)
    yield "half an error", packed(refused={"needed": 1})
    yield "no error", packed(refused=7)
    moved = kept_plans.caffe_pb2.LMSProgramPlan.FromString(message)
    moved.residence[0].offset = moved.residence[1].offset
    yield "in one place", packed(moved.SerializeToString())
    larger = kept_plans.caffe_pb2.LMSProgramPlan.FromString(message)
    larger.arena_bytes *= 2
    yield "more than there is", packed(larger.SerializeToString())


def test_damaged_and_foreign_files_are_passed_over_with_one_warning(folder, searches, caplog):
    expected = _all_of(_find())
    file = _file(folder)
    cases = list(_contents(file))
    for other in set(folder.iterdir()) - {file}:
        other.unlink()
    good = file.read_bytes()
    for name, content in cases:
        file.write_bytes(content)
        searches.clear()
        caplog.clear()
        assert _all_of(_find()) == expected and searches == ["train"], name
        assert caplog.text.count("is damaged and not used") == len(caplog.records) == 1, name
        assert _file(folder).read_bytes() == good, name  # written anew
    assert _all_of(_find()) == expected and searches == ["train"]


def test_a_file_that_would_fill_the_memory_is_passed_over(searches, monkeypatch, caplog):
    expected = _all_of(_find())
    monkeypatch.setattr(kept_files, "MOST_BYTES", 100)
    assert _all_of(_find()) == expected and len(searches) == 2
    assert caplog.text.count("is damaged and not used: it is cut off, or too long") == 1


def test_a_folder_that_cannot_be_written_costs_one_warning(tmp_path, monkeypatch, searches, caplog):
    (tmp_path / "file").write_text("")
    monkeypatch.setattr(cache_folder, "_chosen", tmp_path / "file" / "cache")
    expected = [_all_of(choose_plan(*_asked(net)[0], **_asked(net)[1])) for net in NETS]
    assert [_all_of(_find(net)) for net in NETS] == expected and len(searches) == len(NETS)
    text = "plans of Large Model Support are not kept for the next time"
    assert len(caplog.records) == 1 and text in caplog.text and "-cache DIR names a folder" in caplog.text


def test_off_keeps_nothing_and_searches_every_time(folder, searches):
    cache_folder.use_cache_folder("off")
    assert _all_of(_find()) == _all_of(_find()) and len(searches) == 2
    assert not (cache_folder.cache_folder() / FOLDER).exists()
    cache_folder.use_cache_folder(str(folder.parent))
    _find()
    assert folder.exists()


def test_plans_of_small_programs_are_not_kept(folder, searches, monkeypatch):
    steps = len(_asked()[0][0].program.steps)
    monkeypatch.setattr(kept_plans, "LEAST_STEPS", steps + 1)
    _find()
    assert not folder.exists()
    monkeypatch.setattr(kept_plans, "LEAST_STEPS", steps)
    _find()
    assert folder.exists() and len(searches) == 2


def test_plans_with_measured_times_are_not_kept(folder, searches):
    solver = _solver(NET, KIND)
    files = sorted(folder.iterdir())
    searches.clear()
    solver.runtime.measured[_asked()[0][0].program.steps[0].name] = 1e-3
    solver.runtime.plan(_asked()[0][0])
    assert sorted(folder.iterdir()) == files and not searches
