"""Which values share memory: in-place versions, Split, Flatten, Reshape, and diffs."""

from __future__ import annotations

import pytest

from pycaffe_lms.net.program.buffers import assign
from pycaffe_lms.ops import load_ops

from .nets import TEST, conv, graph, inputs, ip, layer, loss, relu

pytestmark = pytest.mark.pure
DATA = inputs(data=(2, 3, 4, 4), label=(2,))


def built(text, phase=0):
    g = graph(text, phase)
    for node in g.nodes:
        shapes = [[g.values[v].shape for v in vs] for vs in (node.bottoms, node.tops)]
        node.layer.declare(*shapes, load_ops("cpu"))
    return g, assign(g, 4)


def datas(g, name):
    """Data buffers of the versions of a blob, in order of making."""
    return [v.data for v in g.values if v.name == name]


def pattern(ids):
    """[7, 7, 9] -> "aab": who shares with whom."""
    return "".join("abcdefgh"[list(dict.fromkeys(ids)).index(i)] for i in ids)


def bn(blob, text=""):
    return layer("bn", "BatchNorm", blob, blob, text)


def scale(blob, text="scale_param { bias_term: true }"):
    return layer("scale", "Scale", blob, blob, text)


def drop(blob):
    return layer("drop", "Dropout", blob, blob)


FROZEN = "param { lr_mult: 0 } "
UNIT = conv("x", "data", 2) + bn("x") + scale("x") + relu("relu", "x")


@pytest.mark.parametrize(
    ("chain", "expected", "why"),
    [
        (UNIT, "aabb", "BatchNorm reads its top, Scale its bottom (the same value), ReLU its top"),
        (conv("x", "data", 2) + relu("r", "x"), "aa", "ReLU reads its top, Convolution nothing of its own"),
        (
            conv("x", "data", 2) + relu("r", "x", text="relu_param { negative_slope: -0.5 }"),
            "ab",
            "with a negative slope ReLU reads its bottom",
        ),
        (conv("x", "data", 2) + drop("x"), "aa", "Dropout makes its choice again"),
        (conv("x", "data", 2) + relu("r", "x") + drop("x"), "aab", "ReLU's top is read"),
        (conv("x", "data", 2) + scale("x"), "ab", "the gradient of the factor reads the bottom"),
        (conv("x", "data", 2) + scale("x", FROZEN * 2 + "scale_param { bias_term: true }"), "aa", "frozen: no"),
        (
            conv("x", "data", 2) + scale("x", FROZEN + "param { lr_mult: 1 } scale_param { bias_term: true }"),
            "aa",
            "nor does the shift",
        ),
        (
            conv("x", "data", 2) + bn("x", "batch_norm_param { use_global_stats: true }") + relu("r", "x"),
            "aaa",
            "with global statistics BatchNorm reads nothing",
        ),
        (conv("x", "data", 2) + layer("b", "Bias", "x", "x") + relu("r", "x"), "aaa", "Bias reads nothing"),
    ],
)
def test_in_place_copies_only_what_backward_reads(chain, expected, why):
    g, _ = built(DATA + chain + ip("y", "x", 3) + loss("y"))
    assert pattern(datas(g, "x")) == expected, why


def test_a_unit_needs_two_data_buffers():
    g, table = built(DATA + UNIT + ip("y", "x", 3) + loss("y"))
    made = [b.name for b in table.buffers if b.name.startswith("x") and b.name.endswith(".data")]
    assert made == ["x.param0.data", "x.param1.data", "x.data", "x(scale).data"]
    assert table.used_bytes[g.values[g.last["x"]].data] == 2 * 2 * 4 * 4 * 4


def test_a_test_net_aliases_everything():
    g, _ = built(DATA + UNIT + drop("x") + ip("y", "x", 3) + loss("y", text="loss_weight: 0"), TEST)
    assert pattern(datas(g, "x")) == "aaaaa"


def test_without_backward_everything_is_aliased():
    g, _ = built(DATA + UNIT + ip("y", "x", 3))  # no loss
    assert pattern(datas(g, "x")) == "aaaa"


def test_a_reader_before_an_in_place_layer_is_only_possible_through_a_split():
    """Both read x; the first one in place on its own name: the other must see x as it was."""
    text = DATA + conv("x", "data", 2) + relu("r", "x", "y") + ip("z", "x", 3)
    g, _ = built(text)
    split = [v.data for v in g.values if v.name.startswith("x")]
    assert len(split) == 3 and len(set(split)) == 1  # x and its two names
    assert datas(g, "y") != [split[0]]


