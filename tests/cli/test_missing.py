"""What is missing (a package, a GPU, a file) is said before a net is built or anything is written."""

from __future__ import annotations

import re
import sys

import numpy as np
import pytest

import pycaffe_lms as caffe
from pycaffe_lms.backend import cuda_available
from pycaffe_lms.cli.main import main
from tests.test_classifier import NET


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "net.prototxt").write_text(NET)
    (tmp_path / "solver.prototxt").write_text('net: "net.prototxt" base_lr: 1 lr_policy: "fixed" max_iter: 1\n')
    caffe.Net("net.prototxt", caffe.TEST).save("net.caffemodel")
    (tmp_path / "cat.png").write_bytes(b"no picture")
    np.save("cats.npy", np.zeros((1, 6, 6, 3)))


def refused(monkeypatch, capsys, argv):
    """What is said, to a command that must not begin to build a net."""
    monkeypatch.setattr("pycaffe_lms.net.net.Net.__init__", lambda self, *args, **options: pytest.fail("built a net"))
    code = main(argv.split())
    return code, capsys.readouterr().err


@pytest.mark.parametrize(
    "argv",
    [
        "test net.prototxt -weights none.caffemodel",
        "test net.prototxt -weights net.caffemodel,none.caffemodel",
        "train solver.prototxt -weights none.caffemodel",
        "export_onnx net.prototxt -weights none.caffemodel -o x.onnx",
        "export_caffe net.prototxt -weights none.caffemodel -o x -for rknn",
        "extract_features net.prototxt -weights none.caffemodel prob db 1 lmdb",
        "classify net.prototxt cats.npy -weights none.caffemodel",
    ],
)
def test_weights(argv, monkeypatch, capsys):
    if argv.startswith("export_onnx"):
        pytest.importorskip("onnx")
    code, said = refused(monkeypatch, capsys, argv)
    assert code == 1 and "Could not open file none.caffemodel\n  fix: check the path" in said


@pytest.mark.parametrize(
    "argv",
    [
        "test net.prototxt -weights other.caffemodel -iterations 1",
        "train solver.prototxt -weights other.caffemodel",
        "train weighted.prototxt",
        "export_onnx net.prototxt -weights other.caffemodel -o x.onnx",
        "export_caffe net.prototxt -weights other.caffemodel -o x -for rknn",
        "classify net.prototxt cats.npy -weights other.caffemodel -images_dim 6,6",
        "detect net.prototxt windows.csv x.csv -weights other.caffemodel",
    ],
)
def test_weights_of_another_net(argv, capsys, tmp_path):
    """Nothing would be copied: an error with the names of both, not scores of random parameters."""
    if argv.startswith("export_onnx"):
        pytest.importorskip("onnx")
    (tmp_path / "other.prototxt").write_text(NET.replace('name: "ip"', 'name: "dense"'))
    solver = (tmp_path / "solver.prototxt").read_text()
    (tmp_path / "weighted.prototxt").write_text(solver + 'weights: "other.caffemodel"')
    (tmp_path / "windows.csv").write_text("filename,ymin,xmin,ymax,xmax\ncat.png,0,0,2,2\n")
    caffe.Net("other.prototxt", caffe.TEST).save("other.caffemodel")
    assert main(argv.split()) == 1
    said = capsys.readouterr().err
    assert "error: other.caffemodel: no layer of this file has the name of a layer" in said
    assert "net.prototxt" in said and "the file has dense; the net has ip\n  fix: " in said


def test_a_picture(monkeypatch, capsys):
    pytest.importorskip("cv2")
    code, said = refused(monkeypatch, capsys, "classify net.prototxt none.png -weights net.caffemodel")
    assert code == 1 and "Could not open file none.png" in said


def test_a_database_of_the_zoo(capsys, tmp_path):
    """The error names the command that makes it, also where the solver is given by its path."""
    assert main(["zoo", "get", "digits"]) == 0
    assert main(["train", "--solver=models/digits/solver.prototxt"]) == 1
    said = capsys.readouterr().err
    assert "data/digits/digits_train_lmdb: " in said and "make it with `pycaffe-lms dataset digits`" in said


@pytest.mark.parametrize(
    ("argv", "said_of"),
    [
        ("classify net.prototxt cats.npy -weights net.caffemodel -mean_file none.npy", "Could not open file none.npy"),
        ("detect net.prototxt windows.csv x.csv -weights net.caffemodel", "Could not open file none.png"),
        ("compute_image_mean none_lmdb x.binaryproto", "none_lmdb: there is no database here"),
        ("extract_features net.caffemodel net.prototxt prob there 1 lmdb", "there: exists already"),
    ],
)
def test_other_files(argv, said_of, monkeypatch, capsys, tmp_path):
    pytest.importorskip("cv2")
    (tmp_path / "windows.csv").write_text("filename,ymin,xmin,ymax,xmax\ncat.png,0,0,2,2\nnone.png,0,0,2,2\n")
    (tmp_path / "there").mkdir()
    code, said = refused(monkeypatch, capsys, argv)
    assert code == 1 and said_of in said and "\n  fix: " in said


