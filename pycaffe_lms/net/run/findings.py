"""What a device found wrong in values while it ran: one warning for each layer."""

from __future__ import annotations

import logging

from ..build.graph import Graph

_log = logging.getLogger(__name__)


class Findings:
    """Of the layers of a graph whose queued work looks at values (see `Layer.finding`)."""

    def __init__(self, graph: Graph, file: str | None, names: dict[str, str]):
        """names: the user's, for blobs whose names were made up."""
        self._file, self._names = file, names
        self._silent = [node for node in graph.nodes if node.layer.finds]

    def say(self) -> None:
        """Warn of each layer that found something and was not named yet. Waits for no device: what is still queued is
        said at a later call."""
        for node in list(self._silent):
            error = node.layer.finding()
            if error is not None:
                self._silent.remove(node)
                error.message += ": what it should name is NaN (said once)"
                error.rename(self._names)
                _log.warning("%s", error.at(file=self._file, line=node.line))
