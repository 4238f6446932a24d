"""Kernels are compiled once, by processes where they are many, and kept on disk. CuPy and NVRTC are stand-ins."""

import sys
from types import SimpleNamespace

import pytest

from pycaffe_lms.backend.cuda import kernels, nvrtc
from pycaffe_lms.errors import DeviceError

PROCESS = """
import pickle, sys
path, options, sources = pickle.load(sys.stdin.buffer)
assert (path, options) == ("library", ("-arch=sm_90",)), (path, options)
if any("process fails" in source for source in sources):
    raise ValueError("no memory")
pickle.dump([None if "wrong" in source else b"apart: " + source.encode() for source in sources], sys.stdout.buffer)
"""
MANY = [(f"source {i}", "f", "float32") for i in range(kernels._FEWEST)]


class Module:
    """Stand in for CuPy's: a function is its program's binary and its name."""

    def load(self, binary):
        self.binary = binary

    def get_function(self, name):
        return self.binary.decode(), name


@pytest.fixture
def gpu(monkeypatch, tmp_path):
    """Return what is compiled in this process, and the number of the current device."""
    said = SimpleNamespace(compiled=[], device=0, loaded=[])

    class Noted(Module):
        def load(self, binary):
            said.loaded.append((said.device, binary))
            super().load(binary)

    class Compiler:
        def compile(self, program, options):
            said.compiled.append(program)
            if "wrong" in program:
                raise nvrtc.CompileError("line 1: what is this?")
            return b"here: " + program.encode()

    def start():
        monkeypatch.setattr(kernels, "_functions", {})
        monkeypatch.setattr(kernels, "_modules", {})

    cuda = SimpleNamespace(
        runtime=SimpleNamespace(getDevice=lambda: said.device), function=SimpleNamespace(Module=Noted)
    )
    monkeypatch.setitem(sys.modules, "cupy", SimpleNamespace(cuda=cuda))
    monkeypatch.setattr(kernels, "_target", lambda device: kernels._Target("library", ("-arch=sm_90",), "about"))
    monkeypatch.setattr(kernels, "cache_folder", lambda: tmp_path)
    monkeypatch.setattr(nvrtc, "compiler", lambda path: Compiler())
    (tmp_path / "process.py").write_text(PROCESS)
    monkeypatch.setattr(nvrtc, "_COMMAND", [sys.executable, str(tmp_path / "process.py")])
    said.start = start
    start()
    return said


def test_many_are_compiled_by_processes_and_read_at_the_next_start(gpu, monkeypatch):
    kernels.compile_kernels([*MANY, ("source 0", "g", "float32"), ("source 0", "f", "uint16")])
    assert not gpu.compiled and len(gpu.loaded) == len(MANY) + 1, "one for all functions of a source and type"
    found = {kernels.kernel(*key) for key in MANY}
    assert found == {(f"apart: {kernels.prelude('float32')}source {i}", "f") for i in range(len(MANY))}
    assert kernels.kernel("source 0", "g", "uint16")[0].startswith("apart: \n#define BF16")
    gpu.start()
    monkeypatch.setattr(nvrtc, "_COMMAND", ["no such program"])
    kernels.compile_kernels(MANY)
    assert {kernels.kernel(*key) for key in MANY} == found and not gpu.compiled


def test_few_are_compiled_here_when_they_are_launched(gpu, monkeypatch):
    monkeypatch.setattr(nvrtc, "_COMMAND", ["no such program"])
    kernels.compile_kernels(MANY[1:])
    assert not gpu.compiled
    for _ in range(2):
        assert kernels.kernel(*MANY[1])[0].startswith("here: ")
        assert len(gpu.compiled) == 1
    gpu.start()
    kernels.compile_kernels(MANY[1:2])
    assert kernels.kernel(*MANY[1])[0].startswith("here: ") and len(gpu.compiled) == 1, "kept, too"


@pytest.mark.parametrize("command", [None, ["/no/such/program"]])
def test_what_processes_fail_to_compile_is_compiled_here(gpu, monkeypatch, caplog, command):
    if command:
        monkeypatch.setattr(nvrtc, "_COMMAND", command)
    kernels.compile_kernels([*MANY, ("process fails", "f", "float32")])
    reason = "No such file" if command else "ValueError: no memory"
    assert reason in caplog.text and "compiled here, one by one" in caplog.text
    assert kernels.kernel("process fails", "f")[0].startswith("here: ")


def test_a_program_that_cannot_be_compiled_is_told_of_at_its_launch(gpu, caplog):
    kernels.compile_kernels([*MANY, ("wrong", "f", "float32")])
    assert not caplog.records
    with pytest.raises(DeviceError, match=r"line 1: what is this\?"):
        kernels.kernel("wrong", "f")


def test_a_damaged_file_is_passed_over(gpu, tmp_path, caplog):
    kernels.kernel("source", "f")
    (file,) = (tmp_path / "kernels").iterdir()
    file.write_bytes(file.read_bytes()[:-9])
    gpu.start()
    assert kernels.kernel("source", "f")[0].startswith("here: ") and len(gpu.compiled) == 2
    assert "is damaged and not used" in caplog.text


def test_each_device_loads_its_own(gpu):
    kernels.kernel("source", "f")
    gpu.device = 1
    kernels.kernel("source", "f")
    kernels.kernel("source", "g")
    assert [device for device, _ in gpu.loaded] == [0, 1] and len(gpu.compiled) == 1


def test_a_file_belongs_to_all_that_a_program_depends_on():
    names = {kernels._Target("library", (), about).name(program) for about in "ab" for program in "ab"}
    assert len(names) == 4
