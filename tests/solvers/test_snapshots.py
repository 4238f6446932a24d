"""Tests what a snapshot writes, under which name, and that a partial one never replaces a whole one."""

from __future__ import annotations

import errno
import logging
import os

import numpy as np
import pytest

from pycaffe_lms.errors import SnapshotError
from pycaffe_lms.formats.atomic import Part
from pycaffe_lms.formats.weights.caffemodel import read_weights
from pycaffe_lms.formats.weights.solverstate import read_solverstate

from .helpers import GAUSSIAN, bits, inner, loss, make, messages, values

NET = GAUSSIAN + inner() + loss()
FORMATS = {"BINARYPROTO": "", "HDF5": ".h5"}


def _files(folder) -> list[str]:
    return sorted(str(p.relative_to(folder)) for p in folder.rglob("*") if p.is_file())


def _names(prefix, k, suffix="") -> list[str]:
    return [f"{prefix}_iter_{k}.{kind}{suffix}" for kind in ("caffemodel", "solverstate")]


@pytest.mark.parametrize("form", FORMATS)
def test_what_is_written(form, tmp_path, caplog):
    caplog.set_level(logging.INFO, "pycaffe_lms")
    if form == "HDF5":
        pytest.importorskip("h5py")
    options = {"snapshot_format": form, "momentum": 0.9, "lr_policy": '"multistep"', "stepvalue": [1, 9], "gamma": 0.5}
    solver = make(NET, snapshot_prefix=f'"{tmp_path}/a"', **options)
    solver.step(3)
    caplog.clear()
    solver.snapshot()
    model, state = (f"{tmp_path}/{n}" for n in _names("a", 3, FORMATS[form]))
    kind = "HDF5" if form == "HDF5" else "binary proto"
    assert messages(caplog) == [
        f"Snapshotting to {kind} file {model}",
        f"Snapshotting solver state to {kind} file {state}",
    ]
    assert _files(tmp_path) == _names("a", 3, FORMATS[form])
    stored = {layer.name: layer.blobs for layer in read_weights(model)}["ip"]
    for blob, values_now in zip(stored, values(solver), strict=True):
        assert (np.asarray(blob.data) == values_now).all() and blob.diff is None
    saved = read_solverstate(state)
    assert (saved.iter, saved.learned_net, saved.current_step) == (3, model, 1)
    for history, blob in zip(saved.history, solver.net.params["ip"], strict=True):
        assert (history == blob.read_diff()).all(), "after a step the diff holds the history"


@pytest.mark.parametrize("form", FORMATS)
def test_snapshot_diff(form, tmp_path):
    if form == "HDF5":
        pytest.importorskip("h5py")
    solver = make(NET, snapshot_prefix=f'"{tmp_path}/a"', snapshot_diff="true", snapshot_format=form)
    solver.step(1)
    solver.snapshot()
    if form == "HDF5":
        import h5py

        with h5py.File(tmp_path / "a_iter_1.caffemodel.h5") as file:
            diffs = [file[f"diff/ip/{i}"][()] for i in (0, 1)]
    else:
        layers = {layer.name: layer.blobs for layer in read_weights(tmp_path / "a_iter_1.caffemodel")}
        diffs = [np.asarray(blob.diff).reshape(blob.shape) for blob in layers["ip"]]
    for diff, blob in zip(diffs, solver.net.params["ip"], strict=True):
        assert diff.any() and (diff == blob.read_diff()).all()


@pytest.mark.parametrize(
    ("file", "given", "expected"),
    [
        ("s.prototxt", None, "s"),
        ("models/deep.er/s.v2.prototxt", None, "models/deep.er/s.v2"),
        ("models/solver", None, "models/solver"),
        ("models/s.prototxt", "there", "there/s"),
        ("models/s.prototxt", "there/", "there/s"),
        ("models/s.prototxt", "there/x", "there/x"),
        ("models/s.prototxt", "new/folder/x", "new/folder/x"),
        (None, "there/x", "there/x"),
        (None, "there", "there"),
    ],
)
def test_prefixes(file, given, expected, tmp_path, monkeypatch):
    """The prefix is derived from the solver's file if not given; in a folder it is the file's stem; else it is as
    given."""
    monkeypatch.chdir(tmp_path)
    for folder in ("there", "models/deep.er"):
        (tmp_path / folder).mkdir(parents=True)
    solver = make(NET, file=file, snapshot=2, snapshot_prefix=given and f'"{given}"')
    assert _files(tmp_path) == [], "the check beforehand writes nothing"
    solver.step(2)
    assert _files(tmp_path) == _names(expected, 2)


