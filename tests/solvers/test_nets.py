"""Tests which nets a solver builds: where they come from, order, number, states, and what is refused."""

from __future__ import annotations

import logging

import pytest

from pycaffe_lms.errors import SolverError
from pycaffe_lms.formats.prototxt.parser import parse_solver
from pycaffe_lms.net.weights import save
from pycaffe_lms.solvers.nets import test_requests as requests_for_tests
from pycaffe_lms.solvers.nets import train_request

from .helpers import CONSTANT, inner, loss, make, messages

BODY = CONSTANT + inner() + loss()


def net(name: str, more: str = "") -> str:
    return f"name: '{name}' {BODY} {more}"


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Write net files into the working directory, each named as its net."""
    monkeypatch.chdir(tmp_path)
    for name in ("a", "b", "c"):
        (tmp_path / f"{name}.prototxt").write_text(net(name))
    return tmp_path


def _parse(text: str):
    parsed = parse_solver(text, "s.prototxt")
    return parsed.message, parsed.filename, parsed.lines


@pytest.mark.parametrize(
    ("text", "said", "file"),
    [
        ('net: "a.prototxt"', "Creating training net from net file: a.prototxt", "a.prototxt"),
        ('train_net: "a.prototxt"', "Creating training net from train_net file: a.prototxt", "a.prototxt"),
        (f"net_param {{ {net('a')} }}", "Creating training net specified in net_param.", "s.prototxt"),
        (f"train_net_param {{ {net('a')} }}", "Creating training net specified in train_net_param.", "s.prototxt"),
    ],
)
def test_the_train_net(folder, text, said, file):
    request = train_request(*_parse(text))
    assert (request.message.name, request.said, request.file) == ("a", said, file)
    assert request.message.state.phase == 0
    assert request.lines.layer(0) is not None


def test_exactly_one_train_net(folder):
    for text, found in (
        ("max_iter: 1", "no train net is given"),
        ('test_net: "b.prototxt"', "no train net is given"),
        ('net: "a.prototxt" train_net: "b.prototxt"', "several train nets are given: net, train_net"),
        (f'net_param {{ {net("a")} }} net: "a.prototxt"', "several train nets are given: net, net_param"),
    ):
        with pytest.raises(SolverError) as caught:
            train_request(*_parse(text))
        assert caught.value.message == found
        assert caught.value.where.file == "s.prototxt" and "exactly one of net" in caught.value.fix


def test_test_nets_in_caffes_order(folder):
    """Inline nets come first, then files, then the generic net for every test_iter that is left."""
    text = (
        'net: "a.prototxt" test_net: "b.prototxt" test_net: "c.prototxt" test_interval: 5\n'
        f"test_net_param {{ {net('x')} }} test_net_param {{ {net('y')} }}\n" + "test_iter: 1 " * 6
    )
    requests = requests_for_tests(*_parse(text))
    assert [r.message.name for r in requests] == ["x", "y", "b", "c", "a", "a"]
    assert [r.said.removeprefix("Creating test net ") for r in requests] == [
        "(#0) specified by test_net_param",
        "(#1) specified by test_net_param",
        "(#2) specified by test_net file: b.prototxt",
        "(#3) specified by test_net file: c.prototxt",
        "(#4) specified by net file: a.prototxt",
        "(#5) specified by net file: a.prototxt",
    ]
    assert [r.file for r in requests] == ["s.prototxt"] * 2 + [f"{n}.prototxt" for n in "bcaa"]
    assert all(r.message.state.phase == 1 for r in requests)
    generic = requests_for_tests(*_parse(f"net_param {{ {net('z')} }} test_interval: 5 test_iter: 1"))
    assert [(r.message.name, r.said) for r in generic] == [("z", "Creating test net (#0) specified by net_param")]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ('net: "a.prototxt" test_net: "b.prototxt"', "test_iter is given 0 times for 1 test nets"),
        ('train_net: "a.prototxt" test_net: "b.prototxt"', "test_iter is given 0 times for 1 test nets"),
        ('train_net: "a.prototxt" test_iter: 1', "test_iter is given 1 times for 0 test nets"),
        ('train_net: "a.prototxt" test_net: "b.prototxt" test_iter: 1 test_iter: 2', "given 2 times for 1 test nets"),
        ('net: "a.prototxt" test_iter: 1 test_interval: 1 test_state {} test_state {}', "test_state is given 2 times"),
        ('net: "a.prototxt" test_iter: 1', "there is a test net but test_interval is not positive"),
        ('net: "a.prototxt" test_iter: 1 test_interval: -1', "there is a test net but test_interval is not positive"),
    ],
)
def test_numbers_that_do_not_fit(folder, text, found):
    with pytest.raises(SolverError) as caught:
        requests_for_tests(*_parse(text))
    assert found in caught.value.message and caught.value.fix
    assert (caught.value.where.file, caught.value.where.line) == ("s.prototxt", 1)


def test_no_test_net_needs_no_interval(folder):
    assert requests_for_tests(*_parse('net: "a.prototxt"')) == []
    assert requests_for_tests(*_parse('train_net: "a.prototxt" test_interval: 0')) == []


def test_states_merge():
    """{phase}, the net's own state, then train_state or test_state[i] are merged: scalars override, stages append."""
    own = net("n", 'state { level: 3 stage: "own" }')
    text = (
        f"net_param {{ {own} }} test_iter: 1 test_iter: 1 test_interval: 1\n"
        'train_state { stage: "t" } test_state { level: 0 stage: "s" stage: "own" } test_state { phase: TRAIN }'
    )
    parsed = _parse(text)
    states = [train_request(*parsed).message.state] + [r.message.state for r in requests_for_tests(*parsed)]
    assert [(s.phase, s.level, list(s.stage)) for s in states] == [
        (0, 3, ["own", "t"]),
        (1, 0, ["own", "s", "own"]),
        (0, 3, ["own"]),
    ]
    assert list(parsed[0].net_param.state.stage) == ["own"], "the solver's own message is not changed"


