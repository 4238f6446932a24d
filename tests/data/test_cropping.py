"""Pictures that processes crop: the batches are those of threads, in any order; errors name the record."""

from __future__ import annotations

import errno
import gc
import signal

import cv2
import numpy as np
import pytest

from pycaffe_lms.data.database.datum import encode_datum
from pycaffe_lms.data.database.lmdb_writer import write_lmdb
from pycaffe_lms.data.feed import cropping
from pycaffe_lms.data.feed.batches import DatumBatches
from pycaffe_lms.data.feed.image_list import ImageBatches, ImageList
from pycaffe_lms.data.transform.transformer import CroppedBatch, DataTransformer
from pycaffe_lms.errors import DataError
from pycaffe_lms.proto.caffe_pb2 import TRAIN, Datum, TransformationParameter
from tests.solvers.helpers import bits, inner, loss, make

SIDE = 130


def encoded(k, side=SIDE):
    small = np.random.default_rng(k).integers(0, 256, (6, 6, 3), np.uint8)
    data = cv2.imencode(".jpg", cv2.resize(small, (side, side), interpolation=cv2.INTER_CUBIC))[1].tobytes()
    return Datum(encoded=True, data=data, label=k).SerializeToString()


@pytest.fixture(autouse=True)
def four_threads(monkeypatch):
    monkeypatch.setattr(cropping, "_LEAST_VALUES", 1)
    monkeypatch.setattr(cropping, "thread_count", lambda: 4)


@pytest.fixture
def folder(tmp_path):
    def write(**changed):
        records = [(b"%02d" % k, changed.get(f"r{k}", encoded(k))) for k in range(14)]
        write_lmdb(tmp_path / "db", records)
        return tmp_path / "db"

    return write


def reading(path, *, ranks=1, **fields):
    fields = {"crop_size": 120, "mirror": True, "mean_value": [3], **fields}
    transformer = DataTransformer(TransformationParameter(**fields), TRAIN, source=str(path))
    return DatumBatches(path, "LMDB", 4, transformer, rank=ranks - 1, ranks=ranks, seed=7, as_bytes=True)


def listed(folder, **fields):
    """The same of picture files: 14, two of them in gray and one small, in a random order."""
    for k in range(14):
        data = Datum.FromString(encoded(k, 30 if k == 5 else SIDE)).data
        if k in (3, 4):
            data = cv2.imencode(".png", cv2.imdecode(np.frombuffer(data, np.uint8), cv2.IMREAD_GRAYSCALE))[1].tobytes()
        (folder / f"{k}.jpg").write_bytes(data)
    (folder / "list.txt").write_text("".join(f"{k}.jpg {k}\n" for k in range(14)))
    transformer = DataTransformer(TransformationParameter(crop_size=128, mirror=True), TRAIN, source="list.txt")
    images = ImageList(folder / "list.txt", f"{folder}/")
    return ImageBatches(images, 4, transformer, size=(132, 140), shuffle=True, seed=7, as_bytes=True, **fields)


def by_threads(subject):
    subject._cropping.close()
    subject._cropping = None
    return subject


def same(ours, theirs):
    assert isinstance(ours, CroppedBatch) and isinstance(theirs, CroppedBatch)
    for a, b in zip(ours, theirs, strict=True):
        np.testing.assert_array_equal(a, b)
        assert a.dtype == b.dtype


@pytest.mark.parametrize(
    "fields", [{}, {"force_gray": True}, {"noise_param": {"hist_eq": True, "prob": 0.5, "clahe": True}}], ids=str
)
def test_batches_in_any_order(folder, monkeypatch, fields):
    path = folder()
    subject, other = reading(path, **fields), by_threads(reading(path, **fields))
    asked, given = [], cropping._given
    monkeypatch.setattr(cropping, "_given", lambda items, *at: asked.append(at) or given(items, *at))
    try:
        for batch in (0, 1, 2, 5, 6, 8, 10, 12, 3):
            same(subject.produce(batch), other.produce(batch))
        assert asked == [(0, 1), (5, 3), (6, 1), (8, 2), (3, 1)]  # each time the processes start anew
    finally:
        subject.close()
        other.close()


def test_ranks_and_another_first_record(folder):
    path = folder()
    subject, other = reading(path, ranks=3), by_threads(reading(path, ranks=3))
    try:
        same(subject.produce(0), other.produce(0))
        subject.first = other.first = 5
        same(subject.produce(1), other.produce(1))
    finally:
        subject.close()
        other.close()


def test_picture_files(tmp_path):
    subject, other = listed(tmp_path), listed(tmp_path, by_processes=False)
    assert subject._cropping is not None and other._cropping is None
    try:
        seen = [subject.produce(batch) for batch in range(7)]
        for batch in range(7):
            same(seen[batch], other.produce(batch))
        assert sorted(np.concatenate([found.labels for found in seen])) == sorted([*range(14)] * 2)
        subject.close()  # else the processes have read what comes next
        (tmp_path / "9.jpg").write_bytes(b"no picture")
        with pytest.raises(DataError, match="list.txt:10.*9.jpg.*not a picture") as caught:
            for batch in range(7, 14):
                subject.produce(batch)
        assert caught.value.fix == "replace the picture, or remove its line from the list"
        subject.first = 3
        (tmp_path / "9.jpg").write_bytes((tmp_path / "8.jpg").read_bytes())
        other.first = 3
        same(subject.produce(1), other.produce(1))
    finally:
        subject.close()
        other.close()


