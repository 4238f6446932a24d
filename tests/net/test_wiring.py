"""From layers to a graph: names, sharing, gradients, outputs, and errors that name file, line and layer."""

from __future__ import annotations

import pytest

from pycaffe_lms.errors import BlobCountError, CaffeError, GraphError, LayerParamError, ShapeError, UnknownLayerError

from .nets import FILE, TEST, conv, graph, inputs, ip, layer, loss, make_net, relu

pytestmark = pytest.mark.pure
DATA = inputs(data=(2, 3), label=(2,))


def _refused(text, kind, match, line, name, **options) -> CaffeError:
    with pytest.raises(kind, match=match) as caught:
        graph(text, **options)
    where = caught.value.where
    assert (where.file, where.line, where.layer) == (FILE, line, name)
    assert f'{FILE}:{line}: layer "{name}"' in str(caught.value) and "\n  fix: " in str(caught.value)
    return caught.value


# -- names -----------------------------------------------------------------------------------------------------------
def test_unknown_bottom():
    error = _refused(DATA + ip("a", "dota", 2), GraphError, "Unknown bottom blob 'dota'", 3, "a")
    assert "(layer 'a', bottom index 0)" in str(error) and error.where.blob == "dota"


def test_the_line_is_the_layers_own_where_two_phases_use_one_name():
    text = (
        DATA
        + layer("r", "ReLU", "dota", "x", "include { phase: TRAIN }")
        + layer("r", "ReLU", "data", "x", "include { phase: TEST }")
    )
    _refused(text, GraphError, "Unknown bottom", 3, "r")
    rules = "include { phase: TRAIN } exclude { stage: 'a' }"
    text = DATA + layer("r", "ReLU", "data", "x", rules) + layer("r", "ReLU", "data", "y")
    _refused(text, GraphError, "both include and exclude", 3, "r")


def test_duplicate_top():
    text = DATA + ip("a", "data", 2) + layer("b", "DummyData", "", "a", "dummy_data_param { shape { dim: 1 } }")
    error = _refused(text, GraphError, r"Top blob 'a' produced by multiple sources\.", 4, "b")
    assert error.where.blob == "a"


def test_in_place_at_another_index_is_a_duplicate():
    text = DATA + ip("a", "data", 3) + layer("e", "Eltwise", "data a", "a")
    _refused(text, GraphError, "Top blob 'a' produced by multiple sources", 4, "e")


def test_in_place_after_another_reader_is_a_duplicate():
    text = DATA + ip("a", "data", 3) + relu("r", "a", "b") + relu("s", "a")
    _refused(text, GraphError, "Top blob 'a' produced by multiple sources", 5, "s")


def test_in_place_before_other_readers_is_fine():
    g = graph(DATA + ip("a", "data", 3) + relu("r", "a") + relu("s", "a", "b") + relu("t", "a", "c"))
    assert [g.values[v].name for node in g.nodes for v in node.tops if node.name in ("a", "r")] == ["a", "a"]


@pytest.mark.parametrize("type", ["Flatten", "Reshape", "Split"])
def test_in_place_refused(type):
    text = "reshape_param { shape { dim: 0 dim: 3 } }" if type == "Reshape" else ""
    error = _refused(DATA + layer("l", type, "data", "data", text), GraphError, "cannot run in place", 3, "l")
    assert error.where.type == type and error.where.blob == "data"


def test_outputs_are_what_nobody_reads_in_byte_order():
    text = inputs(data=(2, 3), b=(1,)) + "".join(relu(f"r{n}", "data", n) for n in ("a10", "a2", "_", "Z", "ä", "z"))
    assert graph(text).outputs == ["Z", "_", "a10", "a2", "b", "z", "ä"]


def test_inputs_are_tops_of_input_layers_in_file_order():
    text = (
        layer("in", "Input", "", "z a")
        + layer("d", "DummyData", text="dummy_data_param { shape { dim: 1 } }")
        + inputs(b=(1,))
    )
    assert graph(text).inputs == ["z", "a", "b"]


def test_an_in_place_top_is_an_output_again():
    assert graph(DATA + ip("a", "data", 3) + relu("r", "a")).outputs == ["a", "label"]


def test_an_automatic_top_is_no_output():
    g = graph(DATA + ip("a", "data", 3) + layer("loss", "SoftmaxWithLoss", "a label", ""))
    assert g.outputs == []
    top = g.values[g.nodes[-1].tops[0]]
    assert (top.name, top.loss_weight, top.shape) == ("(automatic)", 1.0, ())
    assert not g.nodes[-1].message.top


