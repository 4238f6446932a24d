"""tools/bench/engines.py: what it says of a pass, without a GPU; times are given, not measured."""

from __future__ import annotations

import base64
import json

import pytest

from pycaffe_lms.ops.cuda.cudnn import build, choice
from pycaffe_lms.ops.cuda.cudnn.graph import Fused, Types

from ..ops.conftest import frontend as frontend
from ..ops.fake_cudnn import geometry

ONE = build.Wanted(geometry(16, 64, 64, (28, 28), 3, pad=1), "forward", Fused(True, False), 999, 0, "measure")


@pytest.fixture
def engines(script):
    return script("engines")


@pytest.fixture
def times(monkeypatch):
    given = []
    monkeypatch.setattr(choice, "measure", lambda runs, *rest: given[: len(runs)])
    return given


def test_a_pass_in_cudnns_order(engines, frontend, times):
    frontend.engines = {"a": 5, "b": 0, "c": 1000, "d": 7, "e": 0, "f": 0}
    frontend.broken = {"b"}
    times += [4.0, 3.0, None, 1.0]
    row = engines.examine(ONE, 3)
    assert [(e["index"], e["name"], e["work"], e["ms"]) for e in row["engines"]] == [
        (0, "a", 5, 4.0),
        (3, "d", 7, 3.0),
        (4, "e", 0, None),
    ]
    assert row["best"] == 1 and row["of_first"] == {"1": 0, "2": 1, "3": 1, "4": 1, "6": 1}
    assert row["refused"] == 2 and base64.b64decode(row["stored"]) == b"d"
    assert [graph.modes for graph in frontend.graphs] == [["A"], ["A", "FALLBACK"]]


def test_a_refusal_is_told(engines, frontend):
    frontend.fuses = False
    assert engines.examine(ONE, 3)["error"] == "no such fusion"


@pytest.mark.parametrize("how, part, built, loaded", [("stored", "load_s", [], "d"), ("named", "build_s", [1], None)])
def test_a_later_process_runs_the_engine_that_was_chosen(engines, frontend, times, how, part, built, loaded):
    frontend.engines = {"a": 5, "d": 7}
    times += [1.5]
    entry = {"wanted": ONE, "stored": base64.b64encode(b"d").decode(), "name": "d", "work": 7}
    (row,) = engines.again([entry], how)
    assert row["ms"] == [1.5] and row[part] >= 0
    assert (frontend.graphs[-1].built, frontend.graphs[-1].loaded) == (built, loaded)


def test_a_pass_survives_a_file(engines):
    other = build.Wanted(ONE.geometry, "backward_filter", Fused(), None, 1, "measure", Types(True, True))
    for one in (ONE, other):
        assert engines._wanted(json.loads(json.dumps(engines._plain(one)))) == one


def test_what_the_first_few_lose(engines):
    row = {"math": "tf32", "direction": "forward", "fused": False, "best": 2}
    row |= {"engines": [{"ms": 2.0}, {"ms": None}, {"ms": 0.5}], "of_first": {"1": 0, "2": 0, "3": 2, "4": 2, "6": 2}}
    found = engines.summary([row, row | {"best": 0}, {"error": "none"}])["tf32 forward"]
    assert found["passes"] == 2 and found["ranks"] == {"2": 1, "0": 1} and found["ms"] == 2.5
    assert found["ms_of_first"] == {"1": 4.0, "2": 4.0, "3": 1.0, "4": 1.0, "6": 1.0}
