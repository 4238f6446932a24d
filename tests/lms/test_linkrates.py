"""The link's rates from recorded copies: what is put together from known rates gives these rates."""

from __future__ import annotations

import logging
from dataclasses import replace

import pytest

from pycaffe_lms.backend.sim.device import SimDevice
from pycaffe_lms.formats.prototxt.parser import parse_solver
from pycaffe_lms.lms.config import LMSConfig
from pycaffe_lms.lms.cost.machine import MACHINES
from pycaffe_lms.lms.runtime.link_rates import CLOSE, ENOUGH, LEAST, described, link_shares, with_shares
from pycaffe_lms.lms.runtime.recorder import COPIES_IN, COPIES_OUT, STEPS, RecordedTimes
from pycaffe_lms.solvers import SGDSolver

H200 = MACHINES["h200"]
MiB = 1 << 20


def slower(share: float):
    """An H200 with such a link."""
    rates = {name: share * getattr(H200, name) for name in ("link_in", "link_out", "link_both")}
    return replace(H200, **rates)


def copies(machine, sizes, *, out=False, both=False):
    """Copies behind each other, as they run on a machine."""
    found, start = [], 0.0
    for nbytes in sizes:
        end = start + machine.copy_seconds(nbytes, out, both)
        found.append(RecordedTimes(COPIES_OUT if out else COPIES_IN, "b", 1e6 * start, 1e6 * end, nbytes))
        start = end
    return found


@pytest.mark.parametrize("share", [0.25, 0.5, 1.0, 2.0])
@pytest.mark.parametrize("out", [False, True])
def test_copies_in_one_direction(share, out):
    timed = copies(slower(share), [30 * MiB, 5 * MiB, 2 * MiB], out=out)
    assert link_shares(timed, H200) == {out: pytest.approx(share)}


@pytest.mark.parametrize("share", [0.4, 1.0])
def test_copies_in_both(share):
    """Each takes as long as the other, and both as long as if they had half of what the link carries."""
    link = slower(share)
    timed = copies(link, [16 * MiB] * 3, both=True) + copies(link, [16 * MiB] * 3, both=True, out=True)
    found = link_shares(timed, H200)
    assert found == {False: pytest.approx(share, rel=0.02), True: pytest.approx(share, rel=0.02)}  # but for copy_s


def test_a_copy_that_is_alone_for_a_part_of_its_time():
    """40 MiB in; in the middle of it 8 MiB go out, and meanwhile it has half of what the link carries."""
    link = slower(0.5)
    meeting = link.copy_seconds(8 * MiB, True, True)
    beside = meeting * link.link_both / 2
    alone = (40 * MiB - beside) / link.link_in + link.copy_s
    one = RecordedTimes(COPIES_IN, "a", 0.0, 1e6 * (alone + meeting), 40 * MiB)
    others = [
        replace(t, start_us=t.start_us + 1e2, end_us=t.end_us + 1e2)
        for t in copies(link, [8 * MiB], out=True, both=True)
    ]
    assert link_shares([one, *others], H200) == {False: pytest.approx(0.5)}  # of 8 MiB nothing is said


def test_what_tells_nothing():
    assert link_shares([], H200) == {}
    assert link_shares(copies(H200, [LEAST - 1] * 1000), H200) == {}
    assert link_shares(copies(H200, [ENOUGH - 1]), H200) == {}
    assert link_shares([RecordedTimes(STEPS, "s", 0.0, 1.0, 1 << 30)], H200) == {}


def test_a_copy_that_was_held_up_says_nothing_about_the_others():
    timed = copies(H200, [8 * MiB] * 5)
    timed.append(RecordedTimes(COPIES_IN, "pageable", 1e6, 9e6, 8 * MiB))
    assert link_shares(timed, H200) == {False: pytest.approx(1.0)}


def test_rates_that_are_close_are_as_assumed():
    assert with_shares(H200, {}) is H200
    assert with_shares(H200, {False: 1 - 0.9 * CLOSE, True: 1 + 0.9 * CLOSE}) is H200


@pytest.mark.parametrize(
    "shares, expected",
    [
        ({False: 0.5, True: 0.25}, (0.5, 0.25, 0.375)),
        ({False: 0.5}, (0.5, 0.5, 0.5)),
        ({True: 2.0}, (2.0, 2.0, 2.0)),
        ({False: 1.0, True: 0.5}, (1.0, 0.5, 0.75)),
    ],
    ids=str,
)
def test_rates_that_are_not(shares, expected):
    found = with_shares(H200, shares)
    before = H200.link_in, H200.link_out, H200.link_both
    assert (found.link_in, found.link_out, found.link_both) == pytest.approx(
        tuple(share * rate for share, rate in zip(expected, before, strict=True))
    )
    assert replace(found, link_in=before[0], link_out=before[1], link_both=before[2]) == H200


def test_what_is_said():
    line = described(slower(0.5), H200)
    assert line == "copies run at 27.7 GB/s in and 27.6 out; 55.4 GB/s in and 55.3 out were assumed for h200"


ROWS = (
    """
layer { name: "data" type: "DummyData" top: "data" dummy_data_param { shape { dim: 16 dim: 65536 }
  data_filler { type: "gaussian" } } }
layer { name: "scale" type: "Scale" bottom: "data" top: "b0" scale_param { axis: 1 } }
"""
    + "".join(
        f'layer {{ name: "l{i}" type: "{("Sigmoid", "TanH")[i % 2]}" bottom: "b{i}" top: "b{i + 1}" }}\n'
        for i in range(12)
    )
    + 'layer { name: "loss" type: "Reduction" bottom: "b12" top: "loss" loss_weight: 1 }\n'
)


def trained(lms: LMSConfig | None, rate: float):
    """(the solver, its losses) after the iterations that plan anew, with a link of so many bytes per second."""
    device = SimDevice(256 << 20)
    device.link_bytes_per_s = rate
    parsed = parse_solver(
        f'base_lr: 0.001 lr_policy: "fixed" max_iter: 99 random_seed: 1 net_param {{ name: "n" {ROWS} }}', "n.prototxt"
    )
    solver, losses = SGDSolver(parsed.message, lines=parsed.lines, device=device, lms=lms), []
    for _ in range(6):
        solver.step(1)
        losses.append(solver.net.loss())
    return solver, losses


def test_a_device_with_a_slow_link_is_planned_for_as_it_is(caplog):
    """Twelve values of 4 MiB that must be copied, where 18 MiB are there. The simulated link has no latency."""
    lms = LMSConfig(auto=True, recompute=False, budget=18 * MiB)
    expected = trained(None, 55e9)[1]
    caplog.set_level(logging.INFO, "pycaffe_lms.solvers.autotune")
    solver, losses = trained(lms, 20e9)
    machine = solver.net.runtime.machine
    assert (machine.link_in, machine.link_out) == pytest.approx((20e9, 20e9), rel=0.05)
    assert machine.link_both == pytest.approx(20e9 * H200.link_both / H200.link_in, rel=0.05)
    assert (machine.memory_rate, machine.product_rate) == (H200.memory_rate, H200.product_rate)
    assert "GB/s in and 55.3 out were assumed for h200" in caplog.text
    caplog.clear()
    solver, same = trained(lms, 55e9)
    assert solver.net.runtime.machine.link_in == H200.link_in and "assumed" not in caplog.text
    assert losses == same == expected
