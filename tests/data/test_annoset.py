"""Databases of pictures with boxes: bytes of records, objects of every kind of file, sizes, what is wrong."""

from __future__ import annotations

import json
import struct

import numpy as np
import pytest

from pycaffe_lms.data.database.open import open_database
from pycaffe_lms.data.feed.image_list import ImageList
from pycaffe_lms.data.sets.annoset import AnnotationForm, AnnotationList, convert_annoset
from pycaffe_lms.data.sets.annotations import read_label_map
from pycaffe_lms.data.sets.conversion import shuffled
from pycaffe_lms.data.sets.imageset import Converted, PictureForm
from pycaffe_lms.errors import CaffeError, DataError, PrototxtError
from pycaffe_lms.proto.caffe_pb2 import AnnotatedDatum

cv2 = pytest.importorskip("cv2")

LABELS = {"none_of_the_above": 0, "cat": 3, "dog": 7, "18": 18}
PIXELS = np.random.default_rng(6).integers(0, 256, (10, 20, 3), np.uint8)
VOC = """<annotation>
  <size><width>20</width><height>10</height><depth>3</depth></size>
  <object><name>dog</name><difficult>1</difficult>
    <bndbox><xmin>2</xmin><ymin>1</ymin><xmax>10</xmax><ymax>5</ymax></bndbox>
    <part><name>head</name><bndbox><xmin>3</xmin><ymin>1</ymin><xmax>4</xmax><ymax>2</ymax></bndbox></part>
  </object>
  <object><name>cat</name><bndbox><xmin>0</xmin><ymin>0</ymin><xmax>20</xmax><ymax>10</ymax></bndbox>
    <difficult>0</difficult></object>
  <object><name>dog</name><bndbox><xmin>5.5</xmin><ymin>2</ymin><xmax>15</xmax><ymax>9</ymax></bndbox></object>
</annotation>"""
COCO = json.dumps(
    {
        "image": {"width": 20, "height": 10, "file_name": "a.png"},
        "annotation": [
            {"category_id": 18, "bbox": [2, 1, 8, 4], "iscrowd": 1},
            {"category_id": "cat", "bbox": [0, 0, 20, 10]},
            {"category_id": 18, "bbox": [5.5, 2, 9.5, 7], "iscrowd": 0},
        ],
    }
)
TEXT = "7 2 1 10 5\n\n3 0 0 20 10\n7 5.5 2 15 9\n"
OBJECTS = [(7, 0, (0.1, 0.1, 0.5, 0.5), 1), (7, 1, (0.275, 0.2, 0.75, 0.9), 0), (3, 0, (0, 0, 1, 1), 0)]


@pytest.fixture
def folder(tmp_path):
    """in/a.png of 10 x 20, its objects in three kinds of file, a list of each, and the label map."""
    (tmp_path / "in").mkdir()
    assert cv2.imwrite(str(tmp_path / "in" / "a.png"), PIXELS)
    for kind, text in (("xml", VOC), ("json", COCO), ("txt", TEXT)):
        (tmp_path / "in" / f"a.{kind}").write_text(text)
        (tmp_path / f"{kind}.list").write_text(f"a.png a.{kind}\n")
    (tmp_path / "map").write_text("".join(f'item {{ name: "{n}" label: {k} }}\n' for n, k in LABELS.items()))
    return tmp_path


def records(path):
    source = open_database(path, "lmdb")
    try:
        return list(source.records())
    finally:
        source.close()


def convert(folder, kind="xml", listed=None, **form):
    """Convert a list; returns (counts, records)."""
    images = AnnotationList(listed or folder / f"{kind}.list")
    picture = PictureForm(**{k: form.pop(k) for k in list(form) if k in PictureForm.__dataclass_fields__})
    path = folder / f"db{len(list(folder.iterdir()))}"
    done = convert_annoset(
        f"{folder}/in", images, path, AnnotationForm(picture, label_type=kind, labels=LABELS, **form)
    )
    return done, records(path)


def flat(record):
    return [
        (group.group_label, one.instance_id, (box.xmin, box.ymin, box.xmax, box.ymax), box.difficult)
        for group in record.annotation_group
        for one in group.annotation
        for box in [one.bbox]
    ]


