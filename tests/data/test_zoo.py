"""The models that come with the package: the archive, its index, folders written from it, names that mean files."""

import re
from pathlib import Path

import pytest

from pycaffe_lms.data.sets import zoo
from pycaffe_lms.data.sets.zoo import find_model, model_shapes, read_archive, write_model, zoo_models
from pycaffe_lms.errors import DataError, UsageError
from pycaffe_lms.formats.prototxt.parser import read_net, read_solver

ROOT = Path(__file__).resolve().parents[2]
MODELS = ROOT / "models"


@pytest.fixture
def gen_zoo(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "tools"))
    import gen_zoo

    return gen_zoo


@pytest.fixture(autouse=True)
def empty_folder(tmp_path, monkeypatch):
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    monkeypatch.setenv("PYCAFFE_LMS_CACHE", str(tmp_path / "cache"))


def test_the_archive_is_current(gen_zoo):
    assert gen_zoo.main(["--check"]) == 0, "run: python tools/gen_zoo.py"


def test_the_archive_is_the_same_bytes_each_time_and_small(gen_zoo, tmp_path, monkeypatch, capsys):
    files = gen_zoo.content()
    assert gen_zoo.packed(files) == gen_zoo.packed(files)
    assert zoo.ARCHIVE.stat().st_size < 100_000  # a fiftieth of the files
    monkeypatch.setattr(gen_zoo, "ARCHIVE", tmp_path / "zoo.tar.xz")
    assert gen_zoo.main(["--check"]) == 1 and not (tmp_path / "zoo.tar.xz").exists()
    assert gen_zoo.main([]) == 0 and gen_zoo.main(["--check"]) == 0
    assert capsys.readouterr().out.split() == ["not", "current:", "zoo.tar.xz", "written:", "zoo.tar.xz"]
    assert read_archive(tmp_path / "zoo.tar.xz") == files


def test_the_index_says_what_the_readmes_say():
    """Sizes of published nets are facts; the others stand in models/README.md, whose figures have their own test."""
    parameters = {name: [net.parameters for net in model.nets] for name, model in zoo_models().items()}
    assert parameters["lenet"] == [431_080] and parameters["alexnet"] == [60_965_224]
    assert parameters["vgg-16"] == [138_357_544]
    text = (MODELS / "README.md").read_text()
    for name, model in zoo_models().items():
        assert f"({name}/README.md)" in text
        for net in model.nets:
            assert f" | {net.parameters:,} | {net.operations} | {net.batch} | {net.memory} | " in text
            assert f" | {net.least} |\n" in text
        assert (MODELS / name / "README.md").read_text().startswith(f"# {name}: {model.purpose}\n")
    assert set(zoo_models()) == {p.name for p in MODELS.iterdir() if p.is_dir()}


@pytest.mark.parametrize("name", ["resnet-50", "char_lstm", "dcgan"])
def test_a_folder_is_that_of_models(name):
    written = write_model(name)
    folder = Path("models", name)
    assert sorted(written) == sorted(folder.iterdir())
    for path in written:
        assert path.read_bytes() == (MODELS / name / path.name).read_bytes()
    assert read_net(next(folder.glob("*train*.prototxt"), folder / "deploy.prototxt")).message.layer


@pytest.mark.parametrize("out", ["nets/mine", "/tmp/x y", '"quoted"\\', ".."])
def test_the_solver_of_another_folder_names_it(out, tmp_path):
    out = out.replace("/tmp", str(tmp_path))
    write_model("lenet", out)
    folder = Path(out, "lenet")
    solver = read_solver(folder / "solver.prototxt").message
    assert Path(solver.net) == folder / "train_val.prototxt" and Path(solver.net).is_file()
    assert Path(solver.snapshot_prefix) == folder / "lenet"
    assert read_net(solver.net).message == read_net(MODELS / "lenet" / "train_val.prototxt").message
    commands = re.findall(r"pycaffe-lms train (\S+)", (folder / "README.md").read_text())
    assert " " in out or (commands and all(Path(command).parent == folder for command in commands))


def test_a_second_time_writes_nothing_and_keeps_what_is_beside():
    write_model("digits")
    Path("models/digits/digits_iter_1.caffemodel").write_bytes(b"trained")
    assert write_model("digits") == []
    Path("models/digits/solver.prototxt").unlink()
    assert write_model("digits") == [Path("models/digits/solver.prototxt")]
    Path("models/digits/solver.prototxt").write_text("max_iter: 5\n")
    Path("models/digits/deploy.prototxt").unlink()
    with pytest.raises(DataError, match="models/digits/solver.prototxt: is there already and differs") as error:
        write_model("digits")
    assert "-overwrite" in error.value.fix and not Path("models/digits/deploy.prototxt").exists()
    assert len(write_model("digits", overwrite=True)) == 2
    assert Path("models/digits/digits_iter_1.caffemodel").read_bytes() == b"trained"


