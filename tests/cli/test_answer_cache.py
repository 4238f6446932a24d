"""Answers of `plan` on disk: the same page again without planning, other questions apart, damage passed over."""

from __future__ import annotations

import gzip
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from pycaffe_lms.cli.main import main
from pycaffe_lms.cli.views import answer_cache
from pycaffe_lms.cli.views.answer_cache import AnswerCache
from pycaffe_lms.lms.planfile import kept_plans
from pycaffe_lms.lms.planner.choose import choose_plan
from pycaffe_lms.lms.runtime.runtime import Runtime

from .nets import NET, write

ROOT = Path(__file__).parents[2]


@pytest.fixture
def net(tmp_path):
    return str(write(tmp_path, NET))


@pytest.fixture
def planned(monkeypatch):
    """Counts the programs that are planned."""
    calls, plan = [], Runtime.plan
    monkeypatch.setattr(Runtime, "plan", lambda self, request: calls.append(request) or plan(self, request))
    return calls


def _plan(net, folder, capsys, *more):
    code = main(["plan", "-model", net, "-lms", "1", "-cache", str(folder), *more])
    said = capsys.readouterr()
    return code, said.out, said.err


def _files(folder):
    return sorted(Path(folder).glob("*.json.gz"))


def test_the_same_question_is_not_planned_again(net, tmp_path, planned, capsys):
    json_file = ["-json", str(tmp_path / "found.json")]
    first = _plan(net, tmp_path / "kept", capsys, *json_file)
    numbers = (tmp_path / "found.json").read_text()
    assert first[0] == 0 and planned
    planned.clear()
    assert _plan(net, tmp_path / "kept", capsys, *json_file) == first
    assert (tmp_path / "found.json").read_text() == numbers and not planned
    assert _plan(net, "off", capsys, *json_file) == first and planned
    assert (tmp_path / "found.json").read_text() == numbers


@pytest.mark.parametrize(
    "more",
    [
        ["-lms_budget", "1MB"],
        ["-gpu", "v100"],
        ["-lms_ahead", "0"],
        ["-solver_type", "Adam"],
        ["-phase", "TEST"],
        ["-workspace", "4KB"],
        ["-math", "bf16"],
        ["-shape", "data=8,3,8,8", "-shape", "label=8"],
        ["-level", "1"],
    ],
    ids="_".join,
)
def test_another_question_is_planned(net, tmp_path, planned, more, capsys):
    _plan(net, tmp_path / "kept", capsys)
    planned.clear()
    assert _plan(net, tmp_path / "kept", capsys, *more)[0] == 0 and planned


def test_another_net_or_other_code_is_another_question(net, tmp_path, planned, capsys, monkeypatch):
    _plan(net, tmp_path / "kept", capsys)
    planned.clear()
    Path(net).write_text(NET.replace("num_output: 16", "num_output: 17"))
    assert _plan(net, tmp_path / "kept", capsys)[0] == 0 and planned
    planned.clear()
    monkeypatch.setattr(answer_cache, "_code", lambda: "of another version")
    assert _plan(net, tmp_path / "kept", capsys)[0] == 0 and planned


def test_a_page_for_a_browser_takes_the_plan_that_is_kept(net, tmp_path, capsys, monkeypatch):
    searches = []
    monkeypatch.setattr(kept_plans, "LEAST_STEPS", 0)
    monkeypatch.setattr(kept_plans, "choose_plan", lambda *a, **k: searches.append(a) or choose_plan(*a, **k))
    assert _plan(net, tmp_path / "kept", capsys)[0] == 0 and searches
    searches.clear()
    for cache, again in [(tmp_path / "kept", False), ("off", True), ("off", True)]:
        page = tmp_path / "page.html"
        assert _plan(net, cache, capsys, "-report", str(page))[0] == 0 and page.exists()
        assert bool(searches) is again
        page.unlink()
        searches.clear()


def test_a_net_that_is_refused_is_refused_again_with_the_same_words(net, tmp_path, capsys):
    first = _plan(net, tmp_path / "kept", capsys, "-lms_budget", "4KB")
    assert first[0] == 1 and "net.prototxt:" in first[2] and "fix:" in first[2]
    assert _plan(net, tmp_path / "kept", capsys, "-lms_budget", "4KB") == first
    assert _plan(net, "off", capsys, "-lms_budget", "4KB") == first


def test_damaged_files_are_passed_over_with_a_word(net, tmp_path, capsys):
    code, out, _ = _plan(net, tmp_path / "kept", capsys)
    files = _files(tmp_path / "kept")
    spoilt = [b"", b"nonsense", gzip.compress(b"[1]"), gzip.compress(b"{"), gzip.compress(b'{"other": 1}')]
    for content in [
        *spoilt,
        files[0].read_bytes()[:-9],
        files[0].read_bytes()[:20] + b"x" + files[0].read_bytes()[21:],
    ]:
        for file in files:
            file.write_bytes(content)
        again = _plan(net, tmp_path / "kept", capsys)
        assert again[:2] == (code, out) and again[2].count("is damaged and not used") == len(files)
    assert _plan(net, tmp_path / "kept", capsys) == (code, out, "")


def test_a_folder_that_cannot_be_written_costs_nothing_but_a_warning(net, tmp_path, capsys):
    (tmp_path / "file").write_text("")
    code, out, err = _plan(net, tmp_path / "file" / "kept", capsys)
    assert (code, out) == _plan(net, "off", capsys)[:2]
    assert err.count("is not kept for the next time") == 1 and "-cache" in err
    assert _plan(net, tmp_path / "file", capsys)[0] == 2


def test_the_default_folder_is_the_users(net, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "mine"))
    assert main(["plan", "-model", net]) == 0
    assert _files(tmp_path / "mine" / "pycaffe_lms" / "plans")
    capsys.readouterr()


def test_the_oldest_answers_are_removed(tmp_path, monkeypatch):
    monkeypatch.setattr(answer_cache, "_FILES", 3)
    kept = AnswerCache(str(tmp_path))
    for i in range(6):
        assert kept.answer({"asked": i}, lambda i=i: i * i) == i * i
        for age, file in enumerate(sorted(_files(tmp_path), key=lambda f: f.stat().st_mtime_ns)):
            os.utime(file, ns=(age, age))
    assert {json.loads(gzip.decompress(f.read_bytes()))["answer"] for f in _files(tmp_path)} == {9, 16, 25}
    asked = []
    assert kept.answer({"asked": 5}, lambda: asked.append(5)) == 25 and not asked


def _ask(folder, count):
    answer_cache._FILES = 4  # processes remove what others read
    for i in range(count):
        assert AnswerCache(folder).answer({"asked": i % 7}, lambda i=i: [i % 7] * 5000) == [i % 7] * 5000


def test_processes_that_write_the_same_answers_do_not_disturb_each_other(tmp_path):
    script = f"from tests.cli.test_answer_cache import _ask; _ask({str(tmp_path)!r}, 60)"
    others = [subprocess.Popen([sys.executable, "-c", script], cwd=ROOT) for _ in range(3)]
    assert [other.wait() for other in others] == [0, 0, 0]
    assert 0 < len(_files(tmp_path)) <= 7 and len(list(tmp_path.iterdir())) == len(_files(tmp_path))
