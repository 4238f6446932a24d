"""Files of -gpu that say what no machine is."""

from __future__ import annotations

import json

import pytest

from pycaffe_lms.errors import UsageError
from pycaffe_lms.lms.cost.machine import find_machine

pytestmark = pytest.mark.pure
FIELDS = {
    "memory": 1 << 34,
    "memory_rate": 2e12,
    "product_rate": 1e14,
    "link_in": 2e10,
    "link_out": 2e10,
    "link_both": 4e10,
}


def test_a_file_is_a_machine(tmp_path):
    (tmp_path / "mine.json").write_text(json.dumps(FIELDS))
    machine = find_machine(str(tmp_path / "mine.json"))
    assert (machine.name, machine.memory, machine.link_in) == ("mine", 1 << 34, 2e10)


def test_the_example_of_errors_is_a_machine(tmp_path):
    """An empty file's error shows one that works; the rates are those of the V100."""
    (tmp_path / "mine.json").write_text("{}")
    with pytest.raises(UsageError, match="lacks memory, memory_rate") as error:
        find_machine(str(tmp_path / "mine.json"))
    (tmp_path / "mine.json").write_text(str(error.value).partition("write it like this: ")[2])
    found = find_machine(str(tmp_path / "mine.json"))
    assert {name: getattr(found, name) for name in FIELDS} == {
        name: getattr(find_machine("v100"), name) for name in FIELDS
    }


@pytest.mark.parametrize(
    "text, said",
    [
        ("[" * 100_000, "cannot be read"),
        ("{", "cannot be read"),
        ("[1]", "does not hold one object"),
        (json.dumps(FIELDS | {"memory": float("inf")}), "memory is inf"),
        (json.dumps(FIELDS | {"memory": float("nan")}), "memory is nan"),
        (json.dumps(FIELDS | {"memory": 1 << 63}), "memory is 9223372036854775808"),
        (json.dumps(FIELDS | {"link_in": 0}), "link_in is 0"),
    ],
)
def test_what_no_machine_is_says_so(tmp_path, text, said):
    (tmp_path / "mine.json").write_text(text)
    with pytest.raises(UsageError, match=said):
        find_machine(str(tmp_path / "mine.json"))
