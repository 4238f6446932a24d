"""Refuse to copy objects that hold memory of a device, open files or threads."""

from __future__ import annotations

from typing import NoReturn, SupportsIndex

from .errors import UsageError


class Uncopied:
    """Raise UsageError in copy.copy, copy.deepcopy and pickle, as pycaffe refuses them; it says what to do instead."""

    instead_of_copying = ""

    def __reduce_ex__(self, protocol: SupportsIndex) -> NoReturn:
        raise UsageError(
            f"a {type(self).__name__} cannot be copied or pickled: it holds memory, and may hold files and threads",
            fix=self.instead_of_copying,
        )
