"""Which values are stored as bfloat16: what layers say, and what must stay as it is."""

from __future__ import annotations

import numpy as np
import pytest

from pycaffe_lms.net.net import Net
from pycaffe_lms.net.passes import memory_order, precision
from pycaffe_lms.net.passes.order_copies import differs
from pycaffe_lms.net.program.buffers import assign
from pycaffe_lms.net.tuning import Tuning
from pycaffe_lms.ops import load_ops

from .nets import TEST, conv, graph, inputs, ip, layer, loss, message, relu

DATA = inputs(data=(2, 3, 8, 8), label=(2,))
POOL = "pooling_param { kernel_size: 2 stride: 2 }"


def chosen(text: str, phase: int = 0, last: bool = False):
    g, ops = graph(text, phase), load_ops("cpu")
    if last:
        memory_order.choose(g, ops)
    precision.choose(g, ops)
    return g


def stored(g) -> set[str]:
    return {v.name for v in g.values if v.half}


def test_what_lies_between_convolutions_and_what_does_not():
    text = DATA + conv("a", "data", 4) + relu("r", "a") + layer("p", "Pooling", "a", text=POOL) + conv("b", "p", 4)
    g = chosen(text + ip("scores", "b", 3) + relu("r2", "scores") + loss("scores"))
    assert stored(g) == {"a", "p", "b"}
    assert [n.name for n in g.nodes if n.half] == ["a", "r", "p", "b"]
    assert all(n.layer.context.half == n.half for n in g.nodes)
    scores = next(n for n in g.nodes if n.name == "scores")
    assert differs(g, scores, scores.bottoms[0]) and not differs(g, scores, scores.tops[0])
    first = next(n for n in g.nodes if n.name == "a")
    assert differs(g, first, first.bottoms[0]) and not differs(g, first, first.tops[0])


@pytest.mark.parametrize("last", [False, True])
def test_sizes_of_buffers(last):
    g = chosen(DATA + conv("a", "data", 4) + conv("b", "a", 4) + ip("scores", "b", 3) + loss("scores"), last=last)
    table = assign(g, 4)
    sizes = {buffer.name: n for buffer, n in zip(table.buffers, table.used_bytes, strict=True)}
    assert sizes["a.data"] == sizes["a.diff"] == 2 * 2 * 4 * 8 * 8 and sizes["data.data"] == 4 * 2 * 3 * 8 * 8
    assert sizes["a.param0.data"] == sizes["a.param0.diff"] == 4 * 4 * 3 * 9


def test_what_a_loss_reads_and_what_the_net_gives_stay_float32():
    text = inputs(data=(2, 3, 8, 8), label=(2, 8, 8)) + conv("a", "data", 4) + conv("scores", "a", 5)
    assert stored(chosen(text + loss("scores"))) == {"a"}
    assert stored(chosen(inputs(data=(2, 3, 8, 8)) + conv("a", "data", 4) + relu("out", "a", "out"), TEST)) == {"a"}


def test_versions_of_one_blob_have_one_type():
    """The last one is the net's output, so those before it, whose gradient is the same memory, stay too."""
    assert stored(chosen(inputs(data=(2, 3, 8, 8)) + conv("a", "data", 4) + relu("r", "a"))) == set()


def test_values_that_layers_take_as_labels_or_on_the_host_stay(tmp_path, monkeypatch):
    (tmp_path / "seen_by_host.py").write_text(
        "import pycaffe_lms as caffe\nclass Look(caffe.Layer):\n"
        "    def setup(self, bottom, top): pass\n    def reshape(self, bottom, top): top[0].reshape(1)\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    python = layer("host", "Python", "a", text='python_param { module: "seen_by_host" layer: "Look" }')
    for reader in (layer("top", "ArgMax", "a"), layer("far", "EuclideanLoss", "a b", "far"), python):
        assert not {"a", "b"} & stored(chosen(DATA + conv("a", "data", 4) + conv("b", "a", 4) + reader))


def test_a_split_has_the_type_of_what_it_shares():
    text = DATA + conv("a", "data", 4) + conv("b", "a", 4) + layer("sum", "Eltwise", "a b") + conv("c", "sum", 4)
    g = chosen(text + ip("scores", "c", 3) + loss("scores"))
    names = stored(g)
    assert {"a", "b", "sum", "c"} < names and all("split" in n for n in names - {"a", "b", "sum", "c"})


def test_patches_as_tokens_stay_bfloat16():
    """As in a vision transformer: positions of a convolution become rows, which get a bias and a sum."""
    text = conv("patches", "data", 4) + layer(
        "list", "Reshape", "patches", text="reshape_param { shape { dim: [0, 0, -1] } }"
    )
    text += layer("tokens", "Permute", "list", text="permute_param { order: [0, 2, 1] }")
    text += layer("places", "Bias", "tokens", text="bias_param { axis: 1 num_axes: 2 }")
    text += layer("norm", "LayerNorm", "places")
    text += layer("product", "InnerProduct", "norm", text="inner_product_param { num_output: 4 axis: 2 }")
    text += layer("sum", "Eltwise", "places product")
    text += layer("last", "InnerProduct", "sum", text="inner_product_param { num_output: 3 }") + loss("last")
    g = chosen(DATA + text)
    names = {"patches", "list", "tokens", "places", "norm", "product", "sum"}
    assert names == {name for name in stored(g) if "split" not in name}
    assert not any(differs(g, n, v) for n in g.nodes if n.name in names - {"patches"} for v in (*n.bottoms, *n.tops))


def test_places_of_maxima_stay_exact():
    pool = layer("p", "Pooling", "a", "p where", "pooling_param { kernel_size: 2 stride: 2 }")
    g = chosen(DATA + conv("a", "data", 4) + pool + conv("c", "p", 4) + ip("scores", "c", 3) + loss("scores"))
    assert stored(g) == {"a", "c"}


def test_layers_without_convolutions_stay_as_they_are():
    text = DATA + layer("p", "Pooling", "data", text=POOL) + relu("r", "p") + ip("scores", "p", 3) + loss("scores")
    assert stored(chosen(text)) == set()


def test_nets_of_float64_are_left_alone():
    net = Net(
        message(DATA + conv("a", "data", 4) + ip("s", "a", 3) + loss("s")),
        0,
        dtype=np.float64,
        tuning=Tuning(half=True),
    )
    assert not any(v.half for v in net.graph.values)
