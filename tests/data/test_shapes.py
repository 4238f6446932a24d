"""The drawn set: boxes are where the colours are, classes and numbers, the databases that the command writes."""

from __future__ import annotations

import numpy as np

from pycaffe_lms.data.database.open import open_database
from pycaffe_lms.data.sets import shapes
from pycaffe_lms.data.sets.annotations import read_label_map
from pycaffe_lms.data.sets.shapes import SIDE, draw_shapes, make_shapes
from pycaffe_lms.proto.caffe_pb2 import AnnotatedDatum
from tests.layers.harness import LayerBench


def test_boxes_are_exact_and_all_else_is_ground():
    """The ground varies by 12 around a value, and every shape differs from it by more than 60 - 12 - 6."""
    for number in range(150):
        picture, found = draw_shapes(number)
        assert picture.shape == (3, SIDE, SIDE) and 1 <= len(found) <= 5
        outside = np.ones((SIDE, SIDE), bool)
        for _, xmin, ymin, xmax, ymax in found:
            outside[ymin:ymax, xmin:xmax] = False
        ground = picture[:, outside].astype(int)
        assert (ground.max(1) - ground.min(1) <= 24).all()
        middle = (ground.max(1) + ground.min(1)) / 2
        drawn = (abs(picture - middle[:, None, None]) > 30).all(0)
        assert not drawn[outside].any()
        for one, (kind, xmin, ymin, xmax, ymax) in enumerate(found):
            others = [box for k, (_, *box) in enumerate(found) if k != one]
            if any(b[0] < xmax and b[2] > xmin and b[1] < ymax and b[3] > ymin for b in others):
                continue
            inside = drawn[ymin:ymax, xmin:xmax]
            assert inside[0].any() and inside[-1].any() and inside[:, 0].any() and inside[:, -1].any()
            filled = {1: np.pi / 4, 2: 1.0, 3: 0.5}[kind]
            assert abs(inside.mean() - filled) < 1.2 / (xmax - xmin)  # pixels of the edges


def test_numbers_and_classes():
    counted = np.zeros(4, int)
    for number in range(400):
        for kind, *_ in draw_shapes(number)[1]:
            counted[kind] += 1
    assert counted[0] == 0 and 700 < counted.sum() < 1200
    assert all(abs(n - counted.sum() / 3) < 5 * np.sqrt(counted.sum() * 2 / 9) for n in counted[1:])
    first, again, other = draw_shapes(7), draw_shapes(7), draw_shapes(7, seed=1)
    np.testing.assert_array_equal(first[0], again[0])
    assert first[1] == again[1] and (first[0] != other[0]).any()


def test_the_databases(tmp_path, monkeypatch, caplog):
    caplog.set_level("INFO")
    monkeypatch.setattr(shapes, "_RECORDS", {"train": 12, "test": 5})
    paths = make_shapes(tmp_path)
    assert {name: path.name for name, path in paths.items()} == {
        "train": "shapes_train_lmdb",
        "test": "shapes_test_lmdb",
        "label map": "labelmap.prototxt",
    }
    assert read_label_map(paths["label map"], check=True) == {
        "none_of_the_above": 0,
        "circle": 1,
        "square": 2,
        "triangle": 3,
    }
    for name, first, count in (("train", 0, 12), ("test", 12, 5)):
        with open_database(paths[name], "lmdb") as source:
            records = list(source.records())
        assert [key for key, _ in records] == [b"%08d" % k for k in range(count)]
        bench = LayerBench(
            "AnnotatedData", f'data_param {{ source: "{paths[name]}" backend: LMDB batch_size: 1 }}', (), n_top=2
        )
        for number, (_, value) in enumerate(records, first):
            picture, found = draw_shapes(number)
            record = AnnotatedDatum.FromString(value)
            assert [g.group_label for g in record.annotation_group] == sorted({kind for kind, *_ in found})
            bench.reshape(())
            data, label = bench.forward([])
            np.testing.assert_array_equal(data[0], picture)
            rows = label[0, 0, : len(found)]
            np.testing.assert_allclose(rows[:, 1], [kind for kind, *_ in found])
            np.testing.assert_allclose(rows[:, 3:7] * SIDE, [box for _, *box in found], rtol=1e-6)
            assert (label[0, 0, len(found) :] == -1).all()
        bench.layer.close()
    make_shapes(tmp_path)
    assert "12 records, all as they should be" in caplog.text
