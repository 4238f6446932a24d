"""Blobs to and from BlobProto: shapes of both notations, both precisions, damaged ones."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from pycaffe_lms.errors import WeightsError
from pycaffe_lms.formats.weights.blobproto import (
    array_to_blobproto,
    blobproto_shape,
    blobproto_to_array,
    load_blob,
)
from pycaffe_lms.proto.caffe_pb2 import BlobProto, BlobProtoVector

SHAPES = arrays.array_shapes(min_dims=0, max_dims=5, min_side=0, max_side=4)


@given(st.sampled_from([np.float32, np.float64]).flatmap(lambda dtype: arrays.arrays(dtype, SHAPES)))
def test_round_trip(values):
    proto = BlobProto.FromString(array_to_blobproto(values, diff=values).SerializeToString())
    blob = load_blob(proto)
    assert blob.shape == values.shape and not blob.legacy
    np.testing.assert_array_equal(blob.data, values)
    if values.size:
        assert blob.data.dtype == blob.diff.dtype == values.dtype
        np.testing.assert_array_equal(blob.diff, values)
    assert bool(proto.double_data) == (values.dtype == np.float64 and values.size > 0)
    assert blobproto_to_array(proto).dtype == np.float32


def test_what_is_written():
    proto = array_to_blobproto(np.arange(6).reshape(2, 3))
    assert proto == BlobProto(shape={"dim": [2, 3]}, data=[0, 1, 2, 3, 4, 5])
    assert array_to_blobproto(np.float32(7)) == BlobProto(data=[7])
    assert array_to_blobproto(np.ones(1), diff=np.zeros(1)) == BlobProto(
        shape={"dim": [1]}, double_data=[1], double_diff=[0]
    )
    assert array_to_blobproto(np.arange(6.0).reshape(2, 3).T.astype("f4")).data == [0, 3, 1, 4, 2, 5]
    blobs = BlobProtoVector()
    array_to_blobproto(np.float32([3, 4]), into=blobs.blobs.add())
    assert list(blobs.blobs[0].data) == [3, 4]
    with pytest.raises(ValueError, match="diff of shape"):
        array_to_blobproto(np.ones(2), diff=np.ones(3))


def test_old_sizes_win_over_the_shape_when_any_is_set():
    proto = BlobProto(num=2, channels=1, height=1, width=3, data=range(6), shape={"dim": [6]})
    assert blobproto_shape(proto) == (2, 1, 1, 3)
    assert load_blob(proto).legacy and load_blob(proto).data.shape == (2, 1, 1, 3)
    assert blobproto_shape(BlobProto(width=3)) == (0, 0, 0, 3)
    assert blobproto_shape(BlobProto(shape={})) == blobproto_shape(BlobProto()) == ()


def test_double_values_win_over_floats():
    proto = BlobProto(shape={"dim": [1]}, data=[1, 2, 3], double_data=[0.1], diff=[5])
    assert blobproto_to_array(proto, np.float64)[0] == 0.1
    assert blobproto_to_array(proto, None).dtype == np.float64
    assert load_blob(proto).diff.dtype == np.float32


def test_arrays_can_be_written_to():
    array = blobproto_to_array(BlobProto(shape={"dim": [2]}, data=[1, 2]))
    array += 1
    assert array.tolist() == [2, 3] and array.flags.c_contiguous


@pytest.mark.parametrize(
    ("shape", "sizes", "equal"),
    [
        ((4, 5), (1, 1, 4, 5), True),
        ((5,), (1, 1, 1, 5), True),
        ((), (1, 1, 1, 1), True),
        ((2, 3, 4, 5), (2, 3, 4, 5), True),
        ((4, 5), (4, 5, 1, 1), False),
        ((5,), (5, 1, 1, 1), False),
        ((1, 1, 1, 1, 5), (1, 1, 1, 5), False),
    ],
)
def test_old_sizes_are_compared_from_the_right(shape, sizes, equal):
    proto = BlobProto(**dict(zip(("num", "channels", "height", "width"), sizes, strict=True)))
    proto.data.extend([0] * int(np.prod(sizes)))
    assert load_blob(proto).fits(shape) is equal


def test_new_shapes_must_be_the_same():
    blob = load_blob(BlobProto(shape={"dim": [1, 1, 4, 5]}, data=[0] * 20))
    assert not blob.fits((4, 5))
    assert blob.fits([1, 1, 4, 5])


@pytest.mark.parametrize(
    ("proto", "message"),
    [
        (BlobProto(), r"shape \(\) needs 1 values, the file has 0"),
        (BlobProto(shape={"dim": [2, 3]}, data=[1]), r"shape \(2, 3\) needs 6 values, the file has 1 in `data`"),
        (BlobProto(shape={"dim": [2**40, 2**40]}, data=[1]), "needs 1208925819614629174706176 values"),
        (BlobProto(shape={"dim": [1]}, data=[1], diff=[1, 2]), "2 in `diff`"),
        (BlobProto(shape={"dim": [1]}, data=[1], double_diff=[1, 2]), "2 in `double_diff`"),
        (BlobProto(shape={"dim": [-1]}, data=[1]), "cannot be negative"),
        (BlobProto(shape={"dim": [0, 2**62, 4]}), "is larger than any memory"),
        (BlobProto(num=0, channels=2**31 - 1, height=2**31 - 1, width=1), "is larger than any memory"),
        (BlobProto(num=-2, channels=-1, height=1, width=1, data=[1, 2]), "cannot be negative"),
        (BlobProto(shape={"dim": [1] * 33}, data=[1]), "33 axes; 32 is the most"),
    ],
)
def test_damaged_blobs(proto, message):
    with pytest.raises(WeightsError, match=message):
        load_blob(proto)
