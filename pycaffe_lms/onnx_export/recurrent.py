"""Convert RNN and LSTM to one copy per step: ONNX's own operators have no `cont`, which restarts single sequences."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from .site import Precision, Site, converts

_UNROLLED = "Reshape Transpose MatMul Add Split Squeeze Unsqueeze Mul Tanh Concat"
_NOTE = (
    "one copy per time step, so T is fixed. Without expose_hidden the state that Caffe keeps from run to run goes in "
    "as `LAYER.{0}_in` (zeros where not given) and comes out as `LAYER.{0}_out`"
)


@converts(
    "LSTM",
    family="recurrent",
    ops=f"{_UNROLLED} Sigmoid",
    note=_NOTE.format("h") + ", likewise c",
    precision=Precision.SINGLE,
)
def lstm(site: Site) -> list[str]:
    weight = _matrix(site, site.layer.hidden)

    def step(states: list[str], gates: str, cont: str) -> tuple[str, list[str]]:
        h, c = states
        gates = site.op("Add", gates, site.op("MatMul", site.op("Mul", h, cont), weight))
        h, c = _lstm_cell(site, gates, c, cont)
        return h, [h, c]

    return _unrolled(site, step)


@converts("RNN", family="recurrent", ops=_UNROLLED, note=_NOTE.format("h"), precision=Precision.SINGLE)
def rnn(site: Site) -> list[str]:
    hidden = site.layer.hidden
    weight, out, bias = _matrix(site, hidden), _matrix(site, hidden + 1), site.weight(hidden + 2)

    def step(states: list[str], gates: str, cont: str) -> tuple[str, list[str]]:
        h = site.op("Tanh", site.op("Add", gates, site.op("MatMul", site.op("Mul", states[0], cont), weight)))
        return site.op("Tanh", site.op("Add", site.op("MatMul", h, out), bias)), [h]

    return _unrolled(site, step)


@converts(
    "LSTMUnit",
    family="recurrent",
    ops="Squeeze Split Sigmoid Tanh Mul Add Unsqueeze Transpose",
    precision=Precision.SINGLE,
)
def lstm_unit(site: Site) -> list[str]:
    c, gates = (site.squeeze(x, [0]) for x in site.bottoms[:2])
    h, c = _lstm_cell(site, gates, c, site.op("Transpose", site.bottoms[2], perm=[1, 0]))
    return [site.unsqueeze(c, [0]), site.unsqueeze(h, [0])]


def _lstm_cell(site: Site, gates: str, c: str, cont: str) -> tuple[str, str]:
    """Write one step from the gates (N, 4D) before activation; return (h, c)."""
    dim = site.top_shapes[0][-1]
    i, f, o, g = site.split(gates, [dim] * 4, axis=1)
    kept = site.op("Mul", site.op("Mul", cont, site.op("Sigmoid", f)), c)
    c = site.op("Add", kept, site.op("Mul", site.op("Sigmoid", i), site.op("Tanh", g)))
    return site.op("Mul", site.op("Sigmoid", o), site.op("Tanh", c)), c


def _matrix(site: Site, i: int) -> str:
    return site.op("Transpose", site.weight(i), perm=[1, 0])


def _unrolled(site: Site, step: Callable[[list[str], str, str], tuple[str, list[str]]]) -> list[str]:
    """Write `step` for each time step; return the tops.

    step: (states, input of the gates (N, gates), cont (N, 1)) -> (output, states).
    """
    layer, steps = site.layer, site.shape[0]
    if site.follows_batch(0):
        site.refuse(
            "has time as its first axis, which dynamic_batch would leave open", "export it without dynamic_batch"
        )
    gates = _over_steps(site, _inputs(site), steps)
    conts = [site.op("Transpose", c, perm=[1, 0]) for c in _parts(site, site.bottoms[1], steps)]
    state_shape = (1, site.shape[1], layer.dim)
    if layer.exposed:
        first = site.bottoms[2 + layer.static :]
    else:
        first = [site.state_input(f"{name}_in", state_shape) for name in layer.states]
    states, outputs = [site.squeeze(state, [0]) for state in first], []
    for now, cont in zip(gates, conts, strict=True):
        out, states = step(states, now, cont)
        outputs.append(site.unsqueeze(out, [0]))
    top = outputs[0] if steps == 1 else site.op("Concat", *outputs, axis=0)
    last = [site.unsqueeze(state, [0]) for state in states]
    if layer.exposed:
        return [top, *last]
    for name, state in zip(layer.states, last, strict=True):
        site.state_output(f"{name}_out", state, state_shape)
    return [top]


def _inputs(site: Site) -> str:
    """Write the share of the inputs in the gates, for all steps at once: (T, N, gates)."""
    x = site.x if len(site.shape) == 3 else site.reshape(site.x, (0, 0, -1))
    gates = site.op("Add", site.op("MatMul", x, _matrix(site, 0)), site.weight(1))
    if not site.layer.static:
        return gates
    static = site.bottoms[2] if len(site.bottom_shapes[2]) == 2 else site.reshape(site.bottoms[2], (0, -1))
    return site.op("Add", gates, site.op("MatMul", static, _matrix(site, 2)))


def _parts(site: Site, x: str, steps: int) -> Sequence[str]:
    """Cut x along its first axis into single steps."""
    return [x] if steps == 1 else site.split(x, [1] * steps, axis=0)


def _over_steps(site: Site, x: str, steps: int) -> list[str]:
    return [site.squeeze(part, [0]) for part in _parts(site, x, steps)]