@pytest.mark.parametrize(
    ("options", "written"),
    [
        ({"snapshot": 2, "max_iter": 4}, [2, 4]),
        ({"snapshot": 3, "max_iter": 4, "snapshot_after_train": None}, [3, 4]),
        ({"snapshot": 3, "max_iter": 4}, [3]),
        ({"snapshot": 2, "max_iter": 4, "snapshot_after_train": None}, [2, 4]),
        ({"max_iter": 4, "snapshot_after_train": None}, [4]),
        ({"max_iter": 4}, []),
    ],
)
def test_when(options, written, tmp_path, caplog):
    caplog.set_level(logging.INFO, "pycaffe_lms")
    make(NET, snapshot_prefix=f'"{tmp_path}/a"', **options).solve()
    told = [m.split(" file ")[1] for m in messages(caplog) if m.startswith("Snapshotting")]
    assert told == [f"{tmp_path}/{n}" for k in written for n in _names("a", k)]
    assert _files(tmp_path) == sorted(n for k in written for n in _names("a", k))


def test_no_prefix_and_no_file_is_refused_before_training(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SnapshotError, match="snapshot_prefix is not set"):
        make(NET, snapshot=1)
    solver = make(NET, max_iter=2, snapshot_after_train=None)
    with pytest.raises(SnapshotError, match="snapshot_prefix is not set") as caught:
        solver.solve()
    assert caught.value.fix == "set snapshot_prefix in the solver" and solver.iter == 0
    solver.step(1)  # which needs none
    assert _files(tmp_path) == []


def test_a_prefix_that_cannot_be_is_refused_before_training(tmp_path):
    (tmp_path / "file").write_text("")
    for prefix in ("file/a", "file/b/a"):
        with pytest.raises(
            SnapshotError, match=f"cannot write to snapshot prefix .*{prefix}.*: .*file is not a folder"
        ):
            make(NET, file="s.prototxt", snapshot=1, snapshot_prefix=f'"{tmp_path}/{prefix}"')
    solver = make(NET, snapshot_prefix=f'"{tmp_path}/later/a"')
    (tmp_path / "later").write_text("")
    with pytest.raises(SnapshotError, match="later: the folder cannot be made"):
        solver.snapshot()


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_that_is_read_only_is_refused_before_training(tmp_path):
    tmp_path.chmod(0o500)
    with pytest.raises(SnapshotError, match="cannot write to snapshot prefix"):
        make(NET, snapshot=1, snapshot_prefix=f'"{tmp_path}/a"')


@pytest.mark.skipif(not os.path.isdir("/proc/self"), reason="a folder that nobody can write to")
def test_a_file_system_that_takes_no_files_is_refused_before_training():
    """Permissions would not do for this test, since root may write anyway."""
    with pytest.raises(SnapshotError, match=r'prefix "/proc/self/a": .* \(a_iter_0.solverstate in /proc/self\)'):
        make(NET, snapshot=1, snapshot_prefix='"/proc/self/a"')


