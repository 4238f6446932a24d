"""A small transformer with tied weights: the same training with Large Model Support and without."""

from __future__ import annotations

import numpy as np
import pytest

from pycaffe_lms.backend import get_device
from pycaffe_lms.backend.sim.device import SimDevice
from pycaffe_lms.formats.prototxt.parser import parse_solver
from pycaffe_lms.layers.loss import linear_softmax_loss
from pycaffe_lms.lms.config import LMSConfig
from pycaffe_lms.net.tuning import Tuning
from pycaffe_lms.solvers import solver_class
from tests.onnx_export.harness import net_of

from . import nets

TOKENS, WORDS, WIDTH = 6, 11, 8


def _layer(kind, name, bottoms, more=""):
    lines = "".join(f' bottom: "{b}"' for b in bottoms.split())
    return f'layer {{ name: "{name}" type: "{kind}"{lines} top: "{name}" {more} }}\n'


def _product(name, bottom, outputs, more=""):
    fill = f'num_output: {outputs} axis: 2 weight_filler {{ type: "xavier" }}'
    return _layer("InnerProduct", name, bottom, f"inner_product_param {{ {fill} bias_term: false }} {more}")


def _net(data: str, tied: bool = True, fused: bool = False) -> str:
    """Embedding and positions, a block of attention, a block of a gated unit, and scores by the embedding's weights."""
    share = 'param { name: "words" }' if tied else ""
    fill = 'weight_filler { type: "gaussian" std: 0.5 }'
    heads = "rotary_embedding_param { heads: 4 }"
    scores = f"inner_product_param {{ num_output: {WORDS} axis: 2 bias_term: false }}"
    loss = (
        _layer("LinearSoftmaxWithLoss", "loss", "norm3 targets", f"{scores} {share}")
        if fused
        else _product("scores", "norm3", WORDS, share)
        + _layer("SoftmaxWithLoss", "loss", "scores targets", "softmax_param { axis: 2 }")
    )
    return (
        data
        + _layer(
            "Embed",
            "embed",
            "tokens",
            f"{share} embed_param {{ input_dim: {WORDS} num_output: {WIDTH} {fill} bias_term: false }}",
        )
        + _layer("Bias", "x", "embed", 'bias_param { axis: 1 num_axes: 2 filler { type: "gaussian" std: 0.1 } }')
        + _layer("LayerNorm", "norm1", "x")
        + _product("q", "norm1", WIDTH)
        + _product("k", "norm1", WIDTH // 2)
        + _product("v", "norm1", WIDTH // 2)
        + _layer("RotaryEmbedding", "turned_q", "q", heads)
        + _layer("RotaryEmbedding", "turned_k", "k", "rotary_embedding_param { heads: 2 }")
        + _layer("Attention", "mixed", "turned_q turned_k v", "attention_param { heads: 4 kv_heads: 2 causal: true }")
        + _product("projected", "mixed", WIDTH)
        + _layer("Eltwise", "y", "x projected")
        + _layer("RMSNorm", "norm2", "y")
        + _product("wide", "norm2", 4 * WIDTH)
        + _layer("GatedUnit", "gated", "wide")
        + _layer("GELU", "gelu", "gated")
        + _product("narrow", "gelu", WIDTH)
        + _layer("Eltwise", "z", "y narrow")
        + _layer("LayerNorm", "norm3", "z")
        + loss
    )


_SHAPE = f"shape {{ dim: 4 dim: {TOKENS} }}"
_WORD = f'data_filler {{ type: "uniform" min: 0 max: {WORDS - 0.01} }}'
_DUMMY = (
    f'layer {{ name: "data" type: "DummyData" top: "tokens" top: "targets" dummy_data_param {{ {_SHAPE} {_WORD} }} }}\n'
)
_INPUT = "".join(
    f'layer {{ name: "{name}" type: "Input" top: "{name}" input_param {{ {_SHAPE} }} }}\n'
    for name in ("tokens", "targets")
)


def _packed(dropout: str = "dropout_ratio: 0.3") -> str:
    """Two blocks' halves with a packed bottom, weights that are dropped, and items that are dropped."""
    table = f'input_dim: {WORDS} num_output: {WIDTH} weight_filler {{ type: "gaussian" std: 0.5 }}'
    text = _DUMMY + _layer("Embed", "x", "tokens", f"embed_param {{ {table} }}")
    for k, before in ((1, "x"), (2, "sum1")):
        text += _layer("LayerNorm", f"norm{k}", before) + _product(f"qkv{k}", f"norm{k}", 2 * WIDTH)
        text += _layer("Attention", f"mixed{k}", f"qkv{k}", f"attention_param {{ {_HEADS} {dropout} }}")
        text += _product(f"projected{k}", f"mixed{k}", WIDTH)
        text += _layer("DropPath", f"path{k}", f"projected{k}", "drop_path_param { dropout_ratio: 0.4 }")
        text += _layer("Eltwise", f"sum{k}", f"{before} path{k}")
    text += _product("scores", "sum2", WORDS)
    return text + _layer("SoftmaxWithLoss", "loss", "scores targets", "softmax_param { axis: 2 }")


_HEADS = "heads: 4 kv_heads: 2 causal: true"


@pytest.fixture(autouse=True)
def the_nets(monkeypatch):
    monkeypatch.setitem(nets.NETS, "dropping", _packed())
    monkeypatch.setitem(nets.NETS, "packed", _packed(dropout=""))
    monkeypatch.setitem(nets.NETS, "transformer", _net(_DUMMY))
    monkeypatch.setitem(nets.NETS, "fused", _net(_DUMMY, fused=True))


def _train(device=None, lms=None, name="transformer", **fields):
    return nets.train(nets.make_solver(name, device, lms, **fields), 3)


def _chunks_of_five(monkeypatch):
    """Five positions, of 4 * 6 = 24 in all: the last chunk is smaller."""
    monkeypatch.setattr(linear_softmax_loss, "_CHUNK_BYTES", 5 * WORDS * 4)


@pytest.mark.parametrize("seed", range(3))
def test_lms_changes_no_bit_of_scores_in_chunks(seed, monkeypatch):
    _chunks_of_five(monkeypatch)
    device = SimDevice(64 << 20, order="random", seed=seed)
    lms = LMSConfig(threshold_kb=0.25, ahead=(0, 1, 32)[seed])
    assert _train(device, lms, "fused") == _train(name="fused")
    assert device.bytes_in > 0


@pytest.mark.parametrize("seed", range(4))
def test_lms_changes_no_bit_of_what_is_dropped(seed):
    """Layers that run again draw what they drew."""
    device = SimDevice(64 << 20, order="random", seed=seed)
    lms = LMSConfig(threshold_kb=0.25, ahead=(0, 1, 32, 1)[seed], recompute=seed > 1)
    losses, weights = _train(name="dropping")
    assert _train(device, lms, "dropping") == (losses, weights)
    assert len(set(losses)) == 3
    assert device.bytes_in > 0


@pytest.mark.parametrize("seed", range(3))
def test_lms_changes_no_bit_of_a_clipped_update(seed, caplog):
    """Every gradient can be swapped out before the norm of all of them is known, and comes back for its update."""
    device = SimDevice(64 << 20, order="random", seed=seed)
    lms = LMSConfig(threshold_kb=0.25, ahead=(0, 1, 32)[seed])
    with caplog.at_level("INFO"):
        clipped = _train(device, lms, clip_gradients=0.05, display=1)
    assert sum("Gradient clipping" in r.getMessage() for r in caplog.records) == 3
    assert clipped == _train(clip_gradients=0.05) != _train()


def test_it_trains_alike_on_both_devices():
    losses, _ = _train()
    assert len(set(losses)) == 3 and np.isfinite(losses).all()
    assert _train(get_device("cpu"))[0] == pytest.approx(losses, rel=1e-5)


@pytest.mark.parametrize("seed", range(6))
def test_lms_changes_no_bit(seed):
    device = SimDevice(64 << 20, order="random", seed=seed)
    lms = LMSConfig(threshold_kb=0.25, ahead=(0, 1, 32)[seed % 3])
    assert _train(device, lms) == _train()
    assert device.bytes_in > 0


def _half(device, lms=None, name="transformer"):
    parsed = parse_solver(nets.solver_text(name), f"{name}.prototxt")
    return solver_class(parsed.message)(parsed.message, device=device, lms=lms, tuning=Tuning(half=True))


def test_bfloat16_reaches_all_but_scores_and_indices():
    for name, more in (("transformer", {"scores"}), ("fused", set())):
        values = {v.name: v.half for v in _half(SimDevice(64 << 20), name=name).net.graph.values}
        wide = {name for name, half in values.items() if not half}
        assert wide == {"tokens", "targets", "loss"} | more


def test_indices_are_not_rounded_to_bfloat16(monkeypatch):
    """257 is none of the numbers that bfloat16 holds."""
    table = "input_dim: 300 num_output: 4 bias_term: false"
    text = _INPUT + _layer("Embed", "rows", "tokens", f"embed_param {{ {table} }}") + _product("y", "rows", 3)
    text += _layer("SoftmaxWithLoss", "loss", "y targets", "softmax_param { axis: 2 }")
    monkeypatch.setitem(nets.NETS, "transformer", text)
    net, words = _half(get_device("cpu")).net, np.arange(300, dtype=np.float32)[:, None] * [1, 1, 1, 1]
    net.params["rows"][0].data = words
    net.blobs["tokens"].data = 257
    net.forward_range()
    net.backward_range()
    assert {v.name: v.half for v in net.graph.values}["rows"]
    np.testing.assert_array_equal(net.blobs["rows"].read_data(), 256)  # the row's values are rounded, not its index
    moved = np.flatnonzero(net.params["rows"][0].read_diff().any(axis=1))
    assert moved.tolist() == [257]


@pytest.mark.parametrize(
    "seed, name", [(0, "transformer"), (1, "transformer"), (2, "transformer"), (1, "fused"), (2, "fused")]
)
def test_lms_changes_no_bit_of_bfloat16(seed, name, monkeypatch):
    _chunks_of_five(monkeypatch)
    device = SimDevice(64 << 20, order="random", seed=seed)
    lms = LMSConfig(threshold_kb=0.25, ahead=(0, 1, 32)[seed])
    expected = nets.train(_half(SimDevice(64 << 20), name=name), 3)
    assert nets.train(_half(device, lms, name), 3) == expected and device.bytes_in > 0
    wide = _train(name=name)[0]
    assert expected[0][:2] == pytest.approx(wide[:2], rel=0.01) and expected[0] != wide


@pytest.mark.parametrize("name", ["packed", "dropping"])
def test_lms_changes_no_bit_of_a_packed_bottom_in_bfloat16(name):
    """Attention that drops weights is no layer of bfloat16: no fused kernel draws its numbers."""
    expected = nets.train(_half(SimDevice(64 << 20), name=name), 3)
    device = SimDevice(64 << 20, order="random", seed=1)
    solver = _half(device, LMSConfig(threshold_kb=0.25, ahead=1), name)
    assert nets.train(solver, 3) == expected and device.bytes_in > 0
    half = {v.name for v in solver.net.graph.values if v.half}
    assert ({"qkv1", "mixed1"} <= half) == (name == "packed") and "norm1" in half
    assert expected[0] == pytest.approx(_train(name=name)[0], rel=0.02)


@pytest.mark.parametrize("name", ["transformer", "fused"])
def test_gradients_of_bfloat16_are_those_of_float32_but_for_rounding(name):
    found = []
    for solver in (nets.make_solver(name, None, None), _half(get_device("cpu"), name=name)):
        solver.step(1)
        found.append([b.read_diff().astype(np.float64) for b in solver.net.learnable_params])
    for exact, rounded in zip(*found, strict=True):
        assert 1e-5 < np.linalg.norm(rounded - exact) / np.linalg.norm(exact) < 0.05


def _fed(text: str):
    net, rng = net_of(text, np.float64), np.random.default_rng(5)
    for name in ("tokens", "targets"):
        net.blobs[name].data = rng.integers(WORDS, size=(4, TOKENS))
    return net


def test_a_tied_weight_gets_both_gradients():
    tied, apart = _fed(_net(_INPUT)), _fed(_net(_INPUT, tied=False))
    assert tied.params["embed"][0].shape == tied.params["scores"][0].shape == (WORDS, WIDTH)
    for name, blobs in apart.params.items():
        for mine, theirs in zip(blobs, tied.params[name], strict=True):
            mine.data = theirs.read_data()
    for net in (tied, apart):
        net.forward_range()
        net.backward_range()
    assert tied.blobs["loss"].read_data() == apart.blobs["loss"].read_data()
    both = apart.params["embed"][0].read_diff() + apart.params["scores"][0].read_diff()
    np.testing.assert_allclose(tied.params["embed"][0].read_diff(), both, rtol=1e-12, atol=1e-14)
    np.testing.assert_array_equal(tied.params["scores"][0].read_diff(), tied.params["embed"][0].read_diff())


def test_scores_in_chunks_have_the_same_loss_and_gradients(monkeypatch):
    _chunks_of_five(monkeypatch)
    whole, fused = _fed(_net(_INPUT)), _fed(_net(_INPUT, fused=True))
    assert set(fused.params) - {"loss"} == set(whole.params) - {"scores"}
    pairs = [(blobs, whole.params["scores" if n == "loss" else n]) for n, blobs in fused.params.items()]
    for ours, theirs in pairs:
        for mine, other in zip(ours, theirs, strict=True):
            mine.data = other.read_data()
    for net in (whole, fused):
        net.forward_range()
        net.backward_range()
    np.testing.assert_allclose(fused.blobs["loss"].read_data(), whole.blobs["loss"].read_data(), rtol=1e-13)
    for ours, theirs in pairs:
        for mine, other in zip(ours, theirs, strict=True):
            np.testing.assert_allclose(mine.read_diff(), other.read_diff(), rtol=1e-9, atol=1e-14)


def test_every_parameter_has_the_slope_of_the_loss():
    """Central differences of the whole net, at one element of each parameter."""
    net = _fed(_net(_INPUT))

    def loss() -> float:
        net.forward_range()
        return float(net.blobs["loss"].read_data())

    loss()
    net.backward_range()
    for name, blobs in net.params.items():
        for blob in blobs:
            values, slope = blob.read_data().copy(), blob.read_diff().copy().reshape(-1)
            at = int(np.abs(slope).argmax())
            found = []
            for step in (1e-5, -1e-5):
                moved = values.copy()
                moved.reshape(-1)[at] += step
                blob.data = moved
                found.append(loss())
            blob.data = values
            assert (found[0] - found[1]) / 2e-5 == pytest.approx(slope[at], rel=1e-6), name
