"""The scripts beside some models: pairs of digits, text for the character model, a step of the DCGAN."""

from __future__ import annotations

import importlib.util

import numpy as np
import pytest

import pycaffe_lms as caffe
from pycaffe_lms.data.database.datum import encode_datum
from pycaffe_lms.data.database.lmdb_writer import write_lmdb
from pycaffe_lms.formats.prototxt.parser import read_solver

from .nets import MODELS


def script(folder: str, name: str):
    spec = importlib.util.spec_from_file_location(f"{folder}_{name}", MODELS / folder / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_pairs_of_digits(tmp_path):
    module = script("mnist_siamese", "pairs")
    rng = np.random.default_rng(0)
    images = rng.integers(0, 256, (30, 1, 28, 28), np.uint8)
    for part in ("train", "test"):
        records = ((b"%08d" % k, encode_datum(image, k % 3)) for k, image in enumerate(images))
        write_lmdb(tmp_path / f"mnist_{part}_lmdb", records)
    module.main(["--folder", str(tmp_path)])
    made = module.digits(str(tmp_path / "mnist_siamese_train_lmdb"))
    assert len(made) == 30 and {label for _, label in made} == {0, 1}
    index = {image.tobytes(): k for k, image in enumerate(images)}
    for k, (pair, alike) in enumerate(made):
        first, second = (index[channel.tobytes()] for channel in pair)
        assert first == k and alike == (first % 3 == second % 3)


def test_rows_of_text():
    module = script("char_lstm", "text")
    rows = module.rows("abcdefgh\u00e9", streams=2)
    text = np.vectorize(chr)
    assert text(rows["input"].T.astype(int)).tolist() == [["a", "b", "c", "d"], ["e", "f", "g", "h"]]
    assert text(rows["target"].T.astype(int)).tolist() == [["b", "c", "d", "e"], ["f", "g", "h", "?"]]
    assert rows["cont"].tolist() == [[0, 0], [1, 1], [1, 1], [1, 1]]
    with pytest.raises(ValueError, match="too few"):
        module.rows("ab", streams=2)


def test_prepared_text_feeds_the_training_net(tmp_path):
    pytest.importorskip("h5py")
    module = script("char_lstm", "text")
    (tmp_path / "book.txt").write_text("the quick brown fox " * 400)
    module.main(["prepare", str(tmp_path / "book.txt"), "--out", str(tmp_path)])
    prototxt = (MODELS / "char_lstm/train_val.prototxt").read_text()
    path = tmp_path / "net.prototxt"
    path.write_text(prototxt.replace("data/text/", f"{tmp_path}/").replace("num_output: 512", "num_output: 8"))
    net = caffe.Net(str(path), caffe.TRAIN)
    assert net.forward()["loss"] == pytest.approx(np.log(128), rel=0.05)
    assert bytes(net.blobs["input"].data[:20, 0].astype(np.uint8)) == b"the quick brown fox "
    net.close()


def test_writing_text_follows_the_probabilities(tmp_path):
    """A net that gives the character after the last one nearly all of the chance counts on."""
    module = script("char_lstm", "text")
    path = tmp_path / "net.prototxt"
    prototxt = (MODELS / "char_lstm/deploy.prototxt").read_text()
    path.write_text(prototxt.replace("num_output: 512", "num_output: 8"))
    net = caffe.Net(str(path), caffe.TEST)
    seen = []

    class Counting:
        blobs = net.blobs

        def forward(self, **inputs):
            seen.append([float(inputs[k].item()) for k in ("cont", "input")])
            net.forward(**inputs)
            net.blobs["prob"].data[...] = np.eye(128)[int(inputs["input"].item()) + 1]

    text = module.write(Counting(), "ab", 4, 0.5, np.random.default_rng(0))
    assert text == "abcdef"
    assert seen == [[0, 97], [1, 98], [1, 99], [1, 100], [1, 101]]


def _small(tmp_path):
    """The two nets with few channels and a batch of 2, and their solvers with a seed."""
    for name in ("generator", "discriminator"):
        net = (MODELS / f"dcgan/{name}.prototxt").read_text()
        for width in (512, 256, 128, 64):
            net = net.replace(f"num_output: {width}\n", f"num_output: {width // 32}\n")
        (tmp_path / f"{name}.prototxt").write_text(net.replace("dim: 128\n", "dim: 2\n"))
        param = read_solver(str(MODELS / f"dcgan/{name}_solver.prototxt")).message
        param.net, param.random_seed = str(tmp_path / f"{name}.prototxt"), 3
        (tmp_path / f"{name}_solver.prototxt").write_text(str(param))


def test_a_step_of_the_dcgan_moves_both_nets_the_right_way(tmp_path, monkeypatch):
    module = script("dcgan", "train")
    monkeypatch.setattr(module, "HERE", tmp_path)
    _small(tmp_path)
    generator, discriminator = module.solvers()
    nets = generator.net, discriminator.net
    before = [{name: [b.data.copy() for b in blobs] for name, blobs in net.params.items()} for net in nets]
    real = np.tanh(np.random.default_rng(1).standard_normal((2, 3, 64, 64))).astype(np.float32)
    losses = module.step(generator, discriminator, real, np.random.default_rng(2))
    assert losses == pytest.approx((2 * np.log(2), np.log(2)), rel=0.3)
    for net, old in zip(nets, before, strict=True):
        for name, blobs in net.params.items():
            assert (blobs[0].data != old[name][0]).any(), name
    for _ in range(30):  # the discriminator learns to tell noise from what the generator makes
        last = module.step(generator, discriminator, real, np.random.default_rng(2))
    assert last[0] < losses[0]


def test_the_generators_gradient_is_that_of_the_discriminators_loss(tmp_path, monkeypatch):
    module = script("dcgan", "train")
    monkeypatch.setattr(module, "HERE", tmp_path)
    _small(tmp_path)
    generator, discriminator = module.solvers()
    generator.apply_update = lambda: None
    g, d = generator.net, discriminator.net
    one = np.ones(d.blobs["real"].shape, np.float32)
    module.step(generator, discriminator, np.zeros((2, 3, 64, 64), np.float32), np.random.default_rng(2))
    gradient, weight = (getattr(g.params["deconv5"][0], part).copy() for part in ("diff", "data"))

    def loss(epsilon):
        g.params["deconv5"][0].data = weight + epsilon * gradient
        g.forward_range()
        return float(d.forward(data=g.blobs["image"].data, real=one)["loss"])

    epsilon = 0.00005 / np.linalg.norm(gradient)  # few units cross their kink
    slope = (loss(epsilon) - loss(-epsilon)) / (2 * epsilon)
    assert slope == pytest.approx((gradient.astype(np.float64) ** 2).sum(), rel=0.05)
