"""Two nets, or two solvers, on one device: who has what is said where there is not enough, and what is gone is free."""

from __future__ import annotations

import re

import pytest

from pycaffe_lms.backend.sim.device import SimDevice
from pycaffe_lms.errors import OutOfDeviceMemory
from pycaffe_lms.formats.prototxt.parser import parse_solver
from pycaffe_lms.lms.config import LMSConfig
from pycaffe_lms.solvers import SGDSolver

from ..net.nets import FILE, inputs, layer, make_net

XAVIER = 'weight_filler { type: "xavier" }'
TEXT = (
    inputs(data=(32, 16, 8, 8), label=(32,))
    + layer("c1", "Convolution", "data", text=f"convolution_param {{ num_output: 32 kernel_size: 3 pad: 1 {XAVIER} }}")
    + layer("r", "ReLU", "c1", "c1")
    + layer("ip", "InnerProduct", "c1", text=f"inner_product_param {{ num_output: 100 {XAVIER} }}")
    + layer("loss", "SoftmaxWithLoss", "ip label")
)
FC = 2048 * 100 * 4  # bytes of ip's weight
LMS = {
    "without": {},
    "with": {"threshold_kb": 1, "split": 0},
    "too high": {"threshold_kb": 10000},
    "auto": {"auto": True},
}
KINDS = pytest.mark.parametrize(
    ("lms", "page"),
    [
        pytest.param(LMS[name], page, id=f"{name}-{said}", marks=pytest.mark.thorough if i % 2 == j else ())
        for i, name in enumerate(LMS)
        for j, (page, said) in enumerate([(None, "one piece"), (4096, "pages")])
    ],
)


def _net(name, device, lms):
    return make_net(f'name: "{name}"\n{TEXT}', device=device, lms=lms)


def _solver(name, device, lms):
    fields = 'base_lr: 0.1 lr_policy: "fixed" momentum: 0.9 max_iter: 10 random_seed: 3 display: 0'
    parsed = parse_solver(f'{fields} net_param {{ name: "{name}" {TEXT} }}', FILE)
    return SGDSolver(parsed.message, file=parsed.filename, lines=parsed.lines, device=device, lms=lms)


def _bytes(text: str) -> float:
    number, unit = re.fullmatch(r"([\d.]+) (B|KiB|MiB)", text).groups()
    return float(number) * {"B": 1, "KiB": 1 << 10, "MiB": 1 << 20}[unit]


def _check(error: OutOfDeviceMemory, name: str, others: str, held: int) -> None:
    """It names the net, a layer, and whose net holds how many bytes."""
    found = re.search(rf'others hold (\S+ \S+): net "{others}" (\S+ \S+)$', error.message)
    assert f'net "{name}" needs ' in error.message and found, error.message
    assert [_bytes(text) for text in found.groups()] == [pytest.approx(held, rel=0.05)] * 2
    assert error.where.layer == "ip" and error.where.file == FILE and error.where.line is not None
    assert "del net" in error.fix and "-lms_budget" in error.fix


@KINDS
def test_a_net_beside_a_net(lms, page):
    """The second one fits as soon as the first one is gone."""
    lms, device = LMSConfig(budget=3 << 20, **lms), SimDevice(64 << 20, page=page)
    a = _net("a", device, lms)
    a.forward()
    a.backward()
    held, before = device.in_use(), a.blobs["ip"].data.tobytes()
    b = _net("b", device, lms)
    with pytest.raises(OutOfDeviceMemory) as caught:
        b.forward()
    _check(caught.value, "b", "a", held)
    assert device.in_use() == held  # nothing was taken
    del a
    b.forward()
    b.backward()
    assert b.blobs["ip"].data.tobytes() == before and device.in_use() == held


@KINDS
def test_a_solver_beside_a_solver(lms, page):
    """Refused when it is made, or before its first iteration, if that is when it needs the memory."""
    lms, device = LMSConfig(budget=4 << 20, **lms), SimDevice(64 << 20, page=page)
    first = _solver("first", device, lms)
    first.step(1)
    held, trained = device.in_use(), first.net.params["ip"][0].read_data().tobytes()
    with pytest.raises(OutOfDeviceMemory) as caught:
        _solver("second", device, lms).step(1)
    _check(caught.value, "second", "first", held)
    del first
    second = _solver("second", device, lms)
    second.step(1)
    assert second.net.params["ip"][0].read_data().tobytes() == trained and device.in_use() == held


def test_memory_that_somebody_else_has_is_said_without_a_name():
    device = SimDevice(64 << 20)
    taken = device.take(60 << 20)
    net = _net("a", device, None)
    device.set_budget(61 << 20)
    with pytest.raises(OutOfDeviceMemory) as caught:
        net.forward()
    assert caught.value.message.endswith('; net "a" holds 0 B; others hold 60.0 MiB')
    assert taken.nbytes == 60 << 20


def test_a_net_alone_is_not_told_of_others():
    with pytest.raises(OutOfDeviceMemory) as caught:
        _net("a", SimDevice(64 << 20), LMSConfig(budget=1 << 20)).forward()
    assert "others" not in caught.value.message and "del net" not in caught.value.fix
    assert caught.value.where.layer == "ip" and '; net "a" holds 0 B' in caught.value.message


def test_a_test_net_is_named_where_memory_ends_in_it():
    """What stays all the time, of a train and a test net: ip's parameters are the train net's, its blobs are not."""
    small, large = (inputs(data=(n, 16, 8, 8), label=(n,)) for n in (32, 320))
    test = TEXT.replace(small, large).replace('"c1"', '"t1"')
    assert test.startswith(large)
    fields = 'base_lr: 0.1 lr_policy: "fixed" max_iter: 10 random_seed: 3 test_iter: 1 test_interval: 5'
    text = f'{fields} train_net_param {{ name: "small" {TEXT} }} test_net_param {{ name: "large" {test} }}'
    parsed = parse_solver(text, FILE)
    lms = LMSConfig(threshold_kb=1 << 20, budget=5 << 20)
    with pytest.raises(OutOfDeviceMemory) as caught:
        SGDSolver(parsed.message, file=parsed.filename, lines=parsed.lines, device=SimDevice(64 << 20), lms=lms)
    error = caught.value
    assert error.where.layer == "t1" and 'net "large" needs ' in error.message
    found = re.search(r"\(workspace (\S+ \S+)\), the solver's other nets (\S+ \S+), 5.0 MiB are there", error.message)
    assert found and _bytes(found.group(2)) > 2 * FC  # ip's weight and its gradient


def test_a_program_by_hand_that_cannot_fit_for_good_says_so():
    """Not that a step that needs nothing has no memory."""
    with pytest.raises(OutOfDeviceMemory, match="all the time .*memory ends at this layer's 800.0 KiB") as caught:
        _net("a", SimDevice(64 << 20), LMSConfig(threshold_kb=10000, budget=1 << 20)).forward()
    assert caught.value.where.layer == "ip"