def test_a_phase_of_the_net_itself_wins_over_the_solvers():
    """As in Caffe: only train_state overrides it."""
    net_of = f"net_param {{ {net('n', 'state { phase: TEST }')} }}"
    assert train_request(*_parse(net_of)).message.state.phase == 1
    assert train_request(*_parse(net_of + " train_state { phase: TRAIN }")).message.state.phase == 0


def _ruled(name: str, rule: str) -> str:
    return inner(name, outputs=2).replace("inner_product_param", f"include {{ {rule} }} inner_product_param", 1)


def test_states_choose_the_layers_of_every_net():
    layers = (
        BODY
        + _ruled("only_train", "phase: TRAIN")
        + _ruled("only_test", "phase: TEST")
        + _ruled("deep", "min_level: 2")
        + _ruled("staged", 'stage: "extra" not_stage: "plain"')
    )
    states = ["{ }", '{ level: 2 stage: "extra" }', '{ stage: "extra" stage: "plain" }']
    solver = make(
        layers, test_iter=[1, 1, 1], test_interval=1, test_state=states, train_state='{ stage: "extra" level: 1 }'
    )
    chosen = [
        {n.name for n in net.graph.nodes if n.name in named}
        for net in (solver.net, *solver.test_nets)
        for named in [("only_train", "only_test", "deep", "staged")]
    ]
    assert chosen == [{"only_train", "staged"}, {"only_test"}, {"only_test", "deep", "staged"}, {"only_test"}]


def test_the_log_names_every_net(caplog):
    caplog.set_level(logging.INFO, "pycaffe_lms")
    make(BODY, test_iter=[1, 1], test_interval=1)
    assert [m for m in messages(caplog) if m.startswith(("Creating training", "Creating test", "Solver"))] == [
        "Creating training net specified in net_param.",
        "Creating test net (#0) specified by net_param",
        "Creating test net (#1) specified by net_param",
        "Solver scaffolding done.",
    ]


def test_weights_go_into_every_net(tmp_path, caplog):
    """Lists are split at commas and stripped; a later file overrides an earlier one; test nets get the weights too."""
    caplog.set_level(logging.INFO, "pycaffe_lms")
    first, second = str(tmp_path / "1.caffemodel"), str(tmp_path / "2.caffemodel")
    makers = [make(BODY + inner("other"), random_seed=s) for s in (1, 2)]
    save(makers[0].net, first)
    makers[1].net.params["other"][0].data = 7
    save(makers[1].net, second)
    caplog.clear()
    names = f'"{first} , {second}"'
    solver = make(BODY, test_iter=1, test_interval=1, weights=names)
    told = [m for m in messages(caplog) if m.startswith("Finetuning") or m == "Ignoring source layer other"]
    assert told == [
        f"Finetuning from {first}",
        *["Ignoring source layer other"] * 2,
        f"Finetuning from {second}",
        *["Ignoring source layer other"] * 2,
    ]
    for net in (solver.net, *solver.test_nets):
        assert (net.params["ip"][0].read_data() == makers[1].net.params["ip"][0].read_data()).all()