def test_a_file_goes_before_a_name_and_a_folder_here_before_the_package(tmp_path):
    from_package = Path(find_model("lenet"))
    assert tmp_path / "cache" in from_package.parents
    assert from_package.read_bytes() == (MODELS / "lenet" / "train_val.prototxt").read_bytes()
    assert Path(find_model("lenet/deploy")).name == Path(find_model("lenet", "deploy")).name == "deploy.prototxt"
    solver = read_solver(find_model("lenet", "solver")).message
    assert Path(solver.net) == from_package  # works from any folder
    assert not Path("models").exists()
    assert find_model("lenet", "solver", here=True) == "models/lenet/solver.prototxt"
    assert find_model("lenet") == "models/lenet/train_val.prototxt"
    Path("models/lenet/mine.prototxt").write_text("name: 'mine'\n")
    assert find_model("lenet/mine") == "models/lenet/mine.prototxt"
    Path("lenet").mkdir()
    assert find_model("lenet") == "models/lenet/train_val.prototxt"
    Path("lenet").rmdir()
    Path("lenet").write_text("a file")
    assert find_model("lenet") == "lenet"


def test_what_is_damaged_in_the_cache_is_written_again():
    path = Path(find_model("lenet"))
    path.write_text("damaged")
    assert Path(find_model("lenet")).read_bytes() == (MODELS / "lenet" / "train_val.prototxt").read_bytes()


def test_a_name_that_is_neither_offers_what_is_near():
    for text, near in (
        ("resnet50", "resnet-50"),
        ("vgg16", "vgg-16"),
        ("Alexnet", "alexnet"),
        ("digit", "digits"),
        ("resnet50/deploy", "resnet-50"),
    ):
        with pytest.raises(UsageError, match=f'"{text}" is neither a file nor a model.*did you mean {near}') as error:
            find_model(text)
        assert "pycaffe-lms zoo" in error.value.fix
    with pytest.raises(UsageError, match='"qqqq" is neither a file nor a model of the zoo\n'):
        find_model("qqqq")
    with pytest.raises(UsageError, match="dcgan has no train_val.prototxt") as error:
        find_model("dcgan")
    assert "dcgan/generator" in error.value.fix
    for path in ("models/lenet/none.prototxt", "none.prototxt", "a/b", ""):
        assert find_model(path) == path  # whoever reads it reports it


def test_a_path_of_the_zoo_that_was_not_written_here_says_how():
    for path, file, name in (
        ("models/digits/solver.prototxt", "solver", "digits"),
        ("models/digits/solver.prototxt", "train_val", "digits/solver"),
        ("models/dcgan/generator.prototxt", "train_val", "dcgan/generator"),
    ):
        with pytest.raises(DataError, match=f"Could not open file {path}") as error:
            find_model(path, file)
        assert f"`pycaffe-lms zoo get {path.split('/')[1]}`" in error.value.fix
        assert error.value.fix.endswith(f": {name}")
        assert Path(find_model(name, file)).name == Path(path).name  # the name that it gives means the same file
    write_model("digits")
    assert find_model("models/digits/solver.prototxt") == "models/digits/solver.prototxt"


def test_shapes_are_told_of_files_that_nobody_changed():
    path = find_model("resnet-18", here=True)
    assert model_shapes("resnet-18", path) == ["data=32,3,224,224"]
    assert model_shapes("resnet-18/deploy", find_model("resnet-18/deploy")) == []
    assert model_shapes(path, path) == []
    text = Path(path).read_text()
    Path(path).write_text(text.replace("batch_size: 32", "batch_size: 8"))
    assert model_shapes("resnet-18", path) == []


def test_a_damaged_archive_is_an_error_that_names_it(tmp_path):
    content = zoo.ARCHIVE.read_bytes()
    for spoilt in (content[:1000], b"", content[:5000] + bytes(100) + content[5100:]):
        (tmp_path / "zoo.tar.xz").write_bytes(spoilt)
        with pytest.raises(DataError, match="zoo.tar.xz: cannot be read") as error:
            read_archive(tmp_path / "zoo.tar.xz")
        assert "install" in error.value.fix


def test_a_cache_that_cannot_be_made_is_an_error(tmp_path):
    (tmp_path / "cache").write_text("a file")
    with pytest.raises(DataError, match="the folder cannot be made") as error:
        find_model("lenet")
    assert "PYCAFFE_LMS_CACHE" in error.value.fix
