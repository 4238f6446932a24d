"""LMSConfig and sizes as a user writes them."""

from __future__ import annotations

import dataclasses

import pytest

from pycaffe_lms.errors import UsageError
from pycaffe_lms.lms.config import LMSConfig, parse_size

pytestmark = pytest.mark.pure


@pytest.mark.parametrize("threshold, on", [(1000, True), (1, True), (0, False), (-1, False), (10**10, True)])
def test_zero_or_less_is_off(threshold, on):
    assert LMSConfig(threshold_kb=threshold).enabled is on


def test_a_kilobyte_has_1024_bytes_and_thresholds_have_any_size():
    assert LMSConfig(threshold_kb=1000).min_bytes == 1_024_000
    assert LMSConfig(threshold_kb=10_000_000_000).min_bytes == 10_240_000_000_000


def test_off_by_default_and_frozen():
    config = LMSConfig()
    assert not config.enabled
    with pytest.raises(dataclasses.FrozenInstanceError):
        config.frac = 0.5


@pytest.mark.parametrize(
    "bad, flag",
    [
        ({"frac": -0.5}, "-lms_frac -0.5"),
        ({"frac": 1.01}, "-lms_frac 1.01"),
        ({"frac": float("nan")}, "-lms_frac nan"),
        ({"ahead": -1}, "-lms_ahead -1"),
        ({"sync": 4}, "-lms_sync 4"),
        ({"sync": -1}, "-lms_sync -1"),
        ({"budget": 0}, "-lms_budget"),
        ({"budget": -1}, "-lms_budget"),
        ({"host_limit": 0}, "-lms_host"),
    ],
    ids=str,
)
def test_a_value_that_means_nothing_names_its_flag_and_a_fix(bad, flag):
    with pytest.raises(UsageError) as caught:
        LMSConfig(**bad)
    assert flag in str(caught.value) and caught.value.fix and caught.value.exit_code == 2


@pytest.mark.parametrize("good", [{"frac": 0.0}, {"frac": 1.0}, {"ahead": 0}, {"sync": 3}, {"budget": 1}], ids=str)
def test_the_ends_of_the_ranges_are_inside(good):
    LMSConfig(**good)


@pytest.mark.parametrize(
    "text, size",
    [
        ("0", 0),
        ("1073741824B", 1 << 30),
        ("512b", 512),
        ("1k", 1024),
        ("64KB", 65_536),
        ("64KiB", 65_536),
        ("512MB", 536_870_912),
        ("0.5 MiB", 524_288),
        (" 16GB ", 17_179_869_184),
        ("1.5g", 1_610_612_736),
        ("2Tb", 2_199_023_255_552),
        ("9007199254740993B", 9_007_199_254_740_993),  # one more than a float can count to
    ],
)
def test_sizes(text, size):
    assert parse_size(text, "-lms_budget") == size


@pytest.mark.parametrize(
    "text", ["", " ", "-1", "-5GB", "GB", "16 G B", "16XB", "1e9", "0x10", "1,5GB", "1.GB", "nan", "inf", "1.5.2MB"]
)
def test_what_is_no_size_names_the_flag(text):
    with pytest.raises(UsageError) as caught:
        parse_size(text, "-lms_host")
    assert f"-lms_host {text!r}" in str(caught.value) and "16GB" in caught.value.fix


@pytest.mark.parametrize(
    "text, meant",
    [
        ("16", "-lms_budget 16GB or -lms_budget 16MB"),
        (" 1.5 ", "-lms_budget 1.5GB or -lms_budget 1.5MB"),
        ("16384", "-lms_budget 16384MB or -lms_budget 16384KB"),
        ("17179869184", "-lms_budget 17179869184B"),
    ],
)
def test_a_size_without_a_unit_is_refused(text, meant):
    with pytest.raises(UsageError) as caught:
        parse_size(text, "-lms_budget")
    assert caught.value.message == f"-lms_budget {text.strip()}: {text.strip()} has no unit"
    assert caught.value.fix == f"give a unit: {meant}"


def test_a_size_beyond_all_machines_is_refused():
    """2^63 bytes and more cannot be counted by any device; floats, and messages made with them, overflow later."""
    assert parse_size("8388607TB", "-lms_budget") == 8_388_607 << 40
    for text in ("8388608TB", f"{'9' * 400}B"):
        with pytest.raises(UsageError, match="-lms_budget"):
            parse_size(text, "-lms_budget")
