"""`pycaffe-lms zoo`, and names of the zoo where commands take files, in a folder that is empty at first."""

import re
from pathlib import Path

import numpy as np
import pytest

import pycaffe_lms as pycaffe
from pycaffe_lms.data.sets.zoo import zoo_models

from .command import caffe, complaint

MODELS = Path(__file__).resolve().parents[2] / "models"


@pytest.fixture
def empty(tmp_path, monkeypatch):
    monkeypatch.setenv("PYCAFFE_LMS_CACHE", str(tmp_path / "cache"))
    (tmp_path / "work").mkdir()
    return tmp_path / "work"


def test_the_table_lists_every_model(empty):
    done = caffe("zoo", cwd=empty)
    assert done.code == 0 and done.out == caffe("zoo", "list", cwd=empty).out
    lines = done.out.splitlines()
    assert re.split(r"\s{2,}", lines[0]) == ["model", "parameters", "forward", "batch", "memory", "least", "what for"]
    rows = {line.split()[0]: re.split(r"\s{2,}", line) for line in lines[2:]}
    assert {name.partition("/")[0] for name in rows} == set(zoo_models()) and len(rows) == len(zoo_models()) + 1
    assert (
        rows["resnet-50"][1:4] == ["25,557,096", "3.86 G", "32"] and rows["resnet-50"][-1] == "ImageNet, 1000 classes"
    )
    assert max(map(len, lines)) <= 120


def test_get_works_twice(empty):
    done = caffe("zoo", "get", "resnet-50", "digits", cwd=empty)
    assert done.code == 0, done.stderr
    assert done.out.splitlines() == [
        "resnet-50: models/resnet-50 (6 files written)",
        "digits: models/digits (4 files written)",
    ]
    assert "To train it: pycaffe-lms train resnet-50" in done.log
    done = caffe("zoo", "get", "resnet-50", cwd=empty)
    assert (done.code, done.out) == (0, "resnet-50: models/resnet-50 (there already, with all 6 files)\n")
    (empty / "models/resnet-50/solver.prototxt").write_text("max_iter: 1\n")
    message, fix = complaint(caffe("zoo", "get", "resnet-50", cwd=empty), 1)
    assert "models/resnet-50/solver.prototxt: is there already and differs" in message and "-overwrite" in fix
    assert "(1 files written)" in caffe("zoo", "get", "resnet-50", "-overwrite", cwd=empty).out
    done = caffe("zoo", "get", "lenet", "-out", "nets", cwd=empty)
    assert "nets/lenet (4 files written)" in done.out
    assert "To train it: pycaffe-lms train nets/lenet/solver.prototxt" in done.log
    assert (
        caffe("plan", "-solver", "nets/lenet/solver.prototxt", "-shape", "data=64,1,28,28", "-summary", cwd=empty).code
        == 0
    )


@pytest.mark.parametrize(
    "argv, words",
    [
        (["get"], "get needs a name"),
        (["list", "digits"], "list takes no names"),
        (["get", "digits", "resnet50"], '"resnet50" is not a model of the zoo; did you mean resnet-50'),
        (["fetch"], "fetch"),
    ],
)
def test_what_a_user_gets_wrong(empty, argv, words):
    assert words in complaint(caffe("zoo", *argv, cwd=empty), 2)[0]
    assert not list(empty.iterdir())


def test_digits_train_from_nothing_and_again(empty):
    """Files and data are written; a solver that was changed is the one that is used."""
    said = caffe("zoo", "get", "digits", cwd=empty).log
    assert "To train it: pycaffe-lms train digits" in said  # the next command
    solver = empty / "models/digits/solver.prototxt"
    solver.write_text(solver.read_text().replace("max_iter: 1000", "max_iter: 30"))
    for _ in range(2):
        done = caffe("train", "--solver=digits", "-backend", "cpu", cwd=empty)
        assert done.code == 0, done.stderr
    assert (empty / "models/digits/digits_iter_30.caffemodel").exists()
    assert "data/digits/digits_train_lmdb is there already: 1500 records, all as they should be." in done.log
    database = empty / "data/digits/digits_test_lmdb/data.mdb"
    database.write_bytes(database.read_bytes()[:9000])
    message, fix = complaint(caffe("train", "--solver=digits", "-backend", "cpu", cwd=empty), 1)
    assert "digits_test_lmdb" in message and fix == "`pycaffe-lms dataset digits -overwrite` writes them again"


