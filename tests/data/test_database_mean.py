"""The mean picture of a database."""

import numpy as np
import pytest

from pycaffe_lms.data.database.datum import encode_datum, encode_picture_datum
from pycaffe_lms.data.sets.conversion import write_database
from pycaffe_lms.data.sets.database_mean import channel_means, database_mean
from pycaffe_lms.data.transform.mean import load_mean
from pycaffe_lms.errors import DataError, LayerParamError
from tests.data.helpers import shared_db
from tests.shared_data import SHARED, needs_shared


def database(path, values, backend="lmdb"):
    write_database(path, ((b"%05d" % k, value) for k, value in enumerate(values)), backend=backend)
    return path


@pytest.mark.parametrize("backend", ["lmdb", "leveldb"])
def test_bytes_floats_and_pictures(tmp_path, backend):
    cv2 = pytest.importorskip("cv2")
    if backend == "leveldb":
        pytest.importorskip("plyvel")
    rng = np.random.default_rng(0)
    pictures = rng.integers(0, 256, (60, 3, 5, 4), np.uint8)
    values = [encode_datum(p) for p in pictures[:30]]
    values += [encode_picture_datum(cv2.imencode(".png", p.transpose(1, 2, 0))[1].tobytes()) for p in pictures[30:59]]
    values += [encode_datum(pictures[59] + np.float32(0.25))]
    told = []
    mean, count = database_mean(
        database(tmp_path / "db", values, backend), backend=backend, progress=lambda *at: told.append(at)
    )
    want = (pictures.astype(np.float64).sum(0) + 0.25) / 60
    assert count == 60 and mean.dtype == np.float32
    np.testing.assert_allclose(mean, want, rtol=1e-6)
    assert told == [(k, 60 if backend == "lmdb" else None) for k in range(1, 61)]
    np.testing.assert_allclose(channel_means(mean), want.mean((1, 2)), rtol=1e-5)


@pytest.mark.parametrize("backend", ["lmdb", "leveldb"])
def test_sizes_that_differ_are_an_error_that_names_the_record(tmp_path, backend):
    if backend == "leveldb":
        pytest.importorskip("plyvel")
    pictures = [encode_datum(np.zeros(shape, np.uint8)) for shape in [(1, 2, 3), (1, 2, 3), (1, 3, 2)]]
    with pytest.raises(DataError, match=r"\(1, 3, 2\), of the records before \(1, 2, 3\)") as caught:
        database_mean(database(tmp_path / "db", pictures * 50, backend), backend=backend)
    assert '"00002"' in str(caught.value)


def test_what_is_no_source(tmp_path):
    with pytest.raises(DataError, match="no database here"):
        database_mean(tmp_path / "none")
    with pytest.raises(DataError, match="no records"):
        database_mean(database(tmp_path / "empty", []))
    with pytest.raises(DataError, match="not a Datum") as caught:
        database_mean(database(tmp_path / "db", [encode_datum(np.zeros((1, 2, 2), np.uint8)), b"\xff"]))
    assert '"00001"' in str(caught.value)
    with pytest.raises(LayerParamError, match='"rocks"'):
        database_mean(tmp_path / "db", backend="rocks")


@needs_shared
@pytest.mark.parametrize("backend", ["lmdb", "leveldb"])
def test_the_mean_of_caffes_own_database_is_caffes(tmp_path, backend):
    if backend == "leveldb":
        pytest.importorskip("plyvel")
    mean, count = database_mean(shared_db(f"mnist300_{backend}", tmp_path), backend=backend)
    assert count == 300
    np.testing.assert_array_equal(mean, load_mean(SHARED / "data" / "db" / "mnist300_mean.binaryproto"))


@needs_shared
def test_pictures_that_caffe_encoded(tmp_path):
    pytest.importorskip("cv2")
    mean, count = database_mean(shared_db("images_raw_lmdb", tmp_path))
    assert count == 3 and mean.shape == (3, 64, 80)
    pytest.importorskip("plyvel")
    mean, count = database_mean(shared_db("images_encoded_leveldb", tmp_path), backend="leveldb")
    assert count == 3 and mean.shape == (3, 32, 32) and 90 < mean.mean() < 180
