"""Refuse wrong texts: every error names the line, the layer where there is one, what was found, and the fix."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pycaffe_lms.errors import CaffeError, PrototxtError, SolverError
from pycaffe_lms.formats.prototxt.parser import parse_net, parse_solver

HEAD = 'name: "n"\nlayer {\n  name: "c1"\n  type: "Pooling"\n'
PLACE = 'f.prototxt:{}: layer "c1" (Pooling): '

CASES = [
    # text, line, the rest of the message, the fix
    (HEAD + "  pooling_parm { }\n}", 5, 'LayerParameter has no field "pooling_parm"', 'did you mean "pooling_param"?'),
    (HEAD + "  num_ouput: 3 }", 5, 'LayerParameter has no field "num_ouput"', "correct the name, or delete the field"),
    (
        HEAD + "  kernel_size: 3 pooling_param { }\n}",
        5,
        'LayerParameter has no field "kernel_size"',
        "write it inside pooling_param { }",
    ),
    (
        HEAD + "  pooling_param {\n kernelsize: 3 } }",
        6,
        'PoolingParameter has no field "kernelsize"',
        'did you mean "kernel_size"?',
    ),
    (
        HEAD + "  trt_param { } }",
        5,
        'LayerParameter has no field "trt_param": it belongs to NVIDIA Caffe',
        'delete it if the layer does not need it, or write a "Python" layer',
    ),
    (
        HEAD + "  pooling_param { pool:\n MAXI } }",
        6,
        "MAXI is not a value of PoolMethod",
        "did you mean MAX? write one of MAX, AVE, STOCHASTIC, AVE_EXC_PAD",
    ),
    (
        HEAD + "  pooling_param { pool: max } }",
        5,
        "max is not a value of PoolMethod",
        "did you mean MAX? write one of MAX, AVE, STOCHASTIC, AVE_EXC_PAD",
    ),
    (
        HEAD + "  pooling_param { pool: 7 } }",
        5,
        "7 is not a value of PoolMethod",
        "write one of MAX, AVE, STOCHASTIC, AVE_EXC_PAD",
    ),
    (
        HEAD + '  pooling_param { pool: "AVE" } }',
        5,
        '"AVE" is a string, PoolMethod takes a plain word',
        "write AVE without quotes",
    ),
    (HEAD + '  name: "again" }', 5, "`name` is given twice in one LayerParameter", "keep one of them"),
    (
        HEAD + '  top: "x\n}',
        5,
        'the string "x has no closing quote on its line',
        "close it with the quote it begins with",
    ),
    (HEAD + '  top "x" }', 5, 'expected ":" between a field and its value', "write `field: value`"),
    (HEAD + "  pooling_param { stride: 1.5 } }", 5, "1.5 is not an integer", "write a whole number"),
    (HEAD + "  top: x }", 5, "expected string but found: 'x', in `top: x }`", 'write the value in quotes: "..."'),
    (
        HEAD + "  loss_weight: heavy }",
        5,
        "couldn't parse float: heavy, in `loss_weight: heavy }`",
        "write a number, such as 0.01",
    ),
    (
        HEAD + "  pooling_param: 3 }",
        5,
        'expected "{", in `pooling_param: 3 }`',
        "write `name { ... }`: the value is a message",
    ),
    (
        HEAD + "  pooling_param { global_pooling: 7 } }",
        5,
        'expected "true" or "false", in `pooling_param { global_pooling: 7 } }`',
        "write true or false",
    ),
    (
        HEAD + "  ? }",
        5,
        "expected the name of a field, found '?'",
        "fields are `name: value` or `name { ... }`: look for a quote or a brace that is missing or left over",
    ),
    (HEAD + "  pooling_param { stride: 2\n }\n", 2, '"{" is never closed', "add the closing brace"),
    (
        HEAD + '  pooling_param { stride: 2\n }\nlayer { name: "next" }',
        7,
        'LayerParameter has no field "layer"',
        "close the layer that begins on line 2 with a brace before this one",
    ),
    (
        HEAD + "  clip_param {\n min: 1 }\n}",
        5,
        "clip_param has no `max`, which it must have",
        "write `max: ...` inside clip_param { }",
    ),
]


@pytest.mark.parametrize(("text", "line", "message", "fix"), CASES)
def test_errors_inside_a_layer(text, line, message, fix):
    with pytest.raises(PrototxtError) as caught:
        parse_net(text, "f.prototxt")
    assert str(caught.value) == PLACE.format(line) + message + f"\n  fix: {fix}"
    assert caught.value.__suppress_context__ or caught.value.__context__ is None


OUTSIDE = [
    ('nme: "x"', 1, 'NetParameter has no field "nme"', 'did you mean "name"?'),
    (
        "\nbase_lr: 1",
        2,
        'NetParameter has no field "base_lr"',
        "`base_lr` belongs to a solver file: was the solver given in place of another file?",
    ),
    ("layer { }\n}", 2, '"}" closes nothing', "delete it, or look for a block above that is closed too early"),
    (
        "layer { }\nlayers { }",
        2,
        "both `layer` (1) and `layers` (1) in one net",
        'write every layer in the current form, `layer { type: "Convolution" ... }`',
    ),
    (
        '\ninput: "a"\ninput: "b"\ninput_dim: 1',
        2,
        "2 `input` need 8 `input_dim`, there are 1",
        "write four input_dim per input",
    ),
    (
        'input: "a" input: "b"\ninput_shape { dim: 3 }',
        1,
        "2 `input` need 2 `input_shape`, there are 1",
        "write one input_shape { dim: ... } per input",
    ),
]


@pytest.mark.parametrize(("text", "line", "message", "fix"), OUTSIDE)
def test_errors_outside_layers(text, line, message, fix):
    with pytest.raises(PrototxtError) as caught:
        parse_net(text, "f.prototxt")
    assert str(caught.value) == f"f.prototxt:{line}: {message}\n  fix: {fix}"


def test_old_layers_are_named_too():
    with pytest.raises(PrototxtError, match=r'f:3: layer "c" \(conv\): V0LayerParameter has no field "numoutput"'):
        parse_net('layers {\n layer { name: "c" type: "conv"\n numoutput: 3 } }', "f")
    with pytest.raises(PrototxtError, match=r'^f:2: layer "c" \(convv\): no layer type "convv".*\n.*"conv"'):
        parse_net('name: "x"\nlayers {\n layer { name: "c" type: "convv" } }', "f")
    with pytest.raises(PrototxtError, match=r'f:1: layer "c" \(CONV\): CONV is not a value of LayerType'):
        parse_net('layers { name: "c" type: CONV }', "f")


def test_errors_in_a_solver():
    with pytest.raises(PrototxtError, match=r's:2: layer "a": LayerParameter has no field "x"'):
        parse_solver('net_param { layer {}\n layer { name: "a" x: 1 } }', "s")
    with pytest.raises(PrototxtError, match=r's:2: layer "a": clip_param has no `min`'):
        parse_solver('net_param { layer {}\n layer { name: "a" clip_param { max: 1 } } }', "s")
    with pytest.raises(PrototxtError, match=r"s:3: layer \"q\" \(zz\): no layer type \"zz\""):
        parse_solver('base_lr: 1\nnet_param {\n layers { layer { name: "q" type: "zz" } } }', "s")
    with pytest.raises(PrototxtError, match="`layer` belongs to a net file"):
        parse_solver("layer { }", "s")
    with pytest.raises(SolverError, match='s:2: both `solver_type: SGD` and `type: "Adam"`'):
        parse_solver('type: "Adam"\nsolver_type: SGD', "s")


@pytest.mark.parametrize("text", ["", "  \n", "# nothing\n"])
def test_nothing_in_it(text):
    with pytest.raises(PrototxtError, match="f: nothing in it"):
        parse_net(text, "f")


def test_layers_on_one_line_are_told_apart():
    with pytest.raises(PrototxtError, match='layer "b"'):
        parse_net('layer { name: "a" } layer { name: "b" x: 1 } layer { name: "c" }')


ATOMS = [
    "layer",
    "layers",
    "{",
    "}",
    "<",
    ">",
    ":",
    "[",
    "]",
    ",",
    ";",
    "'",
    '"',
    "\\",
    "#",
    "\n",
    " ",
    "name",
    '"a"',
    "input",
    "input_dim",
    "1",
    "-",
    "1e9",
    "99999999999",
    "type",
    "RELU",
    "'conv'",
    "clip_param",
    "min",
    "pool",
    "\x00",
    "\ud800",
    "é",
    "[caffe.x]",
    "pooling_param",
    "blobs",
    "data",
    "inf",
    "state",
    "phase",
    "TEST",
]


@given(st.lists(st.sampled_from(ATOMS), max_size=25).map(" ".join))
def test_any_text_is_a_net_or_an_error_of_ours(text):
    for parse in (parse_net, parse_solver):
        try:
            parse(text)
        except CaffeError as error:
            assert error.message and error.fix
