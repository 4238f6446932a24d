"""`pycaffe-lms summarize`: published numbers of known nets, every form of output, what is refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from pycaffe_lms.cli.main import main

from .nets import DATA_NET, NET, write

MODELS = Path(__file__).resolve().parents[2] / "models"


@pytest.fixture
def said(capsys):
    def run(*argv):
        code = main(["summarize", *map(str, argv)])
        done = capsys.readouterr()
        return code, done.out, done.err

    return run


@pytest.mark.parametrize(
    ("model", "size", "parameters", "multiplications"),
    [("alexnet", 227, 60_965_224, 724e6), ("vgg-16", 224, 138_357_544, 15.47e9), ("resnet-18", 224, None, 1.82e9)],
)
def test_numbers_that_papers_print(said, model, size, parameters, multiplications):
    code, out, err = said(
        MODELS / model / "train_val.prototxt", "-shape", f"data=1,3,{size},{size}", "-phase", "TRAIN", "-json"
    )
    assert code == 0 and not err
    total = json.loads(out)["total"]
    assert parameters in (None, total["parameters"])
    assert total["flops"] / 2 == pytest.approx(multiplications, rel=0.005)
    assert total["training_nbytes"] > 3 * 4 * total["parameters"]  # values, gradients, momentum


def test_training_memory_is_what_a_gpu_took(said):
    """41.5 GiB were measured for this net and batch, with the workspace of cuDNN."""
    code, out, _ = said(MODELS / "resnet-152" / "train_val.prototxt", "-shape", "data=256,3,224,224", "-json")
    assert code == 0
    assert 0.95 * 41.5 < json.loads(out)["total"]["training_nbytes"] / 2**30 < 41.5


def test_text(tmp_path, said):
    code, out, err = said(write(tmp_path, NET))
    assert code == 0 and not err
    title, _, head, rule, *body = out.splitlines()
    assert title == f"{tmp_path / 'net.prototxt'}: net 'small', phase TRAIN"
    assert head.split() == ["layer", "type", "settings", "bottoms", "tops", "parameters", "MFLOP", "memory"]
    assert set(rule) == {"-"}
    at = [head.index(word) for word in ("type", "settings", "bottoms", "tops")]
    conv = next(line for line in body if line.startswith("conv "))
    assert [conv[i:].split("  ")[0] for i in at] == ["Convolution", "16 3x3", "data", "conv (4 16 6 6)"]
    assert conv.split()[-4:] == ["448", f"{2 * 4 * 16 * 36 * 27 / 1e6:.3f}", "10.8", "KiB"]
    assert "relu" in out and "parameters: 1,898," in out  # 448 + 10 x 144 + 10


def test_in_place_layers_own_no_memory_and_long_names_are_cut(tmp_path, said):
    path = write(tmp_path, NET, ('name: "conv"', 'name: "a_rather_long_name_of_a_layer"'))
    _, out, _ = said(path, "-max_width", "12")
    lines = {line.split()[0]: line for line in out.splitlines() if line}
    assert "a_rather_l.." in lines and lines["relu"].split()[-1] == "-"


def test_markdown(tmp_path, said):
    _, out, _ = said(write(tmp_path, NET), "-markdown")
    table = [line for line in out.splitlines() if line.startswith("|")]
    assert len({line.count("|") for line in table}) == 1 and len(table) == 2 + 7 + 1
    assert table[1].split("|")[1:-1] == [" --- "] * 5 + [" ---: "] * 3


def test_data_that_is_not_there(tmp_path, said):
    path = write(tmp_path, DATA_NET)
    code, _, err = said(path)
    assert code == 1 and "-shape" in err and "-wiring" in err and 'layer "data"' in err
    code, out, _ = said(path, "-shape", "data=6,1,2,2", "-json")
    layers = json.loads(out)["layers"]
    assert code == 0
    assert layers[0]["type"] == "Data"
    assert layers[0]["tops"] == [{"blob": "data", "shape": [6, 1, 2, 2]}, {"blob": "label", "shape": [6]}]
    assert layers[1]["params"][0] == {"shape": [10, 4], "name": "", "lr_mult": 1.0, "decay_mult": 1.0, "owner": None}
    code, out, _ = said(path, "-wiring")
    assert code == 0 and "Data" in out and "data, label" in out


def test_phases(tmp_path, said):
    text = (
        NET + 'layer { name: "acc" type: "Accuracy" bottom: "ip" bottom: "label" top: "acc" include { phase: TEST } }\n'
    )
    path = write(tmp_path, text)
    for phase, present in (("TRAIN", False), ("TEST", True)):
        for more in ((), ("-wiring",)):
            assert ("Accuracy" in said(path, "-phase", phase, *more)[1]) == present
    assert "forward_nbytes" in json.loads(said(path, "-phase", "TEST", "-json")[1])["total"]


@pytest.mark.parametrize(
    ("argv", "word"),
    [
        ((), "MODEL is missing"),
        (("{net}", "-model", "{net}"), "MODEL is given as a flag already"),
        (("{net}", "-shape", "dat=1,2"), "data, label"),
        (("{net}", "-shape", "data=1,x"), "N,C,H,W"),
        (("{net}", "-max_width", "1"), "max_width"),
        (("{net}", "-wiring", "-json"), "-wiring"),
        (("{net}", "-json", "-markdown"), "not allowed"),
    ],
)
def test_wrong_use(tmp_path, said, argv, word):
    net = write(tmp_path, NET)
    code, _, err = said(*(a.format(net=net) for a in argv))
    assert code == 2 and word in err