@pytest.mark.parametrize("kind", ["xml", "json", "txt"])
def test_objects_of_every_kind_of_file(folder, kind):
    done, [(key, value)] = convert(folder, kind)
    assert done == Converted(1, 0) and key == b"00000000_a.png"
    record = AnnotatedDatum.FromString(value)
    assert record.HasField("type") and record.type == AnnotatedDatum.BBOX
    assert record.datum.data == PIXELS.transpose(2, 0, 1).tobytes() and record.datum.label == -1
    for found, (label, instance, box, difficult) in zip(flat(record), OBJECTS, strict=True):
        label = 18 if kind == "json" and label == 7 else label
        assert found[:2] == (label, instance) and found[3] == (bool(difficult) and kind != "txt")
        assert found[2] == tuple(float(np.float32(v)) for v in box)


def test_an_empty_text_file_is_a_picture_without_objects(folder):
    (folder / "in" / "a.txt").write_text("")
    assert flat(AnnotatedDatum.FromString(convert(folder, "txt")[1][0][1])) == []


def varint(number):
    number &= 2**64 - 1
    out = b""
    while number > 127:
        out, number = out + bytes([number & 127 | 128]), number >> 7
    return out + bytes([number])


def field(number, content):
    """One field on the wire: an integer, or bytes with their length."""
    if isinstance(content, bytes):
        return varint(number << 3 | 2) + varint(len(content)) + content
    return varint(number << 3) + varint(content)


def test_records_byte_by_byte(folder):
    """As the fork's protobuf writes them: every field that its code sets, in the order of numbers."""
    box = b"".join(varint(n << 3 | 5) + struct.pack("<f", v) for n, v in enumerate((0.1, 0.1, 0.5, 0.5), 1))
    (folder / "in" / "a.xml").write_text(VOC.partition("  <object><name>cat")[0] + "</annotation>")
    annotation = field(1, 0) + field(2, box + field(6, 1))
    objects = field(3, field(1, 7) + field(2, annotation))
    raw = field(1, 3) + field(2, 10) + field(3, 20) + field(4, PIXELS.transpose(2, 0, 1).tobytes())
    _, [(_, value)] = convert(folder)
    assert value == field(1, raw + field(5, -1) + field(7, 0)) + field(2, 0) + objects
    data = (folder / "in" / "a.png").read_bytes()
    _, [(_, value)] = convert(folder, encoded=True)
    head = field(1, 3) + field(2, 10) + field(3, 20) + field(4, data)
    assert value == field(1, head + field(5, -1) + field(7, 1)) + field(2, 0) + objects


def test_a_classification_set(folder):
    (folder / "list").write_text("a.png 12\n")
    convert_annoset(f"{folder}/in/", ImageList(folder / "list"), folder / "db", AnnotationForm())
    record = AnnotatedDatum.FromString(records(folder / "db")[0][1])
    assert record.datum.label == 12 and not record.HasField("type") and not record.annotation_group


@pytest.mark.parametrize(
    "form, size",
    [
        ({"size": (5, 8)}, (5, 8)),
        ({"min_dim": 15}, (15, 30)),
        ({"min_dim": 5}, (10, 20)),
        ({"max_dim": 10}, (5, 10)),
        ({"max_dim": 30}, (10, 20)),
        ({"min_dim": 15, "max_dim": 25}, (12, 25)),  # 12.5: OpenCV rounds halves to even
    ],
)
@pytest.mark.parametrize("gray", [False, True])
def test_sizes_are_opencvs_and_boxes_stay_fractions(folder, form, size, gray):
    _, [(_, value)] = convert(folder, gray=gray, **form)
    record = AnnotatedDatum.FromString(value)
    pixels = cv2.imread(str(folder / "in" / "a.png"), cv2.IMREAD_GRAYSCALE if gray else cv2.IMREAD_COLOR)
    expected = cv2.resize(pixels, size[::-1]) if size != (10, 20) else pixels
    if "min_dim" in form or "max_dim" in form:
        scale = size[1] / 20
        expected = cv2.resize(pixels, None, fx=scale, fy=scale) if scale != 1 else pixels
    assert (record.datum.height, record.datum.width) == size == expected.shape[:2]
    assert record.datum.data == (expected if gray else expected.transpose(2, 0, 1)).tobytes()
    assert flat(record)[0][2] == tuple(map(float, np.array([0.1, 0.1, 0.5, 0.5], np.float32)))


