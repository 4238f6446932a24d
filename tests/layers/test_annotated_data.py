"""AnnotatedData: rows, boxes that follow the pixels of their objects, ranks, resuming, rows that grow, errors."""

from __future__ import annotations

import numpy as np
import pytest

from pycaffe_lms.data.database.datum import encode_datum
from pycaffe_lms.data.database.lmdb_writer import write_lmdb
from pycaffe_lms.errors import DataError, LayerParamError
from pycaffe_lms.proto.caffe_pb2 import AnnotatedDatum, NormalizedBBox
from tests.solvers.helpers import PLACES, bits, inner, make

from .cases import Case
from .harness import LayerBench

cv2 = pytest.importorskip("cv2")

# SOURCE stands for a folder with the databases that the test writes: see `objects`.
SSD = """
    resize_param { prob: 1 resize_mode: WARP height: 24 width: 20 interp_mode: LINEAR interp_mode: AREA }
    emit_constraint { emit_type: CENTER } mirror: true mean_value: 104 mean_value: 117 mean_value: 123
    distort_param { brightness_prob: 0.5 brightness_delta: 32 contrast_prob: 0.5 contrast_lower: 0.5 contrast_upper: 1.5
      hue_prob: 0.5 hue_delta: 18 saturation_prob: 0.5 saturation_lower: 0.5 saturation_upper: 1.5
      random_order_prob: 0.1 }
    expand_param { prob: 0.5 max_expand_ratio: 3 }
"""
SAMPLERS = """
    batch_sampler { max_sample: 1 max_trials: 1 }
    batch_sampler { max_sample: 1 max_trials: 50
      sampler { min_scale: 0.3 max_scale: 1 min_aspect_ratio: 0.5 max_aspect_ratio: 2 }
      sample_constraint { min_jaccard_overlap: 0.3 max_jaccard_overlap: 1 min_sample_coverage: 0.01
        max_sample_coverage: 1 min_object_coverage: 0.1 max_object_coverage: 1 } }
    batch_sampler { use_original_image: false }
    label_map_file: "labelmap.prototxt" anno_type: BBOX
"""
HOST_CASES: list[Case] = [
    Case(
        "AnnotatedData",
        f'data_param {{ source: "SOURCE/{name}" backend: LMDB batch_size: {size} prefetch: 2 }} {more}',
        (),
        n_top=n_top,
    )
    for name, size, more, n_top in (
        ("boxes", 3, f"annotated_data_param {{ {SAMPLERS} }} transform_param {{ {SSD} }}", 2),
        ("boxes", 4, "", 2),
        ("boxes", 4, "transform_param { crop_h: 20 crop_w: 30 emit_constraint { emit_type: MIN_OVERLAP } }", 1),
        (
            "boxes",
            4,
            "annotated_data_param { yolo_data_type: 1 train_diffcult: false } "
            "transform_param { resize_param { prob: 0.5 height: 8 width: 8 } "
            "further_resize_param { prob: 0.5 height: 12 width: 16 } }",
            2,
        ),
        ("classes", 2, "transform_param { force_color: true noise_param { inverse: true } }", 2),
    )
]
TALL, WIDE = 40, 60


def objects(number):
    """Return the objects of a picture: (class, number within it, xmin, ymin, xmax, ymax in pixels, difficult)."""
    places = [(2, 3, 20, 15), (30, 5, 50, 30), (5, 20, 25, 38), (40, 32, 58, 38)]
    kinds = [(7, 0), (7, 1), (2, 0), (2, 1)]
    return [(*kind, *place, i % 2) for i, (kind, place) in enumerate(zip(kinds, places, strict=True))][: number % 5]


def colour(index):
    return (250, 60 * index + 10, 30)


