"""Caffe's data tools as commands: their files, words and exit codes."""

from __future__ import annotations

import gzip
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from pycaffe_lms.cli.main import main
from pycaffe_lms.data.database.datum import decode_datum, encode_datum
from pycaffe_lms.data.database.lmdb_writer import write_lmdb
from pycaffe_lms.data.database.open import open_database
from pycaffe_lms.data.transform.mean import load_mean
from pycaffe_lms.proto.caffe_pb2 import AnnotatedDatum
from tests.data.helpers import shared_db
from tests.data.test_raw_files import idx_bytes
from tests.layers.harness import LayerBench
from tests.shared_data import SHARED, needs_shared

TOOLS = Path(__file__).resolve().parents[2] / "tools"


@pytest.fixture
def said(tmp_path, monkeypatch, capsys):
    """Runs a command in tmp_path; (exit code, what it wrote to stderr)."""
    monkeypatch.chdir(tmp_path)

    def run(*argv):
        code = main([str(a) for a in argv])
        return code, capsys.readouterr().err

    return run


def labels(path, backend="lmdb"):
    source = open_database(path, backend)
    try:
        return {key: decode_datum(value, source="x")[1] for key, value in source.records()}
    finally:
        source.close()


@pytest.fixture
def pictures(tmp_path):
    """in/0.png .. in/4.png (colour, 4 x 6) and list.txt with labels 10 .. 14."""
    cv2 = pytest.importorskip("cv2")
    (tmp_path / "in").mkdir()
    for k in range(5):
        assert cv2.imwrite(str(tmp_path / "in" / f"{k}.png"), np.full((4, 6, 3), 10 * k, np.uint8))
    (tmp_path / "list.txt").write_text("".join(f"{k}.png {10 + k}\n" for k in range(5)))
    return tmp_path


def test_convert_imageset(pictures, said):
    code, err = said(
        "convert_imageset", "--backend=lmdb", "-resize_height=8", "-resize_width", "9", "in/", "list.txt", "db"
    )
    assert code == 0 and "A total of 5 images." in err and "Processed 5 files." in err
    assert labels("db") == {b"0000000%d_%d.png" % (k, k): 10 + k for k in range(5)}
    source = open_database("db", "lmdb")
    assert decode_datum(source.next()[1], source="x")[0].shape == (3, 8, 9)
    source.close()


def test_a_seed_repeats_a_shuffled_order(pictures, said):
    code, err = said("convert_imageset", "in/", "list.txt", "first", "-shuffle")  # flags may come last
    assert code == 0
    seed = re.search(r"Shuffling data \(-seed (\d+) repeats this order\)", err).group(1)
    assert said("convert_imageset", "-shuffle", "-seed", seed, "in/", "list.txt", "again")[0] == 0
    assert labels("first") == labels("again")


def test_pictures_left_out_are_counted_and_no_failure(pictures, said):
    (pictures / "in" / "3.png").write_bytes(b"\x89PNG\r\n\x1a\n")
    os.remove(pictures / "in" / "1.png")
    code, err = said("convert_imageset", "-gray", "in/", "list.txt", "db")
    assert code == 0
    assert "Could not open or find file in/1.png (left out): No such file" in err and "in/3.png" in err
    assert "2 of 5 pictures could not be read and were left out." in err and "Processed 3 files." in err
    assert list(labels("db")) == [b"00000000_0.png", b"00000002_2.png", b"00000004_4.png"]


