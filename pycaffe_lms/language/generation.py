"""Continue a text: draw one token after the other by the probabilities that a deploy net gives."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from ..arrays import HostArray
from ..errors import ArrayError, GraphError
from ..pycaffe.net import PycaffeNet
from .steps import Steps, step_net

_TINY = 1e-30  # keeps the logarithm of a probability finite
_CLOSE = 1e-4


def generate(
    net: PycaffeNet,
    prompt: Sequence[int],
    tokens: int,
    *,
    temperature: float = 1.0,
    top_k: int = 0,
    seed: int | None = None,
    cache: bool = True,
) -> Iterator[int]:
    """Yield `tokens` ids, each drawn by the net's probabilities after the prompt and the ids before it.

    Up to T ids, a net of one position runs for each token, which keeps keys and values of those before. It shares the
    parameters. The whole window, the last T ids, runs where there are more, with Large Model Support, and for a net
    with layers that may mix positions otherwise than by attention. Scores are equal to rounding.

    Args:
        net: has one input (1, T), ids, and one output (1, T, vocabulary), scores, or probabilities by a Softmax layer.
            Position t must depend on ids 0..t alone, which is checked once.
        prompt: one id or more.
        temperature: scores are divided by it: below 1 favours likely tokens, 0 takes the likeliest.
        top_k: draw from so many likeliest tokens; 0: from all.
        seed: of the draws; None: others each time.
        cache: False runs whole windows.

    Raises:
        GraphError: the net is not such a one.
        ArrayError: an empty prompt, an id outside the vocabulary, or an impossible number.
    """
    window, size = _check_net(net)
    ids = [int(i) for i in prompt]
    _check_arguments(ids, size, tokens, temperature, top_k)
    probabilities = _ends_in_softmax(net)
    rng = np.random.default_rng(seed)
    message = step_net(net) if cache and not (net.lms.enabled or net.optimised) else None

    def drawn() -> Iterator[int]:
        if message is None:
            yield from drawn_by(None)
            return
        steps = Steps(net, message)
        try:
            yield from drawn_by(steps)
        finally:
            steps.close()

    def drawn_by(steps: Steps | None) -> Iterator[int]:
        for k in range(tokens):
            recent = ids[-window:]
            row = _row(net, recent) if steps is None or len(ids) > window else steps.row(ids)
            if steps is None and k == 0 and len(recent) < window:
                _check_causal(row, _row(net, recent, pad=1))
            if not np.isfinite(row).all():
                raise ArrayError(
                    f"the net's output after {len(ids)} tokens is not finite", fix="check the weights and their net"
                )
            scores = np.log(np.maximum(row, _TINY)) if probabilities else row
            ids.append(_draw(scores, temperature, top_k, rng))
            yield ids[-1]

    return drawn()


def _row(net: PycaffeNet, ids: Sequence[int], pad: int = 0) -> HostArray:
    """Return the output (vocabulary,) at the last of these ids, float64; `pad` fills the rest of the window."""
    window = np.full(net.blobs[net.inputs[0]].shape, pad, np.float32)
    window[0, : len(ids)] = ids
    given: dict[str, Any] = {net.inputs[0]: window}
    return np.array(net.forward(**given)[net.outputs[0]][0, len(ids) - 1], np.float64)


def _draw(scores: HostArray, temperature: float, top_k: int, rng: np.random.Generator) -> int:
    """Return a token drawn by softmax(scores / temperature) of the top_k highest scores (0: all)."""
    order = np.argsort(-scores, kind="stable")
    if temperature == 0:
        return int(order[0])
    kept = order[: top_k or len(order)]
    weights = np.exp((scores[kept] - scores[kept[0]]) / temperature)
    return int(rng.choice(kept, p=weights / weights.sum()))


def _check_net(net: PycaffeNet) -> tuple[int, int]:
    """Return window and vocabulary of a net that `generate` can use. Raises GraphError."""
    given = [tuple(net.blobs[name].shape) for name in net.inputs]
    made = [tuple(net.blobs[name].shape) for name in net.outputs]
    if not (
        len(given) == len(made) == 1
        and len(given[0]) == 2
        and len(made[0]) == 3
        and given[0][0] == 1
        and made[0][:2] == given[0]
    ):
        raise GraphError(
            f"a net with inputs {given} and outputs {made} is no language model for use",
            fix="give a deploy net with one input (1, T) and one output (1, T, vocabulary)",
        )
    return given[0][1], made[0][2]


def _check_arguments(ids: Sequence[int], size: int, tokens: int, temperature: float, top_k: int) -> None:
    if not ids:
        raise ArrayError("the prompt is empty", fix="give at least one token")
    if wrong := [i for i in ids if not 0 <= i < size]:
        raise ArrayError(
            f"the prompt has token {wrong[0]}, but the net's vocabulary is 0 to {size - 1}",
            fix="use the vocabulary that the net was trained with",
        )
    for name, value, good in (
        ("tokens", tokens, tokens >= 0),
        ("temperature", temperature, 0 <= temperature < np.inf),
        ("top_k", top_k, top_k >= 0),
    ):
        if not good:
            raise ArrayError(f"{name} is {value}", fix="give 0 or more")


def _check_causal(one: HostArray, other: HostArray) -> None:
    """Raise GraphError where the outputs of two windows that differ only behind a position differ there."""
    if np.abs(one - other).max() > _CLOSE * max(1.0, float(np.abs(one).max())):
        raise GraphError(
            "the net's output depends on the tokens behind it",
            fix="set attention_param { causal: true }, as in the net that was trained",
        )


def _ends_in_softmax(net: PycaffeNet) -> bool:
    """Return whether a Softmax layer made the net's output."""
    (name,) = [layer for layer, tops in net.top_names.items() if net.outputs[0] in tops][-1:]
    return bool(net.layer_dict[name].type == "Softmax")
