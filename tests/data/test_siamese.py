"""Pairs of digits."""

import numpy as np
import pytest

from pycaffe_lms.data.database.datum import decode_datum
from pycaffe_lms.data.database.open import open_database
from pycaffe_lms.data.sets.datasets import convert_mnist_siamese
from pycaffe_lms.errors import DataError
from tests.data.test_raw_files import idx_bytes, store


def pairs(path, backend):
    source = open_database(path, backend)
    try:
        return [(key, *decode_datum(value, source="pairs", key=key)) for key, value in source.records()]
    finally:
        source.close()


@pytest.mark.parametrize("backend", ["lmdb", "leveldb"])
def test_pairs(tmp_path, backend):
    if backend == "leveldb":
        pytest.importorskip("plyvel")
    count = 200
    images = np.arange(count, dtype=np.uint8)[:, None, None] * np.ones((1, 3, 2), np.uint8)  # picture k is all k
    labels = (np.arange(count) % 4).astype(np.uint8)
    files = store(tmp_path / "i.gz", idx_bytes(images)), store(tmp_path / "l", idx_bytes(labels))
    told = []
    for name, seed in (("a", 3), ("again", 3), ("other", 4)):
        shape = convert_mnist_siamese(
            *files, tmp_path / name, seed=seed, backend=backend, progress=lambda *at: told.append(at)
        )
        assert shape == (200, 3, 2)
    assert told[:200] == [(k, 200) for k in range(1, 201)]
    found = pairs(tmp_path / "a", backend)
    assert [key for key, _, _ in found] == [b"%08d" % k for k in range(count)]
    drawn = np.array([picture[:, 0, 0] for _, picture, _ in found])
    for (_, picture, label), (i, j) in zip(found, drawn, strict=True):
        assert picture.shape == (2, 3, 2) and (picture == [[[i]], [[j]]]).all()
        assert label == (i % 4 == j % 4)
    assert len(np.unique(drawn)) > 100 and 0.1 < np.mean([label for *_, label in found]) < 0.4  # a fourth agree
    again, other = pairs(tmp_path / "again", backend), pairs(tmp_path / "other", backend)
    assert all((a[1] == b[1]).all() for a, b in zip(found, again, strict=True))
    assert any((a[1] != b[1]).any() for a, b in zip(found, other, strict=True))


def test_no_pictures(tmp_path):
    files = [
        store(tmp_path / "i", idx_bytes(np.zeros((0, 3, 2), np.uint8))),
        store(tmp_path / "l", idx_bytes(np.zeros(0, np.uint8))),
    ]
    with pytest.raises(DataError, match="holds no picture"):
        convert_mnist_siamese(*files, tmp_path / "db", seed=0)
