"""Layers in parts, of the batch and of outputs, together with everything else: same bits with Large Model Support."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from pycaffe_lms.backend.sim.device import SimDevice
from pycaffe_lms.errors import PlanError
from pycaffe_lms.lms.config import LMSConfig
from pycaffe_lms.lms.rules import SEARCH
from pycaffe_lms.net.tuning import Tuning
from tests.parallel.ranks import in_threads, joined, rank_solver

from .block_nets import NETS
from .nets import train
from .split_nets import solver

KINDS = {
    "parts": ("chain", {"split": 3}),
    "blocks": ("fat", {"split": 0, "split_outputs": 3}),
    "both": ("chain", {"split": 3, "split_outputs": 2}),
}
each_kind = pytest.mark.parametrize(("net", "parts"), KINDS.values(), ids=KINDS)


def sim(order="random", seed=3, page=None):
    device = SimDevice(64 << 20, order=order, seed=seed)
    device.page = page
    return device


def least(net, parts):
    """Device memory that a net in so many parts needs, fetched on demand."""
    s = solver(net, sim(), LMSConfig(threshold_kb=1, ahead=0, **parts))
    return s.runtime.resident_bytes + s.runtime.workspace_bytes + s.net.memory.plans()["train"].arena_bytes


@each_kind
@pytest.mark.parametrize("layer_wise", [False, True], ids=["after", "layer-wise"])
def test_several_ranks(net, parts, layer_wise):
    """Each with data of its own: gradients are means, whatever the devices manage."""
    text = (
        'base_lr: 0.05 momentum: 0.9 lr_policy: "fixed" max_iter: 9 random_seed: 7 snapshot_after_train: false '
        f"net_param {{ {NETS[net]} }}"
    )

    def run(lms):
        def work(rank, path):
            s = rank_solver(text, rank, 2, device=sim(seed=rank), lms=lms)
            parallel = joined(s, path, layer_wise=layer_wise)
            s.step(3)
            values = [b.read_data().copy() for b in s.net.learnable_params]
            parallel.close()
            return values

        return in_threads(2, work)

    whole = run(LMSConfig(split=0))
    expected = run(LMSConfig(**parts))
    for a, b, c in zip(*expected, whole[0], strict=True):
        assert (a == b).all()
        np.testing.assert_allclose(a, c, rtol=0, atol=2e-5 * np.abs(c).max())
    ours = run(LMSConfig(threshold_kb=1, ahead=2, **parts))
    assert all((a == b).all() for rank in ours for a, b in zip(rank, expected[0], strict=True))


@each_kind
def test_pages(net, parts):
    expected = train(solver(net, sim(), LMSConfig(**parts)), 3)
    page = 4096  # of the host, which stands in for the device
    budget = max(int(1.5 * least(net, parts)), (SEARCH.few_pages + 8) * page)
    for auto in (False, True):
        lms = LMSConfig(threshold_kb=1, auto=auto, budget=budget, pages=True, **parts)
        s = solver(net, sim(page=page), lms)
        assert s.net.memory.plans()["train"].paging is not None
        assert train(s, 5)[0][:3] == expected[0]
        assert train(solver(net, sim(page=page), dataclasses.replace(lms, pages=False)), 3) == expected


@each_kind
@pytest.mark.parametrize("form", ["fp16", "bf16"])
def test_copies_in_16_bits_lose_digits_and_no_more(net, parts, form):
    """The same on every order of the streams; parameters and what is summed into them stay exact."""
    lms = LMSConfig(threshold_kb=1, ahead=0, compress=form, **parts)
    ours = train(solver(net, sim("earliest"), lms), 3)
    assert ours == train(solver(net, sim(seed=8), lms), 3)
    exact = train(solver(net, sim(), LMSConfig(**parts)), 3)
    assert ours != exact
    np.testing.assert_allclose(ours[0], exact[0], rtol=0.02)


@each_kind
@pytest.mark.parametrize("masks", [False, True], ids=["values", "bits"])
def test_bits_in_place_of_values(net, parts, masks):
    tuning = Tuning(graph=True, masks=masks)
    s = solver(net, sim(), LMSConfig(threshold_kb=1, recompute=True, **parts), tuning=tuning)
    assert train(s, 3) == train(solver(net, sim(), LMSConfig(**parts), tuning=tuning), 3)


@each_kind
def test_a_plan_file(net, parts, tmp_path):
    file = tmp_path / "plan.prototxt"
    lms = LMSConfig(threshold_kb=1, plan_file=str(file), **parts)
    first = train(solver(net, sim(), lms), 3)
    assert file.exists() and "[" in file.read_text()
    again = solver(net, sim(seed=9), lms)
    assert train(again, 3) == first == train(solver(net, sim(), LMSConfig(**parts)), 3)
    other = {"split": 2} if "split_outputs" not in parts else parts | {"split_outputs": 4}
    with pytest.raises(PlanError):
        solver(net, sim(), dataclasses.replace(lms, **other))


def test_a_plan_file_does_not_hold_a_number_that_was_chosen(tmp_path):
    lms = LMSConfig(
        threshold_kb=1, budget=least("fat", {"split": 0}) // 2, split="auto", plan_file=str(tmp_path / "plan")
    )
    with pytest.raises(PlanError, match="(?s)blocks of .*-lms_split_outputs [2-9]"):
        solver("fat", sim(), lms)


@each_kind
def test_recorded_iterations(net, parts):
    """From the fourth on they are replayed, also with copies and with an update of many blocks."""
    device = sim("latest")
    rematerialized = solver(net, device, LMSConfig(threshold_kb=1, **parts), tuning=Tuning(graph=True))
    expected = train(solver(net, sim(), LMSConfig(**parts), tuning=Tuning(graph=False)), 7)
    assert train(rematerialized, 7) == expected
    assert device.launches >= 3
    assert train(solver(net, sim("latest"), LMSConfig(**parts), tuning=Tuning(graph=True)), 7) == expected
