"""Mean files."""

import numpy as np
import pytest

from pycaffe_lms.data.database.datum import decode_datum
from pycaffe_lms.data.database.lmdb_source import LMDBSource
from pycaffe_lms.data.transform.mean import MeanSum, load_mean, save_mean
from pycaffe_lms.errors import DataError
from pycaffe_lms.proto.caffe_pb2 import BlobProto
from tests.data.helpers import shared_db
from tests.shared_data import SHARED, needs_shared


def test_round_trip(tmp_path):
    mean = np.random.default_rng(0).random((3, 4, 5)).astype(np.float32)
    save_mean(tmp_path / "m", mean)
    np.testing.assert_array_equal(load_mean(tmp_path / "m"), mean)
    proto = BlobProto.FromString((tmp_path / "m").read_bytes())
    assert (proto.num, proto.channels, proto.height, proto.width) == (1, 3, 4, 5)


@pytest.mark.parametrize(
    "content, words",
    [
        (b"\xff\xff", "not a mean file"),
        (b"", "empty"),
        (BlobProto(num=1, channels=1, height=2, width=2, data=[1]).SerializeToString(), "needs 4 values"),
        (BlobProto(num=2, channels=1, height=1, width=1, data=[1, 2]).SerializeToString(), "mean of one picture"),
        (BlobProto(num=-1, channels=-1, height=1, width=1, data=[1]).SerializeToString(), "negative"),
    ],
)
def test_damage(tmp_path, content, words):
    (tmp_path / "mean.binaryproto").write_bytes(content)
    with pytest.raises(DataError, match=words) as caught:
        load_mean(tmp_path / "mean.binaryproto")
    assert "mean.binaryproto" in str(caught.value) and caught.value.fix


def test_sum_of_many_sizes_is_refused():
    total = MeanSum()
    with pytest.raises(DataError, match="no picture"):
        total.mean()
    total.add(np.zeros((2, 1, 3, 3), np.uint8))
    with pytest.raises(DataError, match="one size"):
        total.add(np.zeros((2, 1, 3, 4), np.uint8))


def test_sum_of_integers_is_exact_beyond_float32():
    """255 in 80,000 pictures, after one of 1: added in float32, every second one would round up."""
    pictures = np.concatenate([np.ones((1, 1, 1, 2), np.uint8), np.full((80_000, 1, 1, 2), 255, np.uint8)])
    rounded = np.cumsum(pictures[:, 0, 0, 0], dtype=np.float32)[-1]
    assert rounded != np.float32(20_400_001)
    total = MeanSum()
    total.add(pictures)
    assert total.mean()[0, 0, 0] == np.float32(20_400_001) / np.float32(80_001)


def test_sum_of_floats():
    total = MeanSum()
    total.add(np.array([[[[0.5]]], [[[1.0]]]]))
    total.add(np.array([[[[3.0]]]]))
    assert total.mean().tolist() == [[[1.5]]] and total.mean().dtype == np.float32


def test_sum_of_integers_and_floats():
    total = MeanSum()
    total.add(np.array([[[[7]]]], np.uint8))
    total.add(np.array([[[[0.5]]]], np.float32))
    total.add(np.array([[[[4]]]], np.int16))
    total.add(np.array([[[[0.5]]]], np.float32))
    assert total.mean().tolist() == [[[3.0]]]


@needs_shared
def test_equal_to_the_file_of_compute_image_mean(tmp_path):
    total = MeanSum()
    with LMDBSource(shared_db("mnist300_lmdb", tmp_path)) as source:
        for _ in range(len(source)):
            key, record = source.next()
            total.add(decode_datum(record, source="real", key=key)[0][None])
    want = SHARED / "data" / "db" / "mnist300_mean.binaryproto"
    np.testing.assert_array_equal(total.mean(), load_mean(want))
    save_mean(tmp_path / "mean", total.mean())
    assert (tmp_path / "mean").read_bytes() == want.read_bytes()


@needs_shared
def test_real_mean_files():
    assert load_mean(SHARED / "data" / "imagenet" / "ilsvrc_2012_mean.binaryproto").shape == (3, 256, 256)
    np.testing.assert_array_equal(
        load_mean(SHARED / "data" / "imagenet" / "ilsvrc_2012_mean.binaryproto"),
        np.load(SHARED / "data" / "imagenet" / "ilsvrc_2012_mean.npy").astype(np.float32),
    )
