"""Predictions of sums over many GPUs: against formulas worked out by hand, and what must hold of any of them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pycaffe_lms.errors import UsageError
from pycaffe_lms.lms.cost.machine import MACHINES
from pycaffe_lms.lms.cost.network import (
    Cluster,
    Sum,
    Timeline,
    all_reduce,
    parse_network,
    parse_ranks,
    predict,
)

pytestmark = pytest.mark.pure
H200, T4 = MACHINES["h200"], MACHINES["t4"]
US = 1e-6


# -- one sum: by hand, from the constants of NCCL's tuning.cc --------------------------------------------------------
def test_two_gpus_over_nvlink():
    """Ring, Simple: 8.4 us and 2 steps of 3.4 us; each GPU sends 2 x 1/2 of the bytes over 18 links of 20.6 GB/s."""
    found = all_reduce(1 << 30, Cluster(2, 8, 0), H200)
    assert found.how == "ring" and found.latency == pytest.approx((8.4 + 2 * 3.4) * US)
    assert found.seconds == pytest.approx(15.2 * US + (1 << 30) / (18 * 20.6e9))
    assert found.link == 0


def test_eight_nodes_of_eight_over_a_network():
    """Tree, LL128: 14 us, up and down 7 steps in the node and 3 levels of nodes; half of 0.92 x 15/16 of 50 GB/s."""
    found = all_reduce(4 << 20, Cluster(64, 8, 50e9), H200)
    latency = 14 + 2 * (7 * 1.25 + 3 * 8.5)
    assert found.how == "tree, LL128" and found.latency == pytest.approx(latency * US)
    assert found.seconds == pytest.approx(latency * US + 2 * (4 << 20) / (50e9 * 0.92 * 0.9375))
    # 2 x 63/64 of the bytes pass through a node; each of its eight GPUs carries an eighth over its own link
    assert found.link == pytest.approx(2 * 63 / 64 * (4 << 20) / 8 / (101.6e9 / 2))


def test_large_sums_over_many_nodes_go_at_half_of_the_network():
    """2(n-1)/n of the bytes leave every node (PERFORMANCE.md of nccl-tests), so 10 GB take 0.4 s at 50 GB/s."""
    found = all_reduce(10**10, Cluster(256, 8, 50e9), H200)
    assert found.how == "ring" and found.seconds == pytest.approx(2 * 255 / 256 * 10**10 / 50e9, rel=0.02)


def test_two_nodes_have_a_tree_each_way():
    """Each node sends half of the bytes up one tree and half down the other: 0.92 of the network, twice a ring's."""
    found = all_reduce(10**10, Cluster(16, 8, 50e9), H200)
    assert found.how == "tree" and found.seconds == pytest.approx(10**10 / (0.92 * 50e9), rel=0.01)


def test_without_nvlink_gpus_share_their_link_to_the_host():
    found = all_reduce(10**9, Cluster(4, 4, 0), T4)
    assert found.how == "ring" and found.seconds == pytest.approx(1.5 * 10**9 / 9e9, rel=0.01)  # 18 GB/s both ways
    assert found.link == pytest.approx(1.5 * 10**9 / 9e9)
    assert "LL128" not in all_reduce(1 << 16, Cluster(4, 4, 0), T4).how


def test_gathering_goes_round_once():
    """Ring, LL128: 14 us and 7 steps of 1.9 us; every GPU sends 7/8 of all bytes."""
    found = all_reduce(8 << 20, Cluster(8, 8, 0), H200, gather=True)
    assert found.how == "ring, LL128" and found.latency == pytest.approx((14 + 7 * 1.9) * US)
    assert found.seconds == pytest.approx(27.3 * US + 7 / 8 * (8 << 20) / (0.92 * 18 * 20.6e9))
    small = all_reduce(64, Cluster(64, 8, 50e9), H200, gather=True)
    assert small.how == "ring, LL" and small.latency == pytest.approx((6.6 + 56 * 0.6 + 7 * 2.7) * US)


@pytest.mark.parametrize("nbytes", [1 << 10, 1 << 20, 1 << 26])
@pytest.mark.parametrize("machine", [H200, T4, MACHINES["v100"]], ids=lambda m: m.name)
def test_more_nodes_are_never_faster_nor_a_faster_network_slower(machine, nbytes):
    seconds = [all_reduce(nbytes, Cluster(n, 8, 25e9), machine).seconds for n in (8, 16, 32, 64, 128, 256)]
    assert seconds == sorted(seconds) and seconds[0] > all_reduce(nbytes, Cluster(1, 8, 0), machine).seconds == 0
    rates = [all_reduce(nbytes, Cluster(64, 8, rate), machine).seconds for rate in (1e9, 1e10, 1e11, 1e12)]
    assert rates == sorted(rates, reverse=True)


# -- an iteration ------------------------------------------------------------------------------------------------------
def _timeline(*sums: Sum, **more: object) -> Timeline:
    return replace(Timeline(sums, joined=0.9, seconds=1.0), **more)


def _sum(seconds: float, ready: float, beside: bool = True) -> Sum:
    """Make one that takes about these seconds between two GPUs."""
    return Sum(int(seconds * H200.nvlink), ready, 0.0, beside)


TWO = Cluster(2, 8, 0)
CLOSE = {"abs": 1e-4}


