"""Compile the kernels of CUDA C++ sources, keep them in the cache folder, and give them to who launches them.

A program is compiled for all functions of its source at once. Its file is named by the SHA-256 of all that it depends
on: source, options, GPU and compiler. Those of a net are compiled ahead, in several processes (`nvrtc.py`).
"""

from __future__ import annotations

import functools
import hashlib
import logging
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...activity import activity
from ...errors import DeviceError
from ...formats.cache_folder import cache_folder
from ...formats.kept_files import KeptFiles
from ..child import cores
from . import nvrtc
from .rehearsal import Kernel

_log = logging.getLogger(__name__)

# Subnormal numbers count as zero. A function without a qualifier is one of the device.
_OPTIONS = ("--std=c++14", "-ftz=true", "--device-as-default-execution-space")
_FEWEST = 5  # programs from which processes are started
_FILES = 4000  # programs that are kept; the oldest are removed

# dtype of the arrays -> (T, A, C)
_TYPES = {
    "float32": ("float", "float", "float"),
    "float64": ("double", "double", "double"),
    "int32": ("int", "float", "int"),
    "uint16": ("bf16", "float", "float"),
}

# The conversion is PTX because kernels are compiled to flush subnormal floats, in conversions too.
_BF16 = """
#define BF16
struct bf16 {
  unsigned short bits;
  bf16() = default;
  __device__ bf16(float v) { asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(bits) : "f"(v)); }
  __device__ operator float() const { return __uint_as_float((unsigned)bits << 16); }
};
"""
_PRELUDE = """
typedef {data} T;  // of the arrays
typedef {sum} A;  // of sums
typedef {value} C;  // of one value that is worked on, and of parameters: T, but float where T is bf16
#define LOOP(i, n) for (long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x; i < (n); \\
                        i += (long long)gridDim.x * blockDim.x)
"""


def prelude(dtype: str) -> str:
    """Return the text before kernels for arrays of a NumPy type, by its name; "uint16" is bfloat16."""
    data, total, value = _TYPES[dtype]
    return (_BF16 if data == "bf16" else "") + _PRELUDE.format(data=data, sum=total, value=value)


_functions: dict[tuple[int, str, str, str], Any] = {}  # by device, source, name and type
_modules: dict[tuple[int, str], Any] = {}  # by device and program


def kernel(source: str, name: str, dtype: str = "float32") -> Any:
    """Return the function `name` of a CUDA C++ source, loaded on the current device, with the types `T` (data), `A`
    (sums) and `C` (values) that belong to `dtype`.

    Integer parameters must be `long long`, real ones `double`, because Python's int and float are passed as such.
    """
    import cupy

    key = (cupy.cuda.runtime.getDevice(), source, name, dtype)
    function = _functions.get(key)
    if function is None:
        function = _functions[key] = _module(key[0], prelude(dtype) + source).get_function(name)
    return function


def compile_kernels(wanted: Iterable[Kernel]) -> None:
    """Compile and load kernels for the current device. What cannot be compiled now is when it is launched."""
    programs = {prelude(dtype) + source: None for source, _, dtype in wanted}
    if not programs:
        return
    import cupy

    device = cupy.cuda.runtime.getDevice()
    with activity.doing("compiling kernels", bounded=False):
        target, files = _target(device), _files(cache_folder())
        found = {program: files.read(target.name(program), bytes) for program in programs}
        missing = [program for program, binary in found.items() if binary is None]
        if len(missing) >= _FEWEST:
            found |= _compiled_apart(target, files, missing)
        for program, binary in found.items():
            if binary is not None:
                _load(device, program, binary)


def _compiled_apart(target: _Target, files: KeptFiles, programs: list[str]) -> Mapping[str, bytes]:
    """Return programs compiled and kept by processes; those that are not in it are compiled later, one by one."""
    done = {}
    try:
        for program, binary in nvrtc.compile_apart(target.path, target.options, programs, min(cores(), len(programs))):
            done[program] = binary
            files.write(target.name(program), binary)
    except (OSError, RuntimeError) as error:
        _log.warning("A process that compiles kernels failed (%s); they are compiled here, one by one.", error)
    return done


def _module(device: int, program: str) -> Any:
    """Return a program as it is loaded on a device, which is the current one."""
    if (device, program) not in _modules:
        target, files = _target(device), _files(cache_folder())
        binary = files.read(target.name(program), bytes)
        if binary is None:
            with activity.doing("compiling kernels", bounded=False):
                try:
                    binary = nvrtc.compiler(target.path).compile(program, target.options)
                except nvrtc.CompileError as error:
                    fix = "this is a fault of pycaffe-lms, or NVRTC is too old: report it with the text above"
                    raise DeviceError(f"NVRTC cannot compile a kernel: {error}", fix=fix) from error
            files.write(target.name(program), binary)
        _load(device, program, binary)
    return _modules[device, program]


def _load(device: int, program: str, binary: bytes) -> None:
    import cupy

    if (device, program) not in _modules:
        module = cupy.cuda.function.Module()
        module.load(binary)
        _modules[device, program] = module


@dataclass(frozen=True, slots=True)
class _Target:
    """Hold the compiler's path, and its options for one GPU. about: both, with the compiler's version and size."""

    path: str
    options: tuple[str, ...]
    about: str

    def name(self, program: str) -> str:
        """Return what a program's file is called."""
        return hashlib.sha256(f"{self.about}\n{program}".encode()).hexdigest()[:40]


@functools.cache
def _target(device: int) -> _Target:
    import cupy

    path = _library()
    compiler = nvrtc.compiler(path)
    options = (*_OPTIONS, compiler.target(int(cupy.cuda.Device(device).compute_capability)))
    return _Target(path, options, f"{options} {compiler.version()} {os.path.getsize(path)}")


@functools.cache
def _library() -> str:
    """Return the path of the NVRTC library that CuPy uses."""
    try:
        from cuda import pathfinder  # CuPy needs it

        found = pathfinder.load_nvidia_dynamic_lib("nvrtc").abs_path
    except Exception as error:  # it has no common class for what it raises
        message, fix = f"NVRTC cannot be loaded: {error}", "install CuPy with its CUDA libraries"
        raise DeviceError(message, fix=fix) from error
    return str(found)


@functools.cache
def _files(folder: Path) -> KeptFiles:
    return KeptFiles(folder / "kernels", ".cubin.gz", _FILES, "compiled kernels are")
