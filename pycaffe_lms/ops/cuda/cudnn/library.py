"""Load the package nvidia-cudnn-frontend (1.16-1.27) together with the cuDNN 9 library and what that needs.

The frontend opens `nvidia/cudnn/lib/libcudnn.so.9` of the interpreter's own site-packages, else that name anywhere. A
name also matches a library that is already open, so one in another folder of `sys.path` only has to be opened first.
cuDNN finds cublasLt and nvrtc in wheels beside its own; without cublasLt it ends the process as soon as it is asked for
a plan, so this module checks that cublasLt is there.
"""

from __future__ import annotations

import ctypes
import functools
import importlib
import importlib.util
import os
import sys
import sysconfig
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any

CUDNN = "libcudnn.so.9"


class Absent(Exception):
    """Say that cuDNN cannot be used; the text says what is missing."""


@functools.cache
def load() -> tuple[ModuleType | None, str]:
    """Return (the frontend, ""), or (None, the reason). Tried once per process; never raises."""
    try:
        with warnings.catch_warnings(), _torch_comes_later():
            warnings.simplefilter("ignore")
            return _load(), ""
    except Absent as absent:
        return None, str(absent)
    except Exception as error:  # another package's import may fail in any way; the answer is the same: no cuDNN
        return None, f"nvidia-cudnn-frontend cannot be loaded: {type(error).__name__}: {error}"


class _Torch(ModuleType):
    """Stand in for torch; any attribute is that of the real package, which is imported for it."""

    def __getattr__(self, name: str) -> Any:
        if sys.modules.get("torch") is self:
            del sys.modules["torch"]
        return getattr(importlib.import_module("torch"), name)


@contextmanager
def _torch_comes_later() -> Iterator[None]:
    """Let imports of torch in this context take no time. The frontend imports it where there is one, which takes
    seconds in every process, and needs it for PyTorch's own tensors only."""
    if "torch" in sys.modules or importlib.util.find_spec("torch") is None:
        yield
        return
    later = sys.modules["torch"] = _Torch("torch")
    try:
        yield
    finally:
        if sys.modules.get("torch") is later:
            del sys.modules["torch"]


def _load() -> ModuleType:
    if not any(os.path.isfile(os.path.join(root, "nvidia/cudnn/lib", CUDNN)) for root in _own_roots()):
        _open(CUDNN, ["nvidia/cudnn/lib"], "cudnn")
    try:
        frontend = importlib.import_module("cudnn")
    except ModuleNotFoundError as error:
        package = "nvidia-cudnn-frontend" if error.name == "cudnn" else error.name
        raise Absent(f"the package {package} is not installed") from error
    try:
        frontend.backend_version()
    except RuntimeError as error:  # the frontend imports without a library, and says so at the first call
        raise Absent(f"the cuDNN library ({CUDNN}) was not found") from error
    family = _cuda_family()
    if family is not None:
        beside = [f"nvidia/cu{family}/lib", "nvidia/cublas/lib"]
        if not _open(f"libcublasLt.so.{family}", beside, "cublasLt"):
            raise Absent(f"cuDNN needs libcublasLt.so.{family}, which was not found")
        # engines compiled at run time need nvrtc; cuDNN offers others where it is missing
        _open(f"libnvrtc.so.{family}", [f"nvidia/cu{family}/lib", "nvidia/cuda_nvrtc/lib"], "nvrtc")
    return frontend


def _cuda_family() -> int | None:
    """Return CUDA's major version that the open cuDNN was built for; None where that cannot be asked."""
    if sys.platform != "linux":
        return None
    try:
        version = ctypes.CDLL(CUDNN, mode=os.RTLD_NOLOAD).cudnnGetCudartVersion
    except (OSError, AttributeError):
        return None
    version.restype = ctypes.c_size_t
    return int(version()) // 1000


def _own_roots() -> list[str]:
    """Return the folders in which the frontend itself looks."""
    return [sysconfig.get_path("purelib")]


def _open(name: str, folders: list[str], pathfinder_name: str) -> bool:
    """Open a library for the whole process, and return whether it is open.

    Tried in turn: its name (open already, or on the loader's path), wheels, CUDA's path finder.
    """
    if sys.platform != "linux":
        return True  # elsewhere the frontend finds libraries itself
    roots = _own_roots() + [root or "." for root in sys.path]
    for path in [name] + [os.path.join(root, folder, name) for root in roots for folder in folders]:
        try:
            ctypes.CDLL(path, mode=ctypes.RTLD_GLOBAL)
            return True
        except OSError:
            continue
    try:
        importlib.import_module("cuda.pathfinder").load_nvidia_dynamic_lib(pathfinder_name)
        ctypes.CDLL(name, mode=ctypes.RTLD_GLOBAL)  # another family's library would not match this name
        return True
    except Exception:  # not installed, an old release, or nothing found
        return False
