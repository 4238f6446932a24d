"""`generate`: what a net that has learned a text writes; the same training with Large Model Support; refusals."""

from __future__ import annotations

import pytest

import pycaffe_lms as caffe
from pycaffe_lms import layers as L
from pycaffe_lms.cli.main import main
from pycaffe_lms.language import transformer_block

LINE = "the fox asked the owl. "
SOLVER = """net: "net.prototxt" type: "AdamW" base_lr: 0.02 lr_policy: "cosine" max_iter: 100 momentum: 0.9
momentum2: 0.99 snapshot_prefix: "{}" random_seed: 3 display: 0 snapshot_after_train: true"""


def write_nets(size):
    for path in ("net.prototxt", "deploy.prototxt"):
        n = caffe.NetSpec()
        if path == "net.prototxt":
            n.data, n.label = L.TokenData(
                source="data/book/train.bin", batch_size=8, sequence_length=16, shuffle=True, ntop=2
            )
        else:
            n.data = L.Input(shape={"dim": [1, 16]})
        filler = {"type": "gaussian", "std": 0.1}
        n.embed = L.Embed(n.data, input_dim=size, num_output=16, bias_term=False, weight_filler=filler)
        x = transformer_block(n, "block", n.embed, width=16, heads=2, std=0.1)
        n.scores = L.InnerProduct(x, num_output=size, axis=2, weight_filler=filler)
        if path == "net.prototxt":
            n.loss = L.SoftmaxWithLoss(n.scores, n.label, softmax_param={"axis": 2})
        else:
            n.prob = L.Softmax(n.scores, axis=2)
        with open(path, "w") as file:
            file.write(str(n.to_proto()))


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A folder with nets, a vocabulary and weights of two trainings: with Large Model Support and without."""
    folder = tmp_path_factory.mktemp("generate")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        (folder / "book.txt").write_text(LINE * 40)
        assert main(["dataset", "text", "book.txt", "-vocabulary", "characters"]) == 0
        write_nets(len(set(LINE)))
        for name, flags in (("plain", []), ("lms", ["-lms", "1"])):
            (folder / "solver.prototxt").write_text(SOLVER.format(name))
            assert main(["train", "-solver", "solver.prototxt", "-backend", "sim", *flags]) == 0
    return folder


def test_training_with_lms_changes_no_bit(trained):
    plain, lms = (
        caffe.Net(str(trained / "deploy.prototxt"), caffe.TEST, weights=str(trained / f"{n}_iter_100.caffemodel"))
        for n in ("plain", "lms")
    )
    values = [[p.data.tobytes() for blobs in net.params.values() for p in blobs] for net in (plain, lms)]
    assert values[0] == values[1] and len(values[0]) == 13


def _generate(*argv):
    fixed = ["-weights", "plain_iter_100.caffemodel", "-vocabulary", "data/book/vocabulary.json", "-backend", "cpu"]
    return main(["generate", "deploy.prototxt", *fixed, *argv])


def test_it_writes_what_it_has_learned(trained, monkeypatch, capsys):
    monkeypatch.chdir(trained)
    assert _generate("-prompt", "the fox", "-tokens", "60", "-temperature", "0") == 0
    out, log = capsys.readouterr()
    assert out == (LINE * 4)[:67] + "\n" and "Creating Layer" not in log
    written = []
    for seed in (5, 5, 6):
        assert _generate("-prompt", "the", "-seed", str(seed), "-temperature", "3", "-top_k", "4") == 0
        written.append(capsys.readouterr().out)
    assert written[0] == written[1] != written[2] and len(written[0]) == 3 + 200 + 1


@pytest.mark.parametrize(
    "argv, code, words",
    [
        (["-prompt", ""], 2, "-prompt is empty"),
        (["-tokens", "-1"], 2, "-tokens -1"),
        (["-temperature", "nan"], 2, "-temperature nan"),
        (["-prompt", "x?"], 1, "lacks '?'"),
        (["-vocabulary", "book.txt"], 1, "book.txt: is no JSON"),
        (["-weights", "none.caffemodel"], 1, "none.caffemodel"),
    ],
)
def test_refusals(trained, monkeypatch, capsys, argv, code, words):
    monkeypatch.chdir(trained)
    assert _generate(*argv) == code
    assert words in capsys.readouterr().err
