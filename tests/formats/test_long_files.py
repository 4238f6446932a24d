"""Read long prototxts in time proportional to their length."""

from __future__ import annotations

from functools import partial

import pytest
from google.protobuf import text_format

from pycaffe_lms.errors import PrototxtError
from pycaffe_lms.formats.prototxt.dialects import translate
from pycaffe_lms.formats.prototxt.parser import _file_lines, parse_net
from pycaffe_lms.formats.prototxt.scanner import scan, tokenize
from pycaffe_lms.proto.caffe_pb2 import NetParameter

from ..growth import lines_run, seconds_run

RELU = 'layer {{ name: "l{0}" type: "ReLU" bottom: "b{0}" top: "b{1}" }}\n'
NETS = {
    "layers": lambda n: "".join(RELU.format(i, i + 1) for i in range(n)),
    "convolutions": lambda n: "".join(
        f'layer {{ name: "l{i}" type: "Convolution" convolution_param {{ kernel_size: 1 stride: 1 engine: CUDNN }} }}\n'
        for i in range(n)
    ),
    "V1 layers": lambda n: (
        "".join(RELU.format(i, i + 1) for i in range(n)).replace("layer {", "layers {").replace('"ReLU"', "RELU")
    ),
    "fields of a fork": lambda n: "".join(
        f'layer {{ name: "l{i}" type: "Convolution" convolution_param {{ num_output: 1 engine: MKL2017 }} }}\n'
        for i in range(n)
    ),
    "one long window": lambda n: (
        'layer { name: "l" type: "Convolution" convolution_param {\n' + "kernel_size: 3\n" * n + "} }"
    ),
    "old inputs": lambda n: "".join(f'input: "x{i}"\n' + "input_dim: 1\n" * 4 for i in range(n)),
}
WRONG = {
    "a slip at the end": lambda n: NETS["layers"](n) + 'layer { nme: "x" }',
    "open braces": lambda n: "layer {\n" * n,
    "many unknown names": lambda n: (
        'layer { type: "Pooling" pooling_param { ' + " ".join(f"kernel_size: 3 f{i}: 3" for i in range(n)) + " } }"
    ),
}


@pytest.mark.parametrize("net", NETS.values(), ids=NETS)
def test_lines_run_grow_with_the_text(net):
    def parse(text):
        lines = parse_net(text).lines
        return [lines.layer(k) for k in range(len(lines.origins))]

    parse(net(2))  # what is made once
    few, some, many = (lines_run(partial(parse, net(n))) for n in (6, 150, 600))
    assert many - few < 4.6 * (some - few)  # 594 more against 144: 4.1 times


@pytest.mark.parametrize("net", ["layers", "V1 layers", "convolutions"])
def test_nothing_is_scanned_until_a_line_is_asked_for(net, monkeypatch):
    def scanned(text):
        texts.append(text)
        return tokenize(text)

    texts = []
    for module in ("dialects", "parser", "errors"):
        monkeypatch.setattr(f"pycaffe_lms.formats.prototxt.{module}.tokenize", scanned)
    text = NETS[net](20)
    parsed = parse_net(text)
    assert not texts
    assert [parsed.lines.layer(k) for k in range(20)] == list(range(1, 21))
    assert texts == [text]  # once for all


@pytest.mark.parametrize("net", ["layers", "convolutions"])
def test_protobufs_parser_is_most_of_the_work(net):
    text = NETS[net](300)
    parse_net(text)
    whole, protobufs = lines_run(partial(parse_net, text)), lines_run(partial(text_format.Parse, text, NetParameter()))
    assert whole < 1.05 * protobufs


@pytest.mark.parametrize("net", WRONG.values(), ids=WRONG)
def test_lines_run_grow_with_a_wrong_text(net):
    def refused(text):
        with pytest.raises(PrototxtError):
            parse_net(text)

    refused(net(2))
    few, some, many = (lines_run(partial(refused, net(n))) for n in (6, 150, 600))
    assert many - few < 4.6 * (some - few)


def test_lines_of_fields():
    entries = {n: list(scan(tokenize("layer { }\n" * n))) for n in (3, 4000, 32000)}
    assert _file_lines(entries[3]) == {"layer": (1, 2, 3)}
    short, long = (seconds_run(lambda n=n: _file_lines(entries[n])) for n in (4000, 32000))
    assert long < 24 * short  # 8 times the fields; with a copy for every field 64


def test_words_replaced_in_one_long_line():
    def net(n):
        return "convolution_param { engine: MKL2017 } " * n

    def translated(n):
        return translate("layer { " + net(n) + "}", NetParameter.DESCRIPTOR)[0]

    assert " ".join(translated(2).split()) == "layer { convolution_param { } convolution_param { } }"
    assert len(translated(2)) == len("layer { " + net(2) + "}")  # columns stay
    short, long = (seconds_run(lambda n=n: translated(n)) for n in (500, 4000))
    assert long < 24 * short
