"""Say which forks of Caffe a field, a value of an enum or a layer type belongs to, from the table forks.tsv.

Covers: names that BVLC Caffe does not have, in messages that our schema has. tools/gen_forks.py writes the table.
See also: dialect_fields.py, which says what our own layers do instead.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib.resources import files

TYPE = "type"  # in place of a message: layer types


@cache
def _table() -> Mapping[tuple[str, str], str]:
    """Return the forks of each (message or message.Enum, name), as words."""
    text = files(__package__).joinpath("forks.tsv").read_text(encoding="utf-8")
    rows = (line.split("\t") for line in text.splitlines())
    return {(where, name): forks for where, forks, names in rows for name in names.split()}


def forks_of(where: str, name: str) -> str | None:
    """Return the forks that have a name, separated by commas; None where none is known.

    Args:
        where: a message, as "SolverParameter"; an enum in it, as "LossParameter.NormalizationMode"; or `TYPE`.
    """
    return _table().get((where, name))