@pytest.mark.parametrize(
    "argv",
    [
        "draw_net net.prototxt none/x.dot",
        "plot_training_log 0 none/x.png none.log",
        "classify net.prototxt cats.npy none/x -weights net.caffemodel",
        "detect net.prototxt none.csv none/x.csv -weights net.caffemodel",
        "export_onnx net.prototxt -weights net.caffemodel -o none/x.onnx",
        "export_caffe net.prototxt -weights net.caffemodel -o none/x -for rknn",
        "compute_image_mean none_lmdb none/x.binaryproto",
    ],
)
def test_a_folder_to_write_to(argv, monkeypatch, capsys):
    """It is missing: that is said before anything is read, not after minutes of work."""
    for package in ("pydot", "matplotlib", "onnx"):
        pytest.importorskip(package)
    code, said = refused(monkeypatch, capsys, argv)
    assert code == 2 and re.search(r"error: \S+ none/x\S*: no file can be written there\n  fix: give a file in a", said)
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize(
    ("package", "argv", "extra"),
    [
        ("cv2", "classify net.prototxt cat.png -weights net.caffemodel", "image"),
        ("onnx", "export_onnx net.prototxt -weights net.caffemodel -o x.onnx", "onnx"),
        ("matplotlib", "train solver.prototxt -plot x.png", "plot"),
        ("tensorboardX", "train solver.prototxt -tensorboard runs", "tensorboard"),
        ("rich", "train solver.prototxt -progress bar", "progress"),
        ("pydot", "draw_net net.prototxt x.png", "draw"),
        ("matplotlib", "plot_training_log 0 x.png none.log", "plot"),
        ("cv2", "detect net.prototxt none.csv x.csv -weights net.caffemodel", "image"),
        ("h5py", "detect net.prototxt none.csv x.h5 -weights net.caffemodel", "hdf5"),
        ("plyvel", "extract_features net.caffemodel net.prototxt prob db 1 leveldb", "leveldb"),
    ],
)
def test_a_package_with_its_pip_line(package, argv, extra, monkeypatch, capsys):
    for name in [package, *(n for n in sys.modules if n.startswith(f"{package}."))]:
        monkeypatch.setitem(sys.modules, name, None)
    code, said = refused(monkeypatch, capsys, argv)
    assert code == 1 and "which is not installed" in said and f"fix: pip install 'pycaffe-lms[{extra}]'" in said


@pytest.mark.parametrize("argv", ["train solver.prototxt -gpu 0", "time net.prototxt -backend cuda"])
def test_a_gpu(argv, monkeypatch, capsys):
    if cuda_available():
        pytest.skip("there is a GPU")
    code, said = refused(monkeypatch, capsys, argv)
    assert code == 1 and "error: " in said and "  fix: " in said


@pytest.mark.parametrize(
    ("argv", "code", "said_of"),
    [
        ("train solver.prototxt -snapshot none.solverstate", 1, "Could not open file none.solverstate"),
        ("test net.prototxt -weights state.solverstate", 2, "state.solverstate: this is the state of a solver"),
        ("classify net.prototxt cats.npy -weights state.solverstate", 2, "state.solverstate: this is the state of a"),
        ("time folder", 2, '"folder" is a folder, not a prototxt\n  fix: name the file in it: a.prototxt'),
        ("train folder", 2, '"folder" is a folder, not a prototxt'),
    ],
)
def test_the_wrong_kind_of_file(argv, code, said_of, monkeypatch, capsys, tmp_path):
    (tmp_path / "state.solverstate").write_bytes(b"\x08\x01")
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "a.prototxt").write_text(NET)
    found, said = refused(monkeypatch, capsys, argv)
    assert found == code and said_of in said


def test_a_net_that_takes_no_pictures(capsys, tmp_path):
    shape = "dummy_data_param { shape { dim: 1 dim: 3 dim: 4 dim: 4 } }"
    data = f'layer {{ name: "data" type: "DummyData" top: "data" {shape} }}'
    (tmp_path / "train.prototxt").write_text(data + NET[NET.index('\nlayer { name: "ip"') :])
    code = main(["classify", "train.prototxt", "cats.npy", "-weights", "net.caffemodel"])
    said = capsys.readouterr().err
    assert code == 2 and "train.prototxt: the net has no input that takes pictures\n  fix: give the deploy" in said


def test_scores_of_inputs_that_nothing_fills_are_warned_of(capsys):
    assert main(["test", "net.prototxt", "-weights", "net.caffemodel", "-iterations", "1"]) == 0
    assert "Nothing fills the inputs data: they are zero" in capsys.readouterr().err
