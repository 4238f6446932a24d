"""Sums that READMEs of models/ do by hand: of digits' buffers, and of what sets unet-3d's least budget."""

from __future__ import annotations

import re
from math import prod

import pytest

from pycaffe_lms.backend.sim.device import SimDevice
from pycaffe_lms.net.net import Net
from pycaffe_lms.net.tuning import Tuning

from .nets import ALL, MODELS, TEST, TRAIN, fed, full_size

KIB = 1024
TEXT = (MODELS / "digits" / "README.md").read_text()
# what a row of the table is about -> the buffers that it counts
ROWS = {
    "`conv1`, 128x32x8x8": ("conv1.data", "conv1.diff"),
    "`data`, `label`": ("data.data", "label.data"),
    "`pool1`, 128x32x3x3": ("pool1.data", "pool1.diff"),
    "`pool1`'s mask": ("pool1.mask",),
    "`conv2`, 128x40x1x1": ("conv2.data", "conv2(drop2).data", "conv2.diff"),
    "`ip`, 128x10": ("ip.data", "ip.diff"),
    "probabilities inside the loss": ("loss.prob",),
}


def buffers(phase: int, batch: int) -> dict[str, int]:
    """Bytes of every buffer of the net by name, each with memory of its own. They are multiples of 512."""
    message = fed((MODELS / "digits/train_val.prototxt").read_text(), {"data": (batch, 1, 8, 8)}, 10)
    net = Net(message, phase, device=SimDevice(1 << 30), tuning=Tuning(pack=False), fill=False)
    return {buffer.name: buffer.nbytes for buffer in net.memory.buffers.values()}


def together(row: str) -> float:
    """The last cell of the row of README's tables that begins so."""
    (cells,) = re.findall(rf"^\| \*?{re.escape(row)}.*\| \*?([\d.]+)\*? \|$", TEXT, re.MULTILINE)
    return float(cells)


def test_digits_table_counts_the_buffers_of_the_training_net():
    found = buffers(TRAIN, 128)
    for row, names in ROWS.items():
        assert sum(found[name] for name in names) / KIB == pytest.approx(together(row), abs=0.5 * len(names)), row
    assert pytest.approx(together("12,802 parameters"), abs=0.05) == 3 * 12_802 * 4 / KIB
    rest = [*ROWS][1:] + ["12,802 parameters"]
    assert together("not managed* ") == pytest.approx(sum(map(together, rest)))
    # nothing of the size of a row is left out: workspace is counted for itself, gradients of inputs are not computed
    counted = {name for names in ROWS.values() for name in names} | {"data.diff", "label.diff"}
    others = [n for n in found if n not in counted and ".param" not in n and not n.endswith((".work", ".sums"))]
    assert all(found[name] <= KIB for name in others), others


def test_digits_totals_follow_from_the_table():
    test = buffers(TEST, 11)
    said = float(re.search(r"together \*([\d.]+)\*", TEXT).group(1))
    parts = [
        float(x)
        for x in re.search(
            r"`data` ([\d.]+), .* ([\d.]+),\s.* ([\d.]+), .* ([\d.]+), the rest ([\d.]+)",
            " ".join(TEXT.partition("Test net")[2].split()),
        ).groups()
    ]
    assert sum(parts) == pytest.approx(said, abs=0.1)
    names = ("data.data", "conv1.data", "pool1.data", "pool1.mask", "conv2.data", "conv2(drop2).data", "ip.data")
    assert sum(test[name] for name in names) / KIB == pytest.approx(said, abs=0.5 * len(names))
    train, managed, device = together("not managed* "), together("`conv1`, 128x32x8x8"), together("the device")
    assert together("not managed, both nets") == pytest.approx(train + said)
    assert together("everything at once, without LMS") == pytest.approx(train + said + managed)
    least = together("the least that can work")
    assert least == pytest.approx(train + said + together("most managed bytes that one layer needs"))
    assert together("left for convolution workspace") == pytest.approx(device - least)


def test_unet_3d_needs_a_concat_and_its_bottoms_at_once():
    net = full_size("unet-3d/train_val")
    sizes = [
        4 * prod(net.graph.values[v].shape) for n in net.graph.nodes if n.name == "join0" for v in (*n.tops, *n.bottoms)
    ]
    text = " ".join((MODELS / "unet-3d" / "README.md").read_text().split())
    gib = [float(x) for x in re.search(r"`join0`: .*?\(([\d.]+) GiB\).*?\(([\d.]+) and ([\d.]+) GiB\)", text).groups()]
    assert sorted(gib) == [pytest.approx(s / 2**30, abs=0.05) for s in sorted(sizes)]
    assert ALL["unet-3d/train_val"].data["data"][0] == 1
