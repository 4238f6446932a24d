"""Start processes that run a module of this package, and import no more of it than that module does.

The package's `__init__` imports nets and solvers too: without it a process starts four times as fast.
"""

from __future__ import annotations

import os
import sys

_PROGRAM = """
import sys
if sys.path[:1] == [""]:
    del sys.path[0]  # the current folder, whose files are not Python's
import importlib, importlib.util
sys.modules["pycaffe_lms"] = importlib.util.module_from_spec(importlib.util.find_spec("pycaffe_lms"))
sys.exit(importlib.import_module(sys.argv.pop(1)).main())
"""


def child_command(module: str) -> list[str]:
    """Return the command that runs a module's `main()`; words behind it are that process's `sys.argv[1:]`."""
    return [sys.executable, "-c", _PROGRAM, module]


def child_environment() -> dict[str, str]:
    """Return the environment of such a process: it finds what this one finds, and starts no threads for OpenBLAS."""
    paths = os.pathsep.join(os.path.abspath(path) for path in sys.path)
    return os.environ | {"PYTHONPATH": paths, "OPENBLAS_NUM_THREADS": "1"}


def cores() -> int:
    """Return the number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
