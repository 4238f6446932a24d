"""`plan`: needs no GPU, no database; its totals agree with what a run of the same net on the simulated device takes."""

from __future__ import annotations

import re

import pytest

from pycaffe_lms.cli.main import main

from .nets import NET, write


@pytest.fixture
def model(tmp_path):
    return str(write(tmp_path, NET))


def _plan(capsys, *argv):
    code = main(["plan", *argv])
    return code, capsys.readouterr().out


def test_table_and_totals(model, capsys):
    code, out = _plan(capsys, "-model", model, "-lms", "1")
    assert code == 0
    assert re.search(r"managed buffers: [1-9]", out) and "device memory in all" in out
    assert "forward:" in out and "backward:" in out and "update:" in out
    _, short = _plan(capsys, "-model", model, "-lms", "1", "-summary")
    assert "forward:" not in short and short.strip() in out


def test_the_solver_type_decides_how_many_histories(model, capsys):
    """Two weights are larger than 1 KB: Adam has two histories more than SGD."""
    found = []
    for kind in ("SGD", "Nesterov", "Adam", "AdaDelta"):
        _, out = _plan(capsys, "-model", model, "-lms", "1", "-summary", "-solver_type", kind)
        found.append(int(re.search(r"managed buffers: (\d+)", out)[1]))
    assert found == [found[0], found[0], found[0] + 2, found[0] + 2]
    assert main(["plan", "-model", model, "-lms", "1", "-solver_type", "adam"]) == 2


def test_phase_test_has_no_backward(model, capsys):
    _, out = _plan(capsys, "-model", model, "-lms", "1", "-phase", "TEST")
    assert "forward:" in out and "backward:" not in out


def test_without_lms_there_is_nothing_to_plan(model, capsys):
    assert main(["plan", "-model", model]) == 2
    assert "nothing to plan without -lms" in capsys.readouterr().err


def test_data_layers_need_only_a_shape(tmp_path, capsys):
    text = """
    layer { name: "d" type: "Data" top: "data" top: "label"
            data_param { source: "nowhere" batch_size: 1 backend: LMDB } }
    layer { name: "fc" type: "InnerProduct" bottom: "data" top: "fc" inner_product_param { num_output: 3 } }
    layer { name: "loss" type: "SoftmaxWithLoss" bottom: "fc" bottom: "label" top: "loss" }
    """
    path = tmp_path / "net.prototxt"
    path.write_text(text)
    assert main(["plan", "-model", str(path), "-lms", "1"]) == 1
    assert "-shape" in capsys.readouterr().err
    code, out = _plan(capsys, "-model", str(path), "-lms", "1", "-shape", "data=8,3,16,16")  # the label's shape follows
    # 8 x 768 floats are 24 KiB, and the weight of 3 x 768 is 9 KiB, as are its gradient and momentum
    assert code == 0 and "in data.data (24.0 KiB)" in out and "fc.param0.data (9.0 KiB)" in out


@pytest.mark.parametrize("shape", ["data", "data=", "data=a,b", "data=1,-3", "=1,2"])
def test_bad_shapes(model, shape, capsys):
    assert main(["plan", "-model", model, "-lms", "1", "-shape", shape]) == 2
    assert "BLOB=N,C,H,W" in capsys.readouterr().err


def test_a_budget_that_is_too_small(model, capsys):
    assert main(["plan", "-model", model, "-lms", "1", "-lms_budget", "4KB"]) == 1
    err = capsys.readouterr().err
    assert "fix:" in err and "net.prototxt" in err


def test_layers_that_do_not_fit_whole_are_planned_in_parts(tmp_path, capsys):
    """Three convolutions' worth of 16 images: the largest pass needs 3 x 1 MB and workspace, 2 MB are there."""
    conv = "convolution_param { num_output: 16 kernel_size: 1 }"
    text = f"""
    layer {{ name: "data" type: "DummyData" top: "data" top: "label"
            dummy_data_param {{ shape {{ dim: 16 dim: 4 dim: 32 dim: 32 }} shape {{ dim: 16 }} }} }}
    layer {{ name: "c1" type: "Convolution" bottom: "data" top: "c1" {conv} }}
    layer {{ name: "c2" type: "Convolution" bottom: "c1" top: "c2" {conv} }}
    layer {{ name: "fc" type: "InnerProduct" bottom: "c2" top: "fc" inner_product_param {{ num_output: 4 }} }}
    layer {{ name: "loss" type: "SoftmaxWithLoss" bottom: "fc" bottom: "label" top: "loss" }}
    """
    path = tmp_path / "net.prototxt"
    path.write_text(text)
    code, out = _plan(capsys, "-model", str(path), "-lms", "1", "-lms_budget", "2MB")
    found = re.search(r'^layers "c1" \.\. "fc" run in (\d+) parts of ', out, re.M)
    assert code == 0 and found
    for i in range(int(found[1])):
        assert f"backward:c2 [{i + 1}/{found[1]}]:" in out
    assert main(["plan", "-model", str(path), "-lms", "1", "-lms_budget", "2MB", "-lms_split", "off"]) != 0
    assert "-lms_split" in capsys.readouterr().err
    _, whole = _plan(capsys, "-model", str(path), "-lms", "1", "-lms_budget", "64MB")
    assert "parts" not in whole and "backward:c2:" in whole
    _, said = _plan(capsys, "-model", str(path), "-lms", "1", "-lms_split", "4", "-summary")
    assert 'layers "c1" .. "fc" run in 4 parts of 4 images' in said
