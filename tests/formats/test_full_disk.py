"""Fill the disk while HDF5 is written: an error that says so, the old file unchanged, nothing left over, no crash.

libhdf5 ends a process by SIGSEGV when it closes a file after a write that failed, so each case runs in a child.
"""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap

import pytest

pytest.importorskip("h5py")
resource = pytest.importorskip("resource")

# Everything of ours that writes HDF5, as functions of a path. Sizes pass HDF5's buffers of some KB many times.
WRITERS = """
    import errno, io, os, sys
    import numpy as np
    from pycaffe_lms.data.feed.hdf5_writer import HDF5Writer
    from pycaffe_lms.data.sets.volumes import _Row, _write_file, Pair
    from pycaffe_lms.errors import CaffeError
    from pycaffe_lms.formats import atomic
    from pycaffe_lms.formats.weights.hdf5_weights import write_hdf5_weights
    from pycaffe_lms.formats.weights.solverstate import SolverSnapshot, write_solverstate

    values = np.arange(4096, dtype=np.float32).reshape(64, 64)

    def weights(path):
        layers = [(f"layer{i}", [values, values[0]]) for i in range(8)]
        write_hdf5_weights(path, layers, layers)

    def state(path):
        write_solverstate(path, SolverSnapshot(1, "m", 0, [values] * 8, {("train", "d", "k"): 3}, {}, "SGD"))

    def rows(path):
        writer = HDF5Writer(path)
        try:
            for _ in range(8):
                writer.append({"data": values, "label": values[:, 0]})
        finally:
            writer.close()

    def volumes(path):
        some = [_Row(Pair(k, "v", k), values.reshape(1, 4, 16, 64), np.float32(k), None) for k in range(1, 9)]
        _write_file(path, iter(some), 8, 0, 8, None)

    def attempt(write):
        with open("a.h5", "wb") as old:
            old.write(b"old")
        try:
            write("a.h5")
        except CaffeError as error:
            assert "a.h5: cannot be written: " in str(error) and error.fix, error
            assert os.listdir() == ["a.h5"] and open("a.h5", "rb").read() == b"old", os.listdir()
            return False
        assert os.listdir() == ["a.h5"] and open("a.h5", "rb").read(4) == b"\\x89HDF", os.listdir()
        return True
"""

NTH_WRITE = """
    class Full(io.FileIO):
        left = 0
        def write(self, content):
            Full.left -= 1
            if Full.left < 0:
                raise OSError(errno.ENOSPC, "No space left on device")
            return super().write(content)

    atomic.io.FileIO = Full
    for write in (weights, state, rows, volumes):
        n = 0
        while True:
            Full.left = n
            if attempt(write):
                break
            n += 1
        assert n > 3, "the writes of a whole file pass through here"
        print(write.__name__, n)
"""

LIMIT = """
    import resource, signal
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    for write in (weights, state, rows, volumes):
        most = 1 << 20
        refused = 0
        for size in [3, 100, 1000, 2048, 5000, 20000, 50000, 100000, most]:  # of the largest file, in bytes
            resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))
            whole = attempt(write)
            refused += not whole
            assert not whole or os.path.getsize("a.h5") <= size
        assert whole and refused >= 7
        print(write.__name__, refused)
"""


def _run(script: str, folder) -> str:
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(WRITERS) + textwrap.dedent(script)],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "PYTHONDONTWRITEBYTECODE": "1"},
    )
    assert done.returncode == 0, f"ended with {done.returncode}\n{done.stdout}{done.stderr}"
    assert "Traceback" not in done.stderr and "Error" not in done.stderr, done.stderr
    return done.stdout


@pytest.mark.parametrize("script", [NTH_WRITE, LIMIT], ids=["no room from the nth write on", "a limit of the system's"])
def test_hdf5(script, tmp_path):
    assert _run(script, tmp_path).split()[::2] == ["weights", "state", "rows", "volumes"]
