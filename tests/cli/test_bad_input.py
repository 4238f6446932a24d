"""Wrong input as users give it: one message that says where and what, a fix, an exit code, no traceback."""

from __future__ import annotations

import gc
import re

import lmdb
import numpy as np
import pytest

from pycaffe_lms.data.database.datum import encode_datum
from pycaffe_lms.data.database.lmdb_writer import write_lmdb
from pycaffe_lms.net.net import Net
from pycaffe_lms.net.weights import save

from .command import caffe, complaint
from .nets import DATA_NET, NET, SOLVER, write


def _time(folder, *argv, code=1):
    return complaint(caffe("time", "-model", "net.prototxt", "-backend", "cpu", *argv, cwd=folder), code)


def _train(folder, *argv, code=1):
    return complaint(caffe("train", "-solver", "solver.prototxt", *argv, cwd=folder), code)


@pytest.fixture
def trainable(tmp_path):
    write(tmp_path, NET)
    write(tmp_path, SOLVER, name="solver.prototxt")
    return tmp_path


def test_an_unknown_layer_type(tmp_path):
    write(tmp_path, NET, ('"ReLU"', '"Relu"'))
    message, fix = _time(tmp_path)
    assert message == 'net.prototxt:8: layer "relu" (Relu): no layer type "Relu"; did you mean "ReLU"?'
    assert "ReLU" in fix and "Convolution" in fix


def test_a_bottom_that_nobody_makes(tmp_path):
    write(tmp_path, NET, ('bottom: "pool"', 'bottom: "pol"'))
    message, fix = _time(tmp_path)
    assert message.startswith('net.prototxt:13: layer "ip" (InnerProduct), blob "pol": ')
    assert "top" in fix


def test_a_bad_enum_value(tmp_path):
    write(tmp_path, NET, ("pool: MAX", "pool: MAXX"))
    message, fix = _time(tmp_path)
    assert re.match(r'net\.prototxt:1[01]: layer "pool" \(Pooling\): MAXX ', message)
    assert "MAX" in fix and "AVE" in fix and "STOCHASTIC" in fix


def test_shapes_that_do_not_fit(tmp_path):
    text = NET + 'layer { name: "sum" type: "Eltwise" bottom: "conv" bottom: "pool" top: "sum" }\n'
    write(tmp_path, text)
    message, _ = _time(tmp_path)
    assert message.startswith('net.prototxt:18: layer "sum" (Eltwise)')
    assert '"pool"' in message and '"conv"' in message  # the user's names, not those of the net's own splits
    assert "(4, 16, 3, 3)" in message and "(4, 16, 6, 6)" in message


def test_labels_that_do_not_fit(tmp_path):
    write(tmp_path, NET, ('top: "label" input_param { shape { dim: 4 }', 'top: "label" input_param { shape { dim: 5 }'))
    message, fix = _time(tmp_path)
    assert message.startswith('net.prototxt:17: layer "loss" (SoftmaxWithLoss), blob "label": ')
    assert "(5,)" in message and "(4, 10)" in message and "label" in fix


def test_an_absent_database(tmp_path):
    write(tmp_path, DATA_NET, ('"db"', '"no/such_lmdb"'))
    message, fix = _time(tmp_path)
    assert message.startswith('no/such_lmdb: layer "data" (Data): ')  # a folder has no line
    assert str(tmp_path) in fix and "dataset" in fix


def test_a_damaged_record(tmp_path):
    def record(k):
        return b"\xff garbage \xff\xff" if k == 3 else encode_datum(np.full((1, 4, 4), k, np.uint8), k)

    write_lmdb(tmp_path / "db", ((b"%08d" % k, record(k)) for k in range(8)))
    write(tmp_path, DATA_NET)
    message, fix = _time(tmp_path, "-iterations", "4")
    assert message.startswith('db (record "00000003"): layer "data" (Data): ')
    assert "again" in fix
    gc.collect()
    lmdb.open(str(tmp_path / "db")).close()  # raises lmdb.Error if it is still open in this process


