"""Where Split layers go, what they are called, and what becomes of loss weights."""

from __future__ import annotations

import pytest

from pycaffe_lms.errors import GraphError
from pycaffe_lms.net.build.splits import insert_splits

from .nets import conv, inputs, ip, layer, loss, message, relu

pytestmark = pytest.mark.pure
DATA = inputs(data=(2, 3), label=(2,))


def split(text):
    """(layer, bottoms, tops) of every layer, and origins, after splits."""
    net = message(text)
    result, origins = insert_splits(net, list(range(len(net.layer))))
    return result, [(m.name, list(m.bottom), list(m.top)) for m in result.layer], origins


def test_nothing_used_twice_changes_nothing():
    net = message(DATA + ip("a", "data", 3) + loss("a"))
    result, origins = insert_splits(net, [0, 1, 2, 3])
    assert result == net and origins == [0, 1, 2, 3]


def test_names_order_and_position():
    """<blob>_<layer>_<top>_split, its tops _0 _1 .. in order of use, directly after the producer."""
    result, rows, origins = split(DATA + ip("a", "data", 3) + relu("r", "a", "b") + ip("c", "a", 2) + ip("d", "a", 2))
    assert rows[2:] == [
        ("a", ["data"], ["a"]),
        ("a_a_0_split", ["a"], ["a_a_0_split_0", "a_a_0_split_1", "a_a_0_split_2"]),
        ("r", ["a_a_0_split_0"], ["b"]),
        ("c", ["a_a_0_split_1"], ["c"]),
        ("d", ["a_a_0_split_2"], ["d"]),
    ]
    assert result.layer[3].type == "Split"
    assert origins == [0, 1, 2, 2, 3, 4, 5]  # a Split is reported at its producer's line


def test_one_layer_that_reads_a_blob_twice_uses_it_twice():
    _, rows, _ = split(DATA + layer("sum", "Eltwise", "data data"))
    assert rows[1:] == [
        ("data_data_0_split", ["data"], ["data_data_0_split_0", "data_data_0_split_1"]),
        ("label", [], ["label"]),
        ("sum", ["data_data_0_split_0", "data_data_0_split_1"], ["sum"]),
    ]


def test_tops_of_one_layer_are_split_in_their_order():
    text = layer("in", "Input", "", "x y z") + layer("e", "Eltwise", "z x y") + layer("f", "Eltwise", "z x y")
    _, rows, _ = split(text)
    assert [row[0] for row in rows] == ["in", "x_in_0_split", "y_in_1_split", "z_in_2_split", "e", "f"]
    assert rows[4][1] == ["z_in_2_split_0", "x_in_0_split_0", "y_in_1_split_0"]
    assert rows[5][1] == ["z_in_2_split_1", "x_in_0_split_1", "y_in_1_split_1"]


def test_an_in_place_chain_is_split_after_its_last_layer_before_the_readers():
    text = DATA + conv("conv1", "data", 2) + relu("relu1", "conv1") + ip("a", "conv1", 2) + ip("b", "conv1", 2)
    _, rows, _ = split(text)
    assert [row[0] for row in rows[2:]] == ["conv1", "relu1", "conv1_relu1_0_split", "a", "b"]
    assert rows[3] == ("relu1", ["conv1"], ["conv1"])
    assert rows[4][2] == ["conv1_relu1_0_split_0", "conv1_relu1_0_split_1"]


def test_the_layer_name_and_the_blob_name_may_differ():
    _, rows, _ = split(layer("L", "Input", "", "B") + relu("r", "B", "C") + relu("s", "B", "D"))
    assert rows[1] == ("B_L_0_split", ["B"], ["B_L_0_split_0", "B_L_0_split_1"])


def weighted(*weights, readers=""):
    """A two-top layer with loss weights, and readers of tops x and y."""
    given = " ".join(f"loss_weight: {w}" for w in weights)
    text = DATA + layer("l", "Two", "data", "x y", given)
    for i, blob in enumerate(readers.split()):
        text += relu(f"r{i}", blob, f"out{i}")
    return split(text)