def test_two_automatic_tops_do_not_meet():
    both = layer("l1", "SoftmaxWithLoss", "a label", "") + layer("l2", "SoftmaxWithLoss", "a label", "")
    g = graph(DATA + ip("a", "data", 3) + both)
    assert sum(v.loss_weight for v in g.values) == 2 and g.outputs == []


def test_loss_weights():
    """Explicit ones as given, else 1 for the first top of a loss and 0 for all others."""
    head = DATA + ip("a", "data", 3)

    def weights(text):
        g = graph(head + text)
        return [g.values[t].loss_weight for t in g.nodes[-1].tops]

    assert weights(loss("a")) == [1]
    assert weights(loss("a", text="loss_weight: 0.5")) == [0.5]
    assert weights(loss("a", text="loss_weight: 0")) == [0]
    assert weights(loss("a", "loss prob")) == [1, 0]
    assert weights(loss("a", "loss prob", text="loss_weight: 2 loss_weight: 0")) == [2, 0]
    matrix = inputs(data=(2, 3), label=(2,), matrix=(1, 1, 3, 3)) + ip("a", "data", 3)
    infogain = graph(matrix + layer("i", "InfogainLoss", "a label matrix", "loss prob"))
    assert [infogain.values[t].loss_weight for t in infogain.nodes[-1].tops] == [1, 0]
    assert weights(layer("acc", "Accuracy", "a label")) == [0]
    assert weights(relu("r", "a", "b", "loss_weight: 3")) == [3]
    _refused(head + relu("r", "a", "b", "loss_weight: 1 loss_weight: 2"), LayerParamError, "loss_weight", 4, "r")


def test_errors_of_layers_have_their_place_too():
    _refused(DATA + layer("x", "Relu", "data"), UnknownLayerError, 'did you mean "ReLU"', 3, "x")
    _refused(DATA + layer("x", "ReLU", "data label"), BlobCountError, "2 given", 3, "x")
    other = inputs(other=(2, 4)) + layer("x", "Eltwise", "data other")
    _refused(DATA + other, ShapeError, r"\(2, 4\)", 4, "x")
    _refused(DATA + layer("x", "Flatten", "data", "y", "flatten_param { axis: 5 }"), LayerParamError, "axis", 3, "x")


def test_phase_is_inherited_unless_set():
    text = DATA + layer("a", "Dropout", "data") + layer("b", "Dropout", "a", text="phase: TRAIN")
    assert [node.layer.phase for node in graph(text, TEST).nodes] == [TEST, TEST, TEST, 0]


# -- parameters ------------------------------------------------------------------------------------------------------
def _pair(first: str, second: str, outputs=(3, 3)) -> str:
    return DATA + ip("a", "data", outputs[0], first) + ip("b", "data", outputs[1], second)


def _params(text):
    return [(p.name, p.owner, p.lr_mult, p.decay_mult) for p in graph(text).params]


W = 'param { name: "w" %s }'


def test_unnamed_parameters_never_share():
    assert _params(_pair("", "")) == [("", i, 1.0, 1.0) for i in range(4)]


def test_the_first_of_a_name_owns():
    g = graph(_pair(W % "", W % ""))
    assert [p.owner for p in g.params] == [0, 1, 0, 3]
    assert [p.index for p in g.learnable] == [0, 1, 3]


def test_sharing_within_a_layer_and_across_positions():
    text = DATA + layer("s", "Scale", "data", text=f"{W % ''} {W % ''} scale_param {{ bias_term: true }}")
    assert [p.owner for p in graph(text).params] == [0, 0]


def test_strict_needs_equal_shapes():
    error = _refused(_pair(W % "", W % "", (3, 4)), GraphError, 'share parameter "w" with layer "a"', 4, "b")
    assert "(4, 3)" in str(error) and "(3, 3)" in str(error)


def _other_shape(mode: str) -> str:
    """Weights (2, 6) and (4, 3): equal counts only."""
    return (
        inputs(x=(1, 6), y=(1, 3))
        + ip("a", "x", 2, W % "share_mode: STRICT")
        + ip("b", "y", 4, W % f"share_mode: {mode}")
    )


