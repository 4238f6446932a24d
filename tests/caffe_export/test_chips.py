"""The tables of the chips' documents: they name layers, facts and fields that exist, and docs/chips.md shows them."""

from __future__ import annotations

from pathlib import Path

import pytest

from pycaffe_lms import layers  # noqa: F401
from pycaffe_lms.caffe_export.chips import CHIPS, StatedRange, chip_of
from pycaffe_lms.caffe_export.facts import FACTS
from pycaffe_lms.layers.registry import LAYERS
from pycaffe_lms.proto.caffe_pb2 import LayerParameter

ROOT = Path(__file__).resolve().parents[2]


def names(limit: StatedRange):
    yield limit.of
    for one in limit.when:
        yield from names(one)


@pytest.mark.parametrize("key", CHIPS)
def test_tables_name_what_there_is(key):
    chip = chip_of(key)
    assert set(chip.rows) <= set(LAYERS) and set(chip.same_in_use) <= set(LAYERS)
    assert set(chip.instead) <= set(LAYERS) - set(chip.rows)
    paths = []
    for limit in (*chip.every, *(limit for row in chip.rows.values() for limit in row.limits)):
        assert limit.choice or limit.excluded or limit.least is not None or limit.most is not None
        for name in names(limit):
            if name.startswith("field "):
                paths.append(name.removeprefix("field "))
            else:
                assert name in FACTS
    for row in chip.rows.values():
        paths += [*row.explicit, *row.given]
        paths += [f"{param}.{name}" for param, fields in row.params.items() for name in fields]
    for path in paths:
        descriptor = LayerParameter.DESCRIPTOR
        for name in path.split("."):
            field = descriptor.fields_by_name[name]
            descriptor = field.message_type


def test_every_fact_is_of_use():
    limits = [
        one
        for key in CHIPS
        for c in [chip_of(key)]
        for one in (*c.every, *(x for r in c.rows.values() for x in r.limits))
    ]
    assert {name for one in limits for name in names(one) if not name.startswith("field ")} == set(FACTS)


def test_ranges_in_words():
    assert StatedRange("kernel", 1, 7).words == "kernel: 1 to 7"
    assert (
        StatedRange("group", 1, 1, when=(StatedRange("batch", None, 4),)).words == "group: 1 where batch is 4 or less"
    )
    assert StatedRange("field a.b", choice=("SUM", "MAX")).words == "a.b: SUM or MAX"
    assert StatedRange("field a.b", choice=(True,)).words == "a.b: true"
    assert StatedRange("layer before", excluded=("A", "B")).words == "layer before: all but A and B"
    assert (
        StatedRange("kernel less pad", 1, demand="kernel: larger than the padding").words
        == "kernel: larger than the padding"
    )


def test_the_page_is_current(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "tools"))
    import gen_chip_docs

    assert gen_chip_docs.main(["--check"]) == 0, "run: python tools/gen_chip_docs.py"