def annotated(number, *, boxes=True, encoded=True):
    """A black picture of 40 x 60 with a rectangle per object, each of its own colour, and their boxes."""
    picture = np.zeros((TALL, WIDE, 3), np.uint8)
    record = AnnotatedDatum()
    if boxes:
        record.type = AnnotatedDatum.BBOX
    groups = {}
    for k, (label, instance, xmin, ymin, xmax, ymax, difficult) in enumerate(objects(number) if boxes else ()):
        picture[ymin:ymax, xmin:xmax] = colour(k)
        if label not in groups:
            groups[label] = record.annotation_group.add(group_label=label)
        box = NormalizedBBox(
            xmin=xmin / WIDE, ymin=ymin / TALL, xmax=xmax / WIDE, ymax=ymax / TALL, difficult=difficult
        )
        groups[label].annotation.add(instance_id=instance, bbox=box)
    if encoded:
        record.datum.data = cv2.imencode(".png", picture)[1].tobytes()
        record.datum.encoded = True
    else:
        record.datum.ParseFromString(encode_datum(picture.transpose(2, 0, 1)))
    record.datum.label = -1 if boxes else number
    return record.SerializeToString()


def write(path, records):
    write_lmdb(path, [(b"%04d" % k, record) for k, record in enumerate(records)])


@pytest.fixture
def source(tmp_path):
    write(tmp_path / "boxes", [annotated(k) for k in range(10)])
    write(tmp_path / "raw", [annotated(k, encoded=False) for k in range(10)])
    write(tmp_path / "classes", [annotated(k, boxes=False) for k in range(10)])
    return str(tmp_path)


def layer(text, source, **kwargs):
    return LayerBench("AnnotatedData", text.replace("SOURCE", source), (), **{"n_top": 2, **kwargs})


def database(name, size=4, more=""):
    return f'data_param {{ source: "SOURCE/{name}" backend: LMDB batch_size: {size} }} {more}'


def forward(bench):
    """Run as a net does: shapes may have changed."""
    bench.reshape(())
    return bench.forward([])


def rows(label):
    """Return the rows of objects, and check that those after them are -1."""
    assert label.shape[:2] == (1, 1) and label.shape[3] == 8
    found = label[0, 0]
    count = int((found[:, 0] >= 0).sum())
    assert (found[count:] == -1).all() and (np.diff(found[:count, 0]) >= 0).all()
    return found[:count]


@pytest.mark.parametrize("name", ["boxes", "raw"])
def test_rows_are_the_records_in_order(name, source):
    bench = layer(database(name), source)
    try:
        for batch in range(5):
            data, label = forward(bench)
            numbers = [(4 * batch + item) % 10 for item in range(4)]
            expected = [
                (item, label, instance, xmin / WIDE, ymin / TALL, xmax / WIDE, ymax / TALL, difficult)
                for item, number in enumerate(numbers)
                for label, instance, xmin, ymin, xmax, ymax, difficult in objects(number)
            ]
            np.testing.assert_allclose(rows(label), expected, atol=1e-6)
            assert data.shape == (4, 3, TALL, WIDE)
            pixels = sum((e[5] - e[3]) * (e[6] - e[4]) for e in expected) * WIDE * TALL
            assert (data[:, 0] == 250).sum() == round(pixels)
    finally:
        bench.layer.close()


def test_rows_grow_seldom_and_a_batch_without_objects_is_all_minus_one(tmp_path):
    counts = [0, 3, 9, 4, 16, 17, 18, 0]
    records = []
    for count in counts:
        record = AnnotatedDatum.FromString(annotated(0))
        group = record.annotation_group.add(group_label=1)
        for k in range(count):
            group.annotation.add(instance_id=k, bbox=NormalizedBBox(xmax=0.5, ymax=0.5))
        records.append(record.SerializeToString())
    write(tmp_path / "many", records)
    bench = layer(database("many", 1), str(tmp_path))
    try:
        seen = [forward(bench)[1] for _ in counts]
    finally:
        bench.layer.close()
    assert [len(rows(label)) for label in seen] == counts
    assert [label.shape[2] for label in seen] == [8, 8, 32, 32, 32, 32, 32, 32]


def test_records_without_boxes_give_their_labels(source):
    bench = layer(database("classes"), source)
    try:
        assert forward(bench)[1].tolist() == [[[[k]]] for k in range(4)]
    finally:
        bench.layer.close()
    bench = layer(database("classes", more="annotated_data_param { anno_type: BBOX }"), source)
    try:
        assert rows(forward(bench)[1]).size == 0
    finally:
        bench.layer.close()