def test_another_virtual_rank_takes_threads(folder):
    net = (
        f'layer {{ name: "data" type: "Data" top: "x" top: "label" data_param {{ source: "{folder()}" batch_size: 4 '
        "backend: LMDB } }\n"
    )
    solver = make(net + inner(outputs=14) + loss(), "sim")
    try:
        layer = solver.net.graph.nodes[0].layer
        assert layer._batches._cropping is not None
        layer.update_context(solver_count=2)
        layer.turn_to(1, 3)
        assert layer._batches.as_bytes and layer._batches._cropping is None
    finally:
        solver.close()


@pytest.mark.parametrize(
    "record, words",
    [
        (b"rubbish", 'db \\(record "06"\\): these 7 bytes are not a Datum'),
        (Datum(encoded=True, data=b"no picture").SerializeToString(), 'record "06".*not a picture'),
        (encoded(6, 100), "crop_size 120 is larger than an item of 100 x 100"),
    ],
    ids=["rubbish", "no picture", "small"],
)
def test_errors_come_with_their_batch_and_name_the_record(folder, record, words):
    subject = reading(folder(r6=record))
    try:
        subject.produce(0)
        for _ in range(2):  # it can be asked again
            with pytest.raises(Exception, match=words):
                subject.produce(1)
        assert subject.produce(2).labels.tolist() == [8, 9, 10, 11]
    finally:
        subject.close()


def processes(subject):
    return [child._process for child in subject._cropping._coming.gi_frame.f_locals["children"]]


def test_signals_to_the_group_leave_them(folder):
    """A cluster sends SIGTERM to every process of a job; the training still makes its snapshot, and an iteration."""
    subject = reading(folder())
    try:
        subject.produce(0)
        for process in processes(subject):
            for each in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
                process.send_signal(each)
        for batch in range(1, 60):
            assert len(subject.produce(batch).labels) == 4
        assert all(process.poll() is None for process in processes(subject))
        ended = processes(subject)
        subject.close()
        assert all(process.wait(10) for process in ended)
    finally:
        subject.close()


@pytest.mark.parametrize("kind", ["database", "list"])
def test_the_last_name_that_goes_ends_them(folder, tmp_path, kind):
    subject = reading(folder()) if kind == "database" else listed(tmp_path)
    subject.produce(0)
    running = processes(subject)
    gc.disable()
    try:
        del subject
        assert [process.poll() for process in running] == [-9] * 4
    finally:
        gc.enable()


def test_a_process_that_cannot_start(folder, monkeypatch):
    subject = reading(folder())

    def refuse(*_, **__):
        raise BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable")

    monkeypatch.setattr("subprocess.Popen", refuse)
    try:
        with pytest.raises(DataError, match="cannot start: Resource temporarily unavailable") as caught:
            subject.produce(0)
        assert "OMP_NUM_THREADS=1" in caught.value.fix
    finally:
        subject.close()


def test_a_process_that_is_killed(folder):
    subject = reading(folder())
    try:
        subject.produce(0)
        for process in processes(subject):
            process.kill()
        with pytest.raises(DataError, match="a process that reads pictures ended with code -9"):
            for batch in range(1, 60):
                subject.produce(batch)
        assert len(subject.produce(4).labels) == 4
    finally:
        subject.close()


def test_values_that_are_not_bytes(folder):
    values = encode_datum(np.full((3, SIDE, SIDE), 0.5, np.float32), 1)
    path = folder(r6=values)
    subject, other = reading(path), by_threads(reading(path))
    try:
        same(subject.produce(0), other.produce(0))
        for a, b in zip(subject.produce(1), other.produce(1), strict=True):
            np.testing.assert_array_equal(a, b)
        assert subject._cropping._coming is None
    finally:
        subject.close()
        other.close()


def test_which_pictures_get_processes():
    large, small = np.empty((3, 128, 128), np.uint8), np.empty((3, 127, 128), np.uint8)
    found = [
        cropping.processes_for(*a) for a in ((large, True, 4), (large, True, 16), (large, True, 3), (small, True, 8))
    ]
    assert found == [4, 8, 0, 0] and not cropping.processes_for(large, False, 8)


def test_training_resumes_to_the_bit(folder, tmp_path):
    data = (
        f'layer {{ name: "data" type: "Data" top: "x" top: "label" data_param {{ source: "{folder()}" batch_size: 4 '
        "backend: LMDB } transform_param { crop_size: 128 mirror: true scale: 0.001 } }\n"
    )
    net = data + inner(outputs=14) + loss()
    options = {"snapshot_prefix": f'"{tmp_path}/r"', "momentum": 0.9}
    whole, first, second = (make(net, "sim with LMS", random_seed=s, **options) for s in (3, 3, 8))
    on_cpu = make(net, "cpu", random_seed=3, **options)
    try:
        assert whole.net.graph.nodes[0].layer._batches._cropping is not None
        for solver in (whole, on_cpu):
            solver.step(5)
        first.step(3)
        first.snapshot()
        second.restore(f"{tmp_path}/r_iter_3.solverstate")
        second.step(2)
        assert bits(second) == bits(whole) == bits(on_cpu)
    finally:
        for solver in (whole, first, second, on_cpu):
            solver.close()
