"""`pycaffe-lms init`: from a folder of pictures per class to a net that tells them apart."""

import re
import shlex
from pathlib import Path

import numpy as np
import pytest

from pycaffe_lms.cli.starter import split, test_batch
from pycaffe_lms.data.database.datum import decode_datum
from pycaffe_lms.data.database.lmdb_source import LMDBSource
from pycaffe_lms.data.transform.mean import load_mean
from pycaffe_lms.errors import DataError
from pycaffe_lms.formats.prototxt.parser import read_net, read_solver

from .command import caffe, complaint

cv2 = pytest.importorskip("cv2")
test_batch.__test__ = False  # a function of the package, not a test
CLASSES = ("across", "down", "dots and dots")  # a name with spaces


def stripes(name, rng):
    """A picture of 20 to 40 pixels a side: lines across, lines down, or dots; colours and offsets are random."""
    height, width = rng.integers(20, 40, 2)
    y, x = np.mgrid[:height, :width] + rng.integers(0, 6, 2)[:, None, None]
    on = {"across": y % 6 < 3, "down": x % 6 < 3}.get(name, (y % 6 < 3) & (x % 6 < 3))
    low, high = rng.integers(0, 100, 3), rng.integers(156, 256, 3)
    return np.where(on[..., None], high, low).astype(np.uint8)


@pytest.fixture(scope="module")
def photos(tmp_path_factory):
    """25 pictures of each class."""
    folder, rng = tmp_path_factory.mktemp("pictures") / "photos", np.random.default_rng(5)
    for name in CLASSES:
        (folder / name).mkdir(parents=True)
        for k in range(25):
            assert cv2.imwrite(str(folder / name / f"{k}.png"), stripes(name, rng))
    return folder


def init(photos, cwd, *argv):
    return caffe("init", "mynet", "-images", str(photos), "-size", "16", *argv, cwd=cwd)


def records(path):
    with LMDBSource(path) as source:
        return {k.decode().partition("_")[2]: decode_datum(v, source="x") for k, v in source.records()}


def test_what_is_written_fits_together(photos, tmp_path):
    done = init(photos, tmp_path)
    assert done.code == 0, done.stderr
    assert done.out.splitlines()[0] == "mynet: 3 classes, 60 pictures to train and 15 to test, 3 x 16 x 16"
    out = tmp_path / "mynet"
    assert (out / "labels.txt").read_text().splitlines() == sorted(CLASSES)
    train, test = records(out / "train_lmdb"), records(out / "test_lmdb")
    assert not train.keys() & test.keys() and len(train | test) == 75  # every picture once
    for name, (array, label) in (train | test).items():
        assert array.shape == (3, 16, 16) and sorted(CLASSES)[label] == name.partition("/")[0]
    assert np.bincount([label for _, label in test.values()]).tolist() == [5, 5, 5]
    mean = np.mean([array for array, _ in train.values()], 0)
    np.testing.assert_allclose(load_mean(out / "mean.binaryproto"), mean, rtol=1e-5)
    data = read_net(out / "train_val.prototxt").message.layer[0]
    np.testing.assert_allclose(data.transform_param.mean_value, mean.mean((1, 2)), atol=1e-3)
    solver = read_solver(out / "solver.prototxt").message
    assert solver.net == "mynet/train_val.prototxt" and solver.snapshot_prefix == "mynet/mynet"
    assert solver.test_iter[0] * read_net(out / "train_val.prototxt").message.layer[1].data_param.batch_size == 15


def test_a_second_time_changes_nothing_and_edits_are_safe(photos, tmp_path):
    first = init(photos, tmp_path)
    files = [p for p in (tmp_path / "mynet").rglob("*") if p.is_file() and p.name != "lock.mdb"]
    before = {p: (p.read_bytes(), p.stat().st_ino) for p in files if p.name != "mean.binaryproto"}
    done = init(photos, tmp_path)
    assert done.code == 0 and done.out == first.out
    assert "mynet/train_lmdb is there already: 60 records; 60 were compared with their pictures." in done.log
    assert {p: (p.read_bytes(), p.stat().st_ino) for p in before} == before
    solver = tmp_path / "mynet" / "solver.prototxt"
    solver.write_text(solver.read_text().replace("base_lr: 0.05", "base_lr: 0.01"))
    message, fix = complaint(init(photos, tmp_path), 1)
    assert "mynet/solver.prototxt: exists already and says something else" in message and "-overwrite" in fix
    assert "base_lr: 0.01" in solver.read_text()
    message, fix = complaint(init(photos, tmp_path, "-seed", "2"), 1)
    assert "-overwrite" in fix
    assert init(photos, tmp_path, "-overwrite").code == 0 and "base_lr: 0.05" in solver.read_text()


