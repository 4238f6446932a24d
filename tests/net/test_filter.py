"""Which layers a state keeps: one rule, several rules, include against exclude."""

from __future__ import annotations

import pytest
from google.protobuf import text_format

from pycaffe_lms.errors import GraphError
from pycaffe_lms.net.build.filter import filter_net, meets_rule
from pycaffe_lms.proto import caffe_pb2

from .nets import message

pytestmark = pytest.mark.pure

MET = [
    ("", ""),
    ("phase: TRAIN level: 7 stage: 'a'", ""),
    ("phase: TRAIN", "phase: TRAIN"),
    ("", "phase: TEST"),  # NetState's own default phase is TEST
    ("level: 3", "min_level: 3"),
    ("level: 3", "max_level: 3"),
    ("level: 3", "min_level: 1 max_level: 4"),
    ("", "min_level: 0"),
    ("level: -2", "max_level: -1"),
    ("stage: 'a' stage: 'b' stage: 'c'", "stage: 'a' stage: 'c'"),
    ("stage: 'a'", "not_stage: 'b'"),
    ("", "not_stage: 'b'"),
    ("phase: TRAIN level: 1 stage: 'a'", "phase: TRAIN min_level: 1 stage: 'a' not_stage: 'b'"),
]
NOT_MET = [
    ("phase: TRAIN", "phase: TEST"),
    ("", "phase: TRAIN"),
    ("level: 2", "min_level: 3"),
    ("level: 4", "max_level: 3"),
    ("", "max_level: -1"),
    ("stage: 'a'", "stage: 'a' stage: 'b'"),
    ("", "stage: 'a'"),
    ("stage: 'ab'", "stage: 'a'"),
    ("stage: 'a' stage: 'b'", "not_stage: 'b' not_stage: 'c'"),
    ("stage: 'a' stage: 'b'", "stage: 'a' not_stage: 'b'"),
    ("phase: TRAIN level: 1", "phase: TRAIN min_level: 2"),
]


@pytest.mark.parametrize(("state", "rule", "met"), [(*c, True) for c in MET] + [(*c, False) for c in NOT_MET], ids=str)
def test_one_rule(state, rule, met):
    state = text_format.Parse(state, caffe_pb2.NetState())
    assert meets_rule(state, text_format.Parse(rule, caffe_pb2.NetStateRule())) is met


@pytest.mark.parametrize(
    ("rules", "kept_by"),
    [
        ("", "train test deep"),
        ("include { phase: TRAIN }", "train"),
        ("include { phase: TRAIN } include { stage: 'deep' }", "train deep"),  # any include is enough
        ("include { phase: TRAIN stage: 'deep' }", ""),  # but within one rule all parts count
        ("include { }", "train test deep"),
        ("exclude { phase: TRAIN }", "test deep"),
        ("exclude { phase: TRAIN } exclude { stage: 'deep' }", "test"),  # any exclude is enough
        ("exclude { phase: TRAIN stage: 'deep' }", "train test deep"),
        ("exclude { }", ""),
    ],
)
def test_rules_of_a_layer(rules, kept_by):
    states = {"train": "phase: TRAIN", "test": "phase: TEST", "deep": "phase: TEST stage: 'deep'"}
    kept = set()
    for name, state in states.items():
        net = message(f"state {{ {state} }} layer {{ name: 'l' type: 'ReLU' {rules} }}")
        kept |= {name} if filter_net(net)[0].layer else set()
    assert kept == set(kept_by.split())


NET = """
name: "n" force_backward: true state { phase: TEST }
layer { name: "a" type: "Input" include { phase: TRAIN } }
layer { name: "a" type: "DummyData" include { phase: TEST } }
layer { name: "b" type: "ReLU" }
layer { name: "c" type: "Accuracy" exclude { phase: TRAIN } }
layer { name: "d" type: "Silence" exclude { phase: TEST } }
"""


def test_kept_layers_stay_in_order_and_say_where_they_were():
    net = message(NET)
    before = net.SerializeToString()
    kept, origins = filter_net(net)
    assert [(layer.name, layer.type) for layer in kept.layer] == [("a", "DummyData"), ("b", "ReLU"), ("c", "Accuracy")]
    assert origins == [1, 2, 3]
    assert (kept.name, kept.force_backward, kept.state.phase) == ("n", True, caffe_pb2.TEST)
    assert net.SerializeToString() == before
    assert [layer.SerializeToString() for layer in kept.layer] == [net.layer[i].SerializeToString() for i in origins]


def test_filtering_twice_changes_nothing():
    once, _ = filter_net(message(NET))
    twice, origins = filter_net(once)
    assert twice == once and origins == [0, 1, 2]


def test_both_kinds_of_rules_are_refused():
    with pytest.raises(GraphError, match="both include and exclude") as caught:
        filter_net(message("layer { name: 'l' type: 'ReLU' include { phase: TEST } exclude { stage: 'x' } }"))
    assert (caught.value.where.layer, caught.value.where.type) == ("l", "ReLU")
