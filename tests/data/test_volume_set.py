"""Volumes of a list in HDF5 files: what HDF5Data then reads, sizes of files, what stops it."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from pycaffe_lms.cli.main import main
from pycaffe_lms.data.feed.hdf5_batches import HDF5Batches, read_file_list
from pycaffe_lms.data.sets.volumes import Pair, read_volume_list, write_volumes
from pycaffe_lms.errors import DataError, MissingDependency
from tests.data.nifti import nifti_bytes

h5py = pytest.importorskip("h5py")
ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def scans(tmp_path, monkeypatch):
    """in/0.npy .. in/4.npy, 2 x 3 x 4, drawn from seed k; their masks in in/m0.npy; lists of classes and of masks."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "in").mkdir()
    for k in range(5):
        values = np.random.default_rng(k).random((2, 3, 4), np.float32)
        np.save(tmp_path / "in" / f"{k}.npy", values)
        np.save(tmp_path / "in" / f"m{k}.npy", (values > 0.5).astype(np.uint8))
    (tmp_path / "classes").write_text("".join(f"{k}.npy {k - 1}\n" for k in range(5)))
    (tmp_path / "masks").write_text("".join(f"{k}.npy m{k}.npy\n\n" for k in range(5)))
    return tmp_path


def volume(k):
    return np.random.default_rng(k).random((2, 3, 4), np.float32)


def dataset(*argv):
    return main(["dataset", "volumes", "-from", "in", *argv])


def test_classes(scans, capsys):
    assert dataset("-list", "classes", "-out", "out") == 0
    said = capsys.readouterr()
    assert f"train: {scans}/out/train.txt (1 files)" in said.out and "Processed 5 files." in said.err
    assert sorted(os.listdir("out")) == ["train.txt", "train_0000.h5"]
    with h5py.File("out/train_0000.h5") as file:  # what Caffe's reader looks for: plain floats, rows first
        assert {name: (d.shape, d.dtype.name) for name, d in file.items()} == {
            "data": ((5, 1, 2, 3, 4), "float32"),
            "label": ((5,), "float32"),
        }
    os.chdir("in")  # the list holds for any working directory
    batches = HDF5Batches(str(scans / "out" / "train.txt"), ["data", "label"], 5)
    data, label = batches.produce(0)
    np.testing.assert_array_equal(data, [[volume(k)] for k in range(5)])
    assert label.tolist() == [-1, 0, 1, 2, 3]


def test_masks_and_files_of_a_bounded_size(scans):
    pairs = read_volume_list("masks")
    assert pairs[1] == Pair(3, "1.npy", "m1.npy")
    told = []
    one = 2 * 24 * 4  # bytes of a volume and its mask
    made = write_volumes(
        "in/", pairs, "out", "val", source="masks", file_bytes=2 * one + 1, progress=lambda *at: told.append(at)
    )
    assert [path.name for path in made] == ["val_0000.h5", "val_0001.h5", "val_0002.h5", "val.txt"]
    assert read_file_list("out/val.txt") == [str(path) for path in made[:-1]]
    assert told == [(k, 5) for k in range(1, 6)]
    data, label = HDF5Batches("out/val.txt", ["data", "label"], 5).produce(0)
    np.testing.assert_array_equal(data, [[volume(k)] for k in range(5)])
    np.testing.assert_array_equal(label, data > 0.5)


def test_a_net_reads_them(scans):
    import pycaffe_lms as caffe

    assert dataset("-list", "classes", "-out", "out") == 0
    (scans / "net.prototxt").write_text(
        'layer { name: "data" type: "HDF5Data" top: "data" top: "label"\n'
        '  hdf5_data_param { source: "out/train.txt" batch_size: 2 } }\n'
        'layer { name: "c" type: "Convolution" bottom: "data" top: "c" convolution_param { num_output: 3\n'
        '  kernel_size: 2 weight_filler { type: "constant" value: 1 } } }\n'
    )
    net = caffe.Net(str(scans / "net.prototxt"), caffe.TEST)
    net.forward()
    assert net.blobs["c"].data.shape == (2, 3, 1, 2, 3)
    np.testing.assert_allclose(net.blobs["c"].data[1, 2, 0, 0, 0], volume(1)[:2, :2, :2].sum(), rtol=1e-5)


@pytest.mark.parametrize(
    "line, words",
    [
        ("0.npy", "not a path, one space"),
        ("0.npy 1.5", "not a path, one space"),
        ("0.npy tumour", "not a path, one"),
        (" 3", "not a path, one space"),
        ("0.npy 99999999", "not a path, one space"),
        ("0.npy " + "9" * 5000, "not a path, one space"),
        ("0.npy +-3", "not a path, one space"),
        ("0.npy m0.npy", "a class here and a volume of labels|another line"),
    ],
)
def test_wrong_lines_are_named(scans, line, words):
    (scans / "bad").write_text(f"1.npy 1\n{line}\n")
    with pytest.raises(DataError, match=words) as caught:
        read_volume_list("bad")
    assert (caught.value.where.file, caught.value.where.line) == ("bad", 2)


def test_no_list(scans):
    for content, words in ((None, "cannot read the list"), ("\n", "is empty")):
        if content is not None:
            (scans / "l").write_text(content)
        with pytest.raises(DataError, match=words):
            read_volume_list("l")


def spoil(scans, name, values):
    np.save(scans / "in" / name, values)


