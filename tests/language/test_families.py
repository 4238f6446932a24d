"""Public transformers: their files give our nets the scores that the `transformers` package recorded, and come back.

`tools/gen_transformers.py` made the recording.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

import numpy as np
import pytest

from pycaffe_lms import NetSpec
from pycaffe_lms import layers as L
from pycaffe_lms.errors import WeightsError
from pycaffe_lms.formats.weights.safetensors_file import Tensors, write_safetensors
from pycaffe_lms.language import gpt2, llama, vit
from pycaffe_lms.net import weights
from tests.onnx_export.harness import net_of

SIZES = {"width": 8, "blocks": 2, "heads": 4, "hidden": 12}
IDS = {"vocabulary": 19}
GROUPED = SIZES | IDS | {"kv_heads": 2}
NETS = {
    "gpt2": lambda n, labels=None, **more: gpt2(n, n.data, labels, **(SIZES | IDS | {"heads": 2, "hidden": 0, **more})),
    "llama": lambda n, labels=None: llama(n, n.data, labels, **GROUPED, eps=1e-5),
    "qwen2": lambda n, labels=None: llama(n, n.data, labels, **GROUPED, eps=1e-6, rotary=1e6, qkv_bias=True, tied=True),
    "vit": lambda n, **more: vit(n, n.data, **SIZES, classes=3, patch=4, **more),
}


@cache
def recorded():
    with np.load(Path(__file__).with_name("transformers.npz")) as found:
        return dict(found)


def spec(name, *args, **more):
    n = NetSpec()
    n.data = L.Input(shape={"dim": list(recorded()[f"{name}.input"].shape)})
    NETS[name](n, *args, **more)
    return n


def net(name, dtype=np.float64, **more):
    return net_of(str(spec(name, **more).to_proto()), dtype)


@pytest.fixture
def file(request, tmp_path):
    """The model's file, as `transformers` wrote it."""
    name = request.getfixturevalue("name")
    path = tmp_path / f"{name}.safetensors"
    path.write_bytes(recorded()[f"{name}.file"].tobytes())
    return path


def scores(of, name):
    of.blobs["data"].data = recorded()[f"{name}.input"]
    of.forward_range()
    return of.blobs["scores"].read_data()


@pytest.mark.parametrize("name", NETS)
def test_scores_are_those_of_transformers(name, file, caplog):
    ours = net(name)
    weights.copy_from(ours, file)
    assert "has nothing for" not in caplog.text
    expected = recorded()[f"{name}.scores"]
    assert expected.std() > 0.1
    np.testing.assert_allclose(scores(ours, name), expected, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("name", NETS)
def test_what_is_written_is_what_was_read(name, file, tmp_path):
    ours, again = net(name, np.float32), tmp_path / "again.safetensors"
    weights.copy_from(ours, file)
    weights.save(ours, again)
    theirs, written = Tensors(file), Tensors(again)
    assert set(theirs) == set(written)
    for key, values in theirs.items():
        np.testing.assert_array_equal(written[key], values)


def test_scores_of_a_training_net_have_the_same_name():
    """Its loss holds the weights of the scores, tied or not."""
    for name in ("llama", "gpt2"):
        n = spec(name)
        train = NetSpec()
        train.data, train.label = (L.Input(shape={"dim": [2, 6]}) for _ in range(2))
        NETS[name](train, train.label)
        ours, learning = (net_of(str(s.to_proto())) for s in (n, train))
        assert {k: [b.shape for b in v] for k, v in ours.params.items()} == {
            k: [b.shape for b in v] for k, v in learning.params.items()
        }


def test_a_file_of_a_net_without_its_head(tmp_path, caplog):
    """Its names lack what stands before them elsewhere."""
    path = tmp_path / "bare.safetensors"
    path.write_bytes(recorded()["gpt2.file"].tobytes())
    bare = {name.removeprefix("transformer."): values for name, values in Tensors(path).items()}
    bare["h.0.attn.bias"] = np.ones((1, 1, 6, 6), np.float32)  # the mask of older files
    write_safetensors(path, bare)
    ours = net("gpt2")
    with caplog.at_level("INFO"):
        weights.copy_from(ours, path)
    assert "Ignoring" not in caplog.text
    np.testing.assert_allclose(scores(ours, "gpt2"), recorded()["gpt2.scores"], rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("name", ["vit"])
def test_drop_path_and_layer_scale_are_layers(name, file):
    """With factors of 1, and in a test, the net is the same; factors are not in public files."""
    ours = net(name, drop_path=0.3, layer_scale=1.0)
    weights.copy_from(ours, file)
    np.testing.assert_allclose(scores(ours, name), recorded()["vit.scores"], rtol=1e-6, atol=1e-6)
    ratios = {n.name: n.layer.ratio for n in ours.graph.nodes if n.layer.param.type == "DropPath"}
    assert ratios == pytest.approx({"block2_path1": 0.3, "block2_path2": 0.3})
    with pytest.raises(WeightsError, match=r'layer "block1_scale1".*no name for it'):
        weights.save(ours, file)


@pytest.mark.parametrize("name", ["llama"])
def test_files_that_do_not_fit(name, file):
    whole = dict(Tensors(file).items())
    half = {key: values for key, values in whole.items() if "layers.1.mlp.up_proj" not in key}
    for arrays, message in (
        (half, r'layer "block2_fc1".*not all 2 parts'),
        ({"a.weight": np.ones(3, np.float32)}, "no known family"),
        (whole | {"model.layers.0.self_attn.q_proj.bias": np.ones(8, np.float32)}, r'layer "block1_q".*2'),
        (whole | {"lm_head.weight": np.ones((18, 8), np.float32)}, r'layer "scores".*\(18, 8\)'),
        (whole | {"model.layers.1.mlp.up_proj.weight": np.ones((12, 7), np.float32)}, r'"block2_fc1".*do not fit'),
    ):
        write_safetensors(file, arrays)
        with pytest.raises(WeightsError, match=message):
            weights.copy_from(net(name), file, must_match=True)
    with pytest.raises(WeightsError, match="no family"):
        weights.save(net_of('layer { name: "i" type: "Input" top: "i" input_param { shape { dim: 1 } } }'), file)
