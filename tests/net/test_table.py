"""Nets as tables: numbers counted by hand."""

from __future__ import annotations

import re
from html.parser import HTMLParser

import pycaffe_lms as caffe
from pycaffe_lms.net.inspect.table import rows

from .nets import conv, inputs, ip, layer, loss, make_net, relu

TEXT = (
    'name: "tiny <net>"\n'
    + inputs(x=(2, 3, 4, 4), label=(2,))
    + conv("conv", "x", 5)
    + relu("relu", "conv")
    + ip("a", "conv", 6, 'param { name: "w" } param { name: "b" }')
    + layer("flat", "Flatten", "conv")
    + ip("b", "flat", 6, 'param { name: "w" } param { name: "b" }')
    + layer("sum", "Eltwise", "a b")
    + loss("sum")
)
# layer: (tops, parameters, numbers with memory of their own)
EXPECTED = {
    "x": ([("x", (2, 3, 4, 4))], 0, 96),
    "label": ([("label", (2,))], 0, 2),
    "conv": ([("conv", (2, 5, 4, 4))], 5 * 3 * 9 + 5, 160 + 140),
    "relu": ([("conv", (2, 5, 4, 4))], 0, 0),
    "conv_relu_0_split": ([(f"conv_relu_0_split_{k}", (2, 5, 4, 4)) for k in (0, 1)], 0, 0),
    "a": ([("a", (2, 6))], 6 * 80 + 6, 12 + 486),
    "flat": ([("flat", (2, 80))], 0, 0),
    "b": ([("b", (2, 6))], 0, 12),
    "sum": ([("sum", (2, 6))], 0, 12),
    "loss": ([("loss", ())], 0, 1),
}


def test_rows():
    net = make_net(TEXT)
    got = {r.name: (list(r.tops), r.parameters, r.nbytes // 4) for r in rows(net.graph, 4)}
    assert got == EXPECTED
    assert {r.name: r.shared_with for r in rows(net.graph, 4) if r.shared_with} == {"b": "a"}
    assert sum(r.nbytes for r in rows(net.graph, 8)) == 2 * sum(r.nbytes for r in rows(net.graph, 4))


def test_text():
    net = make_net(TEXT)
    assert repr(net) == "<Net 'tiny <net>': 10 layers, 626 parameters>"
    title, head, rule, *body, last_rule, total = str(net).splitlines()
    assert title == 'Net "tiny <net>", TRAIN, on CPU' and re.split(r"\s{2,}", head) == [
        "layer",
        "type",
        "tops",
        "parameters",
        "bytes",
    ]
    assert set(rule) == {"-"} and rule == last_rule and [line.split()[0] for line in body] == list(EXPECTED)
    assert re.split(r"\s{2,}", body[2]) == ["conv", "Convolution", "conv (2 5 4 4)", "140", "1.2 KiB"]
    assert re.split(r"\s{2,}", body[7]) == ["b", "InnerProduct", "b (2 6)", "of a", "48 B"]
    assert re.split(r"\s{2,}", total) == ["total", "10 layers", "626", "3.6 KiB"]
    assert len({len(line) for line in body if line.endswith("B")}) == 1  # right-aligned


class _Cells(HTMLParser):
    def __init__(self):
        super().__init__()
        self.rows, self.open = [], []

    def handle_starttag(self, tag, attrs):
        self.open.append(tag)
        if tag == "tr":
            self.rows.append([])

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open[-1] in ("td", "th"):
            self.rows[-1].append(data)
        else:
            assert self.open[-1] == "caption" and data == 'Net "tiny <net>", TEST, on CPU'


def test_html():
    """Well formed, names escaped, the same cells as the text."""
    net = make_net(TEXT, phase=caffe.TEST)
    parser = _Cells()
    parser.feed(net._repr_html_())
    assert not parser.open and "<net>" not in net._repr_html_()
    assert [row[0] for row in parser.rows] == ["layer", *EXPECTED, "total"]
    assert parser.rows[3] == ["conv", "Convolution", "conv (2 5 4 4)", "140", "1.2 KiB"]


def test_a_solvers_net_and_an_empty_one():
    assert str(make_net('name: "none"\n')).splitlines()[-1].split() == ["total", "0", "layers", "0", "0", "B"]