@pytest.mark.parametrize("letter", ["a", "\u2603"], ids=["one byte", "three bytes"])
@pytest.mark.parametrize("form", FORMATS)
def test_the_longest_name_decides(form, letter, tmp_path):
    """File systems allow names of 255 bytes: that of the last snapshot must fit, and that of its temporary file."""
    if form == "HDF5":
        pytest.importorskip("h5py")
    ending = f"_iter_10.solverstate{FORMATS[form]}"
    size = len(letter.encode())
    fits = letter * ((255 - len(ending)) // size) + "b" * ((255 - len(ending)) % size)
    options = {"snapshot": 5, "max_iter": 10, "snapshot_format": form}
    solver = make(NET, snapshot_prefix=f'"{tmp_path}/{fits}"', **options)
    assert _files(tmp_path) == []
    solver.solve()
    assert _files(tmp_path) == sorted(n for k in (5, 10) for n in _names(fits, k, FORMATS[form]))
    with pytest.raises(SnapshotError, match="cannot write to snapshot prefix .*: File name too long") as caught:
        make(NET, snapshot_prefix=f'"{tmp_path}/{fits}b"', **options)
    assert caught.value.fix
    assert len(_files(tmp_path)) == 4


@pytest.mark.parametrize("call", ["fsync", "replace", "write"])
@pytest.mark.parametrize("code", [errno.EROFS, errno.EDQUOT, errno.ENOSPC, errno.EACCES])
def test_what_the_system_refuses_is_refused_before_training(call, code, tmp_path, monkeypatch):
    """The trial does every step of writing, and leaves no file."""

    def refuse(*_):
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(*((Part, "write") if call == "write" else (os, call)), refuse)
    with pytest.raises(SnapshotError, match=f"cannot write to snapshot prefix .*{os.strerror(code)}"):
        make(NET, snapshot=1, snapshot_prefix=f'"{tmp_path}/new/a"')
    solver = make(NET, max_iter=2, snapshot_after_train=None, snapshot_prefix=f'"{tmp_path}/new/a"')
    with pytest.raises(SnapshotError, match=f"cannot write to snapshot prefix .*{os.strerror(code)}"):
        solver.solve()
    assert solver.iter == 0 and _files(tmp_path) == []


# -- a write that fails half way ------------------------------------------------------------------------------------
class Fails:
    """Let os.fsync or os.replace fail at its nth call."""

    def __init__(self, monkeypatch, name, nth):
        self.real, self.left, self.calls = getattr(os, name), nth, 0
        monkeypatch.setattr(f"pycaffe_lms.formats.atomic.os.{name}", self)

    def __call__(self, *args, **kwargs):
        self.calls += 1
        self.left -= 1
        if self.left == 0:
            raise OSError(28, "No space left on device")
        return self.real(*args, **kwargs)


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize(
    ("name", "nth", "whole"),
    [("fsync", 1, []), ("replace", 1, []), ("fsync", 3, ["caffemodel"]), ("replace", 2, ["caffemodel"])],
)
def test_a_failing_write_leaves_the_older_snapshot_and_no_scraps(form, name, nth, whole, tmp_path, monkeypatch):
    """For every file: fsync of the file, rename, fsync of the folder. The state comes last: it names a whole model."""
    if form == "HDF5":
        pytest.importorskip("h5py")
    options = {"snapshot_prefix": f'"{tmp_path}/a"', "snapshot_format": form, "momentum": 0.9}
    solver = make(NET, **options)
    solver.step(2)
    solver.snapshot()
    old = {n: (tmp_path / n).read_bytes() for n in _names("a", 2, FORMATS[form])}
    solver.step(2)
    with monkeypatch.context() as patch:
        failing = Fails(patch, name, nth)
        with pytest.raises(Exception, match="No space left on device") as caught:
            solver.snapshot()
        assert failing.calls == nth
    assert caught.value.where.file.startswith(f"{tmp_path}/a_iter_4.") and caught.value.fix
    assert _files(tmp_path) == sorted([*old, *(f"a_iter_4.{kind}{FORMATS[form]}" for kind in whole)])
    assert {n: (tmp_path / n).read_bytes() for n in old} == old
    after = bits(solver)
    resumed = make(NET, **options)
    resumed.restore(tmp_path / _names("a", 2, FORMATS[form])[1])
    resumed.step(2)
    assert bits(resumed) == after
    solver.snapshot()  # once there is room again
    assert _files(tmp_path) == sorted([*old, *_names("a", 4, FORMATS[form])])


def test_the_same_snapshot_again_is_replaced_whole_or_not_at_all(tmp_path, monkeypatch):
    solver = make(NET, snapshot_prefix=f'"{tmp_path}/a"')
    solver.snapshot()
    old = {n: (tmp_path / n).read_bytes() for n in _names("a", 0)}
    solver.net.params["ip"][0].data = 1
    with monkeypatch.context() as patch:
        Fails(patch, "replace", 1)
        with pytest.raises(Exception, match="No space left"):
            solver.snapshot()
    assert {p.name: p.read_bytes() for p in tmp_path.iterdir()} == old