def test_a_loss_weight_and_one_reader_are_two_uses():
    """The weight moves to the Split's first top, which nobody reads: so it becomes an output."""
    result, rows, _ = weighted(2, 0, readers="x")
    assert rows[3] == ("x_l_0_split", ["x"], ["x_l_0_split_0", "x_l_0_split_1"])
    assert rows[4] == ("r0", ["x_l_0_split_1"], ["out0"])
    assert list(result.layer[3].loss_weight) == [2, 0]
    assert list(result.layer[2].loss_weight) == [0, 0]  # still two: an implicit weight must not come back


def test_a_loss_weight_alone_is_one_use():
    result, rows, _ = weighted(2, 3)
    assert len(rows) == 3 and list(result.layer[2].loss_weight) == [2, 3]


def test_a_weight_of_zero_is_no_use():
    result, rows, _ = weighted(0, 0, readers="x y")
    assert len(rows) == 5
    assert list(result.layer[2].loss_weight) == [0, 0]  # and stays written: a loss without a list has weight 1


def test_weights_of_the_other_tops_stay():
    """BVLC Caffe drops the whole list; here each top keeps its own."""
    result, _, _ = weighted(2, 3, readers="x")
    assert list(result.layer[2].loss_weight) == [0, 3]
    assert list(result.layer[3].loss_weight) == [2, 0]
    result, rows, _ = weighted(2, 3, readers="y y")
    assert list(result.layer[2].loss_weight) == [2, 0]
    assert rows[3][2] == ["y_l_1_split_0", "y_l_1_split_1", "y_l_1_split_2"]
    assert list(result.layer[3].loss_weight) == [3, 0, 0]
    result, rows, _ = weighted(2, 3, readers="x y")
    assert [row[0] for row in rows[2:5]] == ["l", "x_l_0_split", "y_l_1_split"]
    assert [list(m.loss_weight) for m in result.layer[2:5]] == [[0, 0], [2, 0], [3, 0]]


def test_an_implicit_loss_weight_is_not_seen():
    """One reader of a loss without an explicit weight: a single use, no Split."""
    _, rows, _ = split(DATA + ip("a", "data", 3) + loss("a") + relu("r", "loss", "out"))
    assert [row[0] for row in rows] == ["data", "label", "a", "loss", "r"]


@pytest.mark.parametrize("weight", ["", "loss_weight: 2"])
def test_twice_changes_nothing(weight):
    text = DATA + ip("a", "data", 3) + relu("r", "a") + loss("a", text=weight) + relu("s", "a", "t")
    once, _, _ = split(text + relu("u", "loss", "v"))
    twice, origins = insert_splits(once, list(range(len(once.layer))))
    assert twice == once and origins == list(range(len(once.layer)))


def test_the_message_given_is_left_alone():
    net = message(DATA + layer("sum", "Eltwise", "data data"))
    before = net.SerializeToString()
    insert_splits(net, [0, 1, 2])
    assert net.SerializeToString() == before


@pytest.mark.parametrize("text", [DATA + relu("r", "dta", "x"), relu("r", "data", "x") + DATA], ids=["typo", "later"])
def test_an_unknown_bottom(text):
    with pytest.raises(GraphError, match=r"Unknown bottom blob '\w+' \(layer 'r', bottom index 0\)") as caught:
        split(text)
    assert caught.value.where.layer == "r" and caught.value.where.blob in ("dta", "data")
    assert "known so far: " + ("data, label" if caught.value.where.blob == "dta" else "none yet") in caught.value.fix


def test_a_blob_does_not_reach_its_own_layer():
    with pytest.raises(GraphError, match="Unknown bottom blob 'x'"):
        split(DATA + layer("loop", "Eltwise", "data x", "x"))