def test_truncated_weights(trainable):
    save(Net(trainable / "net.prototxt", 0), trainable / "whole.caffemodel")
    whole = (trainable / "whole.caffemodel").read_bytes()
    (trainable / "cut.caffemodel").write_bytes(whole[: len(whole) // 2])
    message, fix = _train(trainable, "-backend", "cpu", "-weights", "cut.caffemodel")
    assert message.startswith("cut.caffemodel: ") and f"{len(whole) // 2} bytes" in message
    assert "cut short" in fix
    done = caffe(
        "train", "-solver", "solver.prototxt", "-backend", "cpu", "-weights", "whole.caffemodel", cwd=trainable
    )
    assert done.code == 0 and "Finetuning from whole.caffemodel" in done.log


@pytest.mark.parametrize("flag, value", [("-lms_frac", "-0.5"), ("-lms_ahead", "-1"), ("-lms_budget", "-1GB")])
def test_negative_lms_flags(trainable, flag, value):
    message, _ = _train(trainable, "-backend", "sim", "-lms", flag, value, code=2)
    assert flag in message and value in message


@pytest.mark.parametrize("action", ["time", "test"])
def test_negative_iterations(trainable, action):
    weights = ["-weights", "w.caffemodel"] if action == "test" else []
    done = caffe(action, "-model", "net.prototxt", *weights, "-iterations", "-5", cwd=trainable)
    message, _ = complaint(done, 2)
    assert message.startswith("-iterations -5 ")


def test_an_unknown_flag(trainable):
    message, fix = _train(trainable, "-lms_fra", "0.5", code=2)
    assert "lms_fra'" in message and message.endswith("did you mean -lms_frac?")
    assert "train --help" in fix


def test_a_budget_that_is_too_small_for_one_layer(trainable):
    message, fix = _train(trainable, "-backend", "sim", "-lms", "1", "-lms_budget", "32KB", "-lms_split", "off")
    assert message.startswith('net.prototxt:4: layer "conv+relu" (Convolution+ReLU): ')
    assert '"conv.data" 9.0 KiB' in message and "39.0 KiB" in message
    assert "-lms_budget" in fix
    message, fix = _train(trainable, "-backend", "sim", "-lms", "1", "-lms_budget", "12KB")
    assert message.startswith("net.prototxt:") and "-lms_split" in fix


@pytest.mark.parametrize("action", ["time", "test"])
def test_a_budget_that_is_too_small_is_placed_by_every_action(trainable, action):
    save(Net(trainable / "net.prototxt", 0), trainable / "w.caffemodel")
    weights = ["-weights", "w.caffemodel"] if action == "test" else []
    done = caffe(
        action,
        "-model",
        "net.prototxt",
        *weights,
        "-backend",
        "sim",
        "-lms",
        "1",
        "-lms_budget",
        "32KB",
        "-lms_split",
        "off",
        cwd=trainable,
    )
    message, _ = complaint(done, 1)
    name = 'conv" (Convolution)' if action == "time" else 'conv+relu" (Convolution+ReLU)'
    assert message.startswith(f'net.prototxt:4: layer "{name}: ')


def test_a_net_larger_than_all_machines(tmp_path):
    write(tmp_path, NET, ("num_output: 16", "num_output: 2000000000"))
    message, _ = _time(tmp_path)
    assert message.startswith("net.prototxt:")


def test_a_net_that_needs_lms_says_so(trainable):
    message, fix = _train(trainable, "-backend", "sim", "-lms_budget", "48KB")
    assert message.startswith("net.prototxt:") and "48.0 KiB are there" in message
    assert fix.startswith("add -lms 1: it was tried and fits; or lower batch_size, or raise -lms_budget")
    where = ("train", "solver.prototxt", "-backend", "sim", "-lms_budget", "48KB")
    assert caffe(*where, "-lms", "1", cwd=trainable).code == 0
    assert caffe(*where, "-lms", "10", cwd=trainable).code == 1  # that is why it was not named


@pytest.mark.parametrize(
    ("budget", "flags", "advised"),
    [
        ("48KB", "-lms 1000", "use -lms 1: it was tried"),
        ("20KB", "", "add -lms 1 -lms_split auto: it was tried and fits (layers run in micro-batches: "),
        ("4KB", "-lms 100", "lower batch_size, or raise -lms_budget; -lms auto, -lms 10, -lms 1, -lms auto -lms_split"),
    ],
)
def test_what_an_error_advises_fits(trainable, budget, flags, advised):
    """What the error says to give is given: then it trains."""
    where = ("train", "solver.prototxt", "-backend", "sim", "-lms_budget", budget)
    _, fix = complaint(caffe(*where, *flags.split(), cwd=trainable), 1)
    assert fix.startswith(advised)
    if "it was tried" in fix:
        assert caffe(*where, *fix.split(":")[0].split()[1:], cwd=trainable).code == 0


@pytest.mark.parametrize(
    "argv, code",
    [
        (["train"], 2),
        (["train", "-solver"], 2),
        (["train", "-solver", "absent.prototxt"], 1),
        (["train", "-solver", "net.prototxt"], 1),
        (["time", "-model", "solver.prototxt"], 1),
        (["trian", "-solver", "solver.prototxt"], 2),
        (["train", "-solver", "solver.prototxt", "-lms", "much"], 2),
        (["train", "-solver", "solver.prototxt", "-lms_budget", "9" * 400], 2),
        (["train", "-solver", "solver.prototxt", "-gpu", "first"], 2),
        (["device_query", "-gpu", "first"], 2),
        (["test", "-model", "net.prototxt", "-weights", ""], 2),
    ],
    ids=lambda value: " ".join(value)[:50] if isinstance(value, list) else None,
)
def test_other_slips(trainable, argv, code):
    complaint(caffe(*argv, cwd=trainable), code)


def test_a_test_net_that_is_never_run_is_no_error(trainable):
    """As in Caffe, where `test_iter: 0` is a way to switch tests off."""
    write(
        trainable,
        SOLVER,
        ("max_iter: 2", "max_iter: 2 test_iter: 0 test_interval: 1 test_compute_loss: true"),
        name="solver.prototxt",
    )
    done = caffe("train", "-solver", "solver.prototxt", "-backend", "cpu", cwd=trainable)
    assert "Traceback" not in done.stderr and done.code == 0
    assert not any("Test net output" in line for line in done.log)
