"""Compiling with NVRTC: in this process, and in others."""

import pytest

from pycaffe_lms.backend import cuda
from pycaffe_lms.backend.cuda import kernels, nvrtc

SOURCES = [f'extern "C" __global__ void f(float* x) {{ x[threadIdx.x] *= {i}.5f; }}' for i in range(4)]
OPTIONS = ("--std=c++14", "-ftz=true", "-arch=sm_90")


def test_a_process_without_the_library_says_so(tmp_path):
    with pytest.raises(RuntimeError, match=r"OSError: .*no\.so"):
        list(nvrtc.compile_apart(str(tmp_path / "no.so"), OPTIONS, SOURCES, 2))


@pytest.fixture
def library():
    if not cuda.available():
        pytest.skip("no GPU")
    return kernels._library()


@pytest.mark.gpu
def test_processes_compile_the_same_programs(library):
    here = nvrtc.compile_here(library, OPTIONS, SOURCES)
    assert all(program.startswith(b"\x7fELF") for program in here)
    assert dict(nvrtc.compile_apart(library, OPTIONS, SOURCES, 3)) == dict(zip(SOURCES, here, strict=True))
    assert dict(nvrtc.compile_apart(library, OPTIONS, ["not C++", SOURCES[0]], 2)) == {SOURCES[0]: here[0]}


@pytest.mark.gpu
def test_an_error_has_the_compilers_words(library):
    with pytest.raises(nvrtc.CompileError, match='identifier "y" is undefined'):
        nvrtc.compiler(library).compile(SOURCES[0].replace("x[", "y["), OPTIONS)


@pytest.mark.gpu
def test_a_newer_gpu_gets_a_virtual_architecture(library):
    compiler = nvrtc.compiler(library)
    assert compiler.target(90) == "-arch=sm_90"
    virtual = compiler.target(9999)
    assert virtual.startswith("-arch=compute_")
    assert b".version" in compiler.compile(SOURCES[0], (*OPTIONS[:2], virtual))
