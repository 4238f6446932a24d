"""Compare nets and solvers; expected differences are stated by hand."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pycaffe_lms.formats.prototxt.message_diff import Change, Differences, LayerChange, compare
from pycaffe_lms.formats.prototxt.parser import parse_net, parse_solver

from ..seeds import seeded


def net(text):
    return parse_net(text).message


def chain(*names):
    return net('name: "n"' + "".join(f'layer {{ name: "{n}" type: "ReLU" bottom: "x" top: "x" }}\n' for n in names))


CONV = 'layer { name: "c" type: "Convolution" bottom: "x" top: "y" convolution_param { num_output: 4 %s } %s }'


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("kernel_size: 3|", "kernel_size: 5|", [Change("convolution_param.kernel_size", "3", "5")]),
        ("kernel_size: 3|", "kernel_size: 3 bias_term: true group: 1|", []),  # the defaults
        ("bias_term: false|", "|", [Change("convolution_param.bias_term", "false", "true (default)")]),
        ("engine: CUDNN|", "|", [Change("convolution_param.engine", "CUDNN", "DEFAULT (default)")]),
        ("|", "kernel_h: 3|", [Change("convolution_param.kernel_h", "(not set)", "3")]),
        ("pad: 1 pad: 2|", "|", [Change("convolution_param.pad", "1, 2", "(not set)")]),
        (
            'weight_filler { type: "msra" }|',
            'weight_filler { type: "gaussian" std: 0.1 }|',
            [
                Change("convolution_param.weight_filler.type", "msra", "gaussian"),
                Change("convolution_param.weight_filler.std", "1 (default)", "0.1"),
            ],
        ),
        (
            "|param { lr_mult: 1 }",
            "|param { lr_mult: 0 } param { lr_mult: 2 }",
            [Change("param[0].lr_mult", "1", "0"), Change("param[1]", "(not set)", "{ lr_mult: 2 }")],
        ),
        ("|relu_param { }", "|", []),
    ],
)
def test_fields(old, new, expected):
    a, b = (net(CONV % tuple(text.split("|"))) for text in (old, new))
    found = compare(a, b)
    assert found.fields == ()
    assert found.layers == ((LayerChange("c", "Convolution", "changed", tuple(expected)),) if expected else ())
    back = compare(b, a)
    assert [(c.path, c.new, c.old) for x in back.layers for c in x.fields] == [(c.path, c.old, c.new) for c in expected]


def test_layers_come_and_go():
    found = compare(chain("a", "b", "c", "d"), chain("a", "x", "c", "y"))
    words = [f"{x.what} {x.name}" for x in found.layers]
    assert words == ["added x", "removed b", "added y", "removed d"]


def test_a_layer_that_moved_is_one():
    found = compare(chain(*"abcdef"), chain(*"bcdaef"))
    assert [(x.name, x.what) for x in found.layers] == [("a", "moved")]


def test_layers_of_one_name_are_told_apart_by_their_rules():
    text = (
        'layer { name: "d" type: "Data" top: "x" include { phase: TRAIN } data_param { source: "a" batch_size: %d } }'
        'layer { name: "d" type: "Data" top: "x" include { phase: TEST } data_param { source: "b" batch_size: %d } }'
    )
    found = compare(net(text % (8, 1)), net(text % (8, 2)))
    assert found.layers == (LayerChange("d", "Data", "changed", (Change("data_param.batch_size", "1", "2"),)),)


def test_generations_of_one_net():
    old = 'layers { name: "r" type: RELU bottom: "x" top: "x" blobs_lr: 2 }'
    new = 'layer { name: "r" type: "ReLU" bottom: "x" top: "x" param { lr_mult: 2 } }'
    assert not compare(net(old), net(new))


def test_solvers():
    old, new = (
        parse_solver('net: "n" lr_policy: "step" ' + text).message
        for text in ("base_lr: 0.1 stepvalue: 5", "base_lr: 0.01 solver_mode: GPU stepvalue: 5 stepvalue: 9")
    )
    assert set(compare(old, new).fields) == {
        Change("base_lr", "0.1", "0.01"),
        Change("stepvalue", "5", "5, 9"),
        Change("solver_mode", "(not set)", "GPU"),  # its default, but not written means another thing
    }
    assert compare(old, old) == Differences((), ()) and not compare(old, old)


@given(st.lists(st.integers(0, 12), unique=True), st.lists(st.integers(0, 12), unique=True))
def test_the_layers_named_make_one_net_of_the_other(a, b):
    """Taking out what was removed or moved from the old order, and what was added or moved from the new one, leaves the
    same layers in the same order."""
    found = compare(chain(*a), chain(*b)).layers
    of = {what: {int(x.name) for x in found if x.what == what} for what in ("added", "removed", "moved")}
    assert of["added"] == set(b) - set(a) and of["removed"] == set(a) - set(b)
    assert [n for n in a if n not in of["removed"] | of["moved"]] == [
        n for n in b if n not in of["added"] | of["moved"]
    ]


def test_few_moves_are_found():
    names = list(range(60))
    moved = seeded(5).sample(names, 3)
    rest = [n for n in names if n not in moved]
    found = compare(chain(*names), chain(*rest, *moved)).layers
    assert {int(x.name) for x in found} <= set(moved)
