"""`pycaffe-lms classify`: against plain NumPy on a net of one matrix product, and a real net on a real picture."""

from __future__ import annotations

import numpy as np
import pytest

import pycaffe_lms as caffe
from pycaffe_lms.cli.main import main
from pycaffe_lms.cli.scoring import ILSVRC
from tests.shared_data import SHARED, needs_shared
from tests.test_classifier import CLASSES, MEAN, NET, scores

cv2 = pytest.importorskip("cv2")
HOW = ["-input_scale", "0.02", "-mean_file", "mean.npy", "-images_dim", "6,6", "-backend", "cpu"]
GRAY = NET.replace("dim: 3 dim: 3 dim", "dim: 2 dim: 1 dim")


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A net, its weights, a mean, class names, three pictures of 6 x 6 in in/."""
    monkeypatch.chdir(tmp_path)
    for name, text in (("deploy", NET), ("gray", GRAY)):
        (tmp_path / f"{name}.prototxt").write_text(text)
        caffe.set_random_seed(1)
        caffe.Net(f"{name}.prototxt", caffe.TEST).save(f"{name}.caffemodel")
    np.save("mean.npy", np.broadcast_to(MEAN[:, None, None], (3, 8, 8)))
    (tmp_path / "names.txt").write_text("".join(f"n{k} class {k}\n" for k in range(CLASSES)))
    (tmp_path / "in").mkdir()
    rng = np.random.default_rng(4)
    for k in range(3):
        cv2.imwrite(f"in/{k}.png", rng.integers(0, 256, (6, 6, 3), dtype=np.uint8))
    return tmp_path


def classify(source, *more, model="deploy", how=HOW):
    net = ["-model_def", f"{model}.prototxt", "-pretrained_model", f"{model}.caffemodel"]
    return main(["classify", source, "out", *net, *how, *more])


def pictures():
    return np.stack([cv2.imread(f"in/{k}.png")[..., ::-1] / 255 for k in range(3)])


def reference(crops):
    return scores(caffe.Net("deploy.prototxt", "deploy.caffemodel", caffe.TEST), crops)


def test_a_folder_centre_crops(folder):
    (folder / "in" / "other.txt").write_text("no picture")
    assert classify("in", "--center_only", "-ext", "png") == 0
    found = np.load("out.npy")
    np.testing.assert_allclose(found, reference(pictures()[:, 1:5, 1:5]), rtol=1e-4)


def test_activations_in_16_bits(folder):
    """Near the scores of float32, but not those."""
    assert classify("in", "--center_only", "-ext", "png", "-math", "bf16") == 0
    exact = reference(pictures()[:, 1:5, 1:5])
    np.testing.assert_allclose(np.load("out.npy"), exact, rtol=0.05)
    assert not np.array_equal(np.load("out.npy"), exact)


def test_an_array_and_ten_crops(folder):
    np.save("in.npy", pictures().astype(np.float32))
    assert classify("in.npy") == 0
    ten = caffe.io.oversample(pictures(), (4, 4))
    np.testing.assert_allclose(np.load("out.npy"), reference(ten).reshape(3, 10, -1).mean(1), rtol=1e-4)


def test_the_best_classes_are_printed(folder, capsys):
    assert classify("in/1.png", "--center_only", "-labels_file", "names.txt", "-top", "2") == 0
    row = np.load("out.npy")[0]
    best = np.argsort(-row)[:2]
    assert capsys.readouterr().out.splitlines() == ["in/1.png", *(f"  {row[k]:.5f}  n{k} class {k}" for k in best)]


def test_a_net_of_one_channel_gets_gray_pictures(folder):
    how = ["-images_dim", "6,6", "-backend", "cpu"]
    assert classify("in/0.png", "--center_only", model="gray", how=how) == 0
    net = caffe.Net("gray.prototxt", "gray.caffemodel", caffe.TEST)
    gray = (pictures()[0, 1:5, 1:5] @ (0.2125, 0.7154, 0.0721)) * 255
    z = gray.reshape(-1) @ net.params["ip"][0].data.T + net.params["ip"][1].data
    np.testing.assert_allclose(np.load("out.npy")[0], np.exp(z - z.max()) / np.exp(z - z.max()).sum(), rtol=1e-3)


@pytest.mark.parametrize(
    ("source", "more", "code", "words"),
    [
        ("in", (), 1, "*.jpg"),
        ("none.png", (), 1, "none.png"),
        ("in/0.png", ("-channel_swap", "0,0,1"), 2, "0,0,1"),
        ("in/0.png", ("-channel_swap", "bgr"), 2, "bgr"),
        ("in/0.png", ("-images_dim", "6"), 2, "-images_dim 6"),
        ("in/0.png", ("-images_dim", "3,9"), 2, "(3, 9)"),
        ("in/0.png", ("-labels_file", "mean.npy"), 1, "mean.npy"),
        ("in/0.png", ("-mean_file", "names.txt"), 1, "names.txt"),
        ("mean.npy", (), 1, "(3, 8, 8)"),
        ("pickled.npy", (), 1, "pickled.npy"),
        ("huge.npy", (), 1, "huge.npy"),
        ("unclosed.npy", (), 1, "unclosed.npy"),
        ("in/0.png", ("-gpu", "x", "y"), 2, "x"),
    ],
)
def test_wrong_use(folder, capsys, source, more, code, words):
    np.save("pickled.npy", np.array([{}], dtype=object), allow_pickle=True)
    whole = (folder / "mean.npy").read_bytes()
    claim = whole.replace(b"(3, 8, 8), }     ", b"(99999999, 9)}   ")
    assert claim != whole and len(claim) == len(whole)
    (folder / "huge.npy").write_bytes(claim)
    (folder / "unclosed.npy").write_bytes(whole[:126] + b"(" + whole[127:])  # a header that Python cannot tokenize
    assert classify(source, *more) == code
    err = capsys.readouterr().err
    assert words in err and "fix:" in err and "Traceback" not in err
    assert not (folder / "out.npy").exists()


@needs_shared
def test_the_default_mean_is_that_of_imagenet():
    mean = np.load(SHARED / "data" / "imagenet" / "ilsvrc_2012_mean.npy")
    np.testing.assert_allclose(ILSVRC, mean.mean(1).mean(1), rtol=1e-7)


@needs_shared
def test_a_real_net_on_a_real_picture(tmp_path, monkeypatch, capsys):
    """Another implementation's scores of the same picture, which it resized and rounded in its own way."""
    monkeypatch.chdir(tmp_path)
    data = SHARED / "data"
    net = data / "weights" / "squeezenet_v1.0"
    names = data / "imagenet" / "synset2012.txt"
    argv = [
        "-model_def",
        net / "deploy.prototxt",
        "-pretrained_model",
        *net.glob("*.caffemodel"),
        "--center_only",
        "-labels_file",
        names,
        "-top",
        "3",
        "-mean_file",
        "mean.npy",
        "-backend",
        "cpu",
    ]
    np.save("mean.npy", np.array([104, 117, 123]))  # the mean that the recorded input was made with
    assert main([str(a) for a in ("classify", data / "images" / "cat.jpg", "out.npy", *argv)]) == 0
    golden = np.load(data / "golden" / "squeezenet_cat.npz")["pool_final"].reshape(-1)
    best = np.argsort(-golden)[:3]
    np.testing.assert_allclose(np.load("out.npy")[0, best], golden[best], atol=0.05)
    printed = [line.split("  ")[-1] for line in capsys.readouterr().out.splitlines()[1:]]
    assert printed == [names.read_text().splitlines()[k] for k in best]


def printed(capsys, *more):
    argv = ["deploy.prototxt", "in/0.png", "-weights", "deploy.caffemodel", "-center_only"]
    assert main(["classify", *argv, *HOW, *more]) == 0
    lines = capsys.readouterr()
    return lines.out.splitlines(), lines.err


def test_without_an_output_file_the_best_classes_are_printed(folder, capsys):
    expected = reference(pictures()[:1, 1:5, 1:5])[0]
    best = np.argsort(-expected)[:2]
    for more, name in (((), "class {}"), (("-labels_file", "names.txt"), "n{0} class {0}")):
        out, _ = printed(capsys, "-top", "2", *more)
        assert out == ["in/0.png", *(f"  {expected[k]:.5f}  {name.format(k)}" for k in best)]
    assert not (folder / "out.npy").exists()


def test_scores_that_are_no_probabilities_are_called_so(folder, capsys):
    assert "no probabilities" not in printed(capsys)[1]
    text = (folder / "deploy.prototxt").read_text()
    start = text.index("layer", text.index("InnerProduct"))
    (folder / "deploy.prototxt").write_text(text[:start])
    assert "These scores are no probabilities" in printed(capsys)[1]
