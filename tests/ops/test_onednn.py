"""Convolutions and large gradients through oneDNN, against our own kernels in double."""

from __future__ import annotations

import ctypes.util
import logging

import numpy as np
import pytest

from pycaffe_lms.backend.cpu import CpuDevice
from pycaffe_lms.backend.sim.device import SimDevice
from pycaffe_lms.errors import DeviceError
from pycaffe_lms.ops import ops_of
from pycaffe_lms.ops.cpu.conv import conv
from pycaffe_lms.ops.cpu.onednn import conv as onednn_conv
from pycaffe_lms.ops.cpu.onednn import library, outer
from pycaffe_lms.ops.geometry import ConvGeometry, conv_output_size

needs_library = pytest.mark.usefixtures("onednn")
LIMIT = 1 << 28

# batch, channels, outputs, group, size, kernel, stride, pad, dilation
CASES = {
    "3x3": (3, 16, 32, 1, (13, 12), (3, 3), (1, 1), (1, 1), (1, 1)),
    "1x1": (2, 24, 40, 1, (9, 7), (1, 1), (1, 1), (0, 0), (1, 1)),
    "few channels, stride 4": (2, 3, 96, 1, (67, 67), (11, 11), (4, 4), (0, 0), (1, 1)),
    "groups": (3, 32, 48, 2, (11, 9), (5, 5), (1, 1), (2, 2), (1, 1)),
    "groups that are no blocks": (3, 6, 8, 2, (9, 10), (3, 3), (1, 1), (1, 1), (1, 1)),
    "stride that skips pixels": (2, 5, 7, 1, (20, 21), (1, 1), (2, 3), (0, 0), (1, 1)),
    "dilation": (2, 32, 32, 1, (20, 20), (3, 3), (1, 1), (2, 2), (2, 2)),
    "rectangle": (2, 16, 16, 1, (17, 12), (1, 7), (2, 1), (0, 3), (1, 1)),
    "one axis": (2, 16, 32, 1, (15,), (3,), (2,), (1,), (1,)),
    "three axes": (2, 16, 16, 1, (5, 6, 7), (3, 3, 3), (2, 1, 1), (1, 1, 1), (1, 1, 1)),
}


def geometry_of(case) -> ConvGeometry:
    batch, channels, outputs, group, size, kernel, stride, pad, dilation = case
    out = tuple(map(conv_output_size, size, kernel, stride, pad, dilation))
    return ConvGeometry(batch, channels, outputs, group, size, out, kernel, stride, pad, dilation)


def arrays(g: ConvGeometry, dtype=np.float32) -> dict:
    rng = np.random.default_rng(g.channels)
    shapes = {
        "x": (g.batch, g.channels, *g.in_spatial),
        "w": (g.out_channels, g.group_channels, *g.kernel),
        "b": (g.out_channels,),
        "dy": (g.batch, g.out_channels, *g.out_spatial),
    }
    return {name: rng.standard_normal(shape).astype(np.float32).astype(dtype) for name, shape in shapes.items()}


def run(plan, a: dict) -> dict:
    """Everything that a convolution computes."""
    work = np.empty(plan.workspace_bytes, np.uint8)
    made = {"y": np.full_like(a["dy"], np.nan), "dx": np.full_like(a["x"], np.nan), "dw": np.full_like(a["w"], np.nan)}
    made |= {"rectified": made["y"].copy(), "alone": made["y"].copy(), "sum": np.ones_like(a["w"])}
    conv.conv_forward(plan, a["x"], a["w"], a["b"], made["y"], work)
    conv.conv_forward(plan, a["x"], a["w"], None, made["alone"], work)
    conv.conv_forward(plan, a["x"], a["w"], a["b"], made["rectified"], work, True)
    conv.conv_backward_data(plan, a["dy"], a["w"], made["dx"], work)
    conv.conv_backward_filter(plan, a["x"], a["dy"], made["dw"], work, False)
    conv.conv_backward_filter(plan, a["x"], a["dy"], made["sum"], work, True)
    return made


@needs_library
@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_all_directions_are_those_of_our_kernels_in_double(case):
    g = geometry_of(case)
    plan = onednn_conv.onednn_plan(g, np.float32, LIMIT)
    assert plan is not None
    want = run(conv.conv_plan(g, np.float64, LIMIT), arrays(g, np.float64))
    chunks = onednn_conv.OneDnnPlan(g, 2)  # with 3 images: one of 1, one of 2
    for used in (plan, chunks):
        for name, got in run(used, arrays(g)).items():
            np.testing.assert_allclose(
                got, want[name], rtol=0, atol=2e-6 * np.abs(want[name]).max() + 1e-6, err_msg=name
            )


@needs_library
def test_bits_do_not_depend_on_addresses_or_on_what_lies_in_the_workspace():
    g = geometry_of(CASES["groups"])
    plan, a = onednn_conv.onednn_plan(g, np.float32, LIMIT), arrays(g)
    before = {name: value.tobytes() for name, value in run(plan, a).items()}
    room = np.empty(a["x"].nbytes + 16, np.uint8)
    moved = room[16:].view(np.float32).reshape(a["x"].shape)
    moved[...] = a["x"]
    for other in (plan, onednn_conv.onednn_plan(g, np.float32, LIMIT)):
        assert {name: value.tobytes() for name, value in run(other, a | {"x": moved}).items()} == before


