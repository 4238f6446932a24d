"""-tensorboard: event files, read by their format."""

from __future__ import annotations

import struct

import pytest

from pycaffe_lms.cli.live import event_files, metrics
from pycaffe_lms.solvers.events import Evaluation, Output

from .watching import DISPLAYS, six


def _checksum(data: bytes) -> int:
    """CRC-32C (Castagnoli's polynomial) bit by bit, turned and shifted as TFRecord files have it."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    crc ^= 0xFFFFFFFF
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def _scalars(folder):
    """Of all event files in a folder, in order: (tag, step, value), read by the format of TFRecord files: a length
    of 8 bytes, 4 bytes of checksum, the message, 4 bytes of checksum."""
    from tensorboardX.proto.event_pb2 import Event

    found, purged = [], []
    for path in sorted(folder.iterdir()):
        data, at = path.read_bytes(), 0
        while at < len(data):
            (size,) = struct.unpack_from("<Q", data, at)
            message = data[at + 12 : at + 12 + size]
            assert struct.unpack_from("<I", data, at + 8)[0] == _checksum(data[at : at + 8])
            assert struct.unpack_from("<I", data, at + 12 + size)[0] == _checksum(message)
            event = Event.FromString(message)
            at += 16 + size
            found += [(v.tag, event.step, v.simple_value) for v in event.summary.value]
            purged += [event.step] if event.session_log.status == 1 else []  # START
    return found, purged


def test_event_files(train, tmp_path):
    pytest.importorskip("tensorboardX")
    code, log = train("-tensorboard", "events/run", "-metrics", "m.jsonl")
    assert code == 0
    found, purged = _scalars(tmp_path / "events" / "run")
    assert not purged
    losses = [(str(step), six(value)) for tag, step, value in found if tag == "train/loss"]
    assert losses == DISPLAYS.findall(log)
    tests = [(r["iteration"], r["outputs"]["acc"]) for r in metrics.read("m.jsonl") if r["kind"] == "test"]
    assert [(step, pytest.approx(value)) for tag, step, value in found if tag == "test/acc"] == tests
    assert {tag for tag, *_ in found} == {
        *("train/loss", "train/lr", "train/outputs/loss", "test/acc", "test/loss"),
        *("speed/images_per_second", "speed/iterations_per_second"),
    }


def test_event_files_of_a_resumed_run_take_back_what_is_done_again(train, tmp_path):
    pytest.importorskip("tensorboardX")
    train("-tensorboard", "events")
    first = set((tmp_path / "events").iterdir())
    (tmp_path / "first").mkdir()
    for path in first:
        path.rename(tmp_path / "first" / path.name)
    train("-tensorboard", "events", "-snapshot", "s_iter_3.solverstate")
    found, purged = _scalars(tmp_path / "events")
    assert purged == [3] and min(step for _, step, _ in found) == 3


def test_elements_of_outputs_have_tags_of_their_own():
    outputs = (Output("a", 1.0, 0), Output("p", 2.0, 0), Output("p", 3.0, 0))
    test = Evaluation(5, 1, outputs, 0.5, 1)
    assert list(event_files.test_scalars(test)) == [
        *(("test1/a", 1.0), ("test1/p/0", 2.0), ("test1/p/1", 3.0), ("test1/mean_loss", 0.5)),
    ]
