"""generate: draws against a table of known chances, the window, nets and arguments that cannot be; a block's sums."""

from __future__ import annotations

from itertools import islice

import numpy as np
import pytest

import pycaffe_lms as caffe
from pycaffe_lms import layers as L
from pycaffe_lms.backend import get_device
from pycaffe_lms.backend.sim.device import SimDevice
from pycaffe_lms.errors import ArrayError, GraphError
from pycaffe_lms.language import generate, gpt2, llama, steps, transformer_block
from pycaffe_lms.lms.config import LMSConfig

WORDS, WINDOW = 5, 4


def built(n):
    return caffe.Net(n.to_proto(), caffe.TEST, device=get_device("cpu"))


def table_net(table, softmax=False):
    """A net whose scores depend on the last token alone: row `token` of the table."""
    n = caffe.NetSpec()
    n.data = L.Input(shape={"dim": [1, WINDOW]})
    n.scores = L.Embed(n.data, input_dim=len(table), num_output=len(table), bias_term=False)
    if softmax:
        n.prob = L.Softmax(n.scores, axis=2)
    net = built(n)
    net.params["scores"][0].data[...] = table
    return net


def block_net(**more):
    n = caffe.NetSpec()
    n.data = L.Input(shape={"dim": [1, WINDOW]})
    n.embed = L.Embed(n.data, input_dim=WORDS, num_output=8, bias_term=False, weight_filler={"type": "xavier"})
    x = transformer_block(n, "b", n.embed, width=8, heads=2, std=0.5, **more)
    n.scores = L.InnerProduct(x, num_output=WORDS, axis=2, weight_filler={"type": "xavier"})
    return n


@pytest.fixture(scope="module")
def table():
    return np.random.default_rng(0).normal(size=(WORDS, WORDS)) * 2


def test_temperature_0_follows_the_largest_score(table):
    expected, token = [], 3
    for _ in range(10):
        token = int(table[token].argmax())
        expected.append(token)
    assert list(generate(table_net(table), [1, 0, 3], 10, temperature=0)) == expected


@pytest.mark.parametrize("softmax", [False, True], ids=["scores", "probabilities"])
@pytest.mark.parametrize("temperature, top_k", [(1, 0), (0.5, 0), (2, 3)])
def test_draws_have_the_chances_of_the_scores(table, softmax, temperature, top_k):
    chances = np.exp(table[2] / temperature)
    if top_k:
        chances[chances < np.sort(chances)[-top_k]] = 0
    chances /= chances.sum()
    alike = np.tile(table[2], (WORDS, 1))  # the same row after every token
    net, count = table_net(alike, softmax), 1500
    drawn = list(generate(net, [2], count, temperature=temperature, top_k=top_k, seed=7))
    found = np.bincount(drawn, minlength=WORDS) / count
    assert (abs(found - chances) <= 4 * np.sqrt(chances * (1 - chances) / count) + 1e-12).all()
    assert drawn[:50] == list(generate(net, [2], 50, temperature=temperature, top_k=top_k, seed=7))
    assert drawn[:50] != list(generate(net, [2], 50, temperature=temperature, top_k=top_k, seed=8))


@pytest.mark.parametrize("more", [{}, {"gated": True, "kv_heads": 1, "hidden": 6, "bias": True}], ids=["gpt", "llama"])
def test_the_last_window_decides(more):
    net = built(block_net(**more))
    ids = [1, 4, 2, 0, 3, 3, 1]
    drawn = list(generate(net, ids, 5, temperature=0))
    for k, token in enumerate(drawn):
        window = (ids + drawn[:k])[-WINDOW:]
        assert token == net.forward(data=np.array([window]))["scores"][0, -1].argmax()
    short = list(generate(net, [1, 4], 1, temperature=0))  # the rest of the window is filled up
    assert short[0] == net.forward(data=np.array([[1, 4, 0, 0]]))["scores"][0, 1].argmax()


def family_net(kind, window=12):
    n = caffe.NetSpec()
    n.data = L.Input(shape={"dim": [1, window]})
    sizes = {"vocabulary": 11, "width": 16, "blocks": 2, "heads": 4, "hidden": 24, "std": 0.6}
    if kind == "gpt2":
        gpt2(n, n.data, positions=window, **sizes)
    else:
        llama(n, n.data, kv_heads=2, qkv_bias=True, tied=True, **sizes)
    return caffe.Net(n.to_proto(), caffe.TEST, device=get_device("cpu"), seed=5)


@pytest.mark.parametrize("kind", ["gpt2", "llama"])
def test_text_is_the_same_with_kept_keys_and_values(kind, monkeypatch):
    """Six tokens come by steps, the others by windows that move; each token of the first runs once."""
    net, runs = family_net(kind), []
    forward = steps.Steps.row
    monkeypatch.setattr(steps.Steps, "row", lambda self, ids: runs.append(len(ids)) or forward(self, ids))
    for seed in range(3):
        some = {"seed": seed, "temperature": 4}
        kept = list(generate(net, [3, 1, 4, 1, 5, 9], 15, **some))
        assert kept == list(generate(net, [3, 1, 4, 1, 5, 9], 15, cache=False, **some))
    assert runs == [6, 7, 8, 9, 10, 11, 12] * 3
    assert len(set(kept)) > 3