def test_permissive_needs_equal_counts():
    assert [p.owner for p in graph(_other_shape("PERMISSIVE")).params] == [0, 1, 0, 3]
    _refused(_other_shape("STRICT"), GraphError, "shapes", 4, "b")
    text = _pair(W % "", W % "share_mode: PERMISSIVE", (3, 4))
    _refused(text, GraphError, "12 and 9 elements", 4, "b")


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        ("", "", (1, 1)),
        ("lr_mult: 3", "", (3, 1)),
        ("", "lr_mult: 3", (3, 1)),  # the one that is written wins, wherever it is
        ("lr_mult: 3", "lr_mult: 3", (3, 1)),
        ("lr_mult: 0", "decay_mult: 0", (0, 0)),
        ("decay_mult: 2", "lr_mult: 5", (5, 2)),
    ],
)
def test_multipliers_of_shared_parameters(first, second, expected):
    owner = graph(_pair(W % first, W % second)).params[0]
    assert (owner.lr_mult, owner.decay_mult) == expected


@pytest.mark.parametrize("what", ["lr_mult", "decay_mult"])
def test_contradicting_multipliers(what):
    text = _pair(W % f"{what}: 1", W % f"{what}: 2")
    _refused(text, GraphError, f'shared parameter "w" has {what} 2 here and 1 in another layer .*"a"', 4, "b")


def test_a_third_sharer_may_not_contradict_the_second():
    text = _pair(W % "", W % "lr_mult: 3") + ip("c", "data", 3, W % "lr_mult: 4")
    _refused(text, GraphError, "lr_mult 4 here and 3", 5, "c")


def test_more_specs_than_parameters():
    _refused(DATA + ip("a", "data", 2, "param { } " * 3), GraphError, "3 param entries but only 2", 3, "a")


def test_fewer_specs_than_parameters_use_the_defaults():
    assert _params(DATA + ip("a", "data", 2, "param { lr_mult: 7 decay_mult: 0 }")) == [
        ("", 0, 7.0, 0.0),
        ("", 1, 1.0, 1.0),
    ]


def test_one_explicit_zero_freezes_every_sharer():
    """The parameter does not move; as in Caffe, layers whose own lr_mult is not 0 make its gradient all the same."""
    text = _pair(W % "", W % "") + ip("c", "data", 3, W % "lr_mult: 0") + layer("s", "Eltwise", "a b c") + loss("s")
    assert _params(text)[0] == ("w", 0, 0.0, 1.0)
    assert [n.param_propagate for n in graph(text).nodes if n.params] == [[True, True], [True, True], [False, True]]


@pytest.mark.parametrize("kind", ["RNN", "LSTM"])
def test_a_frozen_recurrent_layer_makes_gradients_of_its_parameters_if_it_runs_backward(kind):
    """The net within Caffe's layer knows no lr_mult."""
    head = inputs(x=(4, 3, 2), cont=(4, 3), label=(12,))
    frozen = "param { lr_mult: 0 } " * (3 if kind == "LSTM" else 5) + "recurrent_param { num_output: 2 }"
    behind = (
        layer("r", kind, "%s cont", text=frozen)
        + layer("f", "Reshape", "r", text=("reshape_param { shape { dim: 12 dim: 2 } }"))
        + loss("f")
    )
    learned = layer("i", "InnerProduct", "x", text="inner_product_param { num_output: 2 axis: 2 }")
    for text, wanted in ((head + learned + behind % "i", True), (head + behind % "x", False)):
        (r,) = [n for n in graph(text).nodes if n.name == "r"]
        assert r.need_backward == wanted and r.param_propagate == [wanted] * len(r.params)


# -- gradients -------------------------------------------------------------------------------------------------------
def _plan(text, phase=0):
    """{layer: propagate} of the layers that run backward."""
    return {n.name: n.propagate for n in graph(text, phase).nodes if n.need_backward}


FROZEN = "param { lr_mult: 0 } param { lr_mult: 0 }"


def test_plain():
    text = DATA + ip("a", "data", 3) + relu("r", "a") + ip("b", "a", 2) + loss("b")
    assert _plan(text) == {"a": [False], "r": [True], "b": [True], "loss": [True, False]}


def test_layers_before_the_first_learned_one_need_nothing():
    text = DATA + relu("r", "data", "x") + ip("a", "x", 3, FROZEN) + relu("s", "a") + ip("b", "a", 2) + loss("b")
    assert _plan(text) == {"b": [False], "loss": [True, False]}


