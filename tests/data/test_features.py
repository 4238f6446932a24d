"""Databases of features, written beside a net that makes more."""

from __future__ import annotations

import os

import numpy as np
import pytest

from pycaffe_lms.data.database.open import open_database
from pycaffe_lms.data.sets.features import FeatureWriter, feature_shape
from pycaffe_lms.errors import DataError, ShapeError
from pycaffe_lms.proto.caffe_pb2 import Datum


@pytest.mark.parametrize(
    ("shape", "expected"),
    [((), (1, 1, 1, 1)), ((7,), (7, 1, 1, 1)), ((2, 5), (2, 5, 1, 1)), ((2, 5, 3, 4), (2, 5, 3, 4))],
)
def test_shapes(shape, expected):
    assert feature_shape(shape, "x") == expected


def test_five_axes_do_not_fit():
    with pytest.raises(ShapeError, match='blob "x": 5 axes'):
        feature_shape((1, 2, 3, 4, 5), "x")


@pytest.mark.parametrize("backend", ["lmdb", "leveldb"])
def test_records(tmp_path, backend):
    if backend == "leveldb":
        pytest.importorskip("plyvel")
    batches = np.random.default_rng(1).normal(size=(7, 3, 2, 2, 3)).astype(np.float32)
    with FeatureWriter(tmp_path / "db", "x", backend=backend) as writer:
        for batch in batches:
            writer.add(batch)
            batch[...] = 0  # the net may use its memory again
    assert writer.count == 21
    batches = np.random.default_rng(1).normal(size=(7, 3, 2, 2, 3)).astype(np.float32)
    source = open_database(tmp_path / "db", backend)
    records = list(source.records())
    source.close()
    assert [key for key, _ in records] == [f"{i:010d}".encode() for i in range(21)]
    for (_, value), expected in zip(records, batches.reshape(21, 2, 2, 3), strict=True):
        datum = Datum.FromString(value)
        assert (datum.channels, datum.height, datum.width) == (2, 2, 3)
        assert list(datum.float_data) == expected.ravel().tolist()
        assert not datum.HasField("label") and not datum.HasField("data") and not datum.HasField("encoded")


def test_an_error_of_the_net_leaves_nothing(tmp_path):
    with pytest.raises(ZeroDivisionError), FeatureWriter(tmp_path / "db", "x") as writer:
        writer.add(np.zeros((2, 3)))
        raise ZeroDivisionError
    assert os.listdir(tmp_path) == []


def test_an_error_of_the_database_reaches_the_net(tmp_path):
    (tmp_path / "db").mkdir()
    with pytest.raises(DataError, match="exists already"), FeatureWriter(tmp_path / "db", "x") as writer:
        for _ in range(1000):
            writer.add(np.zeros((2, 3)))
        raise AssertionError("nobody noticed")
    with pytest.raises(DataError, match="exists already"), FeatureWriter(tmp_path / "db", "x"):
        pass  # a writer that ends without a batch