@pytest.mark.parametrize(
    "listed, name, values, words",
    [
        ("classes", "3.npy", np.zeros((2, 3, 5)), r"classes:4: in/3.npy: channels x .* \(1, 2, 3, 5\), of the first"),
        ("masks", "m2.npy", np.zeros((2, 4, 3)), r"masks:5: in/m2.npy: the labels are \(2, 4, 3\)"),
        ("masks", "4.npy", np.full((2, 3, 4), np.nan), "masks:9: in/4.npy: it holds values that are not finite"),
    ],
)
def test_a_volume_that_does_not_fit_leaves_no_list(scans, capsys, listed, name, values, words):
    spoil(scans, name, values)
    assert dataset("-list", listed, "-out", "out", "-file_size", "1B") == 1
    said = capsys.readouterr().err
    assert re.search(words, said) and "fix: " in said
    assert not (scans / "out" / "train.txt").exists() and not list((scans / "out").glob(".*"))


def test_orientations_must_agree_or_be_turned(scans, capsys):
    pytest.importorskip("nibabel")
    values = np.arange(24, dtype=np.int16).reshape(4, 3, 2)
    (scans / "in" / "a.nii").write_bytes(nifti_bytes(values))
    (scans / "in" / "b.nii").write_bytes(nifti_bytes(values[::-1], rows=((-1, 0, 0, 3), (0, 1, 0, 0), (0, 0, 1, 0))))
    (scans / "l").write_text("a.nii 0\nb.nii 1\n")
    assert dataset("-list", "l") == 1
    assert "l:2: in/b.nii: its axes lead to LAS, those of the first volume to RAS" in capsys.readouterr().err
    assert dataset("-list", "l", "-canonical") == 0
    data, _ = HDF5Batches("data/volumes/train.txt", ["data", "label"], 2).produce(0)
    np.testing.assert_array_equal(data, [[values.T]] * 2)


def test_what_is_there_is_kept_unless_overwritten(scans, capsys):
    assert dataset("-list", "classes", "-out", "out") == 0
    before = (scans / "out" / "train_0000.h5").stat().st_mtime_ns
    assert dataset("-list", "classes", "-out", "out") == 0
    said = capsys.readouterr()
    assert f"{scans}/out/train.txt is there already: 5 volumes, 5 were compared." in said.err
    assert said.out.splitlines()[-1] == f"train: {scans}/out/train.txt (1 files)"
    assert (scans / "out" / "train_0000.h5").stat().st_mtime_ns == before
    for argv in (["-list", "masks"], ["-list", "classes", "-file_size", "1B"]):
        assert dataset(*argv, "-out", "out") == 1
        said = capsys.readouterr().err
        assert "is there already, but it is not what would be written" in said and "-overwrite" in said
    kept = (scans / "in" / "4.npy").read_bytes()
    np.save(scans / "in" / "4.npy", volume(9))
    assert dataset("-list", "classes", "-out", "out") == 1
    assert "train_0000.h5: is there already, but it is not what would be written: 4.npy" in capsys.readouterr().err
    (scans / "in" / "4.npy").write_bytes(kept)
    (scans / "out" / "train_0000.h5").write_bytes(b"cut off")
    assert dataset("-list", "classes", "-out", "out") == 1
    said = capsys.readouterr().err
    assert "not a readable HDF5 file" in said and "-overwrite" in said
    assert dataset("-list", "classes", "-out", "out", "-overwrite") == 0
    assert HDF5Batches("out/train.txt", ["label"], 1).shapes == [(1,)]
    assert dataset("-list", "masks", "-out", "out", "-overwrite") == 0
    assert HDF5Batches("out/train.txt", ["label"], 1).shapes == [(1, 1, 2, 3, 4)]
    spoil(scans, "4.npy", np.zeros((1, 1, 1)))  # and a failed attempt leaves no list that mixes old and new
    assert dataset("-list", "masks", "-out", "out", "-overwrite") == 1
    assert not (scans / "out" / "train.txt").exists()


@pytest.mark.parametrize(
    "argv, code, words",
    [
        ([], 2, "-list is missing"),
        (["-list", "classes", "-name", "a/b"], 2, "-name 'a/b'"),
        (["-list", "classes", "-file_size", "big"], 2, "-file_size 'big' is not a size"),
        (["-list", "classes", "-out", "my files"], 1, "no spaces in paths"),
        (["-list", "none"], 1, "none: cannot read the list of volumes"),
    ],
)
def test_what_a_user_gets_wrong(scans, capsys, argv, code, words):
    assert dataset(*argv) == code
    said = capsys.readouterr().err
    assert words in said and "fix: " in said


def test_without_h5py(scans, monkeypatch):
    monkeypatch.setitem(sys.modules, "h5py", None)
    with pytest.raises(MissingDependency, match=r"pycaffe-lms\[hdf5\]"):
        write_volumes("in/", read_volume_list("classes"), "out", "train", source="classes")


@pytest.mark.skipif(os.name != "posix", reason="needs SIGKILL")
def test_a_killed_run_leaves_no_list(scans):
    (scans / "long").write_text("0.npy 1\n" * 50_000)
    command = [
        sys.executable,
        "-m",
        "pycaffe_lms",
        "dataset",
        "volumes",
        "-list",
        "long",
        "-from",
        "in",
        "-out",
        "out",
        "-file_size",
        "4KB",
    ]
    with subprocess.Popen(
        command, stderr=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": str(ROOT)}
    ) as process:
        for line in process.stderr:
            if "Processed 200 files." in line:
                break
        assert process.poll() is None
        process.send_signal(signal.SIGKILL)
    assert len(list((scans / "out").glob("train_*.h5"))) >= 4 and not (scans / "out" / "train.txt").exists()
