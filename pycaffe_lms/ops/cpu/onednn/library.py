"""Find and load oneDNN 3, whose convolutions the CPU runs where it is installed.

The library is that of the package onednn-cpu-gomp, else that of the conda environment, else libdnnl.so.3 where the
loader finds one. The environment variable PYCAFFE_LMS_ONEDNN names another file, or is `off`.
"""

from __future__ import annotations

import ctypes
import functools
import importlib.metadata
import logging
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ....errors import DeviceError

VARIABLE = "PYCAFFE_LMS_ONEDNN"
_PACKAGE, _SONAME, _MAJOR = "onednn-cpu-gomp", "libdnnl.so.3", 3
_RUNTIMES = (1, 2, 4)  # one thread, OpenMP, TBB
_log = logging.getLogger(__name__)


class _Version(ctypes.Structure):
    _fields_ = [
        ("major", ctypes.c_int),
        ("minor", ctypes.c_int),
        ("patch", ctypes.c_int),
        ("hash", ctypes.c_char_p),
        ("cpu_runtime", ctypes.c_uint),
    ]


@functools.cache
def load() -> ctypes.CDLL | None:
    """Return the library; None where none is installed, or where it is switched off. Tried once per process.

    Warns of a package that is installed and does not load.

    Raises:
        DeviceError: the file that the environment names is not oneDNN 3.
    """
    wish = os.environ.get(VARIABLE, "")
    if wish.lower() == "off":
        return None
    if wish:
        try:
            return _open(wish)
        except (OSError, AttributeError) as error:
            raise DeviceError(
                f"{VARIABLE}={wish} cannot be loaded as oneDNN {_MAJOR}: {error}",
                fix=f"name a file {_SONAME}, or unset the variable",
            ) from error
    for path in (_installed(), _SONAME):
        if path is None:
            continue
        try:
            return _open(path)
        except (OSError, AttributeError) as error:
            if path != _SONAME:
                _log.warning(
                    "oneDNN is installed (%s) but does not load: %s; convolutions run without it. fix: install what "
                    "it needs (libgomp1), or set %s=off",
                    path,
                    error,
                    VARIABLE,
                )
    return None


def describe() -> str:
    """Return the library's name, such as "oneDNN 3.2.0"; "" where there is none."""
    library = load()
    return "" if library is None else "oneDNN {}.{}.{}".format(*_version(library))


def _installed() -> str | None:
    """Return the path of the library of the wheel, else of Python's conda environment; None without one."""
    try:
        files = importlib.metadata.files(_PACKAGE) or ()
    except importlib.metadata.PackageNotFoundError:
        files = ()
    of_conda = Path(sys.prefix, "lib", _SONAME)  # the loader looks there only for some builds of Python
    of_wheel = [Path(f.locate()).resolve() for f in files if f.name == _SONAME]
    return next((str(path) for path in (*of_wheel, of_conda) if path.exists()), None)


def _open(path: str) -> ctypes.CDLL:
    with _passive_openmp():
        library = ctypes.CDLL(path)
    library.dnnl_version.restype = ctypes.POINTER(_Version)
    _check(library.dnnl_version().contents)
    library.dnnl_primitive_desc_query_md.restype = ctypes.c_void_p
    library.dnnl_memory_desc_get_size.restype = ctypes.c_size_t
    return library


def _check(version: _Version) -> None:
    """Raise OSError where the library's calls are not those of version 3 with CPU threads."""
    if version.major != _MAJOR:
        raise OSError(f"it is version {version.major}.{version.minor}")
    if version.cpu_runtime not in _RUNTIMES:
        raise OSError(f"it was built for runtime {version.cpu_runtime} on the CPU, not for one of its own threads")


def _version(library: ctypes.CDLL) -> tuple[int, int, int]:
    version = library.dnnl_version().contents
    return version.major, version.minor, version.patch


@contextmanager
def _passive_openmp() -> Iterator[None]:
    """Let an OpenMP that is loaded meanwhile put its threads to sleep between two calls.

    By default they spin for milliseconds, on the cores that our own kernels need next. A policy that the user has set
    stays.
    """
    name = "OMP_WAIT_POLICY"
    mine = not any(variable in os.environ for variable in (name, "GOMP_SPINCOUNT", "KMP_BLOCKTIME"))
    if mine:
        os.environ[name] = "PASSIVE"
    try:
        yield
    finally:
        if mine:
            del os.environ[name]
