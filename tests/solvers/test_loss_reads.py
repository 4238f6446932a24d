"""Tests that an iteration's loss is read, which waits for the device, only where something needs it."""

from __future__ import annotations

import pytest

from pycaffe_lms.backend.sim.device import SimDevice
from tests.lms.nets import make_solver


def _reads(n: int, **options) -> tuple[list[int], object]:
    solver = make_solver("residual", SimDevice(64 << 20), **options)
    read, loss = [], solver.net.loss

    def noted(*args):
        read.append(solver.iter)
        return loss(*args)

    solver.net.loss = noted
    solver.step(n)
    return read, solver


@pytest.mark.parametrize(
    "options, expected",
    [
        ({}, [6]),
        ({"display": 3}, [0, 3, 6]),
        ({"display": 3, "average_loss": 2}, [0, 2, 3, 5, 6]),
        ({"display": 5}, [0, 5, 6]),
        ({"debug_info": "true"}, list(range(7))),
    ],
)
def test_which_losses_are_read(options, expected):
    assert sorted(set(_reads(7, **options)[0])) == expected


def test_the_mean_is_that_of_the_last_losses():
    every = make_solver("residual", SimDevice(64 << 20), average_loss=3)
    losses = []
    for _ in range(7):
        every.step(1)
        losses.append(every.net.loss())
    solver = make_solver("residual", SimDevice(64 << 20), average_loss=3)
    solver.step(7)
    assert solver.mean_loss == pytest.approx(sum(losses[-3:]) / 3)