def test_a_model_whose_data_are_missing_says_what_makes_them(empty):
    message, fix = complaint(caffe("train", "-solver", "resnet-50", cwd=empty), 1)
    where = 'models/resnet-50/train_val.prototxt:3: layer "data" (Data)'
    assert message == f"{where}: the data of the model resnet-50 are not here: data/ilsvrc12/ilsvrc12_train_lmdb"
    assert "`pycaffe-lms dataset imagenet -from FOLDER`" in fix and fix.endswith("resnet-50/solver_dummy")
    message, fix = complaint(caffe("time", "-model", "lenet", cwd=empty), 1)
    assert "data/mnist/mnist_train_lmdb" in message and fix == "make it with `pycaffe-lms dataset mnist -from FOLDER`"
    assert "mnist_test_lmdb" in complaint(caffe("time", "-model", "lenet", "-phase", "TEST", cwd=empty), 1)[0]
    message, fix = complaint(caffe("train", "-solver", "char_lstm", cwd=empty), 1)
    assert "data/text/train.txt" in message and fix == "models/char_lstm/README.md says how to make it"


def test_every_way_to_make_data_is_told_where_a_model_reads_them():
    """The table of commands: each beginning is that of a source of some model, and each command is one of ours."""
    from pycaffe_lms.cli.commands.dataset import OWN_FLAGS
    from pycaffe_lms.data.database.source import _MADE_BY
    from pycaffe_lms.data.sets.datasets import DATASETS

    sources = {
        s for p in MODELS.glob("*/*.prototxt") for s in re.findall(r'(?:source|mean_file): "(.*)"', p.read_text())
    }
    for beginning, command in _MADE_BY.items():
        assert any(source.startswith(beginning) for source in sources), beginning
        name = command.removeprefix("pycaffe-lms dataset ").split()[0]
        assert name in DATASETS or name in OWN_FLAGS
    for name in DATASETS:
        if any(source.startswith(f"data/{name}/") for source in sources):
            assert any(beginning.startswith(f"data/{name}/") for beginning in _MADE_BY), name


def test_plan_needs_no_shape_and_says_what_it_says_of_the_file(empty):
    by_name = caffe("plan", "-model", "lenet", "-summary", cwd=empty)
    path = str(MODELS / "lenet/train_val.prototxt")
    by_path = caffe("plan", "-model", path, "-shape", "data=64,1,28,28", "-summary", cwd=empty)
    assert by_name.code == by_path.code == 0 and by_name.out == by_path.out
    assert caffe("plan", "-model", "lenet", "-shape", "data=8,1,28,28", "-summary", cwd=empty).code == 0
    assert caffe("plan", "-solver", "lenet", "-summary", cwd=empty).code == 0
    assert not list(empty.iterdir())


def test_other_commands_take_names(empty, tmp_path):
    done = caffe("summarize", "lenet", cwd=empty)
    assert done.code == 0 and "parameters: 431,080" in done.out
    done = caffe("diff", "resnet-18", "resnet-34", cwd=empty)
    assert done.code == 1 and done.out.splitlines()[-1].startswith("layers: ")
    done = caffe("diff", "-kind", "solver", "lenet", "digits", cwd=empty)
    assert done.code == 1 and "~ base_lr: 0.01 -> 0.05" in done.out
    assert "did you mean lenet" in complaint(caffe("summarize", "lenett", cwd=empty), 2)[0]
    net = pycaffe.Net(str(MODELS / "digits/deploy.prototxt"), pycaffe.TEST)
    net.save(str(tmp_path / "digits.caffemodel"))
    np.save(tmp_path / "in.npy", np.random.default_rng(1).random((2, 8, 8, 1), np.float32))
    weights = str(tmp_path / "digits.caffemodel")
    argv = ("-model_def", "digits", "-pretrained_model", weights, "-images_dim", "8,8", "-backend", "cpu")
    done = caffe("classify", str(tmp_path / "in.npy"), str(tmp_path / "out.npy"), *argv, cwd=empty)
    assert done.code == 0, done.stderr
    assert np.load(tmp_path / "out.npy").shape == (2, 10)
    assert not list(empty.iterdir())


def test_export_takes_the_deploy_net(empty, tmp_path):
    pytest.importorskip("onnx")
    pycaffe.Net(str(MODELS / "digits/deploy.prototxt"), pycaffe.TEST).save(str(tmp_path / "digits.caffemodel"))
    argv = ("-model", "digits", "-weights", str(tmp_path / "digits.caffemodel"), "-o", str(tmp_path / "digits.onnx"))
    done = caffe("export_onnx", *argv, cwd=empty)
    assert done.code == 0 and (tmp_path / "digits.onnx").exists(), done.stderr


def test_draw_net_takes_names(empty, tmp_path):
    pytest.importorskip("pydot")
    done = caffe("draw_net", "lenet", str(tmp_path / "lenet.dot"), cwd=empty)
    assert done.code == 0 and "conv1" in (tmp_path / "lenet.dot").read_text()