@pytest.mark.parametrize("kind", ["gpt2", "llama"])
def test_scores_of_steps_are_those_of_windows(kind):
    net, ids = family_net(kind), [3, 1, 4, 1, 5, 9, 2, 6]
    message = steps.step_net(net)
    one = steps.Steps(net, message)
    for change in (0, 3, 7):  # texts that have their beginning in common with the one before
        ids[change] = 7
        whole = net.forward(data=np.array([ids + [0] * 4]))["scores"][0, len(ids) - 1]
        np.testing.assert_allclose(one.row(ids), whole, rtol=0, atol=1e-4 * np.abs(whole).max())
    one.close()
    assert {p.name for p in message.layer if p.type == "Attention"} == {"block1_attention", "block2_attention"}


def test_kept_keys_and_values_may_leave_the_device():
    net, found = family_net("gpt2"), []
    for device, lms in ((get_device("cpu"), None), (SimDevice(1 << 20), LMSConfig(threshold_kb=0.25, ahead=1))):
        one = caffe.Net(steps.step_net(net), caffe.TEST, device=device, lms=lms, seed=5)
        places = [{"data": np.array([[k]]), one.inputs[0]: np.array([[p]])} for p, k in enumerate((3, 1, 4, 1))]
        found.append([one.forward(**given)["scores"].copy() for given in places])
    np.testing.assert_array_equal(*found)
    assert device.bytes_in > 0 and not np.array_equal(found[0][1], found[0][3])


def test_a_layer_that_mixes_positions_has_no_steps(table):
    n = caffe.NetSpec()
    n.data = L.Input(shape={"dim": [1, WINDOW]})
    n.embed = L.Embed(n.data, input_dim=WORDS, num_output=WORDS, bias_term=False)
    n.mixed = L.Reverse(n.embed, axis=1)
    assert steps.step_net(built(n)) is None
    assert steps.step_net(table_net(table)) is not None


def test_ids_come_one_by_one(table):
    assert list(islice(generate(table_net(table), [0], 10**9, seed=1), 3))


@pytest.mark.parametrize("gated, kv_heads, hidden, bias", [(False, 0, 0, False), (True, 1, 12, True)])
def test_a_block_has_the_parameters_of_its_kind(gated, kv_heads, hidden, bias):
    net = built(block_net(gated=gated, kv_heads=kv_heads, hidden=hidden, bias=bias))
    width, kv, wide = 8, 4 * (kv_heads or 2), hidden or 32
    weights = width * (width + 2 * kv + width) + width * wide * (2 if gated else 1) + wide * width
    biases = bias * (width + 2 * kv + width + wide * (2 if gated else 1) + width)
    norms = 2 * width * (1 if gated else 2)
    found = sum(p.count for name, blobs in net.params.items() if name.startswith("b_") for p in blobs)
    assert found == weights + biases + norms
    assert net.blobs["b_out"].shape == (1, WINDOW, width)


def test_a_net_that_looks_ahead_is_refused():
    n = block_net()
    proto = n.to_proto()
    for layer in proto.layer:
        layer.attention_param.ClearField("causal") if layer.type == "Attention" else None
    net = caffe.Net(proto, caffe.TEST, device=get_device("cpu"))
    with pytest.raises(GraphError, match="depends on the tokens behind it") as caught:
        list(generate(net, [1, 2], 3))
    assert caught.value.fix


@pytest.mark.parametrize("shape", [[2, WINDOW], [1, 2, WINDOW]])
def test_a_net_of_another_form_is_refused(shape):
    n = caffe.NetSpec()
    n.data = L.Input(shape={"dim": shape})
    n.scores = L.Embed(n.data, input_dim=3, num_output=3)
    with pytest.raises(GraphError, match="no language model for use"):
        generate(built(n), [0], 1)


@pytest.mark.parametrize(
    "prompt, more, words",
    [
        ([], {}, "prompt is empty"),
        ([1, WORDS], {}, "prompt has token 5"),
        ([-1], {}, "prompt has token -1"),
        ([1], {"temperature": -1}, "temperature is -1"),
        ([1], {"temperature": np.nan}, "temperature is nan"),
        ([1], {"top_k": -1}, "top_k is -1"),
    ],
)
def test_impossible_arguments(table, prompt, more, words):
    with pytest.raises(ArrayError, match=words) as caught:
        generate(table_net(table), prompt, 3, **more)
    assert caught.value.fix


def test_a_net_that_says_nan(table):
    with pytest.raises(ArrayError, match="not finite"):
        list(generate(table_net(table * np.nan), [0], 2))