def test_a_sum_beside_the_backward_costs_nothing_and_the_last_one_its_end():
    assert predict(_timeline(_sum(0.3, 0.5)), 1.0, TWO, H200).seconds == pytest.approx(1.0, **CLOSE)
    late = predict(_timeline(_sum(0.3, 0.8)), 1.0, TWO, H200)
    assert (late.seconds, late.waiting) == (pytest.approx(1.2, **CLOSE), pytest.approx(0.2, **CLOSE))
    assert late.limit(H200) == "NVLink" and late.efficiency == pytest.approx(1 / 1.2, **CLOSE)


def test_sums_follow_each_other():
    """The second is ready at 0.5 but begins when the first ends, at 0.8; it ends at 1.1, 0.2 after the backward."""
    found = predict(_timeline(_sum(0.4, 0.4), _sum(0.3, 0.5)), 1.0, TWO, H200)
    assert found.seconds == pytest.approx(1.2, **CLOSE) and found.summing == pytest.approx(0.7, **CLOSE)


def test_a_sum_of_a_managed_gradient_stops_the_backward():
    """It waits for the one before it, until 0.6, and ends at 0.7, 0.2 late; the last one is ready at 1.0, not 0.8."""
    found = predict(_timeline(_sum(0.3, 0.3), _sum(0.1, 0.5, beside=False), _sum(0.2, 0.8)), 1.0, TWO, H200)
    assert found.between == pytest.approx(0.2, **CLOSE) and found.waiting == pytest.approx(0.3, **CLOSE)
    assert found.limit(H200) == "sums of managed gradients"


def test_an_exchange_of_a_layer_waits_for_the_sums_before_it_and_the_layers_for_it():
    """Between two GPUs: the sum runs from 0.3 to 0.6, so the exchange of 0.1, ready at 0.5, ends at 0.7, 0.2 late."""
    exchange = replace(_sum(0.1, 0.5, beside=False), layer=True)
    found = predict(_timeline(_sum(0.3, 0.3), exchange), 1.0, TWO, H200)
    assert (found.layers, found.between) == (pytest.approx(0.2, **CLOSE), 0) and found.seconds == pytest.approx(
        1.2, **CLOSE
    )
    assert found.limit(H200) == "exchanges of layers"
    # gathered: each of two gives half of the bytes, which go round once, not twice
    assert predict(_timeline(replace(exchange, gathered=True)), 1.0, TWO, H200).layers == pytest.approx(0.1, **CLOSE)


def test_copies_take_half_of_the_link_from_sums_over_pcie():
    """Copies from 0.2 to 0.6: a sum of 0.3 s from 0.5 on gets half of the link until 0.6 and ends at 0.85."""
    link = 9e9  # of the T4, both directions busy
    sums = Sum(int(0.3 * link), 0.5, 0.0, True)
    copies = _timeline(sums, joined=0.6, seconds=1.0, copies=((0.2, 0.4), (0.3, 0.6)), busy=0.4)
    assert predict(copies, 1.0, TWO, T4).waiting == pytest.approx(0.25, **CLOSE)
    assert predict(replace(copies, copies=()), 1.0, TWO, T4).waiting == pytest.approx(0.2, **CLOSE)


def test_the_link_is_a_bound():
    """Copies that fill the link for 0.9 s leave no room for 0.3 s of sums, which would end in time: 1.2 s."""
    copies = _timeline(Sum(int(0.3 * 9e9), 0.0, 0.0, True), copies=((0.0, 0.1), (0.2, 0.9)), busy=0.9)
    found = predict(copies, 1.0, TWO, T4)
    assert found.seconds == pytest.approx(1.2, **CLOSE) and found.limit(T4) == "copies and sums on one link"
    assert predict(copies, 1.0, TWO, H200).seconds == pytest.approx(1.0, **CLOSE)  # sums over NVLink


def test_what_limits():
    many = _timeline(*(Sum(1000, 0.0, 0.0, True) for _ in range(40000)))
    assert predict(many, 1.0, Cluster(64, 8, 50e9), H200).limit(H200) == "latency of the sums"
    large = _timeline(Sum(1 << 32, 0.5, 0.0, True))
    assert predict(large, 1.0, Cluster(64, 8, 10e9), H200).limit(H200) == "the network"
    assert predict(large, 1.0, Cluster(4, 4, 0), T4).limit(T4) == "PCIe"
    assert predict(large, 1.0, Cluster(1, 8, 0), H200).limit(H200) == "the layers"


# -- flags -------------------------------------------------------------------------------------------------------------
def test_rates_are_of_powers_of_1000_and_bits_are_eighths():
    assert parse_network("50GB/s") == 50e9 and parse_network("400Gbit/s") == 50e9 and parse_network("1.5 MB/s") == 1.5e6


@pytest.mark.parametrize("text", ["", "50", "50GB", "50gb/s", "400Gb/s", "0GB/s", "-1GB/s", "x/s", "1e9GB/s"])
def test_what_is_no_rate(text):
    with pytest.raises(UsageError, match=r"is no rate[\s\S]*50GB/s"):
        parse_network(text)


def test_numbers_of_ranks():
    assert parse_ranks("64", 8) == [64] and parse_ranks("1,2,4,8,256", 8) == [1, 2, 4, 8, 256]


@pytest.mark.parametrize("text", ["", "0", "8,", "-8", "8..64", "eight", "8, 16", "99999999"])
def test_what_is_no_number_of_ranks(text):
    with pytest.raises(UsageError, match="-ranks"):
        parse_ranks(text, 8)


def test_nodes_are_full():
    with pytest.raises(UsageError, match=r"-ranks 12 does not fill nodes of 8[\s\S]*-ranks 16"):
        parse_ranks("8,12", 8)
