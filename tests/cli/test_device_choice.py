"""Which device a command runs on: what was asked for, else a GPU if there is one, else the CPU; the log says which."""

from __future__ import annotations

import logging
from argparse import Namespace

import pytest

from pycaffe_lms.cli import devices
from pycaffe_lms.errors import CaffeError, UsageError
from pycaffe_lms.lms.config import LMSConfig

CPU, GPU = 0, 1


def _choose(monkeypatch, gpu_there, solver_mode=None, **flags):
    made = []
    monkeypatch.setattr(devices, "cuda_available", lambda: gpu_there)
    real = devices.get_device
    monkeypatch.setattr(devices, "get_device", lambda name, **options: made.append((name, options)) or real("cpu"))
    args = Namespace(**{"gpu": "", "backend": None, "workspace": None, "math": "tf32", "cache": ""} | flags)
    devices.choose(args, LMSConfig(), solver_mode=solver_mode)
    return made[0][0]


def test_an_explicit_solver_mode_is_obeyed_and_without_one_the_machine_decides(monkeypatch, caplog):
    caplog.set_level(logging.INFO)
    assert _choose(monkeypatch, True, CPU) == "cpu"
    assert "solver_mode asks for the CPU." in caplog.text
    assert _choose(monkeypatch, True) == "cuda"
    assert "there is a GPU" in caplog.text
    assert _choose(monkeypatch, False) == "cpu"
    assert "there is no GPU" in caplog.text
    assert _choose(monkeypatch, False, GPU) == "cuda"  # which then says that there is none
    assert _choose(monkeypatch, False, CPU, gpu="0") == "cuda"


def test_a_gpu_that_is_not_there_is_an_error_with_a_fix():
    if devices.cuda_available():
        pytest.skip("there is one")
    args = Namespace(gpu="", backend=None, workspace=None, math="tf32", cache="")
    with pytest.raises(CaffeError, match="fix:"):
        devices.choose(args, LMSConfig(), solver_mode=GPU)


def test_a_list_that_is_no_number():
    with pytest.raises(UsageError):
        devices.choose(Namespace(gpu="a", backend=None, workspace=None, math="tf32", cache=""), LMSConfig())


def test_the_log_says_what_convolutions_run_through(monkeypatch, caplog, onednn):
    caplog.set_level(logging.INFO)
    assert _choose(monkeypatch, False, CPU) == "cpu"
    assert "Convolutions run through oneDNN 3." in caplog.text


def test_the_log_does_not_name_a_library_that_is_not_used(monkeypatch, caplog):
    caplog.set_level(logging.INFO)
    assert _choose(monkeypatch, False, CPU) == "cpu"
    assert "Use CPU." in caplog.text and "oneDNN" not in caplog.text
