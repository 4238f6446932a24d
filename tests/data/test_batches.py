"""DatumBatches: which records, which values, errors that name the record."""

import logging
from contextlib import closing

import cv2
import numpy as np
import pytest

from pycaffe_lms.data.database.datum import decode_datum, encode_datum, encode_picture_datum
from pycaffe_lms.data.database.lmdb_source import LMDBSource
from pycaffe_lms.data.database.lmdb_writer import write_lmdb
from pycaffe_lms.data.feed.batches import DatumBatches
from pycaffe_lms.data.feed.prefetch import Prefetcher
from pycaffe_lms.errors import DataError, LayerParamError
from pycaffe_lms.ops.cpu import threads
from tests.data.helpers import numbered_lmdb, shared_db, transformer
from tests.shared_data import needs_shared

TEST = 1


def batches(path, size, text="", phase=0, **rest):
    return closing(DatumBatches(path, "LMDB", size, transformer(text, phase, str(path)), **rest))


def labels_of(subject, numbers):
    return [int(label) - 100 for b in numbers for label in subject.produce(b)[1]]


def test_records_in_order_with_wrap(tmp_path):
    with batches(numbered_lmdb(tmp_path / "db", 5), 3) as subject:
        assert subject.shape == (3, 1, 2, 3)
        assert labels_of(subject, range(4)) == [k % 5 for k in range(12)]
        data, labels = subject.produce(1)
        assert data.dtype == labels.dtype == np.float32 and labels.shape == (3,)
        assert data[:, 0, 0, 0].tolist() == [3, 4, 0]
        assert labels_of(subject, [7, 2, 0]) == [21 % 5, 22 % 5, 23 % 5, 1, 2, 3, 0, 1, 2]


@pytest.mark.parametrize("ranks", [2, 3, 7])
def test_ranks_share_the_records_in_train(tmp_path, ranks):
    path = numbered_lmdb(tmp_path / "db", 5)
    for rank in range(ranks):
        with batches(path, 2, rank=rank, ranks=ranks) as subject:
            # the running number k counts on over the end of the database
            assert labels_of(subject, range(6)) == [k % 5 for k in range(12 * ranks) if k % ranks == rank]


def test_every_rank_reads_everything_in_test(tmp_path):
    with batches(numbered_lmdb(tmp_path / "db", 5), 2, phase=TEST, rank=1, ranks=2) as subject:
        assert labels_of(subject, range(3)) == [0, 1, 2, 3, 4, 0]


def test_resuming_repeats_crops_and_mirrors(tmp_path):
    path = tmp_path / "db"
    rng = np.random.default_rng(0)
    write_lmdb(path, ((b"%d" % k, encode_datum(rng.integers(0, 256, (3, 9, 9), np.uint8), k)) for k in range(8)))
    text = "crop_size: 4 mirror: true scale: 0.5"
    with batches(path, 3, text, seed=5) as subject:
        whole = [subject.produce(b)[0] for b in range(6)]
    with batches(path, 3, text, seed=5) as subject, closing(Prefetcher(subject.produce, start=4)) as ahead:
        for b in (4, 5):
            np.testing.assert_array_equal(ahead.next()[0], whole[b])
    with batches(path, 3, text, seed=6) as subject:
        assert not np.array_equal(subject.produce(0)[0], whole[0])
    # records 0, 1, 2 twice, but drawn anew
    with batches(path, 8, text, seed=5) as subject:
        assert not np.array_equal(subject.produce(0)[0], subject.produce(1)[0])


def test_any_number_of_threads_makes_the_same_batches(tmp_path, monkeypatch):
    rng = np.random.default_rng(0)
    pictures = [cv2.imencode(".jpg", rng.integers(0, 256, (9, 9, 3), np.uint8))[1].tobytes() for _ in range(11)]
    write_lmdb(tmp_path / "db", ((b"%02d" % k, encode_picture_datum(data, k)) for k, data in enumerate(pictures)))
    found = []
    try:
        for number in ("1", "3"):
            monkeypatch.setenv("OMP_NUM_THREADS", number)
            threads._pool.cache_clear()
            with batches(tmp_path / "db", 7, "crop_size: 4 mirror: true mean_value: 9.7 scale: 0.3", seed=5) as subject:
                found.append([array.tobytes() for b in range(3) for array in subject.produce(b)])
    finally:
        threads._pool.cache_clear()
    assert found[0] == found[1] and len(set(found[0])) == 6


