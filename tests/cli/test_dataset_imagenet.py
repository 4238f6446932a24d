"""Folders of pictures as databases, lists and a mean."""

from pathlib import Path

import numpy as np
import pytest

from pycaffe_lms.cli.main import main
from pycaffe_lms.data.database.datum import decode_datum
from pycaffe_lms.data.database.lmdb_source import LMDBSource
from pycaffe_lms.data.transform.mean import load_mean
from pycaffe_lms.formats.prototxt.parser import read_net

cv2 = pytest.importorskip("cv2")


@pytest.fixture
def tree(tmp_path, monkeypatch):
    """in/train: cat 0..3, ape 0..1; in/val: ape 0, cat 0. Picture k of class c is 10 * k + 100 * (c == "cat")."""
    monkeypatch.chdir(tmp_path)
    for part, numbers in {"train": {"cat": 4, "ape": 2}, "val": {"cat": 1, "ape": 1}}.items():
        for name, count in numbers.items():
            folder = tmp_path / "in" / part / name
            folder.mkdir(parents=True)
            for k in range(count):
                value = 10 * k + 100 * (name == "cat")
                assert cv2.imwrite(str(folder / f"{k}.png"), np.full((5, 9, 3), value, np.uint8))
    return tmp_path


def contents(path):
    """{name: (value of all pixels, label)}, and the names in their order."""
    with LMDBSource(path) as source:
        found = [(key.decode().partition("_")[2], *decode_datum(v, source="x")) for key, v in source.records()]
    assert all((array == array.flat[0]).all() and array.shape == (3, 6, 8) for _, array, _ in found)
    return {name: (int(array.flat[0]), label) for name, array, label in found}, [name for name, *_ in found]


def dataset(*argv):
    return main(["dataset", "imagenet", "-from", "in", "-resize_height=6", "-resize_width=8", *argv])


def test_a_folder_per_class(tree, capsys):
    assert dataset() == 0
    out = tree / "data" / "ilsvrc12"
    assert (out / "synsets.txt").read_text() == "ape\ncat\n"
    train = ["ape/0.png 0", "ape/1.png 0", "cat/0.png 1", "cat/1.png 1", "cat/2.png 1", "cat/3.png 1"]
    assert (out / "train.txt").read_text().splitlines() == train
    assert (out / "val.txt").read_text() == "ape/0.png 0\ncat/0.png 1\n"
    found, order = contents(out / "ilsvrc12_train_lmdb")
    assert found == {
        f"{name}/{k}.png": (10 * k + 100 * label, label)
        for name, label, count in (("ape", 0, 2), ("cat", 1, 4))
        for k in range(count)
    }
    assert order != [line.split()[0] for line in train]  # shuffled
    assert contents(out / "ilsvrc12_val_lmdb")[0] == {"ape/0.png": (0, 0), "cat/0.png": (100, 1)}
    mean = (0 + 10 + 100 + 110 + 120 + 130) / 6
    np.testing.assert_allclose(load_mean(out / "imagenet_mean.binaryproto"), np.full((3, 6, 8), mean), rtol=1e-6)
    assert "train: data/ilsvrc12/ilsvrc12_train_lmdb" in capsys.readouterr().out


def test_the_models_read_what_it_writes(tree):
    """Paths and the size of pictures that the model of ImageNet is written for."""
    root = Path(__file__).resolve().parents[2]
    data = [
        layer
        for layer in read_net(root / "models" / "alexnet" / "train_val.prototxt").message.layer
        if layer.type == "Data"
    ]
    assert main(["dataset", "imagenet", "-from", "in"]) == 0
    for layer in data:
        with LMDBSource(layer.data_param.source) as source:
            assert decode_datum(source.next()[1], source="x")[0].shape == (3, 256, 256)
        assert load_mean(layer.transform_param.mean_file).shape == (3, 256, 256)


def test_seeds_and_synsets(tree):
    (tree / "in" / "synsets.txt").write_text("cat a pet\nape\ndog\n")
    assert dataset("-out", "a") == dataset("-out", "b") == dataset("-out", "c", "-seed", "1") == 0
    orders = [contents(tree / name / "ilsvrc12_train_lmdb")[1] for name in "abc"]
    assert orders[0] == orders[1] != orders[2]
    assert contents(tree / "a" / "ilsvrc12_val_lmdb")[0] == {"ape/0.png": (0, 1), "cat/0.png": (100, 0)}
    assert dataset("-out", "d", "-synsets", "in/none.txt") == 1