@pytest.mark.parametrize(
    "form, same", [({}, True), ({"encode_type": "jpg"}, False), ({"size": (10, 20)}, False), ({"min_dim": 3}, False)]
)
def test_encoded_keeps_the_file_where_nothing_is_asked_of_it(folder, form, same):
    _, [(_, value)] = convert(folder, encoded=True, **form)
    datum, kind = AnnotatedDatum.FromString(value).datum, form.get("encode_type", "png")
    assert datum.encoded and (datum.channels, datum.height, datum.width) == (3, 10, 20)
    file = (folder / "in" / "a.png").read_bytes()
    assert datum.data == (file if same else cv2.imencode(f".{kind}", PIXELS)[1].tobytes())


def test_pictures_left_out_and_pictures_without_objects(folder, caplog):
    (folder / "list").write_text("none.png a.xml\na.png gone.xml\na.png a.xml\n")
    done, found = convert(folder, listed=folder / "list")
    assert done == Converted(2, 1)
    assert [key for key, _ in found] == [b"00000001_a.png", b"00000002_a.png"]
    assert [len(AnnotatedDatum.FromString(value).annotation_group) for _, value in found] == [0, 2]
    assert "none.png (left out)" in caplog.text
    assert "list:2: a.png: there is no " in caplog.text and "gone.xml: the picture is stored without" in caplog.text


def test_a_thread_of_pixels_is_left_out(folder, caplog):
    assert cv2.imwrite(str(folder / "in" / "b.png"), np.zeros((1, 30_000, 3), np.uint8))
    (folder / "list").write_text("b.png a.xml\na.png a.xml\n")
    assert convert(folder, listed=folder / "list", min_dim=256)[0] == Converted(1, 1)
    assert "256 x 7680000 pixels" in caplog.text


def test_an_order(folder):
    (folder / "list").write_text("".join(f"a.png a{k}.xml\n" for k in range(9)))
    for k in range(9):
        (folder / "in" / f"a{k}.xml").write_text(VOC.replace("<xmin>2<", f"<xmin>{k}<"))
    images, order = AnnotationList(folder / "list"), shuffled(9, 4)
    convert_annoset(f"{folder}/in/", images, folder / "db", AnnotationForm(labels=LABELS), order=order)
    edges = [round(flat(AnnotatedDatum.FromString(v))[0][2][0] * 20) for _, v in records(folder / "db")]
    assert edges == order.tolist() != sorted(edges)


def test_check_size(folder):
    assert cv2.imwrite(str(folder / "in" / "b.png"), PIXELS[:9])
    (folder / "list").write_text("a.png a.xml\nb.png a.xml\n")
    with pytest.raises(DataError, match=r"list:2: b.png.* are \(3, 9, 20\), of the first picture \(3, 10, 20\)"):
        convert(folder, listed=folder / "list", check_size=True)


@pytest.mark.parametrize(
    "kind, old, new, words",
    [
        ("xml", "<xmin>2<", "<xmin>-1<", "box of object 1 is not within the picture"),
        ("xml", "<ymax>5<", "<ymax>11<", "box of object 1 is not within the picture"),
        ("xml", "<ymax>5<", "<ymax>0<", "box of object 1 ends before it begins"),
        ("xml", "<width>20<", "<width>40<", "height 10 and width 40, but the picture has 10 and 20"),
        ("json", '"height": 10', '"height": 30', "height 30 and width 20, but the picture has 10 and 20"),
    ],
)
def test_odd_boxes_and_sizes_are_stored_with_a_warning(folder, caplog, kind, old, new, words):
    text = {"xml": VOC, "json": COCO}[kind]
    assert old in text
    (folder / "in" / f"a.{kind}").write_text(text.replace(old, new, 1))
    _, [(_, value)] = convert(folder, kind)
    assert f"a.{kind}: " in caplog.text and words in caplog.text
    box = flat(AnnotatedDatum.FromString(value))[0][2]
    expected = [2 / 20, 1 / 10, 10 / 20, 5 / 10]
    if "height 30" in words:
        expected = [2 / 20, 1 / 30, 10 / 20, 5 / 30]
    elif "width 40" in words:
        expected = [2 / 40, 1 / 10, 10 / 40, 5 / 10]
    elif "xmin" in old:
        expected[0] = -1 / 20
    else:
        expected[3] = 1.1 if "11" in new else 0
    np.testing.assert_allclose(box, expected, rtol=1e-6)