@pytest.mark.parametrize(
    "argv, code, words",
    [
        (["list.txt", "db"], 2, "required: DB_NAME"),
        (["in/", "list.txt", "db", "more"], 2, "unexpected word 'more'"),
        (["-grey", "in/", "list.txt", "db"], 2, "unknown flag '-grey'; did you mean -gray?"),
        (["-backend=rocksdb", "in/", "list.txt", "db"], 2, "rocksdb"),
        (["-resize_width=8", "in/", "list.txt", "db"], 2, "are not a size"),
        (["-resize_width=8", "-resize_height=-8", "in/", "list.txt", "db"], 2, "are not a size"),
        (["-resize_shorter=8", "-resize_width=8", "-resize_height=8", "in/", "list.txt", "db"], 2, "with another size"),
        (["-resize_shorter=0", "in/", "list.txt", "db"], 2, "-resize_shorter 0 is not a number"),
        (
            ["-resize_width=99999", "-resize_height=99999", "in/", "list.txt", "db"],
            2,
            "99999 x 99999 pixels are larger",
        ),
        (["-resize_shorter=99999", "in/", "list.txt", "db"], 2, "99999 x 99999 pixels are larger"),
        (["-resize_width=wide", "in/", "list.txt", "db"], 2, "wide"),
        (["in/", "none.txt", "db"], 1, "none.txt: cannot read the list"),
        (["in/", "bad.txt", "db"], 1, "bad.txt:2: '1.png cat' is not a path, one space and a whole number"),
        (["other", "list.txt", "db"], 1, "not one of the 5 pictures"),
        (["-encode_type=xyz", "in/", "list.txt", "db"], 1, 'kind "xyz"'),
        (["in/", "list.txt", "in"], 1, "in: exists already"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_what_a_user_gets_wrong(pictures, said, argv, code, words):
    (pictures / "bad.txt").write_text("0.png 1\n1.png cat\n")
    found, err = said("convert_imageset", *argv)
    assert found == code and words in err and "  fix: " in err and "Traceback" not in err
    assert not (pictures / "db").exists() and len(os.listdir(pictures / "in")) == 5
    assert not [name for name in os.listdir(pictures) if "partial" in name]


@pytest.mark.skipif(os.name != "posix", reason="needs SIGINT")
def test_an_interrupted_run_cleans_up(pictures):
    (pictures / "list.txt").write_text("1.png 1\n" * 100_000)
    command = [sys.executable, TOOLS / "convert_imageset.py", "in/", "list.txt", "db"]
    said = ""
    with subprocess.Popen(command, cwd=pictures, stderr=subprocess.PIPE, text=True) as process:
        for line in process.stderr:
            said += line
            if "Processed 2000 files." in line:
                process.send_signal(signal.SIGINT)
    assert process.returncode == 130 and said.endswith("interrupted\n") and "Traceback" not in said
    assert sorted(os.listdir(pictures)) == ["in", "list.txt"]


def test_convert_mnist_data(tmp_path, said):
    images = np.arange(60, dtype=np.uint8).reshape(5, 3, 4)
    (tmp_path / "i").write_bytes(idx_bytes(images))
    (tmp_path / "l.gz").write_bytes(gzip.compress(idx_bytes(np.arange(5, dtype=np.uint8))))
    code, err = said("convert_mnist_data", "i", "l.gz", "db")
    assert code == 0 and "A total of 5 items." in err and "Rows: 3 Cols: 4" in err
    assert labels("db") == {b"%08d" % k: k for k in range(5)}
    code, err = said("convert_mnist_data", "i", "l.gz", "db")
    assert code == 0 and "db is there already: 5 records" in err
    (tmp_path / "l").write_bytes(idx_bytes(np.arange(1, 6, dtype=np.uint8)))
    code, err = said("convert_mnist_data", "i", "l", "db")
    assert code == 1 and "db: is there already" in err and "-overwrite" in err
    assert said("convert_mnist_data", "i", "l.gz", "db", "-overwrite")[0] == 0
    code, err = said("convert_mnist_data", "l.gz", "i", "other")
    assert code == 1 and "l.gz" in err and "fix" in err


def test_convert_mnist_siamese_data(tmp_path, said):
    pytest.importorskip("plyvel")
    (tmp_path / "i").write_bytes(idx_bytes(np.zeros((9, 3, 4), np.uint8)))
    (tmp_path / "l").write_bytes(idx_bytes(np.zeros(9, np.uint8)))
    code, err = said("convert_mnist_siamese_data", "i", "l", "db")
    assert code == 0 and "A total of 9 items." in err and "-seed" in err
    assert labels("db", "leveldb") == {b"%08d" % k: 1 for k in range(9)}


@pytest.mark.parametrize("argv", [["lmdb"], ["-backend=lmdb"], []])
def test_convert_cifar_data(tmp_path, said, argv):
    for name, first in (("data_batch_1", 0), ("data_batch_2", 2), ("test_batch", 4)):
        content = b"".join(bytes([k]) + bytes([k]) * 3072 for k in (first, first + 1))
        (tmp_path / f"{name}.bin").write_bytes(content)
    code, _ = said("convert_cifar_data", ".", "out", *argv)
    assert code == 0 and sorted(os.listdir("out")) == ["cifar10_test_lmdb", "cifar10_train_lmdb"]
    assert labels("out/cifar10_train_lmdb") == {b"%05d" % k: k for k in range(4)}
    assert labels("out/cifar10_test_lmdb") == {b"00000": 4, b"00001": 5}
    code, err = said("convert_cifar_data", ".", "out2", "rocks")
    assert code == 2 and "rocks" in err


def test_cifars_python_version_is_recognised_and_not_read(tmp_path, said):
    (tmp_path / "data_batch_1").write_bytes(b"\x80\x02cos\nsystem\n")
    code, err = said("convert_cifar_data", ".", "out", "lmdb")
    assert code == 1 and "Python version" in err and "cifar-10-binary.tar.gz" in err


def test_compute_image_mean(tmp_path, said):
    rng = np.random.default_rng(1)
    pictures = rng.integers(0, 256, (50, 2, 3, 4), np.uint8)
    write_lmdb(tmp_path / "db", ((b"%03d" % k, encode_datum(p)) for k, p in enumerate(pictures)))
    code, err = said("compute_image_mean", "db", "--backend=lmdb", "m.binaryproto")
    assert code == 0 and "Write to m.binaryproto" in err and "Number of channels: 2" in err
    means = [float(v) for v in re.findall(r"mean_value channel \[\d\]: (\S+)", err)]
    np.testing.assert_allclose(means, pictures.mean((0, 2, 3)), rtol=1e-5)
    np.testing.assert_allclose(load_mean("m.binaryproto"), pictures.mean(0), rtol=1e-6)
    os.remove("m.binaryproto")
    assert said("compute_image_mean", "db")[0] == 0 and os.listdir() == ["db"]
    code, err = said("compute_image_mean", "none", "m.binaryproto")
    assert code == 1 and "none: there is no database here" in err and os.listdir() == ["db"]


@needs_shared
def test_the_mean_file_is_byte_for_byte_caffes(tmp_path, said):
    database = shared_db("mnist300_lmdb", tmp_path)
    code, err = said("compute_image_mean", "-backend", "lmdb", database, "m")
    assert code == 0 and "Processed 300 files." in err
    assert (tmp_path / "m").read_bytes() == (SHARED / "data" / "db" / "mnist300_mean.binaryproto").read_bytes()


@needs_shared
@pytest.mark.parametrize("backend", ["lmdb", "leveldb"])
def test_the_first_digits_are_byte_for_byte_caffes(tmp_path, said, backend):
    if backend == "leveldb":
        pytest.importorskip("plyvel")
    with gzip.open(SHARED / "data" / "mnist" / "t10k-images-idx3-ubyte.gz") as images:
        head, pixels = images.read(16), images.read(300 * 784)
    with gzip.open(SHARED / "data" / "mnist" / "t10k-labels-idx1-ubyte.gz") as numbers:
        label_head, digits = numbers.read(8), numbers.read(300)
    count = (300).to_bytes(4, "big")
    (tmp_path / "i").write_bytes(head[:4] + count + head[8:] + pixels)
    (tmp_path / "l").write_bytes(label_head[:4] + count + digits)
    assert said("convert_mnist_data", f"-backend={backend}", "i", "l", "db")[0] == 0
    ours, theirs = open_database("db", backend), open_database(shared_db(f"mnist300_{backend}", tmp_path), backend)
    assert list(ours.records()) == list(theirs.records())
    ours.close()
    theirs.close()


def annotated(path):
    source = open_database(path, "lmdb")
    try:
        return [(key, AnnotatedDatum.FromString(value)) for key, value in source.records()]
    finally:
        source.close()


def test_convert_annoset_feeds_annotated_data(pictures, said):
    """Lists, label map and files in, a database out, which the layer reads."""
    (pictures / "map").write_text('item { name: "none" label: 0 } item { name: "cat" label: 2 }')
    for k in range(5):
        box = f"<xmin>{k}</xmin><ymin>0</ymin><xmax>6</xmax><ymax>2</ymax>"
        xml = f"<annotation><object><name>cat</name><bndbox>{box}</bndbox></object></annotation>"
        (pictures / "in" / f"{k}.xml").write_text(xml)
    (pictures / "pairs.txt").write_text("".join(f"{k}.png {k}.xml\n" for k in range(5)) + "none.png 0.xml\n")
    code, err = said(
        *("convert_annoset", "--anno_type=detection", "-label_map_file", "map", "-check_label", "--encoded"),
        *("-shuffle", "-seed", "3", "in/", "pairs.txt", "db"),
    )
    assert code == 0 and "A total of 6 images." in err and "1 of 6 pictures could not be read and were left out." in err
    found = annotated("db")
    names = [key.decode()[9:] for key, _ in found]
    assert sorted(names) == [f"{k}.png" for k in range(5)] != names
    for name, (_, record) in zip(names, found, strict=True):
        k, box = int(name[0]), record.annotation_group[0].annotation[0].bbox
        assert (
            record.datum.data == (pictures / "in" / name).read_bytes() and record.annotation_group[0].group_label == 2
        )
        assert [box.xmin, box.ymin, box.xmax, box.ymax] == [np.float32(k / 6), 0, 1, 0.5]
    text = 'data_param { source: "db" backend: LMDB batch_size: 5 }'
    bench = LayerBench("AnnotatedData", text, (), n_top=2)
    data, label = bench.forward([])
    bench.layer.close()
    assert data[:, 0, 0, 0].tolist() == [10 * int(name[0]) for name in names]
    np.testing.assert_allclose(label[0, 0, :5, 3], [int(name[0]) / 6 for name in names], rtol=1e-6)
    assert said("convert_annoset", "-min_dim", "8", "-max_dim=9", "in/", "list.txt", "labels")[0] == 0
    assert [(r.datum.label, r.datum.height, r.datum.width) for _, r in annotated("labels")] == [
        (10 + k, 6, 9) for k in range(5)
    ]


@pytest.mark.parametrize(
    "argv, code, words",
    [
        (["-anno_type", "detection"], 2, "-label_type xml needs the number of each name"),
        (["-label_map_file", "map"], 2, "-label_map_file has no effect on labels"),
        (["-anno_type", "detection", "-label_map_file", "map"], 1, "map"),
        (["-anno_type", "segmentation"], 2, "classification"),
        (["-anno_type", "detection", "-label_type", "csv"], 2, "xml"),
        (["-min_dim", "-1"], 2, "are not sizes"),
        (["-max_dim", "9", "-resize_height", "4", "-resize_width", "4"], 2, "with another size"),
        (["-anno_type", "detection", "-label_type", "txt"], 1, "in/10:1: 'one 2 3 4 5' is not a label"),
    ],
)
def test_convert_annoset_refuses(pictures, said, argv, code, words):
    (pictures / "in" / "10").write_text("one 2 3 4 5")
    found, err = said("convert_annoset", *argv, "in/", "list.txt", "db")
    assert found == code and words in err and not (pictures / "db").exists()


def test_get_image_size(pictures, said):
    cv2 = pytest.importorskip("cv2")
    assert cv2.imwrite(str(pictures / "in" / "wide one.jpg"), np.zeros((3, 70, 3), np.uint8))
    (pictures / "sized.txt").write_text("2.png a.xml\n\nwide one.jpg 7\n")
    assert said("get_image_size", "in", "sized.txt", "sizes.txt")[0] == 0
    assert (pictures / "sizes.txt").read_text() == "2 4 6\nwide one 3 70\n"
    (pictures / "ids").write_text("2 139\nwide one 5\n")
    assert said("get_image_size", "-name_id_file", "ids", "in/", "sized.txt", "sizes.txt")[0] == 0
    assert (pictures / "sizes.txt").read_text() == "139 4 6\n5 3 70\n"
    for text, words in (
        ("2 139\n", 'ids: there is no "wide one"'),
        ("2 139\n2 140\nwide one 5", 'ids:2: "2" is there twice'),
        ("2 139\nwide", "ids:2: 'wide' is not a name and a whole number"),
    ):
        (pictures / "ids").write_text(text)
        code, err = said("get_image_size", "-name_id_file", "ids", "in/", "sized.txt", "sizes.txt")
        assert code == 1 and words in err and "  fix: " in err
    (pictures / "sized.txt").write_text("2.png 1\nnone.png 1\n")
    code, err = said("get_image_size", "in/", "sized.txt", "new.txt")
    assert code == 1 and "sized.txt:2: none.png" in err and not (pictures / "new.txt").exists()


COMMANDS = (
    "convert_imageset",
    "convert_annoset",
    "get_image_size",
    "convert_mnist_data",
    "convert_mnist_siamese_data",
    "convert_cifar_data",
    "compute_image_mean",
    "dataset",
)


@pytest.mark.parametrize("action", COMMANDS)
def test_help_ends_with_an_example_that_names_the_command(action, capsys):
    with pytest.raises(SystemExit):
        main([action, "--help"])
    example = capsys.readouterr().out.partition("\nexample:\n")[2]
    assert example.startswith(f"  pycaffe-lms {action} ")
