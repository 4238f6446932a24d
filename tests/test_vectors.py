"""Check pycaffe's vector classes: they do what a list does, each with items of one kind."""

from __future__ import annotations

import numpy as np
import pytest

from pycaffe_lms.errors import ShapeError, UsageError
from pycaffe_lms.vectors import BlobVec, BoolVec, DtypeVec, IntVec, LayerVec, NetBlobVec, NetVec, RawBlobVec, StringVec

KINDS = {
    IntVec: ([3, np.int64(4), 5], [1.5, "3", None]),
    DtypeVec: ([3, 0.5, np.float32(2)], ["3", None]),
    BoolVec: ([True, np.bool_(False), True], [1, 0.0, "True"]),
    StringVec: (["a", "b", "c"], [1, b"a", None]),
}


@pytest.mark.parametrize("kind", KINDS)
def test_everything_that_a_vector_does(kind):
    good, bad = KINDS[kind]
    a, b, c = good
    v = kind([a, b])
    v.append(c)
    assert len(v) == 3 and list(v) == good and v[0] == a and v[-1] == c and b in v
    assert v[1:] == [b, c] and type(v[1:]) is kind and type(v[::2]) is kind
    v.extend([a])
    v[0] = c
    del v[1]
    v[1:2] = [b, b]
    v.insert(0, a)
    assert list(v) == [a, c, b, b, a]
    for wrong in bad:
        for put in (
            v.append,
            lambda x: v.extend([x]),
            lambda x: v.__setitem__(0, x),
            lambda x: v.insert(0, x),
            lambda x: v.__setitem__(slice(0, 1), [x]),
            lambda x: kind([x]),
        ):
            with pytest.raises(TypeError, match=f"{kind.__name__} holds"):
                put(wrong)
    assert list(v) == [a, c, b, b, a]


def test_add_blob():
    v = BlobVec()
    v.add_blob(2, 3)
    v.add_blob()
    assert [b.shape for b in v] == [(2, 3), ()] and type(v[:1]) is BlobVec
    assert v[0].data.dtype == np.float32 and not v[0].data.any() and not v[0].diff.any()
    v[0].data[1] = 7
    assert v[0].data.tolist() == [[0, 0, 0], [7, 7, 7]]
    for wrong in ((-1,), (2**31,), ("a",), (1.5,), (1,) * 33):
        with pytest.raises(ShapeError):
            v.add_blob(*wrong)
    assert len(v) == 2


def test_a_nets_vectors_take_no_blobs():
    v = NetBlobVec(BlobVec())
    with pytest.raises(UsageError, match="no further blobs"):
        v.add_blob(3)
    assert isinstance(v, RawBlobVec) and type(v[:0]) is BlobVec


@pytest.mark.parametrize("kind", [LayerVec, NetVec, RawBlobVec])
def test_vectors_of_things_slice_to_their_kind(kind):
    class Thing:
        @property
        def diff(self):  # as a blob has
            raise AssertionError("to be held is not to be read")

    things = [Thing(), Thing()]
    v = kind(things)
    assert type(v[:1]) is kind and v[1] is things[1] and things[0] in v
