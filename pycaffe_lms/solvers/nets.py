"""Finds the nets of a solver: the train net and the test nets, with their states and lines. No arrays.

Source: BVLC/caffe, solver.cpp, InitTrainNet and InitTestNets (rules).
"""

from __future__ import annotations

import copy
from dataclasses import dataclass, replace

from ..errors import SolverError
from ..formats.prototxt.parser import Lines, read_net
from ..proto.caffe_pb2 import TEST, TRAIN, NetParameter, NetState, Phase, SolverParameter


@dataclass(frozen=True)
class NetRequest:
    """Describe a net to build. message: with its final `state`. said: where it came from, for the log."""

    message: NetParameter
    lines: Lines
    file: str | None
    said: str


def train_request(param: SolverParameter, file: str | None, lines: Lines) -> NetRequest:
    """Return the train net. Raises SolverError unless exactly one of the four fields gives it."""
    given = [f for f in ("net", "net_param", "train_net", "train_net_param") if param.HasField(f)]
    if len(given) != 1:
        raise SolverError(
            "no train net is given" if not given else f"several train nets are given: {', '.join(given)}",
            fix="set exactly one of net, train_net, net_param, train_net_param",
        ).at(file=file, line=lines.field(given[1]) if given else None)
    field = given[0]
    if field.endswith("_param"):
        inner = lines.net(field)
        request = _inside(getattr(param, field), inner, file, f"Creating training net specified in {field}.")
    else:
        request = _file(getattr(param, field), f"Creating training net from {field} file: ")
    return _with_state(request, TRAIN, param.train_state)


def test_requests(param: SolverParameter, file: str | None, lines: Lines) -> list[NetRequest]:
    """Return the test nets, in Caffe's order. Raises SolverError where test_iter or test_state has another length."""
    generic = param.HasField("net") or param.HasField("net_param")
    n, requests = len(param.test_iter), []
    for i, message in enumerate(param.test_net_param):
        said = f"Creating test net (#{i}) specified by test_net_param"
        requests.append(_inside(message, lines.net("test_net_param", i), file, said))
    for i, name in enumerate(param.test_net, len(requests)):
        requests.append(_file(name, f"Creating test net (#{i}) specified by test_net file: "))
    if generic and n < len(requests) or not generic and n != len(requests):
        raise SolverError(
            f"test_iter is given {n} times for {len(requests)} test nets", fix="give one test_iter per test net"
        ).at(file=file, line=lines.field("test_iter") or lines.field("test_net") or lines.field("test_net_param"))
    for i in range(len(requests), n):
        said = f"Creating test net (#{i}) specified by net"
        if param.HasField("net_param"):
            requests.append(_inside(param.net_param, lines.net("net_param"), file, f"{said}_param"))
        else:
            requests.append(_file(param.net, f"{said} file: "))
    if param.test_state and len(param.test_state) != len(requests):
        raise SolverError(
            f"test_state is given {len(param.test_state)} times for {len(requests)} test nets",
            fix="give one test_state per test net, or none",
        ).at(file=file, line=lines.field("test_state"))
    if requests and param.test_interval <= 0:
        line = lines.field("test_interval") or lines.field("test_iter")
        raise SolverError("there is a test net but test_interval is not positive", fix="set test_interval").at(
            file=file, line=line
        )
    empty = NetState()
    return [_with_state(r, TEST, param.test_state[i] if param.test_state else empty) for i, r in enumerate(requests)]


def _file(name: str, said: str) -> NetRequest:
    parsed = read_net(name, judge=False)  # the net that is built judges its layers
    return NetRequest(parsed.message, parsed.lines, name, said + name)


def _inside(message: NetParameter, lines: Lines, file: str | None, said: str) -> NetRequest:
    """Return the request for a net inside a solver, which may have been read from a file of its own."""
    said = f"{said.rstrip('.')} (file {lines.file})" if lines.file else said
    return NetRequest(message, lines, lines.file or file, said)


def _with_state(request: NetRequest, phase: Phase, state: NetState) -> NetRequest:
    message = copy.deepcopy(request.message)
    merged = NetState(phase=phase)
    merged.MergeFrom(request.message.state)
    merged.MergeFrom(state)
    message.state.CopyFrom(merged)
    return replace(request, message=message)
