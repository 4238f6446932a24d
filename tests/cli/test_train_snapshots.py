"""Which snapshots `train` begins with and leaves: -resume latest, -snapshot_keep, -snapshot_best."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from pycaffe_lms.cli.main import main
from pycaffe_lms.formats.weights.solverstate import read_solverstate

from ..solvers.helpers import GAUSSIAN, inner, loss, solver_text

NET = GAUSSIAN + inner() + loss()
# Data are drawn anew for every test, so that losses go up and down; "score" is an output that is no loss.
SCORED = (
    NET
    + inner("map", "x", outputs=1).replace("name:", "include { phase: TEST } name:", 1)
    + 'layer { name: "score" type: "Reduction" bottom: "map" top: "score" include { phase: TEST } }\n'
)
TESTS = {"test_iter": 1, "test_interval": 1}


@pytest.fixture
def train(tmp_path, monkeypatch, capsys):
    """Trains 12 iterations with a snapshot every 2; returns what stood on stderr. code: how the training ends."""
    monkeypatch.chdir(tmp_path)

    def run(*argv, net=NET, code=0, **options):
        options = {"snapshot": 2, "max_iter": 12, "momentum": 0.9, "snapshot_prefix": '"s"'} | options
        Path("solver.prototxt").write_text(solver_text(net, **options))
        ended = main(["train", "-solver", "solver.prototxt", "-backend", "cpu", *argv])
        log = capsys.readouterr().err
        assert ended == code, log
        return log

    return run


def iterations(kind="") -> list[int]:
    """Of the snapshots that are there, models and states alike; nothing else is."""
    found = {
        e: sorted(int(re.fullmatch(rf"s{kind}_iter_(\d+)\.{e}", p.name)[1]) for p in Path().glob(f"s{kind}_iter_*.{e}"))
        for e in ("caffemodel", "solverstate")
    }
    assert found["caffemodel"] == found["solverstate"] and not list(Path().glob(".*"))
    return found["solverstate"]


def end(prefix="s_iter_12") -> bytes:
    return Path(f"{prefix}.caffemodel").read_bytes()


@pytest.fixture
def whole(train):
    """The model of a training that was never interrupted."""
    train(snapshot_prefix='"whole"')
    return end("whole_iter_12")


def test_latest_goes_on_as_if_nothing_had_happened(train, whole):
    log = train("-resume", "latest", max_iter=6)
    assert "There is no snapshot of s: training begins anew" in log and iterations() == [2, 4, 6]
    log = train("-resume=latest")
    assert "Resuming from s_iter_6.solverstate" in log and iterations() == [2, 4, 6, 8, 10, 12]
    assert end() == whole


def _flip(path: str, where: float) -> None:
    content = bytearray(Path(path).read_bytes())
    content[int(where * (len(content) - 1))] ^= 0x10
    Path(path).write_bytes(content)


def _cut(path: str, size: float) -> None:
    content = Path(path).read_bytes()
    Path(path).write_bytes(content[: int(size * len(content))])


DAMAGE = {
    **{
        f"a bit of the {e} at {w}": (lambda e=e, w=w: _flip(f"s_iter_6.{e}", w))
        for e in ("solverstate", "caffemodel")
        for w in (0.3, 0.5, 0.9, 1.0)
    },
    **{
        f"the {e} cut at {w}": (lambda e=e, w=w: _cut(f"s_iter_6.{e}", w))
        for e in ("solverstate", "caffemodel")
        for w in (0.0, 0.5, 0.99)
    },
    "no caffemodel": lambda: Path("s_iter_6.caffemodel").unlink(),
    "an older caffemodel": lambda: shutil.copy("s_iter_4.caffemodel", "s_iter_6.caffemodel"),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_newest_falls_back_to_the_one_before(damage, train, whole):
    train(max_iter=6)
    DAMAGE[damage]()
    log = train("-resume", "latest")
    assert re.search(r"W.*s_iter_6\.solverstate cannot be resumed from, the snapshot before it is tried: ", log)
    assert "Resuming from s_iter_4.solverstate" in log
    assert end() == whole


def test_where_all_are_damaged_training_does_not_begin_anew(train):
    train(max_iter=4)
    for k in (2, 4):
        _flip(f"s_iter_{k}.solverstate", 0.5)
    log = train("-resume", "latest", code=1)
    assert "none of the 2 snapshots of s can be resumed from" in log and "fix: " in log
    assert iterations() == [2, 4]


def test_hdf5(train, whole):
    pytest.importorskip("h5py")
    train(max_iter=6, snapshot_format="HDF5")
    _flip("s_iter_6.solverstate.h5", 0.97)
    log = train("-resume", "latest", "-snapshot_keep", "1", snapshot_format="HDF5", max_iter=8)
    assert "Resuming from s_iter_4.solverstate.h5" in log
    assert sorted(p.name for p in Path().glob("s_*")) == ["s_iter_8.caffemodel.h5", "s_iter_8.solverstate.h5"]
    train("-resume", "latest")
    assert end() == whole


def test_the_newest_stay(train):
    Path("s_iter_x.solverstate").write_text("of the user")
    train("-snapshot_keep", "2")
    assert {p.name for p in Path().glob("s_iter_*")} == {
        "s_iter_x.solverstate",
        *(f"s_iter_{k}.{e}" for k in (10, 12) for e in ("caffemodel", "solverstate")),
    }
    Path("s_iter_x.solverstate").unlink()
    train("-snapshot_keep=3", max_iter=8, snapshot_prefix='"other"')
    assert iterations() == [10, 12], "those of another prefix stay"
    train("-snapshot", "other_iter_6.solverstate", "-snapshot_keep", "1", max_iter=8)
    assert iterations() == [8, 10, 12], "so do those that are ahead"


def _tests(log: str, output: str) -> dict[int, float]:
    """Iteration -> mean of the output, as the log has it."""
    found, now = {}, None
    for line in log.splitlines():
        if "Testing net (#0)" in line:
            now = int(re.search(r"Iteration (\d+), Testing", line)[1])
        elif match := re.search(rf"Test net output #\d+: {output} = (\S+)", line):
            found[now] = float(match[1])
    return found


@pytest.mark.parametrize(("wanted", "better"), [("loss", min), ("score", max), ("score:min", min), ("loss:max", max)])
def test_the_best_stays(wanted, better, train):
    """The smallest of a loss, the largest of anything else, unless it is said; of equal ones the first."""
    output = wanted.partition(":")[0]
    log = train("-snapshot_best", wanted, "-snapshot_keep", "1", net=SCORED, snapshot=4, random_seed=4, **TESTS)
    scores = _tests(log, output)
    assert len(scores) == 13 and len(set(scores.values())) > 8
    best = better(scores, key=scores.get)
    assert 0 < best < 12, "or the test says little"
    assert iterations("_best") == [best] and iterations() == [12]
    saved = read_solverstate(f"s_best_iter_{best}.solverstate")
    assert saved.iter == best and saved.best.iteration == best and saved.best.output == output
    assert saved.best.value == pytest.approx(scores[best], rel=1e-5)


@pytest.mark.parametrize("stop", [3, 7, 9])
def test_the_best_so_far_outlives_an_interruption(stop, train):
    options = {"net": SCORED, "snapshot": 1, "max_iter": 12, **TESTS}
    log = train("-snapshot_best", "loss", snapshot_prefix='"whole"', **options)
    scores = _tests(log, "loss")
    best = min(scores, key=scores.get)
    train("-snapshot_best", "loss", "-snapshot_keep", "2", **options | {"max_iter": stop})
    train("-snapshot_best", "loss", "-snapshot_keep", "2", "-resume", "latest", **options)
    assert iterations("_best") == [best] and iterations() == [11, 12]
    assert read_solverstate("s_iter_12.solverstate").best == read_solverstate("whole_iter_12.solverstate").best


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (["-resume", "newest"], "newest"),
        (["-resume", "latest", "-snapshot", "x"], "-resume and -snapshot exclude each other"),
        (["-snapshot", "a/x.caffemodel"], "-snapshot a/x.caffemodel: this is a .caffemodel\n  fix: use -weights"),
        (["-snapshot", "x.caffemodel.h5"], "use -weights"),
        (
            ["-weights", "x.caffemodel, y.solverstate"],
            "-weights y.solverstate: this is a .solverstate\n  fix: use -snapshot",
        ),
        (["-snapshot_keep", "0"], "'0' is no number of snapshots"),
        (["-snapshot_keep", "-1"], "no number of snapshots"),
        (["-snapshot_best", "accuracy"], 'no test net has an output "accuracy"'),
        (["-snapshot_best", "loss:least"], "a score is OUTPUT, OUTPUT:min or OUTPUT:max"),
        (["-snapshot_best", "loss:"], "a score is OUTPUT, OUTPUT:min or OUTPUT:max"),
        (["-snapshot_best", "wide"], 'the output "wide" has 20 elements'),
    ],
)
def test_slips(argv, words, train):
    log = train(*argv, net=NET + inner("wide", "x"), code=2, **TESTS)
    assert words in log
    assert iterations() == []
