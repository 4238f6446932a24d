"""MNIST in LMDBs, as the tutorials find it."""

from __future__ import annotations

import pytest

from pycaffe_lms.data.database.datum import encode_datum
from pycaffe_lms.data.database.lmdb_writer import write_lmdb
from tests.real.files import mnist
from tests.shared_data import SHARED

TRAIN_ITEMS, TEST_ITEMS = 6400, 1000


@pytest.fixture(scope="session")
def mnist_lmdb(tmp_path_factory):
    """{"train": path, "test": path} of databases of the first 6400 training and 1000 test digits."""
    if not SHARED.exists():
        pytest.skip("the real data that lies beside a developer's checkout is absent")
    folder, paths = tmp_path_factory.mktemp("mnist"), {}
    for part, name, count in (("train", "train", TRAIN_ITEMS), ("test", "t10k", TEST_ITEMS)):
        images, labels = mnist(name)
        paths[part] = str(folder / f"{part}_lmdb")
        write_lmdb(paths[part], ((b"%08d" % i, encode_datum(images[i], int(labels[i]))) for i in range(count)))
    return paths
