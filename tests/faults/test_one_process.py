"""Whatever fails, a training ends in one clear error or goes on, and what is on the disk leads to the same bits."""

from __future__ import annotations

import pytest

from pycaffe_lms.faults import DEVICE, FILES

from .sweeps import SHARES, Training, sweep

EVERY = {"operation": 18, "event": 11, "copy": 6, "write": 10}
"""Of the kinds with most operations only some, others for another PYCAFFE_LMS_SEED."""


@SHARES
@pytest.mark.parametrize(
    "lasting", [pytest.param(False, id="once", marks=pytest.mark.thorough), pytest.param(True, id="from then on")]
)
@pytest.mark.parametrize("kind", DEVICE)
def test_the_device_fails(tmp_path, monkeypatch, capsys, kind, lasting, whole):
    training = Training(tmp_path, monkeypatch, lambda: capsys.readouterr().err, "BINARYPROTO", "random")
    every = 1 if whole else EVERY.get(kind, 1)
    sweep(training.counts[kind], lambda n: training.survive(kind, n, lasting), every=every, kind=kind, lasting=lasting)


@SHARES
@pytest.mark.parametrize(
    ("form", "lasting"),
    [
        pytest.param("BINARYPROTO", False, id="BINARYPROTO-once"),
        pytest.param("BINARYPROTO", True, id="BINARYPROTO-from then on"),
        pytest.param("HDF5", False, id="HDF5-once", marks=pytest.mark.thorough),
        pytest.param("HDF5", True, id="HDF5-from then on", marks=pytest.mark.thorough),
    ],
)
@pytest.mark.parametrize("kind", FILES)
def test_the_disk_fails(tmp_path, monkeypatch, capsys, kind, form, lasting, whole):
    if form == "HDF5":
        pytest.importorskip("h5py")
    training = Training(tmp_path, monkeypatch, lambda: capsys.readouterr().err, form, "latest")
    tried = lambda n: training.survive(kind, n, lasting)  # noqa: E731
    every = 1 if whole else EVERY.get(kind, 1)
    sweep(training.counts[kind], tried, every=every, kind=kind, form=form, lasting=lasting)
