"""Compile CUDA C++ with NVRTC: here, or in processes, because within one it compiles one program after the other.

Run as a program, this file reads the pickled arguments of `compile_here` from stdin and writes the pickled answer. It
imports the standard library alone, so that it starts at once.
"""

from __future__ import annotations

import ctypes
import functools
import pickle
import subprocess
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

_pointer = ctypes.c_void_p
_COMMAND = [sys.executable, "-I", "-S", __file__]


class CompileError(Exception):
    """Say why a program cannot be compiled: the compiler's log."""


class Compiler:
    """Hold the library of a path. Raises OSError where there is none."""

    def __init__(self, path: str) -> None:
        self._library = ctypes.CDLL(path)
        self._library.nvrtcGetErrorString.restype = ctypes.c_char_p

    def version(self) -> tuple[int, int]:
        """Return the library's version: major, minor."""
        major, minor = ctypes.c_int(), ctypes.c_int()
        self._call("nvrtcVersion", ctypes.byref(major), ctypes.byref(minor))
        return major.value, minor.value

    def target(self, capability: int) -> str:
        """Return the option that names what to compile for.

        For a GPU that is newer than the library that is a virtual architecture, whose code the driver compiles again.

        Args:
            capability: the GPU's compute capability, such as 90 for 9.0.
        """
        count = ctypes.c_int()
        self._call("nvrtcGetNumSupportedArchs", ctypes.byref(count))
        known = (ctypes.c_int * count.value)()
        self._call("nvrtcGetSupportedArchs", known)
        if capability in known:
            return f"-arch=sm_{capability}"
        return f"-arch=compute_{max((one for one in known if one < capability), default=min(known))}"

    def compile(self, source: str, options: Sequence[str]) -> bytes:
        """Return a program as the driver loads it. Raises CompileError."""
        program = _pointer()
        self._call("nvrtcCreateProgram", ctypes.byref(program), source.encode(), None, 0, None, None)
        try:
            words = (ctypes.c_char_p * len(options))(*(option.encode() for option in options))
            if self._library.nvrtcCompileProgram(program, len(options), words):
                raise CompileError(self._text("ProgramLog", program).rstrip(b"\0").decode(errors="replace"))
            return self._text("CUBIN" if any(o.startswith("-arch=sm_") for o in options) else "PTX", program)
        finally:
            self._call("nvrtcDestroyProgram", ctypes.byref(program))

    def _text(self, what: str, program: ctypes.c_void_p) -> bytes:
        size = ctypes.c_size_t()
        self._call(f"nvrtcGet{what}Size", program, ctypes.byref(size))
        text = ctypes.create_string_buffer(size.value)
        self._call(f"nvrtcGet{what}", program, text)
        return text.raw

    def _call(self, name: str, *args: object) -> None:
        error = getattr(self._library, name)(*args)
        if error:
            raise CompileError(f"{name}: {self._library.nvrtcGetErrorString(error).decode()}")


compiler = functools.cache(Compiler)  # of a path


def compile_here(path: str, options: Sequence[str], sources: Sequence[str]) -> list[bytes | None]:
    """Return programs compiled by the library of a path; None for one that cannot be compiled."""

    def compiled(source: str) -> bytes | None:
        try:
            return compiler(path).compile(source, options)
        except CompileError:
            return None  # whoever needs it compiles it again and hears why

    return [compiled(source) for source in sources]


def compile_apart(
    path: str, options: Sequence[str], sources: Sequence[str], processes: int
) -> Iterator[tuple[str, bytes]]:
    """Yield (source, program), as `compile_here` compiles them, from so many processes.

    Raises:
        RuntimeError: a process failed; the text is the last line that it wrote.
    """
    by_length = sorted(sources, key=len)  # which tells about how long one takes
    shares = [by_length[start::processes] for start in range(processes)]
    with ThreadPoolExecutor(processes) as threads:
        for share, programs in zip(
            shares, threads.map(lambda share: _asked(path, options, share), shares), strict=True
        ):
            for source, program in zip(share, programs, strict=True):
                if program is not None:
                    yield source, program


def _asked(path: str, options: Sequence[str], sources: Sequence[str]) -> list[bytes | None]:
    done = subprocess.run(_COMMAND, input=pickle.dumps((path, options, sources)), capture_output=True)
    if done.returncode:
        lines = done.stderr.decode(errors="replace").strip().splitlines()
        raise RuntimeError(lines[-1] if lines else f"exit code {done.returncode}")
    programs: list[bytes | None] = pickle.loads(done.stdout)
    return programs


if __name__ == "__main__":
    pickle.dump(compile_here(*pickle.load(sys.stdin.buffer)), sys.stdout.buffer)