def test_dtype(tmp_path):
    with batches(numbered_lmdb(tmp_path / "db", 5), 2, dtype=np.float64) as subject:
        for b in range(7):
            data, labels = subject.produce(b)
            assert data.dtype == labels.dtype == np.float64
            assert data[0, 0, 0, 0] == 2 * b % 5


def test_train_and_test_net_on_one_database(tmp_path):
    path = numbered_lmdb(tmp_path / "db", 5)
    with batches(path, 2) as train, batches(path, 3, phase=TEST) as test:
        assert labels_of(train, [0]) == [0, 1]
        assert labels_of(test, [0]) == [0, 1, 2]
        assert labels_of(train, [1]) == [2, 3]


def many_sizes(path):
    sizes = [(4, 4), (6, 4), (5, 8)]
    write_lmdb(path, ((b"key%d" % k, encode_datum(np.full((1, *s), k, np.uint8))) for k, s in enumerate(sizes)))
    return path


def test_many_sizes(tmp_path):
    path = many_sizes(tmp_path / "db")
    with batches(path, 1) as subject:
        assert subject.shape == (1, 1, 4, 4)
        assert [subject.produce(b)[0].shape for b in range(4)] == [
            (1, 1, 4, 4),
            (1, 1, 6, 4),
            (1, 1, 5, 8),
            (1, 1, 4, 4),
        ]
    with batches(path, 3, "crop_size: 4") as subject:
        assert subject.produce(0)[0].shape == (3, 1, 4, 4)
    with batches(path, 2) as subject, pytest.raises(DataError, match='"key1".*\\(1, 6, 4\\)') as caught:
        subject.produce(0)
    assert "crop_size" in caught.value.fix


def test_errors_name_the_record(tmp_path):
    good = encode_datum(np.zeros((1, 4, 4), np.uint8))
    small = encode_datum(np.zeros((1, 2, 2), np.uint8))
    write_lmdb(tmp_path / "db", [(b"a", good), (b"b", b"\xff"), (b"c", good), (b"d", small)])
    with batches(tmp_path / "db", 2, "crop_size: 3") as subject:
        with pytest.raises(DataError, match='db \\(record "b"\\).*not a Datum'):
            subject.produce(0)
        with pytest.raises(LayerParamError, match='db \\(record "d"\\).*crop_size 3'):
            subject.produce(1)


def test_errors_of_the_first_record_leave_nothing_open(tmp_path):
    write_lmdb(tmp_path / "db", [(b"a", b"\xff")])
    for _ in range(2):
        with pytest.raises(DataError, match='record "a"'):
            batches(tmp_path / "db", 2)
    write_lmdb(tmp_path / "empty", [])
    with pytest.raises(DataError, match="no records"):
        batches(tmp_path / "empty", 2)


def test_colour_rules(tmp_path, caplog):
    file = cv2.imencode(".png", np.zeros((4, 5), np.uint8))[1].tobytes()
    write_lmdb(tmp_path / "pictures", [(b"a", encode_picture_datum(file))])
    with batches(tmp_path / "pictures", 1, "force_color: true") as subject:
        assert subject.shape == (1, 3, 4, 5)
    assert not caplog.messages
    with (
        caplog.at_level(logging.WARNING),
        batches(numbered_lmdb(tmp_path / "raw", 2), 2, "force_gray: true") as subject,
    ):
        subject.produce(0)
    assert len(caplog.messages) == 1 and "encoded pictures only" in caplog.messages[0]


@needs_shared
def test_real_database(tmp_path):
    path = shared_db("mnist300_lmdb", tmp_path)
    with LMDBSource(path) as source:
        images = np.stack([decode_datum(source.next()[1], source="real")[0] for _ in range(300)])
    with batches(path, 64, "scale: 0.00390625") as subject:
        for b in range(6):
            rows = np.arange(b * 64, b * 64 + 64) % 300
            np.testing.assert_array_equal(subject.produce(b)[0], images[rows] * np.float32(0.00390625))