def test_a_flat_val_with_its_list(tree, capsys):
    for name in ("cat", "ape"):
        (tree / "in" / "val" / name / "0.png").rename(tree / "in" / "val" / f"{name}0.png")
        (tree / "in" / "val" / name).rmdir()
    assert dataset() == 1
    assert "no list that tells the classes" in capsys.readouterr().err and not (tree / "data").exists()
    (tree / "in" / "val.txt").write_text("cat0.png 1\nape0.png 2\n")
    assert dataset() == 1
    said = capsys.readouterr().err
    assert "val.txt:2: ape0.png: label 2, but there are 2 classes" in said and not (tree / "data").exists()
    (tree / "in" / "right.txt").write_text("cat0.png 1\nape0.png 0\n")
    assert dataset("-val_list", "in/right.txt") == 0
    assert contents("data/ilsvrc12/ilsvrc12_val_lmdb")[0] == {"ape0.png": (0, 0), "cat0.png": (100, 1)}


def test_pictures_left_out_existing_databases_and_no_val(tree, capsys):
    (tree / "in" / "train" / "cat" / "1.png").write_bytes(b"x")
    (tree / "in" / "val").rename(tree / "in" / "later")
    assert dataset("-name", "pets", "-encoded") == 0
    said = capsys.readouterr()
    assert "1 of 6 pictures could not be read" in said.err and "no folder val" in said.err
    found, _ = contents("data/ilsvrc12/pets_train_lmdb")
    assert len(found) == 5 and not (tree / "data" / "ilsvrc12" / "pets_val_lmdb").exists()
    assert dataset("-name", "pets", "-encoded") == 0
    said = capsys.readouterr().err
    assert "pets_train_lmdb is there already: 5 records, 1 pictures left out; 5 were compared" in said
    assert dataset("-name", "pets") == 1  # not encoded
    said = capsys.readouterr().err
    assert "pets_train_lmdb: is there already, but" in said and "-overwrite" in said
    assert dataset("-name", "pets", "-overwrite") == 0


def test_a_second_run_writes_nothing_and_sees_other_pictures(tree, capsys):
    assert dataset() == 0
    written = {p: p.stat().st_mtime_ns for p in (tree / "data").rglob("*") if p.is_file() and p.name != "lock.mdb"}
    capsys.readouterr()
    assert dataset() == 0
    said = capsys.readouterr()
    assert said.err.count("is there already") == 2 and "mean: data/ilsvrc12/imagenet_mean.binaryproto" in said.out
    assert {p: p.stat().st_mtime_ns for p in written} == written
    assert cv2.imwrite(str(tree / "in" / "val" / "ape" / "0.png"), np.full((5, 9, 3), 77, np.uint8))
    assert dataset() == 1
    said = capsys.readouterr().err
    assert "ilsvrc12_val_lmdb: is there already, but" in said and "ape/0.png, is another one" in said
    (tree / "in" / "val" / "ape" / "1.png").write_bytes((tree / "in" / "val" / "ape" / "0.png").read_bytes())
    assert dataset() == 1
    said = capsys.readouterr().err
    assert "val.txt: exists already and says something else" in said and "-overwrite" in said


def test_the_shorter_side_keeps_the_proportions(tree):
    assert main(["dataset", "imagenet", "-from", "in", "-resize_shorter", "10", "-encode_type=jpg"]) == 0
    assert not (tree / "data" / "ilsvrc12" / "imagenet_mean.binaryproto").exists()
    with LMDBSource("data/ilsvrc12/ilsvrc12_train_lmdb") as source:
        value = source.next()[1]
        assert decode_datum(value, source="x")[0].shape == (3, 10, 18) and b"JFIF" in value[:40]


def test_without_a_size_there_is_no_mean(tree):
    assert main(["dataset", "imagenet", "-from", "in", "-resize_height=0", "-resize_width=0"]) == 0
    assert not (tree / "data" / "ilsvrc12" / "imagenet_mean.binaryproto").exists()
    with LMDBSource("data/ilsvrc12/ilsvrc12_train_lmdb") as source:
        assert decode_datum(source.next()[1], source="x")[0].shape == (3, 5, 9)


@pytest.mark.parametrize(
    "argv, code, words",
    [
        (["imagenet"], 2, "-from is missing"),
        (["imagenet", "-from", "nowhere"], 1, "cannot read the folder"),
        (["-out", "x", "imagenet"], 2, "write the name first"),
        (["imagenett"], 2, "imagenett"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_what_a_user_gets_wrong(tree, capsys, argv, code, words):
    assert main(["dataset", *argv]) == code
    said = capsys.readouterr().err
    assert words in said and "fix: " in said


def test_a_class_whose_name_no_list_can_hold(tree, capsys):
    (tree / "in" / "train" / "cat").rename(tree / "in" / "train" / "house cat")
    assert dataset() == 1
    assert "'house cat' has spaces" in capsys.readouterr().err
