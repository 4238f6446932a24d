"""Write pictures of a list to a database: keys, Datums, kinds, order, what is left out, killed runs."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from pycaffe_lms.data.database.open import open_database
from pycaffe_lms.data.feed.image_list import ImageList
from pycaffe_lms.data.sets.conversion import shuffled
from pycaffe_lms.data.sets.imageset import Converted, PictureForm, convert_imageset
from pycaffe_lms.errors import DataError, MissingDependency
from pycaffe_lms.proto.caffe_pb2 import Datum
from tests.data.helpers import shared_db
from tests.shared_data import SHARED, needs_shared

cv2 = pytest.importorskip("cv2")
ROOT = Path(__file__).resolve().parents[2]


def read(path, backend="lmdb"):
    source = open_database(path, backend)
    try:
        return list(source.records())
    finally:
        source.close()


def listed(folder, names, text=None):
    """Noise pictures of 6 x 8 (colour) under `names`, label = place; the list."""
    rng = np.random.default_rng(5)
    pixels = {}
    for name in names:
        pixels[name] = rng.integers(0, 256, (6, 8, 3), np.uint8)
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        assert cv2.imwrite(str(folder / name), pixels[name])
    (folder / "list").write_text(text or "".join(f"{name} {k}\n" for k, name in enumerate(names)))
    return ImageList(folder / "list"), pixels


def test_raw_records_field_by_field(tmp_path):
    images, pixels = listed(tmp_path, ["a.png", "b c/d.png"])
    assert convert_imageset(f"{tmp_path}/", images, tmp_path / "db") == Converted(2, 0)
    records = read(tmp_path / "db")
    assert [key for key, _ in records] == [b"00000000_a.png", b"00000001_b c/d.png"]
    for k, (name, (_, value)) in enumerate(zip(pixels, records, strict=True)):
        head = bytes([0x08, 3, 0x10, 6, 0x18, 8, 0x22, 0x90, 1])  # channels, height, width, 144 bytes
        assert value == head + pixels[name].transpose(2, 0, 1).tobytes() + bytes([0x28, k, 0x38, 0])  # label, encoded


@pytest.mark.parametrize("backend", ["lmdb", "leveldb"])
def test_both_backends_hold_the_same(tmp_path, backend):
    if backend == "leveldb":
        pytest.importorskip("plyvel")
    images, pixels = listed(tmp_path, ["a.png", "b.png"])
    convert_imageset(f"{tmp_path}/", images, tmp_path / "db", backend=backend)
    found = [Datum.FromString(value) for _, value in read(tmp_path / "db", backend)]
    assert [d.data for d in found] == [p.transpose(2, 0, 1).tobytes() for p in pixels.values()]


def test_gray_and_size_are_opencvs(tmp_path):
    images, pixels = listed(tmp_path, ["a.png"])
    convert_imageset(f"{tmp_path}/", images, tmp_path / "db", PictureForm(gray=True, size=(3, 5)))
    datum = Datum.FromString(read(tmp_path / "db")[0][1])
    want = cv2.resize(cv2.imread(str(tmp_path / "a.png"), cv2.IMREAD_GRAYSCALE), (5, 3))
    assert (datum.channels, datum.height, datum.width) == (1, 3, 5) and datum.data == want.tobytes()


@pytest.mark.parametrize("shape, want", [((6, 8), (3, 4)), ((9, 4), (6, 3)), ((5, 5), (3, 3)), ((2, 7), (3, 10))])
def test_the_shorter_side(tmp_path, shape, want):
    images, _ = listed(tmp_path, ["a.png"])
    pixels = np.random.default_rng(2).integers(0, 256, (*shape, 3), np.uint8)
    cv2.imwrite(str(tmp_path / "a.png"), pixels)
    convert_imageset(f"{tmp_path}/", images, tmp_path / "db", PictureForm(shorter_side=3))
    datum = Datum.FromString(read(tmp_path / "db")[0][1])
    assert (datum.height, datum.width) == want
    assert datum.data == cv2.resize(pixels, want[::-1]).transpose(2, 0, 1).tobytes()


def test_a_thread_of_pixels_is_left_out(tmp_path, caplog):
    images, _ = listed(tmp_path, ["a.png", "b.png"])
    cv2.imwrite(str(tmp_path / "b.png"), np.zeros((1, 30_000, 3), np.uint8))
    assert convert_imageset(f"{tmp_path}/", images, tmp_path / "db", PictureForm(shorter_side=256)) == Converted(1, 1)
    assert "256 x 7680000 pixels" in caplog.text


@pytest.mark.parametrize(
    "name, form, same",
    [
        ("a.png", {}, True),
        ("a.PNG", {"encode_type": "png"}, True),
        ("a.jpeg", {"encode_type": "jpg"}, True),
        ("a.jpg", {"encode_type": "jpeg"}, False),  # Caffe's rule goes one way only
        ("a.jpg", {"gray": True}, True),  # Caffe stores the file although it has colours
        ("a.jpg", {"encode_type": "png"}, False),
        ("a.png", {"size": (4, 5)}, False),
        ("a.png", {"size": (6, 8)}, True),  # has that size; Caffe encodes it again
        ("a.jpg", {"size": (6, 8)}, True),
        ("a.jpg", {"shorter_side": 6}, True),
        ("a.jpg", {"size": (6, 8), "encode_type": "png"}, False),
        ("a.png", {"size": (6, 8), "gray": True}, False),
        ("a.jpg", {"size": (6, 8), "gray": True}, False),
    ],
)
def test_encoded_keeps_the_file_where_nothing_has_to_change(tmp_path, name, form, same):
    images, _ = listed(tmp_path, [name])
    convert_imageset(f"{tmp_path}/", images, tmp_path / "db", PictureForm(encoded=True, **form))
    datum = Datum.FromString(read(tmp_path / "db")[0][1])
    assert datum.encoded and datum.label == 0
    assert not any(datum.HasField(f) for f in ("channels", "height", "width"))
    assert (datum.data == (tmp_path / name).read_bytes()) is same
    if not same:
        kind = form.get("encode_type", name.rpartition(".")[2])
        pixels = cv2.imread(str(tmp_path / name), cv2.IMREAD_GRAYSCALE if form.get("gray") else cv2.IMREAD_COLOR)
        pixels = cv2.resize(pixels, form["size"][::-1]) if "size" in form else pixels
        assert datum.data == cv2.imencode(f".{kind}", pixels)[1].tobytes()


@pytest.mark.parametrize("form", [{}, {"size": (6, 8)}, {"shorter_side": 6}, {"gray": True, "size": (6, 8)}])
def test_a_kept_jpeg_gives_the_record_that_its_pixels_give(tmp_path, monkeypatch, caplog, form):
    """The same records and the same reports, whether JPEGs are decoded to an eighth or whole; cut ones among them."""
    names = [f"{k}.jpg" for k in range(30)]
    images, pixels = listed(tmp_path, names)
    cv2.imwrite(str(tmp_path / "1.jpg"), np.zeros((8, 6, 3), np.uint8))
    cv2.imwrite(str(tmp_path / "2.jpg"), pixels["2.jpg"][..., 0])
    data = (tmp_path / "3.jpg").read_bytes()
    for k in range(4, 28):
        (tmp_path / f"{k}.jpg").write_bytes(data[: len(data) * k // 28])
    found = []
    for whole in (False, True):
        if whole:
            monkeypatch.setattr("pycaffe_lms.data.sets.imageset.usual_jpeg_shape", lambda *a, **k: None)
        caplog.clear()
        done = convert_imageset(
            f"{tmp_path}/", images, tmp_path / str(whole), PictureForm(encoded=True, encode_type="jpg", **form)
        )
        found.append((done, read(tmp_path / str(whole)), [r.message for r in caplog.records if r.levelname == "ERROR"]))
    assert found[0] == found[1] and found[0][0].written >= 6 and found[0][0].skipped > 15


def test_what_cannot_be_encoded(tmp_path):
    images, _ = listed(tmp_path, ["a.png"])
    with pytest.raises(DataError, match='kind "xyz"') as caught:
        convert_imageset(f"{tmp_path}/", images, tmp_path / "db", PictureForm(encoded=True, encode_type="xyz"))
    assert "list:1: a.png" in str(caught.value)
    (tmp_path / "plain").write_bytes((tmp_path / "a.png").read_bytes())
    (tmp_path / "list").write_text("plain 0\n")
    with pytest.raises(DataError, match="does not tell"):
        convert_imageset(f"{tmp_path}/", ImageList(tmp_path / "list"), tmp_path / "db", PictureForm(encoded=True))
    assert not (tmp_path / "db").exists()


def test_unreadable_pictures_are_left_out_and_their_numbers_stay_unused(tmp_path, caplog):
    text = "a.png 0\nnone.png 1\nb.png 2\ntext.png 3\nc\0d.png 4\n"
    images, _ = listed(tmp_path, ["a.png", "b.png"], text)
    (tmp_path / "text.png").write_text("no picture")
    told = []
    with caplog.at_level(logging.ERROR):
        done = convert_imageset(f"{tmp_path}/", images, tmp_path / "db", progress=lambda *at: told.append(at))
    assert done == Converted(2, 3)
    assert [key for key, _ in read(tmp_path / "db")] == [b"00000000_a.png", b"00000002_b.png"]
    assert [r.message.split(" (left out)")[0] for r in caplog.records] == [
        f"Could not open or find file {tmp_path}/{name}" for name in ("none.png", "text.png", "c\0d.png")
    ]
    assert told == [(1, 5), (1, 4), (2, 4), (2, 3), (2, 2)]


def test_not_one_readable_picture_leaves_no_database(tmp_path):
    images, _ = listed(tmp_path, ["a.png"])
    with pytest.raises(DataError, match="not one of the 1") as caught:
        convert_imageset(f"{tmp_path}/other", images, tmp_path / "db")
    assert "root folder" in caught.value.fix and sorted(os.listdir(tmp_path)) == ["a.png", "list"]


@pytest.mark.parametrize("root", ["{}", "{}/", "{}/pictures of "])
def test_the_root_may_lack_its_slash_or_be_no_folder(root, tmp_path):
    names = ["a.png", "b.png"]
    images, _ = listed(tmp_path, names)
    if root.endswith(" "):
        for name in names:
            (tmp_path / name).rename(tmp_path / f"pictures of {name}")
    assert convert_imageset(root.format(tmp_path), images, tmp_path / "db").written == 2


@pytest.mark.parametrize("encoded", [False, True])
def test_check_size(tmp_path, encoded):
    images, _ = listed(tmp_path, ["a.png", "b.png", "c.png"])
    form = PictureForm(check_size=True, encoded=encoded)
    assert convert_imageset(f"{tmp_path}/", images, tmp_path / "same", form).written == 3
    cv2.imwrite(str(tmp_path / "b.png"), np.zeros((8, 6, 3), np.uint8))
    with pytest.raises(DataError, match=r"\(3, 8, 6\), of the first picture \(3, 6, 8\)") as caught:
        convert_imageset(f"{tmp_path}/", images, tmp_path / "db", form)
    assert "list:2: b.png" in str(caught.value) and not (tmp_path / "db").exists()


def test_a_shuffled_order_depends_on_the_seed_alone(tmp_path, monkeypatch):
    names = [f"{k}.png" for k in range(40)]
    images, _ = listed(tmp_path, names)
    for threads, path in (("1", "one"), ("5", "five")):
        monkeypatch.setenv("OMP_NUM_THREADS", threads)
        convert_imageset(f"{tmp_path}/", images, tmp_path / path, order=shuffled(40, 7))
    assert read(tmp_path / "one") == read(tmp_path / "five")
    in_turn = [key.decode().partition("_")[2] for key, _ in read(tmp_path / "one")]
    assert [key[:8] for key, _ in read(tmp_path / "one")] == [b"%08d" % k for k in range(40)]
    assert sorted(in_turn) == sorted(names) and in_turn != names
    assert in_turn != [names[k] for k in shuffled(40, 8)] and shuffled(40, 7).tolist() == shuffled(40, 7).tolist()


def test_processes_write_what_one_thread_writes(tmp_path, monkeypatch, caplog):
    names = [f"{k}.{'jpg' if k % 3 else 'png'}" for k in range(50)]
    images, _ = listed(tmp_path, names)
    (tmp_path / "7.jpg").write_text("no picture")
    (tmp_path / "20.jpg").unlink()
    found = []
    for threads, many in (("1", 2000), ("3", 1)):
        monkeypatch.setenv("OMP_NUM_THREADS", threads)
        monkeypatch.setattr("pycaffe_lms.data.sets.imageset._MANY", many)
        caplog.clear()
        form = PictureForm(encoded=True, encode_type="jpg", size=(6, 8))  # the PNGs are encoded, the JPEGs are kept
        done = convert_imageset(f"{tmp_path}/", images, tmp_path / threads, form, order=shuffled(50, 7))
        found.append((done, read(tmp_path / threads), [r.message for r in caplog.records if r.levelname == "ERROR"]))
    assert found[0] == found[1] and found[0][0] == Converted(48, 2)


def test_an_error_of_a_process_names_the_picture(tmp_path, monkeypatch):
    images, _ = listed(tmp_path, ["a.png", "b.png"], "a.png 0\nb 1\n")
    (tmp_path / "b.png").rename(tmp_path / "b")
    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    monkeypatch.setattr("pycaffe_lms.data.sets.imageset._MANY", 1)
    with pytest.raises(DataError, match="does not tell") as caught:
        convert_imageset(f"{tmp_path}/", images, tmp_path / "db", PictureForm(encoded=True))
    assert "list:2: b" in str(caught.value) and "-encode_type" in caught.value.fix
    assert not (tmp_path / "db").exists()


def test_an_existing_database_is_refused_before_any_work(tmp_path, monkeypatch):
    images, _ = listed(tmp_path, ["a.png"])
    convert_imageset(f"{tmp_path}/", images, tmp_path / "db")
    monkeypatch.setattr("pycaffe_lms.data.sets.imageset.decode_pixels", lambda *a, **k: pytest.fail("decoded"))
    with pytest.raises(DataError, match="exists already"):
        convert_imageset(f"{tmp_path}/", images, tmp_path / "db")


def test_without_opencv(tmp_path, monkeypatch):
    images, _ = listed(tmp_path, ["a.png"])
    monkeypatch.setitem(sys.modules, "cv2", None)
    with pytest.raises(MissingDependency, match=r"pip install 'pycaffe-lms\[image\]'"):
        convert_imageset(f"{tmp_path}/", images, tmp_path / "db")
    assert not (tmp_path / "db").exists()


@pytest.mark.skipif(os.name != "posix", reason="needs SIGKILL")
@pytest.mark.parametrize(
    "backend, marker", [("lmdb", "data.mdb"), pytest.param("leveldb", "CURRENT", marks=pytest.mark.thorough)]
)
def test_a_killed_run_leaves_no_database(tmp_path, caplog, backend, marker):
    if backend == "leveldb":
        pytest.importorskip("plyvel")
    listed(tmp_path, ["a.png"], "a.png 1\n" * 100_000)
    command = [
        sys.executable,
        "-m",
        "pycaffe_lms",
        "convert_imageset",
        f"-backend={backend}",
        "-resize_height=64",
        "-resize_width=64",
        f"{tmp_path}/",
        str(tmp_path / "list"),
        str(tmp_path / "db"),
    ]
    with subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE, text=True) as process:
        for line in process.stderr:  # in the middle: some thousand records have been committed
            if "Processed 2000 files." in line:
                break
        assert process.poll() is None
        process.send_signal(signal.SIGKILL)
        process.communicate(timeout=60)  # ends when its processes, which write there too, have ended
    partial = [p for p in tmp_path.iterdir() if p.name.startswith(".db.") and p.suffix == ".partial"]
    assert len(partial) == 1 and (partial[0] / marker).exists() and not (tmp_path / "db").exists()
    with pytest.raises(DataError, match="no database here"):
        open_database(tmp_path / "db", backend)
    (tmp_path / "list").write_text("a.png 1\n")
    with caplog.at_level(logging.INFO, "pycaffe_lms"):
        convert_imageset(f"{tmp_path}/", ImageList(tmp_path / "list"), tmp_path / "db", backend=backend)
    assert f"Removed {partial[0]}, which an ended run left." in [r.message for r in caplog.records]
    assert not [p for p in tmp_path.iterdir() if p.name.startswith(".db.")]


@needs_shared
def test_records_are_byte_for_byte_what_caffe_wrote(tmp_path):
    """cat, fish-bike and cat_gray, as the files they are and raw at 64 x 80."""
    (tmp_path / "list").write_text("cat.jpg 281\nfish-bike.jpg 1\ncat_gray.jpg 281\n")
    images, root = ImageList(tmp_path / "list"), f"{SHARED / 'data' / 'images'}/"
    for name, form in (("encoded", PictureForm(encoded=True)), ("raw", PictureForm(size=(64, 80)))):
        convert_imageset(root, images, tmp_path / name, form)
        theirs = read(shared_db(f"images_{name}_lmdb", tmp_path))
        ours = read(tmp_path / name)
        assert [key for key, _ in ours] == [key for key, _ in theirs]
        for (_, mine), (_, caffes) in zip(ours, theirs, strict=True):
            if name == "encoded":
                assert mine == caffes
            else:  # what a JPEG decodes to may differ by a step between versions of its library
                a, b = Datum.FromString(mine), Datum.FromString(caffes)
                steps = np.frombuffer(a.data, np.uint8).astype(int) - np.frombuffer(b.data, np.uint8)
                assert abs(steps).max() <= 2
                b.data = a.data
                assert mine == b.SerializeToString()


@needs_shared
def test_pictures_encoded_again_are_those_of_caffe(tmp_path):
    """32 x 32 as PNG, which loses nothing, in a LevelDB."""
    pytest.importorskip("plyvel")
    (tmp_path / "list").write_text("cat.jpg 281\nfish-bike.jpg 1\ncat_gray.jpg 281\n")
    form = PictureForm(encoded=True, encode_type="png", size=(32, 32))
    convert_imageset(
        f"{SHARED / 'data' / 'images'}/", ImageList(tmp_path / "list"), tmp_path / "db", form, backend="leveldb"
    )
    theirs = read(shared_db("images_encoded_leveldb", tmp_path), "leveldb")
    for (key, mine), (their_key, caffes) in zip(read(tmp_path / "db", "leveldb"), theirs, strict=True):
        a, b = Datum.FromString(mine), Datum.FromString(caffes)
        assert key == their_key and (a.label, a.encoded) == (b.label, b.encoded) and not a.HasField("width")
        decoded = [cv2.imdecode(np.frombuffer(d.data, np.uint8), cv2.IMREAD_UNCHANGED).astype(int) for d in (a, b)]
        assert decoded[0].shape == (32, 32, 3) and abs(decoded[0] - decoded[1]).max() <= 2