def test_in_place_on_one_branch_of_a_split_leaves_the_other():
    """Split, then in place on the first top, while the second is read later (a file may have Splits of its own)."""
    text = (
        DATA
        + conv("x", "data", 2)
        + layer("s", "Split", "x", "x1 x2")
        + relu("r", "x1")
        + layer("sum", "Eltwise", "x1 x2")
    )
    g, _ = built(text)
    assert pattern(datas(g, "x") + datas(g, "x2") + datas(g, "x1")) == "aaab"


def test_in_place_after_the_last_reader_of_a_split_may_alias():
    text = DATA + conv("x", "data", 2) + layer("s", "Split", "x", "x1 x2") + ip("z", "x2", 3) + relu("r", "x1")
    g, _ = built(text)
    assert pattern(datas(g, "x") + datas(g, "x2") + datas(g, "x1")) == "aaaa"


def test_split_flatten_and_reshape_share_data():
    text = (
        DATA
        + conv("x", "data", 2)
        + layer("f", "Flatten", "x")
        + layer("r", "Reshape", "f", text="reshape_param { shape { dim: 0 dim: 2 dim: -1 } }")
        + relu("u", "r", "a")
        + relu("v", "r", "b")
    )
    g, table = built(text)
    names = ["x", "f", "r", "r_r_0_split_0", "r_r_0_split_1"]
    assert pattern([d for n in names for d in datas(g, n)]) == "aaaaa"
    assert sum(b.name.endswith(".data") and "param" not in b.name for b in table.buffers) == 5  # data label x a b


def test_in_place_through_a_flatten_keeps_what_backward_reads():
    """r overwrites f, which is x, which Scale's backward reads."""
    text = DATA + conv("x", "data", 2) + scale("x") + layer("f", "Flatten", "x") + relu("r", "f") + ip("y", "f", 3)
    g, _ = built(text + loss("y"))
    assert pattern(datas(g, "x") + datas(g, "f")) == "abbb"
    text = DATA + conv("x", "data", 2) + relu("q", "x") + layer("f", "Flatten", "x") + drop("f") + ip("y", "f", 3)
    g, _ = built(text + loss("y"))
    assert pattern(datas(g, "x") + datas(g, "f")) == "aaab"


def test_diffs_of_one_name_share():
    g, table = built(DATA + UNIT + ip("y", "x", 3) + loss("y"))
    assert len({v.diff for v in g.values if v.name == "x"}) == 1
    assert sum(b.name == "x.diff" for b in table.buffers) == 1


def test_diffs_of_flatten_and_reshape_share_those_of_split_do_not():
    text = DATA + conv("x", "data", 2) + layer("f", "Flatten", "x") + relu("u", "f", "a") + relu("v", "f", "b")
    g, _ = built(text)
    by_name = {v.name: v.diff for v in g.values}
    assert by_name["f"] == by_name["x"]
    assert len({by_name[n] for n in ("f", "f_f_0_split_0", "f_f_0_split_1")}) == 3


def test_a_layer_that_cannot_run_in_place_gets_memory_of_its_own():
    tile = layer("s", "Tile", "y", "y", "tile_param { tiles: 1 }")
    g, table = built(DATA + ip("y", "data", 3) + tile + ip("z", "y", 3) + loss("z"))
    assert pattern(datas(g, "y")) == "ab"
    assert len({v.diff for v in g.values if v.name == "y"}) == 2


def test_shared_parameters_share_data_and_diff():
    spec = 'param { name: "w" } '
    g, _ = built(DATA + ip("a", "data", 48, spec) + ip("b", "a", 48, spec) + loss("b"))
    assert pattern([p.data for p in g.params]) == pattern([p.diff for p in g.params]) == "abac"


def test_names_are_unique():
    """Two layers of one name, two unnamed losses, two gradients of one blob: a reshape finds memory by name."""
    text = DATA + ip("y", "data", 3) + layer("s", "Softmax", "y", "y") + ip("y", "y", 3, tops="z")
    text += layer("l", "SoftmaxWithLoss", "z label", "") * 2
    _, table = built(text)
    names = [b.name for b in table.buffers]
    assert len(names) == len(set(names))
    assert {"y.param0.data", "y.param0(2).data", "(automatic).data", "(automatic)(2).data"} <= set(names)


def test_creation_order():
    """Forward layer by layer (parameters, tops, scratch), then gradients from the last layer to the first."""
    _, table = built(DATA + conv("x", "data", 2) + bn("x") + ip("y", "x", 3) + loss("y"))
    names = [b.name for b in table.buffers]
    assert names[:5] == ["data.data", "label.data", "x.param0.data", "x.param1.data", "x.data"]
    assert names.index("bn.inv_std") < names.index("y.data") < names.index("loss.data") < names.index("loss.diff")
    assert names.index("loss.diff") < names.index("y.diff") < names.index("x.diff") < names.index("x.param0.diff")