def test_a_frozen_layer_passes_gradients_on():
    text = DATA + ip("a", "data", 3) + ip("b", "a", 2, FROZEN) + loss("b")
    g = graph(text)
    assert _plan(text) == {"a": [False], "b": [True], "loss": [True, False]}
    assert {n.name: n.param_propagate for n in g.nodes if n.params} == {"a": [True, True], "b": [False, False]}


def test_one_learned_parameter_is_enough():
    text = DATA + ip("a", "data", 3, "param { lr_mult: 0 } param { lr_mult: 2 }") + loss("a")
    (a,) = [n for n in graph(text).nodes if n.name == "a"]
    assert a.need_backward and a.param_propagate == [False, True]


def test_nothing_learned_means_no_backward_at_all():
    assert _plan(DATA + ip("a", "data", 3, FROZEN) + loss("a")) == {}


def test_layers_that_lead_to_no_loss():
    text = DATA + ip("a", "data", 3) + ip("b", "a", 2) + loss("a") + layer("acc", "Accuracy", "b label")
    assert _plan(text) == {"a": [False], "a_a_0_split": [True], "loss": [True, False]}


def test_without_a_loss_there_is_no_backward():
    assert _plan(DATA + ip("a", "data", 3) + relu("r", "a")) == {}
    assert _plan(DATA + ip("a", "data", 3) + loss("a", text="loss_weight: 0")) == {}


def test_any_top_with_a_loss_weight_is_a_loss():
    assert _plan(DATA + ip("a", "data", 3) + relu("r", "a", "b", "loss_weight: 0.1")) == {"a": [False], "r": [True]}


def test_propagate_down_false_blocks_and_switches_off_what_is_behind():
    text = DATA + ip("a", "data", 3) + relu("r", "a") + ip("b", "a", 2, "propagate_down: false") + loss("b")
    assert _plan(text) == {"b": [False], "loss": [True, False]}


def test_a_block_on_one_path_leaves_the_other():
    """a -> (r blocked, s open) -> sum: the path through r is off, a and s stay."""
    text = (
        DATA
        + ip("a", "data", 3)
        + ip("r", "a", 3)
        + relu("s", "a", "s")
        + layer("sum", "Eltwise", "r s", text="propagate_down: false propagate_down: true")
        + loss("sum")
    )
    assert _plan(text) == {
        "a": [False],
        "a_a_0_split": [True],
        "s": [True],
        "sum": [False, True],
        "loss": [True, False],
    }


def test_propagate_down_true_forces_a_layer_that_runs_anyway():
    assert _plan(DATA + ip("a", "data", 3, "propagate_down: true") + loss("a"))["a"] == [True]


def test_propagate_down_true_alone_does_nothing():
    text = DATA + layer("r", "ReLU", "data", "x", "propagate_down: true") + ip("a", "x", 3) + loss("a")
    assert _plan(text) == {"a": [False], "loss": [True, False]}


def test_propagate_down_of_another_size():
    text = DATA + ip("a", "data", 3) + loss("a", text="propagate_down: true")
    _refused(text, GraphError, "propagate_down is given 1 times for 2 bottoms", 4, "loss")


def test_force_backward():
    """Every layer, every bottom but labels, every parameter even with lr_mult 0."""
    text = "force_backward: true\n" + DATA + relu("r", "data", "x") + ip("a", "x", 3, FROZEN) + loss("a")
    g = graph(text)
    assert _plan(text)["r"] == [True] and _plan(text)["a"] == [True]
    assert _plan(text)["loss"] == [True, False]
    assert all(node.need_backward for node in g.nodes)
    assert [n.param_propagate for n in g.nodes if n.params] == [[True, True]]


def test_force_backward_reaches_layers_under_no_loss_and_blocked_ones():
    text = "force_backward: true\n" + DATA + ip("a", "data", 3, "propagate_down: false") + relu("r", "a", "b")
    assert {n.name: n.propagate for n in graph(text).nodes if n.bottoms} == {"a": [True], "r": [True]}


def test_force_backward_gives_the_inputs_gradients():
    text = "force_backward: true\n" + inputs(data=(2, 3, 4, 4), label=(2,)) + conv("c", "data", 2) + ip("a", "c", 3)
    net = make_net(text + loss("a"))
    net.forward_range()
    net.backward_range()
    assert net.blobs["data"].shape == net.blobs["data"].diff.shape
    net.blobs["data"].data[...] = 1
    net.forward_range()
    net.backward_range()
    assert abs(net.blobs["data"].diff).max() > 0 and not net.blobs["label"].diff.any()
