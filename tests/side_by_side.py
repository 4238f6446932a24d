"""Tests in several processes (pytest-xdist): how many, with how many threads each, and what they share on disk."""

from __future__ import annotations

import os
import secrets
import sys
from pathlib import Path

MOST = 12  # processes, however many CPUs there are


def cpus() -> int:
    """The CPUs that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def choose_processes(config) -> None:
    """`pytest` without paths, hence of all tests, runs them side by side; `-n` and `--pdb` are obeyed.

    A process that is done takes half of what another has left, which keeps tests of one file together."""
    option, everything = config.option, config.args_source is config.ArgsSource.TESTPATHS
    if hasattr(config, "workerinput") or not everything or option.usepdb or option.collectonly:
        return
    if getattr(option, "numprocesses", 0) is not None:  # given, or pytest-xdist is not installed
        return
    if min(cpus(), MOST) > 1:
        option.numprocesses = min(cpus(), MOST)
        option.dist = "worksteal"


def keep_compiled(folder: Path) -> None:
    """Keep compiled modules in `folder` where Python may not write them beside their sources (PYTHONDONTWRITEBYTECODE):
    each of the many processes that tests start would compile the package anew."""
    if sys.dont_write_bytecode and sys.pycache_prefix is None:
        sys.dont_write_bytecode, sys.pycache_prefix = False, str(folder)
        os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
        os.environ["PYTHONPYCACHEPREFIX"] = str(folder)


def share_the_cpus() -> None:
    """In one of several processes: BLAS takes its share of the CPUs, and our kernels two threads at least, so that what
    depends on where work is cut is seen."""
    share = cpus() // int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", 1))
    if "PYTEST_XDIST_WORKER" in os.environ:
        os.environ.setdefault("OMP_NUM_THREADS", str(max(2, share)))
        os.environ.setdefault("OPENBLAS_NUM_THREADS", str(max(1, share)))


def keep_kernels_apart(cache_file=None) -> None:
    """Compiled kernels are kept on disk for all processes and runs, each in a file of its own.

    Numba numbers the files of a function by what its index says; two processes that compile it at a time, for different
    types, would take the same number, and the index could then name the other's code. Here numbers are random."""
    if cache_file is None:
        from numba.core.caching import IndexDataCacheFile as cache_file  # after `share_the_cpus`: it imports NumPy

    name_of = cache_file._data_name
    cache_file._data_name = lambda self, number: name_of(self, secrets.randbits(62))