@pytest.mark.parametrize(
    "kind, text, words",
    [
        ("xml", "<annotation>", "no XML: no element found"),
        ("xml", "<x/>", "begins with <x>"),
        ("xml", VOC.replace("dog", "cow", 1), 'object 1: the label map has no "cow"'),
        ("xml", VOC.replace("<name>cat</name>", ""), "object 2 has no name"),
        ("xml", VOC.replace("<ymin>1</ymin>", "", 1), "object 1 has no ymin"),
        ("xml", VOC.replace("<xmin>2", "<xmin>two"), "object 1: 'two' is not a number"),
        ("xml", "<annotation><object><name>cat</name></object></annotation>", "object 1 has no bndbox"),
        ("xml", VOC.replace("<width>20", "<width>0"), "a height of 10 and a width of 0"),
        ("json", "{", "no JSON"),
        ("json", "[]", 'has no list "annotation"'),
        ("json", COCO.replace("18", "19", 1), 'object 1: the label map has no "19"'),
        ("json", COCO.replace('"bbox": [2, ', '"bbox": ['), "object 1 has no bbox of x, y, width and height"),
        ("json", COCO.replace('"bbox": [2', '"bbox": ["a"'), "object 1: 'a' is not a number"),
        ("json", '{"annotation": [3]}', "object 1 has no category_id"),
        ("xml", '<?xml version="1.0" encoding="gb2312"?><annotation/>', "no XML: multi-byte"),
        ("xml", VOC.replace("<xmin>2", "<xmin>2e30"), "the box of object 1, 2e+30 1 10 5, is far from the picture"),
        ("json", "[" * 100_000, "no JSON"),
        ("json", COCO.replace('"bbox": [2', '"bbox": [1e999'), "object 1: inf is not a number"),
        ("txt", "1 2 3 nan 5", "a.txt:1: '1 2 3 nan 5' is not"),
        ("txt", "99999999999 2 3 4 5", "a.txt:1: '99999999999 2 3 4 5' is not"),
        ("txt", "1 2 3 4", "a.txt:1: '1 2 3 4' is not a label and four numbers"),
        ("txt", "1 2 3 4 5\nx 2 3 4 5", "a.txt:2: 'x 2 3 4 5' is not"),
    ],
)
def test_wrong_files_are_named_and_leave_no_database(folder, kind, text, words):
    (folder / "in" / f"a.{kind}").write_text(text)
    with pytest.raises(DataError) as caught:
        convert(folder, kind)
    assert words in str(caught.value) and f"a.{kind}" in str(caught.value) and caught.value.fix
    assert not list(folder.glob("db*"))


@pytest.mark.parametrize("text, words", [("", "is empty"), ("a.png a.xml\nb.png\n", ":2: 'b.png' is not two paths")])
def test_wrong_lists(tmp_path, text, words):
    (tmp_path / "list").write_text(text)
    with pytest.raises(DataError) as caught:
        AnnotationList(tmp_path / "list")
    assert words in str(caught.value) and str(tmp_path) in str(caught.value)


def test_paths_with_spaces_and_label_maps(folder):
    (folder / "list").write_text("my pictures/a b.png  a.xml \n\n")
    images = AnnotationList(folder / "list")
    assert (images.paths, images.annotations) == (["my pictures/a b.png"], ["a.xml"])
    assert read_label_map(folder / "map") == LABELS
    with open(folder / "map", "a") as file:
        file.write('item { name: "cat" label: 9 }')
    assert read_label_map(folder / "map")["cat"] == 9
    with pytest.raises(DataError, match='map: the name "cat" is there twice'):
        read_label_map(folder / "map", check=True)
    for text, words in (('item { name: "x" }', "item 1 has no label"), ("item { label: 1 }", "item 1 has no name")):
        (folder / "wrong").write_text(text)
        with pytest.raises(DataError, match=words):
            read_label_map(folder / "wrong")
    (folder / "wrong").write_text('item { nam: "x" }')
    with pytest.raises(PrototxtError, match='wrong:1: LabelMapItem has no field "nam"'):
        read_label_map(folder / "wrong")
    with pytest.raises(CaffeError, match="absent"):
        read_label_map(folder / "absent")
