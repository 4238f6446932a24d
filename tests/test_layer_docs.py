"""docs/layers.md is what tools/gen_layer_docs.py writes; docs/differences.md and docs/bits.md name tests that exist."""

import re
from pathlib import Path

import pytest

from pycaffe_lms.layers.registry import LAYERS

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture
def gen_layer_docs(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "tools"))
    import gen_layer_docs

    return gen_layer_docs


def test_the_file_is_current(gen_layer_docs):
    assert gen_layer_docs.main(["--check"]) == 0, "run: python tools/gen_layer_docs.py"


def test_every_type_and_field_has_a_place(gen_layer_docs):
    text = gen_layer_docs.text()
    for name, cls in LAYERS.items():
        assert f"## {name}\n" in text or f"`{name}`" in text
        for message in gen_layer_docs.messages_of(cls):
            assert f"| `{message}` | number | type | default |" in text


def test_the_contents_link_every_type_to_its_heading():
    """Types of one layer class share a heading, which has Caffe's own name where there is one."""
    text = (ROOT / "docs" / "layers.md").read_text()
    number, listed = re.search(r"^(\d+) types:\n\n((?:\|.*\n)+)\n## ", text, re.M).groups()
    links = dict(re.findall(r"\[(\w+)\]\(#([\w-]+)\)", listed))
    headings: dict[str, str] = {}
    for name in re.findall(r"^## (\w+)$", text, re.M):
        anchor = name.lower()
        headings[f"{anchor}-1" if anchor in headings else anchor] = name
    assert int(number) == len(links) == len(LAYERS) and set(links) == set(LAYERS)
    for name, anchor in links.items():
        assert LAYERS[headings[anchor]] is LAYERS[name]
    assert links["Pooling"] == links["NdPooling"] == "pooling" and links["NdConvolution"] == "convolution"


def test_the_messages_that_a_type_reads(gen_layer_docs):
    """As Caffe's layers do: not what only a text, a base class's other user or `HasField` names."""
    read = {
        "AbsVal": (),
        "Bias": ("bias_param",),
        "Scale": ("scale_param",),
        "EuclideanLoss": (),
        "HingeLoss": ("hinge_loss_param",),
        "SoftmaxWithLoss": ("loss_param", "softmax_param"),
        "InfogainLoss": ("loss_param", "infogain_loss_param"),
        "HDF5Data": ("data_param", "hdf5_data_param"),
        "WindowData": ("transform_param", "data_param", "window_data_param"),
        "ReLU6": ("relu_param", "relu6_param"),
        "DepthwiseConvolution": ("convolution_param",),
    }
    assert {name: gen_layer_docs.messages_of(LAYERS[name]) for name in read} == read


def test_check_writes_nothing(gen_layer_docs, monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(gen_layer_docs, "FILE", tmp_path / "docs" / "layers.md")
    assert gen_layer_docs.main(["--check"]) == 1
    assert capsys.readouterr().out == "not current: layers.md\n" and not list(tmp_path.iterdir())
    assert gen_layer_docs.main([]) == 0 and gen_layer_docs.main(["--check"]) == 0


@pytest.mark.parametrize("page", ["differences.md", "bits.md"])
def test_every_test_that_differences_names_exists(page):
    text = (ROOT / "docs" / page).read_text()
    named = re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", text)
    assert len(named) >= 15
    for row in re.findall(r"^\|(?! what |---).*$", text, re.M):
        assert "`tests/" in row, row
    for path, function in named:
        assert f"def {function}(" in (ROOT / path).read_text(), f"{path}::{function}"
