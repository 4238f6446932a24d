"""The prototxts of models/ are what tools/gen_models.py writes, byte for byte."""

import re
from pathlib import Path

import pytest
from google.protobuf import text_format

from pycaffe_lms.proto import caffe_pb2

pytestmark = pytest.mark.pure

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def gen_models(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "tools"))
    import gen_models

    return gen_models


@pytest.fixture(scope="module")
def files():
    """{path below models/: text} of all that the generator writes."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(ROOT / "tools"))
        import gen_models

        return gen_models.all_files()


def test_every_file_is_current(gen_models):
    assert gen_models.stale() == [], "run: python tools/gen_models.py"


def test_no_generated_file_is_left_over(gen_models, files):
    head = b"# Written by tools/gen_models.py"
    found = {
        p.relative_to(gen_models.MODELS).as_posix()
        for p in gen_models.MODELS.glob("*/*.prototxt")
        if p.read_bytes().startswith(head)
    }
    assert found == set(files)


def test_check_names_what_changed_and_writes_nothing(gen_models, monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(gen_models, "MODELS", tmp_path)
    assert gen_models.main(["--check"]) == 1
    assert "not current: models/lenet/solver.prototxt" in capsys.readouterr().out
    assert not list(tmp_path.iterdir())
    assert gen_models.main([]) == 0 and gen_models.main(["--check"]) == 0
    (tmp_path / "lenet/solver.prototxt").write_text("base_lr: 1\n")
    capsys.readouterr()
    assert gen_models.main(["--check"]) == 1
    assert capsys.readouterr().out == "not current: models/lenet/solver.prototxt\n"


@pytest.mark.parametrize("long", [False, pytest.param(True, marks=pytest.mark.thorough)])
def test_texts_parse_and_leave_the_device_open(files, long):
    chosen = {path: text for path, text in files.items() if (len(text) > 50_000) is long}
    assert len(chosen) > 3
    for path, text in chosen.items():
        if "solver" in path:
            solver = text_format.Parse(text, caffe_pb2.SolverParameter())
            assert not solver.HasField("solver_mode")
            assert solver.net.removeprefix("models/") in files
        else:
            net = text_format.Parse(text, caffe_pb2.NetParameter())
            names = [(layer.name, *((rule.phase, *rule.stage) for rule in layer.include)) for layer in net.layer]
            assert len(set(names)) == len(names), path


LISTED = [
    "digits",
    "lenet",
    "cifar10_quick",
    "cifar10_full",
    "cifar10_resnet-20",
    "cifar10_resnet-56",
    "cifar10_resnet-1001",
    "shapes_ssd",
    "mnist_autoencoder",
    "mnist_siamese",
    "alexnet",
    "caffenet",
    "flickr_style",
    "rcnn_ilsvrc13",
    "googlenet",
    "vgg-16",
    "vgg-19",
    "resnet-18",
    "resnet-34",
    "resnet-50",
    "resnet-101",
    "resnet-152",
    "squeezenet-1.0",
    "squeezenet-1.1",
    "mobilenet-v1",
    "mobilenet-v2",
    "densenet-121",
    "inception-v3",
    "fcn-8s",
    "ssd-300",
    "unet-2d",
    "unet-3d",
    "c3d",
    "dcgan",
    "char_lstm",
    "char_gpt",
    "gpt2",
    "llama-1.3b",
    "llama-7b",
    "vit-b-16",
    "vit-l-16",
]
THREE = {"train_val.prototxt", "solver.prototxt", "deploy.prototxt"}
PAIR = {f"{half}{kind}.prototxt" for half in ("generator", "discriminator") for kind in ("", "_solver")}


def test_every_model_of_the_list_has_its_files(files):
    """A training net, a net for use and a solver; DCGAN has two nets that are trained in turn, each with a solver."""
    assert {path.split("/")[0] for path in files} == set(LISTED)
    for folder in LISTED:
        needed = {"deploy.prototxt"} | PAIR if folder == "dcgan" else THREE
        assert needed <= {path.split("/")[1] for path in files if path.startswith(f"{folder}/")}, folder


SAID = (
    r"\b(19[89]|20[012])\d\b|cuda-convnet|BVLC",  # a paper with its year, or whose recipe it is
    r"^\| input \| ",
    r"^\| expected accuracy \| ",
    r"^\| batch \| without LMS \| least `-lms_budget`",
    r"`pycaffe-lms weights get \w+|\(GitHub|GitHub\)|[Nn]o (Caffe )?weights|public weights of this|release, University"
    r"|published no weights",  # where public weights are, or that there are none
    r"^(Layers with weights|Names)\b",
)


def test_every_model_says_what_it_is(gen_models, files):
    """A README for every folder: all that SAID asks for, the names of its prototxts and of the generator."""
    folders = {path.split("/")[0] for path in files}
    assert {p.name for p in gen_models.MODELS.iterdir() if p.is_dir()} == folders
    for folder in folders:
        text = (gen_models.MODELS / folder / "README.md").read_text()
        mine = [path for path in files if path.startswith(f"{folder}/")]
        assert not [path for path in mine if path.split("/")[1] not in text], folder
        for said in SAID:
            assert re.search(said.replace(" ", r"\s"), text, re.M), (folder, said)
        source = files[mine[0]].split("tools/zoo/")[1].split(")")[0]
        assert f"`tools/zoo/{source}`" in text, folder
