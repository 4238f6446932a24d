"""`pycaffe-lms detect`: against plain NumPy; the forms of its files."""

from __future__ import annotations

import csv

import numpy as np
import pytest

import pycaffe_lms as caffe
from pycaffe_lms.cli.main import main
from tests.cli.test_classify import folder, pictures, reference  # noqa: F401
from tests.shared_data import SHARED, needs_shared
from tests.test_classifier import CLASSES

cv2 = pytest.importorskip("cv2")
WINDOWS = "xmin,ymin,xmax,ymax,filename,note\n0,1,4,5,in/0.png,a\n2,2,6,6,in/2.png,b\n1,0,5,4,in/0.png,c\n"


def detect(source, output, *more):
    net = ["-model_def", "deploy.prototxt", "-pretrained_model", "deploy.caffemodel", "-backend", "cpu"]
    return main(["detect", source, output, *net, "-input_scale", "0.02", "-mean_file", "mean.npy", *more])


def expected():
    a, _, c = pictures()
    return reference(np.stack([a[1:5, 0:4], a[0:4, 1:5], c[2:6, 2:6]]))  # picture by picture


@pytest.mark.usefixtures("folder")
def test_csv(tmp_path):
    (tmp_path / "windows.csv").write_text(WINDOWS)
    assert detect("windows.csv", "out.csv", "-context_pad", "0") == 0
    with open("out.csv", newline="") as file:
        head, *rows = csv.reader(file)
    assert head == ["filename", "ymin", "xmin", "ymax", "xmax", *(f"class{k}" for k in range(CLASSES))]
    assert [row[:5] for row in rows] == [
        ["in/0.png", "1", "0", "5", "4"],
        ["in/0.png", "0", "1", "4", "5"],
        ["in/2.png", "2", "2", "6", "6"],
    ]
    np.testing.assert_allclose(np.array([row[5:] for row in rows], float), expected(), rtol=1e-4)


@pytest.mark.usefixtures("folder")
def test_hdf5(tmp_path):
    h5py = pytest.importorskip("h5py")
    (tmp_path / "windows.csv").write_text(WINDOWS)
    assert detect("windows.csv", "out.h5", "--context_pad=0") == 0
    with h5py.File("out.h5") as file:
        assert [name.decode() for name in file["filename"][()]] == ["in/0.png", "in/0.png", "in/2.png"]
        assert file["window"][()].tolist() == [[1, 0, 5, 4], [0, 1, 4, 5], [2, 2, 6, 6]]
        np.testing.assert_allclose(file["prediction"][()], expected(), rtol=1e-4)


@pytest.mark.usefixtures("folder")
def test_context_reaches_the_detector(tmp_path):
    (tmp_path / "windows.csv").write_text(WINDOWS)
    assert detect("windows.csv", "out.csv", "-context_pad", "1") == 0
    how = {
        "mean": np.load("mean.npy").mean(1).mean(1),
        "raw_scale": 255,
        "channel_swap": (2, 1, 0),
        "input_scale": 0.02,
    }
    net = caffe.Detector("deploy.prototxt", "deploy.caffemodel", context_pad=1, **how)
    wanted = net.detect_windows([("in/0.png", [[1, 0, 5, 4]])])[0]["prediction"]
    with open("out.csv", newline="") as file:
        row = next(csv.reader(file.readlines()[1:]))
    np.testing.assert_allclose(np.array(row[5:], float), wanted, rtol=1e-4)
    assert abs(wanted - expected()[0]).max() > 1e-3


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize(
    ("text", "output", "more", "code", "words"),
    [
        (WINDOWS, "out.npy", (), 2, "out.npy"),
        (WINDOWS, "out.csv", ("-crop_mode", "selective_search"), 2, "MATLAB"),
        (WINDOWS, "out.csv", ("-context_pad", "2"), 2, "context_pad"),
        (WINDOWS.replace("ymax", "bottom"), "out.csv", (), 1, "windows.csv:1: there is no column ymax"),
        (WINDOWS.replace("2,2,6,6", "2,2,six,6"), "out.csv", (), 1, "windows.csv:3"),
        (WINDOWS.replace("0,1,4,5,in/0.png,a", "0,1"), "out.csv", (), 1, "windows.csv:2"),
        (WINDOWS.replace("2,2,6,6", "7,7,9,9"), "out.csv", ("-context_pad", "0"), 1, "in/2.png"),
        (WINDOWS.splitlines()[0], "out.csv", (), 1, "no window"),
        (WINDOWS.replace("in/2", "in/9"), "out.csv", ("-context_pad", "0"), 1, "in/9.png"),
    ],
)
def test_wrong_use(tmp_path, capsys, text, output, more, code, words):
    (tmp_path / "windows.csv").write_text(text)
    assert detect("windows.csv", output, *more) == code
    err = capsys.readouterr().err
    assert words in err and "Traceback" not in err and not (tmp_path / output).exists()


@needs_shared
def test_a_real_net_on_a_real_picture(tmp_path, monkeypatch):
    """The window that is the whole picture has the scores that another implementation gives to it."""
    monkeypatch.chdir(tmp_path)
    data = SHARED / "data"
    net = data / "weights" / "squeezenet_v1.0"
    cv2.imwrite("cat.png", cv2.resize(cv2.imread(str(data / "images" / "cat.jpg")), (256, 256))[14:241, 14:241])
    (tmp_path / "windows.csv").write_text("filename,xmin,ymin,xmax,ymax\ncat.png,0,0,227,227\n")
    np.save("mean.npy", np.array([104, 117, 123]))  # the mean that the recorded input was made with
    argv = [
        "-model_def",
        net / "deploy.prototxt",
        "-pretrained_model",
        *net.glob("*.caffemodel"),
        "-mean_file",
        "mean.npy",
        "-context_pad",
        "0",
        "-backend",
        "cpu",
    ]
    assert main([str(a) for a in ("detect", "windows.csv", "out.csv", *argv)]) == 0
    with open("out.csv", newline="") as file:
        _, row = csv.reader(file)
    golden = np.load(data / "golden" / "squeezenet_cat.npz")["pool_final"].reshape(-1)
    np.testing.assert_allclose([float(cell) for cell in row[5:]], golden, rtol=1e-3, atol=1e-2)
