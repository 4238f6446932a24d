"""`pycaffe-lms import_onnx`: the files that it writes, what it says, what it refuses."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

from pycaffe_lms.cli.main import main
from pycaffe_lms.net import weights
from pycaffe_lms.net.net import Net
from tests.onnx_import.harness import model_of

WEIGHTS = np.random.default_rng(4).normal(size=(5, 3, 3, 3)).astype(np.float32)


@pytest.fixture
def model(tmp_path, monkeypatch):
    """A convolution and a ReLU, whose batch the model leaves open."""
    monkeypatch.chdir(tmp_path)
    made = model_of([("Conv", "x w", "c", {}), ("Relu", "c", "y", {})], {"x": (2, 3, 6, 6)}, {"w": WEIGHTS})
    made.graph.input[0].type.tensor_type.shape.dim[0].dim_param = "batch"
    onnx.save(made, tmp_path / "small.onnx")
    return tmp_path / "small.onnx"


@pytest.fixture
def said(capsys):
    def run(*argv):
        code = main(["import_onnx", *map(str, argv)])
        done = capsys.readouterr()
        return code, done.out, done.err

    return run


def test_files_beside_each_other_and_the_check(model, said, tmp_path):
    code, text, err = said(model, "-shape", "x=4,3,6,6", "-check")
    assert (code, err) == (0, "")
    first, second, *table = text.splitlines()
    assert first == "small.prototxt: net 'hand made', 2 layers, 540 B of parameters"
    assert second == "small.caffemodel: its weights"
    assert "largest differences" in table[0] and table[-1].split()[0] == "y" and float(table[-1].split()[2]) < 1e-6
    net = Net(tmp_path / "small.prototxt", 1)
    weights.copy_from(net, tmp_path / "small.caffemodel", must_match=True)
    assert net.blobs["x"].shape == (4, 3, 6, 6)
    x = np.random.default_rng(0).normal(size=(4, 3, 6, 6)).astype(np.float32)
    net.blobs["x"].data = x
    net.forward_range()
    windows = np.lib.stride_tricks.sliding_window_view(x.astype(np.float64), (3, 3), axis=(2, 3))
    expected = np.maximum(np.einsum("nchwij,ocij->nohw", windows, WEIGHTS), 0)
    np.testing.assert_allclose(net.blobs["y"].read_data(), expected, rtol=1e-5, atol=1e-5)


def test_a_size_that_is_left_open(model, said):
    code, _, err = said(model)
    assert code and "-shape x=" in err


@pytest.mark.parametrize(
    "flags, message",
    [
        (["-tolerance", "0.1"], "no effect without -check"),
        (["-check", "-tolerance", "-1"], "is no share"),
        (["-o", "small.caffemodel"], "the name of the weights"),
        (["-o", "absent/small.prototxt"], "absent"),
    ],
)
def test_refused(model, said, flags, message):
    code, _, err = said(model, "-shape", "x=4,3,6,6", *flags)
    assert code and message in err


def test_a_model_too_far_from_the_net(model, said):
    code, text, err = said(model, "-shape", "x=4,3,6,6", "-check", "-tolerance", "0")
    relative = float(text.splitlines()[-1].split()[2])
    assert (code, "further from the model" in err) == ((1, True) if relative > 0 else (0, False))


def test_a_file_that_is_no_model(said, tmp_path):
    (tmp_path / "words.onnx").write_text("no model")
    code, _, err = said(tmp_path / "words.onnx")
    assert code == 1 and "words.onnx" in err and "fix:" in err