def test_boxes_follow_the_pixels_of_their_objects(source):
    """Through canvas, drawn crops, nearest pixels and mirroring: the box of each object is where its colour is."""
    text = database(
        "boxes",
        10,
        "annotated_data_param { batch_sampler { max_sample: 3 max_trials: 20 sampler { min_scale: 0.3 max_scale: 0.9 "
        "min_aspect_ratio: 0.5 max_aspect_ratio: 2 } sample_constraint { min_jaccard_overlap: 0.05 } } } "
        "transform_param { mirror: true expand_param { max_expand_ratio: 2 prob: 0.5 } crop_h: 180 crop_w: 220 "
        "resize_param { height: 200 width: 240 interp_mode: NEAREST } }",
    )
    bench = layer(text, source)
    seen = partial = 0
    try:
        for _ in range(8):
            data, label = forward(bench)
            for item in range(10):
                boxes = [row for row in rows(label) if row[0] == item]
                tags = {(row[1], row[2]): row for row in boxes}
                for k, (kind, instance, *_, difficult) in enumerate(objects(item)):
                    mask = (data[item] == np.array(colour(k))[:, None, None]).all(0)
                    row = tags.pop((kind, instance), None)
                    if row is None:
                        assert mask.sum(1).max() <= 4 or mask.sum(0).max() <= 4  # at most a pixel, before resizing
                        continue
                    seen += 1
                    partial += bool(min(row[3:5]) == 0 or max(row[5:7]) == 1)
                    assert row[7] == difficult
                    ys, xs = np.nonzero(mask)
                    if len(ys):  # a pixel of the picture becomes up to 240 / (0.3 * 60) pixels
                        found = [xs.min() / 220, ys.min() / 180, (xs.max() + 1) / 220, (ys.max() + 1) / 180]
                        np.testing.assert_allclose(row[3:7], found, atol=0.11)
                assert not tags
    finally:
        bench.layer.close()
    assert seen > 80 and partial > 10


def test_an_emit_constraint_drops_objects_whose_centre_is_outside(source):
    """Of 60 columns the central 30, 15 to 45, are kept; objects are at 2 to 20, 30 to 50, 5 to 25 and 40 to 58."""
    everything = [[7, 0], [7, 1], [2, 0], [2, 1]]
    for more, kinds in (
        ("", everything),
        ("emit_constraint { emit_type: CENTER }", [[7, 1], [2, 0]]),
        ("emit_constraint { emit_type: MIN_OVERLAP emit_overlap: 0.6 }", [[7, 1]]),  # 5/18, 15/20, 10/20, 5/18
    ):
        bench = layer(database("boxes", 1, f"transform_param {{ crop_h: 40 crop_w: 30 {more} }}"), source, phase=1)
        try:
            assert [rows(forward(bench)[1])[:, 1:3].tolist() for _ in range(5)][4] == kinds
        finally:
            bench.layer.close()


def test_sizes_may_differ_between_batches_of_one(tmp_path):
    records = []
    for size in ((20, 40), (40, 20), (30, 30)):
        record = AnnotatedDatum.FromString(annotated(2))
        record.datum.data = cv2.imencode(".png", np.zeros((*size, 3), np.uint8))[1].tobytes()
        records.append(record.SerializeToString())
    write(tmp_path / "sizes", records)
    text = "transform_param { resize_param { resize_mode: FIT_SMALL_SIZE height: 10 width: 10 } }"
    bench = layer(database("sizes", 1, text), str(tmp_path))
    try:
        assert [forward(bench)[0].shape for _ in range(4)] == [
            (1, 3, *s) for s in ((10, 20), (20, 10), (10, 10), (10, 20))
        ]
    finally:
        bench.layer.close()
    with pytest.raises(LayerParamError, match="FIT_SMALL_SIZE gives pictures of several sizes, but batch_size is 2"):
        layer(database("sizes", 2, text), str(tmp_path))
    bench = layer(database("sizes", 3, text[:-2] + " crop_size: 10 }"), str(tmp_path))
    assert bench.top_shapes[0] == (3, 3, 10, 10)
    bench.layer.close()
    with pytest.raises(DataError, match="0001.*channels x height x width are .3, 40, 20., where the batch has"):
        layer(database("sizes", 3), str(tmp_path))


