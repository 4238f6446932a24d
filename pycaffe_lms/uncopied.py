"""What is one of a kind: it holds memory of a device, open files, threads."""

from __future__ import annotations

from typing import NoReturn, SupportsIndex

from .errors import UsageError


class Uncopied:
    """copy.copy, copy.deepcopy and pickle raise UsageError, which says what to do instead, as pycaffe refuses them."""

    instead_of_copying = ""

    def __reduce_ex__(self, protocol: SupportsIndex) -> NoReturn:
        raise UsageError(
            f"a {type(self).__name__} cannot be copied or pickled: it holds memory, and may hold files and threads",
            fix=self.instead_of_copying,
        )