@pytest.mark.thorough
def test_it_trains_and_what_was_trained_classifies(photos, tmp_path):
    """Both printed commands are typed in. Guessing gives 0.33; pictures nobody has seen are told apart."""
    done = init(photos, tmp_path, "-train")
    assert done.code == 0, done.stderr
    accuracy = [float(v) for line in done.log for v in re.findall(r"accuracy = ([\d.e-]+)", line)]
    assert accuracy[-1] >= 0.9
    assert f"train:    pycaffe-lms train {Path('mynet/solver.prototxt')}" in done.out
    words = shlex.split(done.out.splitlines()[2].partition("pycaffe-lms ")[2])
    rng = np.random.default_rng(99)
    right = 0
    for name in CLASSES * 4:
        cv2.imwrite(str(tmp_path / "new.png"), stripes(name, rng))
        command = [w.replace("PICTURE", "new.png") for w in words]
        done = caffe(*command, cwd=tmp_path)
        assert done.code == 0, done.stderr
        right += done.out.splitlines()[1].split(maxsplit=1)[1] == name
    assert right >= 11


def test_gray_and_names_that_need_quotes(photos, tmp_path):
    done = caffe("init", "my net", "-images", str(photos), "-size", "16", "-gray", "-test_share", "0.4", cwd=tmp_path)
    assert done.code == 0, done.stderr
    assert done.out.splitlines()[0] == "my net: 3 classes, 45 pictures to train and 30 to test, 1 x 16 x 16"
    assert shlex.split(done.out.splitlines()[1])[-1] == "my net/solver.prototxt"
    assert read_net(tmp_path / "my net" / "deploy.prototxt").message.layer[0].input_param.shape[0].dim == [1, 1, 16, 16]
    assert caffe("plan", "-solver", "my net/solver.prototxt", "-summary", cwd=tmp_path).code == 0


def fake(folder, counts):
    for name, count in counts.items():
        (folder / name).mkdir(parents=True)
        for k in range(count):
            (folder / name / f"{k}.png").touch()
    return folder


def test_the_split(tmp_path):
    folder = fake(tmp_path / "in", {"a": 2, "b": 10, "c": 101})
    classes, parts = split(folder, 0.3, 0)
    assert classes == ["a", "b", "c"]
    assert np.bincount([label for _, label in parts["test"]]).tolist() == [1, 3, 30]
    assert np.bincount([label for _, label in parts["train"]]).tolist() == [1, 7, 71]
    assert split(folder, 0.3, 0)[1] == parts != split(folder, 0.3, 1)[1]
    many = fake(tmp_path / "many", {"a": 300, "b": 36})  # 60 + 7 = 67 for testing, a prime; 66 = 2 x 33
    _, parts = split(many, 0.2, 0)
    assert len(parts["test"]) == 66 and test_batch(66) == 33 and len(parts["train"]) == 336 - 66
    assert [test_batch(n) for n in (1, 64, 100, 128, 97)] == [1, 64, 50, 64, 1]


@pytest.mark.parametrize(
    "counts, words",
    [
        ({"only": 9}, "folders of classes: 1; there must be two or more"),
        ({"train": 9, "val": 9}, "the folders train, val are no classes"),
        ({"a": 9, "b": 1}, 'pictures of the class "b": 1'),
        ({"a": 9, "b": 0}, 'pictures of the class "b": 0'),
    ],
)
def test_folders_that_are_no_classes(tmp_path, counts, words):
    with pytest.raises(DataError, match=words) as error:
        split(fake(tmp_path / "in", counts), 0.2, 0)
    assert str(tmp_path / "in") in str(error.value) and error.value.fix


@pytest.mark.parametrize(
    "argv, code, words",
    [
        (["mynet"], 2, "-images is missing"),
        (["mynet", "-images", "none"], 1, "none: cannot read the folder"),
        (["mynet", "-images", ".", "-size", "4"], 2, "-size 4"),
        (["mynet", "-images", ".", "-test_share", "1"], 2, "-test_share 1.0"),
    ],
)
def test_what_a_user_gets_wrong(tmp_path, argv, code, words):
    message, _ = complaint(caffe("init", *argv, cwd=tmp_path), code)
    assert words in message and not list(tmp_path.iterdir())


def test_without_opencv_nothing_is_written(photos, tmp_path, monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    message, fix = complaint(init(photos, tmp_path), 1)
    assert "opencv-python-headless" in message and "pip install 'pycaffe-lms[image]'" in fix
    assert not list(tmp_path.iterdir())
