"""Starts ranks with `mpiexec` (MPICH's Hydra), as processes of their own."""

from __future__ import annotations

import importlib.util
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

LIMIT_S = 600.0  # the machine may be busy, or stand still for a while
MPIEXEC = shutil.which("mpiexec", path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}")
needs_mpi = pytest.mark.skipif(
    MPIEXEC is None or importlib.util.find_spec("mpi4py") is None,
    reason="no mpiexec or no mpi4py: pip install mpi4py mpich",
)
TRAIN = [sys.executable, "-m", "pycaffe_lms", "train"]


def environment(**more: str) -> dict[str, str]:
    """Return an environment in which ranks import this package, whatever their folder."""
    return os.environ | {"PYTHONPATH": os.pathsep.join(p for p in sys.path if p), "OMP_NUM_THREADS": "1"} | more


def start(count: int, words: list[str], folder: Path, **more: str) -> subprocess.Popen:
    """Start ranks in a folder; their output is one text of stdout and stderr."""
    return subprocess.Popen(
        [MPIEXEC, "-n", str(count), *words],
        cwd=folder,
        env=environment(**more),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )


def finish(process: subprocess.Popen) -> tuple[int, str]:
    """Return exit code and output; end what lasts too long, with all ranks."""
    try:
        said, _ = process.communicate(timeout=LIMIT_S)
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGINT)
        process.send_signal(signal.SIGINT)
        said, _ = process.communicate()
        pytest.fail(f"the ranks did not end within {LIMIT_S:g} s:\n{said}")
    return process.returncode, said


def mpiexec(count: int, words: list[str], folder: Path, **more: str) -> tuple[int, str]:
    return finish(start(count, words, folder, **more))