@needs_library
def test_workspace_stays_within_the_limit_and_the_chunk():
    g = ConvGeometry(40, 64, 64, 1, (112, 112), (112, 112), (3, 3), (1, 1), (1, 1), (1, 1))
    plan = onednn_conv.onednn_plan(g, np.float32, LIMIT)
    whole = 4 * 2 * 40 * 64 * 112 * 112
    assert 4 * 64 * 64 * 9 < plan.workspace_bytes < whole / 4
    assert [last - first for first, last in plan.chunks()] == [5] * 8
    assert onednn_conv.onednn_plan(g, np.float32, 1 << 20) is None


@needs_library
@pytest.mark.parametrize(
    "dtype, change",
    [(np.float64, {}), (np.float32, {"batch": 0}), (np.float32, {"channels_last": True})],
    ids=["double", "no images", "channels last"],
)
def test_what_is_left_to_our_kernels(dtype, change):
    g = ConvGeometry(**{f: getattr(geometry_of(CASES["3x3"]), f) for f in ConvGeometry.__dataclass_fields__} | change)
    assert onednn_conv.onednn_plan(g, dtype, LIMIT) is None
    assert type(ops_of(CpuDevice()).conv.plan(g, dtype, LIMIT)) is type(conv.conv_plan(g, dtype, LIMIT))


@needs_library
def test_the_cpu_uses_it_and_the_simulated_device_does_not():
    g = geometry_of(CASES["3x3"])
    assert isinstance(ops_of(CpuDevice()).conv.plan(g, np.float32, LIMIT), onednn_conv.OneDnnPlan)
    assert not isinstance(ops_of(SimDevice(1 << 20)).conv.plan(g, np.float32, LIMIT), onednn_conv.OneDnnPlan)


@needs_library
def test_the_gradient_of_fully_connected_weights():
    rng = np.random.default_rng(1)
    a, b = rng.standard_normal((7, 33)).astype(np.float32), rng.standard_normal((7, 50)).astype(np.float32)
    out = np.full((33, 50), np.nan, np.float32)
    assert outer.outer(a, b, out)
    np.testing.assert_allclose(out, np.einsum("mn,mk->nk", a.astype(float), b.astype(float)), atol=2e-6)
    assert not outer.outer(a.astype(float), b.astype(float), out.astype(float))


@pytest.fixture
def fresh(monkeypatch):
    """The search for the library, as if it had not been made."""
    monkeypatch.setattr(library, "load", library.load.__wrapped__)
    monkeypatch.delenv(library.VARIABLE, raising=False)
    return monkeypatch


def test_switched_off(fresh):
    fresh.setenv(library.VARIABLE, "off")
    assert library.load() is None
    assert library.describe() == ""


def test_a_file_that_is_no_such_library_is_named(fresh, tmp_path):
    file = tmp_path / "libdnnl.so.3"
    file.write_bytes(b"no library")
    fresh.setenv(library.VARIABLE, str(file))
    with pytest.raises(DeviceError, match=f"{library.VARIABLE}={file}.*oneDNN 3") as caught:
        library.load()
    assert "unset" in str(caught.value)


def test_another_library_is_not_taken_for_it(fresh):
    fresh.setenv(library.VARIABLE, ctypes.util.find_library("c") or "libc.so.6")
    with pytest.raises(DeviceError, match="dnnl_version"):
        library.load()


def test_an_installed_package_that_does_not_load_is_warned_of(fresh, caplog, tmp_path):
    file = tmp_path / "libdnnl.so.3"
    file.write_bytes(b"no library")
    fresh.setattr(library, "_installed", lambda: str(file))
    fresh.setattr(library, "_SONAME", "libdnnl_of_nobody.so.3")
    with caplog.at_level(logging.WARNING):
        assert library.load() is None
    assert f"oneDNN is installed ({file}) but does not load" in caplog.text


def test_the_library_of_a_conda_environment_is_found_without_the_wheel(fresh, tmp_path):
    of_wheel = library._installed()
    if of_wheel is None:
        pytest.skip("oneDNN is not the wheel's here")
    (tmp_path / "lib").mkdir()
    of_conda = tmp_path / "lib" / "libdnnl.so.3"
    of_conda.symlink_to(of_wheel)
    fresh.setattr(library.sys, "prefix", str(tmp_path))
    assert library._installed() == of_wheel  # the wheel's comes first
    fresh.setattr(library, "_PACKAGE", "a-package-of-nobody")
    assert library._installed() == str(of_conda)
    assert library.describe().startswith("oneDNN 3.")
    of_conda.unlink()
    assert library._installed() is None


def test_nothing_is_said_where_none_is_installed(fresh, caplog):
    fresh.setattr(library, "_installed", lambda: None)
    fresh.setattr(library, "_SONAME", "libdnnl_of_nobody.so.3")
    assert library.load() is None
    assert not caplog.records


@pytest.mark.parametrize("major, runtime, said", [(2, 2, "version 2.7"), (3, 8, "runtime 8"), (3, 512, "runtime 512")])
def test_libraries_with_other_calls_are_refused(major, runtime, said):
    with pytest.raises(OSError, match=said):
        library._check(library._Version(major, 7, 1, b"", runtime))


def test_the_name_says_the_version(onednn):
    assert library.describe().startswith("oneDNN 3.")