@pytest.mark.parametrize("case", HOST_CASES, ids=str)
def test_resuming_gives_the_same_batches(case, source):
    first, second = (layer(case.text, source, n_top=case.n_top) for _ in range(2))
    try:
        seen = [forward(first) for _ in range(6)]
        state = first.layer.state()
        assert state == {"batches": 6, "seed": 0, "records": 6 * first.top_shapes[0][0]}
        second.layer.set_state({"batches": 2, "seed": 0})
        for expected in seen[2:]:
            again = forward(second)
            np.testing.assert_array_equal(again[0], expected[0])
            if case.n_top == 2 and again[1].shape[3] == 8:
                np.testing.assert_array_equal(rows(again[1]), rows(expected[1]))
        assert second.layer.state() == state
        second.layer.set_state({"batches": 2, "seed": 5})
        other = forward(second)[0]
        drawn = ("batch_sampler", "crop_h", "yolo")
        assert (other != seen[2][0]).any() == any(field in case.text for field in drawn)
    finally:
        first.layer.close()
        second.layer.close()


def test_ranks_share_the_records(source):
    whole = layer(database("boxes", 4), source)
    both = [layer(database("boxes", 2), source, ranks=2) for _ in range(2)]
    both[1].layer.turn_to(1, 0)
    try:
        for _ in range(4):
            data, label = forward(whole)
            parts = [forward(bench) for bench in both]
            for rank, (pictures, boxes) in enumerate(parts):
                np.testing.assert_array_equal(pictures, data[rank::2])
                expected = [row for row in rows(label) if row[0] % 2 == rank]
                assert [r[1:].tolist() for r in rows(boxes)] == [r[1:].tolist() for r in expected]
    finally:
        for bench in (whole, *both):
            bench.layer.close()


@pytest.fixture
def net(source):
    changes = f"annotated_data_param {{ {SAMPLERS} }} transform_param {{ {SSD} scale: 0.01 }}"
    return (
        f'layer {{ name: "data" type: "AnnotatedData" top: "x" top: "boxes" '
        f"{database('boxes', 3, changes).replace('SOURCE', source)} }}\n"
        'layer { name: "twice" type: "Power" bottom: "boxes" top: "twice" power_param { scale: 2 } }\n'
        f"{inner(outputs=4)}"
        'layer { name: "sum" type: "Reduction" bottom: "ip" top: "loss" loss_weight: 0.01 '
        "reduction_param { operation: SUMSQ } }\n"
    )


@pytest.mark.parametrize("place", PLACES)
def test_training_resumes_with_the_same_bits_in_every_place(place, net, tmp_path):
    options = {"snapshot_prefix": f'"{tmp_path}/r"', "base_lr": 0.001}
    plain, whole, first, second = (make(net, p, random_seed=3, **options) for p in ("cpu", place, place, place))
    shown = {}
    try:
        for solver in (plain, whole):
            solver.net.keep("twice")
            shown[solver] = []
            for _ in range(7):
                solver.step(1)
                shown[solver].append(solver.net.blobs["twice"].data.copy() / 2)
        for ours, theirs in zip(shown[whole], shown[plain], strict=True):
            np.testing.assert_array_equal(ours, theirs)
        assert len({values.shape for values in shown[whole]}) == 2  # the net was planned again
        first.step(4)
        first.snapshot()
        second.restore(f"{tmp_path}/r_iter_4.solverstate")
        second.step(3)
        assert bits(second) == bits(whole) and (place != "cpu" or bits(whole) == bits(plain))
    finally:
        for solver in (plain, whole, first, second):
            solver.close()


def test_a_data_layer_names_the_layer_for_records_with_boxes(source):
    for name in ("boxes", "raw", "classes"):
        with pytest.raises(DataError, match=f'{name} .record "0000".*an AnnotatedDatum') as caught:
            LayerBench("Data", database(name).replace("SOURCE", source), (), n_top=2)
        assert '"AnnotatedData"' in caught.value.fix


