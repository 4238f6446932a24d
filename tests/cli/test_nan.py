"""A loss that is no number, from the command line: `train -nan`, of several ranks too, and `test`."""

from __future__ import annotations

import h5py
import numpy as np
import pytest

from .command import caffe, complaint, process

NET = """layer { name: "data" type: "HDF5Data" top: "x" top: "label" hdf5_data_param { source: "list" batch_size: 4 } }
layer {
  name: "ip" type: "InnerProduct" bottom: "x" top: "ip"
  inner_product_param { num_output: 5 weight_filler { type: "xavier" } }
}
layer { name: "loss" type: "SoftmaxWithLoss" bottom: "ip" bottom: "label" top: "loss" }
"""
WORDS = 'net.prototxt:6: layer "loss" (SoftmaxWithLoss), blob "label": '
REASON = "the loss is nan: label 9, at position 1 of 4, is none of the 5 classes 0 to 4"


@pytest.fixture
def folder(tmp_path):
    """40 items in batches of 4; the label at place 25 names nothing."""
    random = np.random.RandomState(0)
    labels = random.randint(0, 5, 40).astype(np.float32)
    labels[25] = 9
    with h5py.File(tmp_path / "data.h5", "w") as file:
        file["x"], file["label"] = random.randn(40, 3).astype(np.float32), labels
    (tmp_path / "list").write_text("data.h5\n")
    (tmp_path / "net.prototxt").write_text(NET)
    (tmp_path / "s.prototxt").write_text(
        'net: "net.prototxt" base_lr: 0.1 lr_policy: "fixed" max_iter: 40 display: 5 snapshot: 5 snapshot_prefix: "s"'
    )
    return tmp_path


@pytest.mark.parametrize("backend", ["cpu", "sim"])
def test_training_stops(folder, backend):
    done = caffe("train", "-solver", "s.prototxt", "-backend", backend, cwd=folder)
    message, fix = complaint(done, 1)
    assert message == f"{WORDS}iteration 6: {REASON}" and "labels" in fix
    states = sorted(p.stem for p in folder.glob("*.solverstate"))
    assert len(states) == 2 and states[0] == "s_iter_5" and states[1].startswith("s_nan_iter_")
    assert "Optimization Done." not in done.log
    model = f"{states[0]}.caffemodel"
    assert caffe("test", "-model", "net.prototxt", "-weights", model, "-iterations", "2", cwd=folder).code == 0


def test_training_goes_on(folder):
    done = caffe("train", "-solver", "s.prototxt", "-backend", "cpu", "-nan", "warn", cwd=folder)
    assert done.code == 0 and done.log[-1] == "Optimization Done."
    assert [line for line in done.log if REASON in line] == [line for line in done.log if line.startswith(WORDS)]
    assert sum(REASON in line for line in done.log) == 1
    done = caffe("train", "-solver", "s.prototxt", "-backend", "cpu", "-nan", "ignore", cwd=folder)
    assert done.code == 0 and REASON not in done.stderr and "loss = nan" in done.stderr


def test_a_policy_that_there_is_none_of(folder):
    done = caffe("train", "-solver", "s.prototxt", "-nan", "halt", cwd=folder)
    assert "halt" in complaint(done, 2)[0]


def test_two_ranks_stop(folder):
    """Each sees labels of its own; rank 0 ends both."""
    (folder / "net.prototxt").write_text(NET.replace("batch_size: 4", "batch_size: 2"))
    done = process("train", "-solver", "s.prototxt", "-backend", "cpu", "-gpu", "0,1", cwd=folder)
    message, _ = complaint(done, 1)
    assert message.startswith("rank 0 of 2 (cpu 0) failed: ") and ": the loss is nan" in message
    assert [p.stem for p in folder.glob("*nan_iter*.solverstate")]


def test_a_test_says_it_once(folder):
    (folder / "s.prototxt").write_text((folder / "s.prototxt").read_text().replace("max_iter: 40", "max_iter: 5"))
    assert caffe("train", "-solver", "s.prototxt", "-backend", "cpu", cwd=folder).code == 0
    done = caffe(
        "test",
        "-model",
        "net.prototxt",
        "-weights",
        "s_iter_5.caffemodel",
        "-iterations",
        "20",
        "-backend",
        "cpu",
        cwd=folder,
    )
    assert done.code == 0 and done.log[-2:] == ["Loss: nan", "loss = nan (* 1 = nan loss)"]
    assert sum(REASON in line for line in done.log) == 1
    assert any(line.startswith(f"{WORDS}batch 6: {REASON}") for line in done.log)
