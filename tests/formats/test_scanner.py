"""The scanner against texts printed at random, whose lines are known because the printer counted them."""

from google.protobuf import text_format
from hypothesis import given
from hypothesis import strategies as st

from pycaffe_lms.formats.prototxt.parser import parse_net
from pycaffe_lms.formats.prototxt.scanner import scan, tokenize, unclosed
from pycaffe_lms.proto.caffe_pb2 import NetParameter

NAMES = st.text(alphabet="ab{}<>#:;,[]'\"\\ \u00e9\u0085\u2028", min_size=0, max_size=8)
GAPS = st.lists(
    st.sampled_from([" ", "\t", "\n", "\r\n", "# layer { \"' \n", "#\n", "\n\n", "#x\u0085layer {\n", "\x0c"]),
    max_size=3,
).map("".join)


class Printer:
    """Collect text and count line ends."""

    def __init__(self, draw):
        self.draw, self.parts, self.line = draw, [], 1

    def put(self, *texts):
        for text in texts:
            self.parts.append(text)
            self.line += text.count("\n")

    def gap(self, least=""):
        self.put(self.draw(GAPS) or least)

    def string(self, value):
        quote = self.draw(st.sampled_from("'\""))
        escaped = value.replace("\\", "\\\\").replace(quote, "\\" + quote)
        cut = self.draw(st.integers(0, len(value)))
        if self.draw(st.booleans()) or "\\" in escaped:
            self.put(quote + escaped + quote)
        else:  # two adjacent strings are one
            self.put(quote + value[:cut].replace(quote, "\\" + quote) + quote)
            self.gap()
            self.put(quote + value[cut:].replace(quote, "\\" + quote) + quote)

    def block(self, name):
        opening, closing = self.draw(st.sampled_from([("{", "}"), ("<", ">")]))
        self.put(opening)
        self.gap()
        self.put("name", self.draw(st.sampled_from([":", " :", ": "])))
        self.gap()
        self.string(name)
        self.gap(" ")
        inner = self.draw(
            st.sampled_from(
                [
                    "",
                    "top: 'layer {'",
                    "relu_param { negative_slope: 0.5 }",
                    "param: < lr_mult: 1 >, param {}",
                    "loss_weight: [1, 2.5]",
                    "pooling_param: { pool: AVE stride: 2; }",
                    "loss_weight: -1.5e-3",
                ]
            )
        )
        self.put(inner)
        self.gap()
        self.put(closing)


@st.composite
def nets(draw):
    """(text, names, lines) of a net with layers in every layout the dialect has."""
    printer, names, lines = Printer(draw), [], []
    printer.gap()
    for _ in range(draw(st.integers(1, 6))):
        kind = draw(st.sampled_from(["layer", "layer", "layer", "list", "other"]))
        if kind == "other":
            printer.put(
                draw(
                    st.sampled_from(
                        [
                            "state { stage: 'layer {' }" if "state" not in "".join(printer.parts) else "",
                            "input_dim: [ 1, 2 ]",
                            "input_dim: 0x10",
                            "input_dim: -3;",
                        ]
                    )
                )
            )
            printer.gap(" ")
            continue
        lines.append(printer.line)
        printer.put("layer")
        printer.gap()
        printer.put(draw(st.sampled_from([":", "", " : "])))
        printer.gap()
        if kind == "layer":
            names.append(draw(NAMES))
            printer.block(names[-1])
        else:
            printer.put("[")
            for k in range(draw(st.integers(1, 3))):
                if k:
                    printer.put(",")
                printer.gap()
                if k:
                    lines.append(printer.line)
                names.append(draw(NAMES))
                printer.block(names[-1])
            printer.gap()
            printer.put("]")
        printer.put(draw(st.sampled_from(["", ",", ";"])))
        printer.gap(" ")
    return "".join(printer.parts), names, lines


@given(nets())
def test_the_line_of_every_layer(case):
    text, names, lines = case
    expected = NetParameter()
    text_format.Parse(text, expected)
    assert [layer.name for layer in expected.layer] == names
    if not tokenize(text):
        return
    parsed = parse_net(text)
    assert [parsed.lines.layer(k) for k in range(len(names))] == lines
    assert parsed.message == expected


@given(st.text(alphabet="layer{}<>[]:;,#'\"\\ \n-1", max_size=60))
def test_any_text_is_scanned_to_its_end(text):
    tokens = tokenize(text)
    entries = list(scan(tokens))
    unclosed(tokens)
    assert all(entry.begin <= entry.end for entry in entries)
    assert [entry.begin for entry in entries] == sorted(entry.begin for entry in entries)


def test_entries_by_hand():
    text = "a: 1 # b: 2\nb { c: '}' }\nd: 'x' \"y\"\ne: [1,\n2]\nf: - 3"
    entries = list(scan(tokenize(text)))
    assert [(e.name, e.line, e.text()) for e in entries] == [
        ("a", 1, "1"),
        ("b", 2, ""),
        ("d", 3, "xy"),
        ("e", 4, "1"),
        ("e", 5, "2"),
        ("f", 6, "-3"),
    ]
    assert [t.text for t in entries[1].body] == ["c", ":", "'}'"]


def test_the_innermost_open_brace():
    assert unclosed(tokenize("layer {\n a {\n b: 1\n }"))[:2] == ("{", 1)
    assert unclosed(tokenize("layer {\n a <\n"))[:2] == ("<", 2)
    assert unclosed(tokenize("layer { }")) is None