def test_wrong_fields(source):
    for text, words in (
        ("data_param { batch_size: 1 }", "data_param.source is not set"),
        (f'data_param {{ source: "{source}/boxes" }}', "data_param.batch_size is not set"),
        (
            database("boxes", 1, "annotated_data_param { batch_sampler { sampler { max_scale: 2 } } }"),
            'layer "l" .AnnotatedData.: annotated_data_param.batch_sampler number 1 draws scales 1 to 2',
        ),
        (database("boxes", 1, "transform_param { expand_param { } }"), "max_expand_ratio is 1"),
        (database("boxes", 1, "transform_param { resize_param { } }"), "height 0 and width 0"),
    ):
        with pytest.raises(LayerParamError, match=words) as caught:
            layer(text, source)
        assert caught.value.fix


def test_fields_without_effect_are_named(source, caplog):
    text = f'data_param {{ source: "{source}/boxes" backend: LMDB batch_size: 1 rand_skip: 3 }}'
    layer(text, source).layer.close()
    assert "data_param.rand_skip has no effect" in caplog.text
    caplog.clear()
    for kind, fields in (
        ("Data", text),
        ("MemoryData", "memory_data_param { batch_size: 1 channels: 3 height: 2 width: 2 }"),
    ):
        more = "expand_param { max_expand_ratio: 2 } emit_constraint { }"
        if kind == "Data":
            write_lmdb(f"{source}/plain", [(b"0", encode_datum(np.zeros((3, 2, 2), np.uint8)))])
            fields = fields.replace("/boxes", "/plain")
        LayerBench(kind, f"{fields} transform_param {{ {more} }}", (), n_top=2).layer.close()
        for name in ("expand_param", "emit_constraint"):
            assert f"({kind}): transform_param.{name} has no effect: it acts in AnnotatedData alone" in caplog.text


def test_wrong_records_name_database_and_key(tmp_path, source):
    def fails(records, words, more="", size=2):
        path = tmp_path / f"wrong{len(list(tmp_path.iterdir()))}"
        write(path, records)
        with pytest.raises(DataError, match=words) as caught:
            bench = layer(f'data_param {{ source: "{path}" backend: LMDB batch_size: {size} }} {more}', source)
            forward(bench)
        assert caught.value.fix and f'{path} (record "000' in str(caught.value)

    good = annotated(3)
    plain = encode_datum(np.zeros((3, 4, 4), np.uint8))
    fails([plain, plain], "bytes are not an AnnotatedDatum")
    fails([good, b"\xff" * 7], '"0001".*: these 7 bytes are not an AnnotatedDatum')
    fails([good, annotated(1, boxes=False)], '"0001".*has no type of annotation')
    broken = AnnotatedDatum.FromString(good)
    broken.datum.data = broken.datum.data[:50]
    fails([good, broken.SerializeToString()], '"0001".*')
    odd = AnnotatedDatum.FromString(good)
    odd.annotation_group[0].annotation[1].bbox.xmax = float("nan")
    fails([good, odd.SerializeToString()], '"0001".*the box of object 2 is .*nan.*, in fractions')
    odd.annotation_group[0].annotation[1].bbox.xmax = 2e4
    fails([good, odd.SerializeToString()], '"0001".*the box of object 2 is .*20000.0')
    gray = AnnotatedDatum.FromString(good)
    gray.datum.data = cv2.imencode(".png", np.zeros((TALL, WIDE), np.uint8))[1].tobytes()
    hue = "transform_param { distort_param { hue_prob: 1 hue_delta: 3 } }"
    fails([gray.SerializeToString()] * 2, '"0000".*picture has 1 channels', hue)
    floats = AnnotatedDatum(type=0)
    floats.datum.ParseFromString(encode_datum(np.zeros((3, 4, 4), np.float32)))
    fails([floats.SerializeToString()] * 2, '"0000".*distort_param changes pictures of bytes, not float32', hue)
    scales = "resize_param { resize_mode: FIT_SMALL_SIZE height: 10 width: 10 height_scale: 11 width_scale: 9 }"
    fails([good, good], '"000.".*smaller than height_scale 11', f"transform_param {{ {scales} }}", 1)
