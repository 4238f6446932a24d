"""tools/fuzz: every reader stands seconds of damaged files, and what it does not stand would be found."""

from __future__ import annotations

import importlib
import os
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest

from pycaffe_lms.errors import DataError
from pycaffe_lms.lms.plan.verify import verify

for _needed in ("h5py", "cv2", "lmdb", "plyvel", "nibabel"):
    pytest.importorskip(_needed)
FUZZ = Path(__file__).resolve().parents[2] / "tools" / "fuzz"
sys.path.insert(0, str(FUZZ))
try:
    run, plan_mutants = (importlib.import_module(name) for name in ("run", "plan_mutants"))
finally:
    sys.path.remove(str(FUZZ))
pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="limits of a process are Linux's")


def _stand(*targets, **limits):
    """Fuzz these targets in a process of its own: one with threads, as tests leave behind, is not forked."""
    options = [("target", t) for t in targets] + list(limits.items())
    command = [sys.executable, str(FUZZ / "run.py"), *(word for k, v in options for word in (f"--{k}", str(v)))]
    made = subprocess.run(command, capture_output=True, text=True, timeout=600)
    assert made.returncode == 0, made.stdout + made.stderr
    found = re.findall(r"^(.+): (\d+) inputs, 0 findings$", made.stdout, re.MULTILINE)
    assert [target for target, _ in found] == list(targets)
    return [int(count) for _, count in found]


def test_damaged_files_are_errors_of_ours(tmp_path):
    assert set(_stand(*run.TARGETS, count=200, keep=tmp_path)) == {200}


@pytest.mark.thorough
@pytest.mark.parametrize("target", run.TARGETS)
def test_many_damaged_files_are_errors_of_ours(target, tmp_path):
    [count] = _stand(target, seconds=10, keep=tmp_path)
    assert count > 100


@pytest.mark.parametrize("target", run.TARGETS)
def test_valid_files_are_read(target, tmp_path):
    for files in run.corpus(target):
        run.put(files, tmp_path / "input")
        run.TARGETS[target].read(tmp_path / "input")


def test_an_input_is_made_from_its_number_alone():
    for target in ("net", "net fields", "caffemodel", "nifti gz"):
        first = [run.input_of(target, 3, k) for k in range(20)]
        assert first == [run.input_of(target, 3, k) for k in range(20)]
        assert first != [run.input_of(target, 4, k) for k in range(20)]


def _hang():
    while True:
        pass


MISTAKES = {
    "a crash": (lambda: os.kill(os.getpid(), 11), "SIGSEGV"),
    "no end": (_hang, "SIGPROF: more than 1 seconds of a processor"),
    "waiting": (lambda: time.sleep(60), "SIGALRM: more than 2 seconds"),
    "memory": (lambda: bytearray(2 << 30), "MemoryError"),
    "a traceback": (lambda: {}["x"], "KeyError: 'x'"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_what_a_reader_does_not_stand_is_found(mistake, tmp_path, monkeypatch):
    """The fourth input makes the reader fail; those before and behind are errors of ours."""
    fail, said = MISTAKES[mistake]
    fourth = run.input_of("image list", 0, 3)["x.txt"]

    def read(folder):
        if (folder / "x.txt").read_bytes() == fourth:
            fail()
        raise DataError("damaged")

    target = run.TARGETS["image list"]
    monkeypatch.setitem(run.TARGETS, "image list", run.Target(target.files, read, target.changes))
    monkeypatch.setattr(run, "SECONDS", 1)
    monkeypatch.setattr(run, "WALL", 2 if mistake == "waiting" else 60)
    done, findings = run.fuzz("image list", count=6, folder=tmp_path / "input")
    assert done == 6 and [(f.number, said in f.what) for f in findings] == [(3, True)]
    kept = run.keep(findings[0], tmp_path)
    assert (kept / "x.txt").read_bytes() == fourth and said in (kept / "what.txt").read_text()


@pytest.mark.parametrize("count", [150, pytest.param(400, marks=pytest.mark.thorough)])
def test_mutants_of_plans_are_refused_or_harmless(count):
    """Every survivor trains to the bits of training without Large Model Support."""
    tally = plan_mutants.Tally()
    plan_mutants.survey(tally, 7, range(count), 1, lambda text: None)
    made, survived = sum(tally.made.values()), sum(tally.survived.values())
    assert not tally.harmful, tally.harmful
    assert made == count and survived < 0.2 * made
    assert sum(tally.same.values()) + sum(tally.late.values()) < survived  # some were run
    for how in ("wait dropped", "copy lost", "birth lost", "end lost", "stream otherwise"):
        assert tally.made[how] and not tally.survived[how]


def test_a_harmful_survivor_is_found(monkeypatch):
    """A verifier that looks at nothing lets plans through that train to other bits, or fail."""
    monkeypatch.setattr(plan_mutants, "verify", lambda plan: None)
    tally = plan_mutants.Tally()
    plan_mutants.survey(tally, 7, range(40), 1, lambda text: None)
    assert len(tally.harmful) > 3
    verify(plan_mutants.original("chain", "auto"))
